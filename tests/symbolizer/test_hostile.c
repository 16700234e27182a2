/* Files that mean harm, and file systems that do not answer: each costs its budget, and nobody else waits.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "silent_fuse.h"
#include "symbol_client.h"

static char *dir;
static uint64_t address; /* of deep_inside in FIND_ME_PATH */

static char *path_in(const char *name)
{
        static char path[4][512];
        static unsigned next;
        char *p = path[next++ % 4];

        snprintf(p, sizeof(path[0]), "%s/%s", dir, name);
        return p;
}

static void assert_works(struct symclient *c)
{
        struct answer a;

        name_in_file(c, FIND_ME_PATH, NULL, address, &a);
        assert_int_equal(a.err, 0);
        assert_string_equal(a.function, "deep_inside");
}

static struct symclient_stats stats_of(struct symclient *c)
{
        struct symclient_stats s;

        symclient_stats(c, &s);
        return s;
}

static pid_t worker_of_this_process(void)
{
        char file[64], line[64] = "";
        FILE *f;

        snprintf(file, sizeof(file), "/proc/self/task/%d/children", getpid());
        f = fopen(file, "r");
        assert_non_null(f);
        assert_non_null(fgets(line, sizeof(line), f));
        fclose(f);
        return (pid_t)atoi(line);
}

static void test_fifo(void **state)
{
        struct symclient *c = client_new(NULL);
        struct answer opened = {};
        struct symobj *o;

        assert_int_equal(mkfifo(path_in("fifo"), 0600), 0);
        o = open_path(c, path_in("fifo"), NULL, &opened);
        assert_int_equal(symclient_wait(c, SOON_MS), 0);
        assert_int_equal(opened.err, -ENOEXEC);
        assert_works(c);
        symobj_close(c, o);
        symclient_free(c);
}

/* SIGBUS in the worker. */
static void test_truncated_under_the_reader(void **state)
{
        struct symclient *c = client_new(NULL);
        struct answer opened = {}, a;
        struct symobj *o;

        free(output_of("cp %s %s", FIND_ME_PATH, path_in("short")));
        o = open_path(c, path_in("short"), NULL, &opened);
        assert_int_equal(symclient_wait(c, SOON_MS), 0);
        assert_int_equal(opened.err, 0);
        assert_int_equal(truncate(path_in("short"), 4096), 0);
        ask_one(c, o, address, &a);
        assert_true(a.err < 0 || a.n_frames == 0);
        assert_true(stats_of(c).restarts >= 1);
        assert_true(stats_of(c).bad_objects >= 1);
        assert_works(c);
        symobj_close(c, o);

        /* It is remembered: asked again it costs no worker. */
        uint64_t restarts = stats_of(c).restarts;

        name_in_file(c, path_in("short"), NULL, address, &a);
        assert_true(a.err < 0 || a.n_frames == 0);
        assert_int_equal(stats_of(c).restarts, restarts);
        symclient_free(c);
}

/* A worker that stands still at one file: the others' names come within about a second, the file is given
 * up. */
static void test_hang(void **state)
{
        struct symclient *c = client_new(NULL);
        struct answer opened[2] = {}, stuck = {}, other = {};
        struct symobj *o[2];
        uint64_t start;

        free(output_of("cp %s %s", FIND_ME_PATH, path_in("stuck")));
        o[0] = open_path(c, path_in("stuck"), NULL, &opened[0]);
        o[1] = open_path(c, FIND_ME_PATH, NULL, &opened[1]);
        assert_int_equal(symclient_wait(c, SOON_MS), 0);
        kill(worker_of_this_process(), SIGSTOP);
        start = now_monotonic_ns();
        assert_int_equal(symclient_table(c, o[0], answer_table, &stuck), 0);
        assert_int_equal(symclient_names(c, o[1], &address, 1, answer_names, &other), 0);
        while (other.calls == 0)
                symclient_wait(c, 10);
        assert_string_equal(other.function, "deep_inside");
        print_message("the other file's name came after %.0f ms\n", (now_monotonic_ns() - start) / 1e6);
        assert_int_equal(stuck.calls, 0);
        assert_int_equal(symclient_wait(c, SOON_MS), 0);
        assert_int_equal(stuck.err, -ETIME);
        assert_true(now_monotonic_ns() - start < 10 * NSEC_PER_SEC);
        assert_works(c);
        symobj_close(c, o[0]);
        symobj_close(c, o[1]);
        symclient_free(c);
}

