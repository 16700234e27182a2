/* The store under a kill at each of its steps, under failures of each of its system calls, on a full and on
 * a read-only file system. A child process does the work under ptrace, so what is tested is the code as it
 * ships. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "daemon/store.h"
#include "store_help.h"

#define FOREVER INT64_MAX
#define MINUTES 20 /* two buckets of ten */
#define LATER   ((T0 + 86400 * 3) * SEC)

typedef int (*work_fn)(const char *dir);

/* -- stopping at system calls -- */

/* The letter of a call that changes the directory, 0 for others. */
static char step_of(const struct __ptrace_syscall_info *i)
{
        switch (i->entry.nr) {
        case SYS_openat:
                return i->entry.args[2] & O_CREAT ? 'o' : 0;
        case SYS_write:
        case SYS_pwrite64:
                return 'w';
        case SYS_fsync:
        case SYS_fdatasync:
                return 'f';
        case SYS_renameat:
        case SYS_renameat2:
                return 'r';
        case SYS_unlinkat:
                return 'u';
        case SYS_mkdirat:
#ifdef SYS_mkdir
        case SYS_mkdir:
#endif
                return 'm';
        default:
                return 0;
        }
}

static pid_t begin(work_fn work, const char *dir)
{
        pid_t pid = fork();
        int status;

        if (pid == 0) {
                ptrace(PTRACE_TRACEME, 0, NULL, NULL);
                raise(SIGSTOP);
                _exit(work(dir));
        }
        assert_true(waitpid(pid, &status, 0) == pid && WIFSTOPPED(status));
        assert_int_equal(ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL), 0);
        return pid;
}

static void fail_call(pid_t pid, int err)
{
#ifdef __x86_64__
        int status;

        /* A call that does not exist, and at its end the answer that is wanted. */
        assert_int_equal(ptrace(PTRACE_POKEUSER, pid, offsetof(struct user_regs_struct, orig_rax), -1L), 0);
        assert_int_equal(ptrace(PTRACE_SYSCALL, pid, NULL, NULL), 0);
        assert_true(waitpid(pid, &status, 0) == pid && WIFSTOPPED(status));
        assert_int_equal(ptrace(PTRACE_POKEUSER, pid, offsetof(struct user_regs_struct, rax), -(long)err),
                         0);
#else
        fail();
#endif
}

/* Lets the work run until its step `n`, counted from 1; then kills it, or makes that call fail with `err`.
 * False: it has fewer steps. `steps` gets the letters; *ret_exit its exit status, -1 when it was killed. */
static bool run_to_step(work_fn work, const char *dir, unsigned n, int err, struct buf *steps, int *ret_exit)
{
        pid_t pid = begin(work, dir);
        unsigned count = 0;
        bool reached = false;
        int status, signal = 0;

        *ret_exit = -1;
        for (;;) {
                struct __ptrace_syscall_info info;
                assert_int_equal(ptrace(PTRACE_SYSCALL, pid, NULL, (long)signal), 0);
                assert_true(waitpid(pid, &status, 0) == pid);
                if (!WIFSTOPPED(status))
                        break;
                signal = WSTOPSIG(status) == (SIGTRAP | 0x80) ? 0 : WSTOPSIG(status);
                if (signal || ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof(info), &info) <= 0 ||
                    info.op != PTRACE_SYSCALL_INFO_ENTRY || !step_of(&info))
                        continue;
                if (steps)
                        buf_addc(steps, step_of(&info));
                if (++count != n)
                        continue;
                reached = true;
                if (err) {
                        fail_call(pid, err);
                        continue;
                }
                kill(pid, SIGKILL);
                waitpid(pid, &status, 0);
                break;
        }
        if (WIFEXITED(status))
                *ret_exit = WEXITSTATUS(status);
        return reached;
}

/* -- directories -- */

static void copy(const char *from, const char *to)
{
        char command[512];

        snprintf(command, sizeof(command), "rm -rf %s && cp -a %s %s", to, from, to);
        assert_int_equal(system(command), 0);
}

