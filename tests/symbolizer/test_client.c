/* The client with real workers, in their sandbox. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "symbol_client.h"

/* An address of this program as its file has it. */
static uint64_t file_address(void *p)
{
        extern char __ehdr_start[];

        return (uint64_t)((char *)p - __ehdr_start);
}

__attribute__((noinline)) static int well_known_function(int x)
{
        return x + (int)getpid();
}
enum { WELL_KNOWN_LINE = __LINE__ - 3 };

static void test_names_and_tables(void **state)
{
        struct symclient *c = client_new(NULL);
        struct answer opened = {}, named = {}, table = {};
        struct symobj *o = open_path(c, "/proc/self/exe", NULL, &opened);
        uint64_t address[] = {file_address(well_known_function), 1};
        struct symclient_stats stats;

        assert_true(well_known_function(1) > 1);
        assert_null(symobj_info(o));
        assert_int_equal(symclient_names(c, o, address, 2, answer_names, &named), 0);
        assert_int_equal(symclient_table(c, o, answer_table, &table), 0);
        assert_int_equal(symclient_wait(c, SOON_MS), 0);

        assert_int_equal(opened.calls, 1);
        assert_int_equal(opened.err, 0);
        assert_true(opened.info.has_symtab);
        assert_true(opened.info.has_debug);
        assert_true(opened.info.has_unwind);
        assert_true(opened.info.n_segments >= 1);
        assert_non_null(symobj_info(o));

        assert_int_equal(named.calls, 1);
        assert_int_equal(named.err, 0);
        assert_int_equal(named.n, 2);
        assert_string_equal(named.function, "well_known_function");
        assert_non_null(strstr(named.file, "test_client.c"));
        assert_int_equal(named.line, WELL_KNOWN_LINE);

        assert_int_equal(table.calls, 1);
        assert_int_equal(table.err, 0);
        assert_true(table.n_rows > 100);

        symclient_stats(c, &stats);
        assert_int_equal(stats.restarts, 0);
        assert_int_equal(stats.outstanding, 0);
        assert_true(stats.memory > 0);
        assert_true(stats.sandbox & SANDBOX_SECCOMP);
        print_message("sandbox parts %#x, worker %.1f MiB resident\n", stats.sandbox,
                      stats.memory / 1048576.0);
        symobj_close(c, o);
        symclient_free(c);
}

static void test_what_cannot_be_opened(void **state)
{
        struct symclient *c = client_new(NULL);
        struct answer text = {}, device = {}, names = {};
        struct symobj *a = open_path(c, "/etc/passwd", NULL, &text),
                      *b = open_path(c, "/dev/null", NULL, &device);
        uint64_t address = 1;

        assert_int_equal(symclient_names(c, a, &address, 1, answer_names, &names), 0);
        assert_int_equal(symclient_wait(c, SOON_MS), 0);
        assert_int_equal(text.err, -ENOEXEC);
        assert_int_equal(device.err, -ENOEXEC);
        assert_int_equal(names.err, -ENOEXEC);
        symobj_close(c, a);
        symobj_close(c, b);
        symclient_free(c);
}

static void test_every_callback_is_called_once(void **state)
{
        struct symclient *c = client_new(NULL);
        struct answer a[2] = {}, names[2] = {};
        struct symobj *o[2];
        uint64_t address = 1;

        for (int i = 0; i < 2; i++) {
                o[i] = open_path(c, "/proc/self/exe", NULL, &a[i]);
                assert_int_equal(symclient_names(c, o[i], &address, 1, answer_names, &names[i]), 0);
        }
        symclient_dispatch(c); /* the first is under way */
        symobj_close(c, o[0]);
        assert_int_equal(a[0].calls, 1);
        assert_int_equal(a[0].err, -ECANCELED);
        assert_int_equal(names[0].err, -ECANCELED);
        assert_int_equal(names[1].calls, 0);
        symclient_free(c);
        assert_int_equal(a[1].calls, 1);
        assert_int_equal(names[1].calls, 1);
        assert_int_equal(a[0].calls, 1);
}

struct code {
        int err;
        uint32_t n;
        char name[64];
        uint64_t start;
        uint8_t byte[16];
        uint32_t code_size;
};

static void on_functions(void *ctx, int err, const struct sym_function *f, uint32_t n)
{
        struct code *k = ctx;

        *k = (struct code){.err = err, .n = n};
        if (n == 0)
                return;
        snprintf(k->name, sizeof(k->name), "%s", f[0].name);
        k->start = f[0].start;
        k->code_size = f[0].code_size;
        memcpy(k->byte, f[0].code, MIN_OF(sizeof(k->byte), f[0].code_size));
}

/* The code of a function is what is in this process's memory at it. */
static void test_functions(void **state)
{
        struct symclient *c = client_new(NULL);
        struct answer opened = {};
        struct symobj *o = open_path(c, "/proc/self/exe", NULL, &opened);
        uint64_t address = file_address(well_known_function);
        struct code by_name, by_address, none;

        assert_int_equal(symclient_functions(c, o, "well_known_function", 0, on_functions, &by_name), 0);
        assert_int_equal(symclient_functions(c, o, NULL, address + 1, on_functions, &by_address), 0);
        assert_int_equal(symclient_functions(c, o, "no_such_function", 0, on_functions, &none), 0);
        assert_int_equal(symclient_wait(c, SOON_MS), 0);
        assert_int_equal(by_name.err, 0);
        assert_int_equal(by_name.n, 1);
        assert_string_equal(by_name.name, "well_known_function");
        assert_int_equal(by_name.start, address);
        assert_true(by_name.code_size >= 4);
        assert_memory_equal(by_name.byte, (void *)well_known_function, MIN_OF(16u, by_name.code_size));
        assert_int_equal(by_address.n, 1);
        assert_int_equal(by_address.start, address);
        assert_int_equal(none.err, 0);
        assert_int_equal(none.n, 0);
        symobj_close(c, o);
        symclient_free(c);
}