static void test_read_that_never_ends(void **state)
{
        struct silent_fuse *f;
        struct symclient *c = client_new(NULL);
        struct answer opened = {}, other = {}, other_opened = {};
        struct symobj *o, *p;

        assert_int_equal(mkdir(path_in("fuse"), 0700), 0);
        f = silent_fuse_new(path_in("fuse"));
        if (!f) {
                print_message("no FUSE here\n");
                symclient_free(c);
                skip();
        }
        o = open_path(c, path_in("fuse/file"), NULL, &opened);
        p = open_path(c, FIND_ME_PATH, NULL, &other_opened);
        assert_int_equal(symclient_names(c, p, &address, 1, answer_names, &other), 0);
        assert_int_equal(symclient_wait(c, SOON_MS), 0);
        assert_string_equal(other.function, "deep_inside");
        assert_int_equal(opened.err, -ETIME);
        assert_int_equal(stats_of(c).bad_objects, 1);
        symobj_close(c, o);
        symobj_close(c, p);
        symclient_free(c);
        silent_fuse_free(f);
}

/* The search for its debug file leads to a place that does not answer. */
static void test_look_up_that_never_ends(void **state)
{
        static const char *debug_dirs[2];
        struct symclient_options options = {.debug_dirs = debug_dirs};
        char never[600];
        struct silent_fuse *f;
        struct symclient *c;
        struct answer a;
        uint64_t start;

        mkdir(path_in("fuse2"), 0700);
        f = silent_fuse_new(path_in("fuse2"));
        if (!f) {
                print_message("no FUSE here\n");
                skip();
        }
        snprintf(never, sizeof(never), "%s/never", path_in("fuse2"));
        debug_dirs[0] = never;
        c = client_new(&options);
        free(output_of("objcopy --strip-debug %s %s", FIND_ME_PATH, path_in("no-debug")));
        start = now_monotonic_ns();
        name_in_file(c, path_in("no-debug"), NULL, address, &a);
        assert_string_equal(a.function, "deep_inside");
        assert_true(now_monotonic_ns() - start < 10 * NSEC_PER_SEC);
        assert_works(c);
        symclient_free(c);
        silent_fuse_free(f);
}

/* A worker that cannot be told from one that was taken over: whatever it says, the client stays sound. Here
 * it is killed at every moment of a conversation. */
static void test_killed_at_any_moment(void **state)
{
        struct symclient *c = client_new(NULL);
        struct answer opened = {}, named[50] = {}, table[50] = {};
        struct symobj *o = open_path(c, FIND_ME_PATH, NULL, &opened);

        assert_int_equal(symclient_wait(c, SOON_MS), 0);
        for (int i = 0; i < 50; i++) {
                assert_int_equal(symclient_table(c, o, answer_table, &table[i]), 0);
                assert_int_equal(symclient_names(c, o, &address, 1, answer_names, &named[i]), 0);
                for (int k = 0; k < i % 7; k++)
                        symclient_wait(c, 1);
                if (stats_of(c).memory > 0 && i % 3 == 0)
                        kill(worker_of_this_process(), SIGKILL);
                assert_int_equal(symclient_wait(c, SOON_MS), 0);
                assert_string_equal(named[i].function, "deep_inside");
                assert_int_equal(table[i].err, 0);
        }
        assert_int_equal(stats_of(c).bad_objects, 0);
        symobj_close(c, o);
        symclient_free(c);
}

static int setup(void **state)
{
        dir = scratch_new();
        address = address_by_nm(FIND_ME_PATH, "deep_inside");
        return 0;
}

static int teardown(void **state)
{
        scratch_free(dir);
        return 0;
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                        cmocka_unit_test(test_fifo),
                        cmocka_unit_test(test_truncated_under_the_reader),
                        cmocka_unit_test(test_hang),
                        cmocka_unit_test(test_read_that_never_ends),
                        cmocka_unit_test(test_look_up_that_never_ends),
                        cmocka_unit_test(test_killed_at_any_moment),
        };

        return cmocka_run_group_tests(tests, setup, teardown);
}