static void put_minutes(const char *dir, uint64_t first, uint64_t n)
{
        struct store_config c = help_config(dir);
        struct store *s;

        assert_int_equal(store_open(&s, &c), 0);
        for (uint64_t i = first; i < first + n; i++) {
                _cleanup_profile_ struct profile *p = help_profile(T0 + i * 60, 60, 40, (uint32_t)i);
                assert_int_equal(store_put(s, p), 0);
        }
        store_free(s);
}

static char *dump(const char *dir, uint32_t *ret_windows)
{
        struct store_config c = help_config(dir);
        _cleanup_profile_ struct profile *p = NULL;
        struct store_window *w;
        struct store *s;

        assert_int_equal(store_open(&s, &c), 0);
        assert_int_equal(store_list(s, 0, FOREVER, &w, ret_windows), 0);
        free(w);
        int r = store_query(s, 0, FOREVER, NULL, true, &p);
        assert_true(r == 0 || r == -ENODATA);
        store_free(s);
        return r == 0 ? help_dump(p) : strdup("");
}

static int merge_all(const char *dir)
{
        struct store_config c = help_config(dir);
        struct store *s;

        if (store_open(&s, &c) < 0)
                return 1;
        int r = store_maintain(s, LATER, UINT64_MAX);
        store_free(s);
        return r < 0;
}

struct fixture {
        char base[80], work[80], top[64];
        char *before;
};

static int set_up(void **state)
{
        struct fixture *f = calloc(1, sizeof(*f));
        uint32_t n;

        help_directory(f->top);
        snprintf(f->base, sizeof(f->base), "%s/base", f->top);
        snprintf(f->work, sizeof(f->work), "%s/work", f->top);
        put_minutes(f->base, 0, MINUTES);
        f->before = dump(f->base, &n);
        *state = f;
        return n == MINUTES ? 0 : -1;
}

static int tear_down(void **state)
{
        struct fixture *f = *state;

        help_remove(f->top);
        free(f->before);
        free(f);
        return 0;
}

/* -- kills -- */

static void assert_tidy(const char *dir)
{
        _cleanup_buf_ struct buf b = {0};

        help_names(dir, &b);
        assert_null(strstr(buf_text(&b), ".tmp"));
}

static void test_a_kill_at_each_step_of_a_merge(void **state)
{
        struct fixture *f = *state;
        unsigned n = 0;
        bool reached;

        do {
                uint32_t windows;
                int status;
                copy(f->base, f->work);
                reached = run_to_step(merge_all, f->work, ++n, 0, NULL, &status);
                _cleanup_free_ char *at_once = dump(f->work, &windows);
                assert_string_equal(at_once, f->before);
                assert_int_equal(merge_all(f->work), 0);
                _cleanup_free_ char *later = dump(f->work, &windows);
                assert_string_equal(later, f->before);
                assert_int_equal(windows, 1); /* 02:10 to 02:30 is within one hour */
                assert_tidy(f->work);
        } while (reached);
        print_message("%u steps\n", n - 1);
        assert_true(n > 20);
}

/* An hour later: nothing is merged yet, sums are made. */
static int sum_all(const char *dir)
{
        struct store_config c = help_config(dir);
        struct store *s;

        if (store_open(&s, &c) < 0)
                return 1;
        int r = store_maintain(s, (T0 + 3600) * SEC, UINT64_MAX);
        store_free(s);
        return r < 0;
}

static char *dump_without_processes(const char *dir)
{
        struct store_config c = help_config(dir);
        _cleanup_profile_ struct profile *p = NULL;
        struct store *s;

        assert_int_equal(store_open(&s, &c), 0);
        assert_int_equal(store_query(s, 0, FOREVER, NULL, false, &p), 0);
        store_free(s);
        return help_dump(p);
}