static pid_t worker_of_this_process(void)
{
        char path[64], line[64] = "";
        FILE *f;

        snprintf(path, sizeof(path), "/proc/self/task/%d/children", getpid());
        f = fopen(path, "r");
        assert_non_null(f);
        assert_non_null(fgets(line, sizeof(line), f));
        fclose(f);
        return (pid_t)atoi(line);
}

/* By whatever signal comes to a whole process group, too: no file is to blame. */
static void test_a_killed_worker_is_replaced(void **state)
{
        static const int signals[] = {SIGKILL, SIGTERM, SIGINT, SIGHUP, SIGQUIT};
        uint64_t address = file_address(well_known_function);
        struct symclient_stats stats;

        for (uint32_t i = 0; i < ARRAY_SIZE(signals); i++) {
                struct symclient *c = client_new(NULL);
                struct answer opened = {}, named = {};
                struct symobj *o = open_path(c, "/proc/self/exe", NULL, &opened);

                assert_int_equal(symclient_wait(c, SOON_MS), 0);
                kill(worker_of_this_process(), signals[i]);
                assert_int_equal(symclient_names(c, o, &address, 1, answer_names, &named), 0);
                assert_int_equal(symclient_wait(c, SOON_MS), 0);
                assert_int_equal(named.err, 0);
                assert_string_equal(named.function, "well_known_function");
                symclient_stats(c, &stats);
                assert_int_equal(stats.restarts, 1);
                assert_int_equal(stats.bad_objects, 0);
                symobj_close(c, o);
                symclient_free(c);
        }
}

/* While names are held those wait, and nothing else does; then they come. */
static void test_names_are_held(void **state)
{
        struct symclient *c = client_new(NULL);
        struct answer opened = {}, named = {}, table = {};
        struct symobj *o = open_path(c, "/proc/self/exe", NULL, &opened);
        uint64_t address = file_address(well_known_function);

        symclient_hold_names(c, true);
        assert_int_equal(symclient_names(c, o, &address, 1, answer_names, &named), 0);
        assert_int_equal(symclient_table(c, o, answer_table, &table), 0);
        for (int i = 0; i < SOON_MS && !table.calls; i += 10)
                symclient_wait(c, 10);
        assert_int_equal(table.err, 0);
        assert_int_equal(table.calls, 1);
        assert_int_equal(symclient_wait(c, 100), -ETIMEDOUT);
        assert_int_equal(named.calls, 0);
        symclient_hold_names(c, false);
        assert_int_equal(symclient_wait(c, SOON_MS), 0);
        assert_int_equal(named.calls, 1);
        assert_string_equal(named.function, "well_known_function");
        symobj_close(c, o);
        symclient_free(c);
}

/* Where no worker can be started, who asks is refused soon; and served when one can be, by the same client.
 */
static void test_no_descriptor_for_a_worker(void **state)
{
        struct symclient *c = client_new(NULL);
        struct answer opened = {}, refused = {};
        uint64_t address = file_address(well_known_function);
        struct rlimit was, none;
        struct symobj *o = open_path(c, "/proc/self/exe", NULL, &opened);
        _cleanup_close_ int lowest = open("/dev/null", O_RDONLY | O_CLOEXEC);

        assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
        none = (struct rlimit){(rlim_t)lowest, was.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
        assert_int_equal(symclient_names(c, o, &address, 1, answer_names, &refused), 0);
        assert_int_equal(symclient_wait(c, SOON_MS), 0);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
        assert_int_equal(opened.err, -ECHILD);
        assert_int_equal(refused.err, -ECHILD);
        symobj_close(c, o);

        uint64_t end = now_monotonic_ns() + SOON_MS * NSEC_PER_MSEC;
        do {
                struct answer again = {}, named = {};
                o = open_path(c, "/proc/self/exe", NULL, &again);
                assert_int_equal(symclient_names(c, o, &address, 1, answer_names, &named), 0);
                assert_int_equal(symclient_wait(c, SOON_MS), 0);
                symobj_close(c, o);
                if (again.err == 0) {
                        assert_int_equal(named.err, 0);
                        assert_string_equal(named.function, "well_known_function");
                        symclient_free(c);
                        return;
                }
                assert_int_equal(again.err, -ECHILD);
                poll(NULL, 0, 50);
        } while (now_monotonic_ns() < end);
        fail_msg("no worker was started again");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                        cmocka_unit_test(test_names_and_tables),
                        cmocka_unit_test(test_what_cannot_be_opened),
                        cmocka_unit_test(test_every_callback_is_called_once),
                        cmocka_unit_test(test_functions),
                        cmocka_unit_test(test_names_are_held),
                        cmocka_unit_test(test_a_killed_worker_is_replaced),
                        cmocka_unit_test(test_no_descriptor_for_a_worker),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