static void test_a_kill_at_each_step_of_a_sum(void **state)
{
        struct fixture *f = *state;
        _cleanup_free_ char *before = dump_without_processes(f->base);
        char sums[96];
        unsigned n = 0;
        bool reached;

        snprintf(sums, sizeof(sums), "%s/summaries", f->work);
        do {
                _cleanup_buf_ struct buf made = {0};
                int status;
                copy(f->base, f->work);
                reached = run_to_step(sum_all, f->work, ++n, 0, NULL, &status);
                _cleanup_free_ char *at_once = dump_without_processes(f->work);
                assert_string_equal(at_once, before);
                assert_int_equal(sum_all(f->work), 0);
                _cleanup_free_ char *later = dump_without_processes(f->work);
                assert_string_equal(later, before);
                assert_tidy(f->work);
                help_names(sums, &made);
                assert_string_equal(buf_text(&made), "1-20.pb.gz "); /* that of the hour */
        } while (reached);
        assert_true(n > 12);
}

static void test_a_kill_of_the_cleaning_after_a_kill(void **state)
{
        struct fixture *f = *state;
        char half[96];
        int status;

        snprintf(half, sizeof(half), "%s/half", f->top);
        /* The merged file is there and half of its sources. */
        copy(f->base, f->work);
        assert_true(run_to_step(merge_all, f->work, 10, 0, NULL, &status));
        copy(f->work, half);
        bool reached = true;
        for (unsigned n = 1; reached; n++) {
                uint32_t windows;
                copy(half, f->work);
                reached = run_to_step(merge_all, f->work, n, 0, NULL, &status);
                _cleanup_free_ char *now = dump(f->work, &windows);
                assert_string_equal(now, f->before);
        }
}

static int put_two(const char *dir)
{
        put_minutes(dir, MINUTES, 2);
        return 0;
}

static void test_a_kill_at_each_step_of_a_put(void **state)
{
        struct fixture *f = *state;
        unsigned n = 0;
        bool reached;

        do {
                struct store_config c = help_config(f->work);
                uint32_t windows;
                int status;
                copy(f->base, f->work);
                reached = run_to_step(put_two, f->work, ++n, 0, NULL, &status);
                free(dump(f->work, &windows));
                assert_in_range(windows, MINUTES, MINUTES + 2);
                assert_tidy(f->work);
                /* What was stored before is as it was. */
                _cleanup_profile_ struct profile *p = NULL;
                struct store *s;
                assert_int_equal(store_open(&s, &c), 0);
                assert_int_equal(store_query(s, 0, (T0 + MINUTES * 60) * SEC, NULL, true, &p), 0);
                store_free(s);
                _cleanup_free_ char *old = help_dump(p);
                assert_string_equal(old, f->before);
        } while (reached);
        assert_true(n > 8);
}

/* What a loss of power could undo is the order of things not yet on the disk: each file is synced before it
 * gets its name, and the directory before anything is removed. */
static void test_the_order_of_steps(void **state)
{
        struct fixture *f = *state;
        _cleanup_buf_ struct buf steps = {0};
        int status;

        copy(f->base, f->work);
        assert_false(run_to_step(merge_all, f->work, UINT32_MAX, 0, &steps, &status));
        assert_int_equal(status, 0);
        const char *s = buf_text(&steps);
        print_message("%s\n", s);
        for (const char *p = s; *p; p++) {
                if (*p == 'r') {
                        assert_true(p - s >= 3 && p[-1] == 'f' &&
                                    p[-2] == 'w');   /* open, write, fsync, rename */
                        assert_int_equal(p[1], 'f'); /* the directory */
                }
                if (*p == 'u')
                        assert_true(p[-1] == 'u' || (p[-1] == 'f' && p[-2] == 'r'));
        }
        assert_non_null(strchr(s, 'u'));
}

/* -- failures -- */

/* The first window may fail; the second must be stored. */
static int put_then_again(const char *dir)
{
        struct store_config c = help_config(dir);
        struct store *s;
        int r[2];

        if (store_open(&s, &c) < 0)
                return 100;
        for (uint64_t i = 0; i < 2; i++) {
                struct profile *p = help_profile(T0 + (MINUTES + i) * 60, 60, 40, (uint32_t)i);
                r[i] = store_put(s, p);
                profile_free(p);
        }
        store_free(s);
        return (r[0] < 0) + 2 * (r[1] < 0);
}

static void need_x86(void)
{
#ifndef __x86_64__
        print_message("skipped: making calls fail is written for x86-64 registers only\n");
        skip();
#endif
}

static void test_each_call_of_a_put_fails(void **state)
{
        struct fixture *f = *state;
        static const int errors[] = {ENOSPC, EIO};
        unsigned failed = 0;

        need_x86();
        for (size_t e = 0; e < ARRAY_SIZE(errors); e++) {
                bool reached = true;
                for (unsigned n = 1; reached; n++) {
                        uint32_t windows;
                        int status;
                        copy(f->base, f->work);
                        reached = run_to_step(put_then_again, f->work, n, errors[e], NULL, &status);
                        free(dump(f->work, &windows));
                        assert_tidy(f->work);
                        assert_in_range(status, 0, 2); /* not both */
                        assert_int_equal(windows, MINUTES + 2 - (status != 0));
                        failed += status != 0;
                }
        }
        assert_true(failed >= 8); /* open, write, fsync, rename; twice each */
}

static int merge_then_again(const char *dir)
{
        struct store_config c = help_config(dir);
        struct store *s;

        if (store_open(&s, &c) < 0)
                return 100;
        int r = store_maintain(s, LATER, UINT64_MAX);
        int rests = r < 0 && store_maintain(s, LATER, UINT64_MAX) < 0;
        /* A window can be stored again: merging goes on. */
        struct profile *p = help_profile(T0 + 86400 * 4, 60, 40, 1);
        int put = store_put(s, p);
        profile_free(p);
        int again = store_maintain(s, LATER, UINT64_MAX);
        store_free(s);
        return put < 0 ? 101 : again != 0 ? 102 : rests ? 103 : r < 0;
}

static void test_each_call_of_a_merge_fails(void **state)
{
        struct fixture *f = *state;
        unsigned failed = 0;
        bool reached = true;

        need_x86();
        for (unsigned n = 1; reached; n++) {
                struct store_config c = help_config(f->work);
                _cleanup_profile_ struct profile *p = NULL;
                struct store *s;
                int status;
                copy(f->base, f->work);
                reached = run_to_step(merge_then_again, f->work, n, ENOSPC, NULL, &status);
                assert_int_equal(store_open(&s, &c), 0);
                assert_int_equal(store_query(s, 0, LATER, NULL, true, &p), 0);
                store_free(s);
                _cleanup_free_ char *now = help_dump(p);
                assert_string_equal(now, f->before);
                assert_tidy(f->work);
                failed += status == 1;
        }
        assert_true(failed > 4);
}

/* -- file systems -- */

static bool mount_small(const char *dir, const char *options)
{
        if (mount("tmpfs", dir, "tmpfs", 0, options) == 0)
                return true;
        print_message("skipped: cannot mount a tmpfs: %s\n", strerror(errno));
        return false;
}

static void test_a_full_disk(void **state)
{
        char top[64];
        struct store *s;
        struct store_stats st;
        _cleanup_profile_ struct profile *before = NULL, *full = NULL, *after = NULL;
        uint64_t i = 0;
        int r;

        help_directory(top);
        if (!mount_small(top, "size=256k")) {
                help_remove(top);
                skip();
        }
        struct store_config c = help_config(top);
        assert_int_equal(store_open(&s, &c), 0);
        do {
                _cleanup_profile_ struct profile *p = help_profile(T0 + i * 60, 60, 400, (uint32_t)i);
                r = store_put(s, p);
                i++;
        } while (r == 0 && i < 1000);
        assert_int_equal(r, -ENOSPC);
        assert_true(i > 5);
        store_stats(s, &st);
        assert_int_equal(st.write_errors, 1);
        assert_int_equal(st.windows, i - 1);
        assert_non_null(strstr(st.error, "No space"));
        assert_tidy(top);
        assert_int_equal(store_query(s, 0, FOREVER, NULL, true, &before), 0);
        /* No room to merge either: nothing is lost for it. */
        store_maintain(s, LATER, UINT64_MAX);
        assert_int_equal(store_query(s, 0, FOREVER, NULL, true, &full), 0);
        _cleanup_free_ char *x = help_dump(before), *y = help_dump(full);
        assert_string_equal(x, y);
        assert_tidy(top);

        /* Room again: it goes on by itself, and says what was missed. */
        assert_int_equal(mount(NULL, top, NULL, MS_REMOUNT, "size=4m"), 0);
        _cleanup_profile_ struct profile *p = help_profile(T0 + i * 60, 60, 400, 1);
        assert_int_equal(store_put(s, p), 0);
        store_stats(s, &st);
        assert_string_equal(st.error, "");
        _cleanup_free_ struct store_gap *g = NULL;
        uint32_t n;
        for (int reopened = 0; reopened < 2; reopened++) {
                free(TAKE_PTR(g));
                assert_int_equal(store_gaps(s, 0, FOREVER, &g, &n), 0);
                assert_int_equal(n, 1);
                assert_string_equal(g[0].reason, "disk full");
                assert_int_equal(g[0].start_ns, (T0 + (i - 1) * 60) * SEC);
                assert_int_equal(g[0].end_ns, (T0 + i * 60) * SEC);
                store_free(s);
                assert_int_equal(store_open(&s, &c), 0);
        }
        assert_int_equal(store_maintain(s, LATER, UINT64_MAX), 0);
        assert_int_equal(store_query(s, 0, (T0 + (i - 1) * 60) * SEC, NULL, true, &after), 0);
        _cleanup_free_ char *z = help_dump(after);
        assert_string_equal(z, x);
        store_free(s);
        umount(top);
        help_remove(top);
}

static void test_a_read_only_directory(void **state)
{
        char top[64];
        struct store *s;
        struct store_stats st;
        _cleanup_profile_ struct profile *p = help_profile(T0 + 6000, 60, 40, 1), *all = NULL;
        uint32_t n;

        help_directory(top);
        if (!mount_small(top, "size=1m")) {
                help_remove(top);
                skip();
        }
        put_minutes(top, 0, 12);
        assert_int_equal(mount(NULL, top, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
        _cleanup_free_ char *before = dump(top, &n);
        struct store_config c = help_config(top);
        assert_int_equal(store_open(&s, &c), 0);
        store_stats(s, &st);
        assert_non_null(strstr(st.error, "Read-only"));
        assert_int_equal(store_put(s, p), -EROFS);
        assert_true(store_maintain(s, LATER, UINT64_MAX) < 0);
        assert_int_equal(store_query(s, 0, FOREVER, NULL, true, &all), 0);
        _cleanup_free_ char *now = help_dump(all);
        assert_string_equal(now, before);
        _cleanup_free_ struct store_gap *g = NULL;
        assert_int_equal(store_gaps(s, 0, FOREVER, &g, &n), 0);
        assert_int_equal(n, 1);
        assert_string_equal(g[0].reason, "not writable");
        assert_int_equal(mount(NULL, top, NULL, MS_REMOUNT, NULL), 0);
        assert_int_equal(store_put(s, p), 0);
        assert_int_equal(store_maintain(s, LATER, UINT64_MAX), 0);
        store_free(s);
        umount(top);
        help_remove(top);
}

int main(void)
{
#define CRASH_TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
        const struct CMUnitTest tests[] = {
                        CRASH_TEST(test_a_kill_at_each_step_of_a_merge),
                        CRASH_TEST(test_a_kill_at_each_step_of_a_sum),
                        CRASH_TEST(test_a_kill_of_the_cleaning_after_a_kill),
                        CRASH_TEST(test_a_kill_at_each_step_of_a_put),
                        CRASH_TEST(test_the_order_of_steps),
                        CRASH_TEST(test_each_call_of_a_put_fails),
                        CRASH_TEST(test_each_call_of_a_merge_fails),
                        cmocka_unit_test(test_a_full_disk),
                        cmocka_unit_test(test_a_read_only_directory),
        };

        log_set_level(LOG_EMERG);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
