#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "daemon/process_scan.h"

struct seen {
        uint32_t n;
        struct process_scan_map m[64];
        char name[64][128];
};

static void on_map(void *ctx, const struct process_scan_map *m)
{
        struct seen *s = ctx;

        if (s->n == 64)
                return;
        s->m[s->n] = *m;
        snprintf(s->name[s->n++], sizeof(s->name[0]), "%s", m->name);
}

static void test_lines_of_maps(void **state)
{
        static const char lines[] =
                        "55d0c0a00000-55d0c0a02000 r--p 00000000 08:01 1311  /usr/bin/cat\n"
                        "55d0c0a02000-55d0c0a07000 r-xp 00002000 08:01 1311  /usr/bin/cat\n"
                        "7f0000000000-7f0000001000 rwxp 00000000 00:00 0 \n"
                        "7f0000002000-7f0000003000 r-xs 00001000 103:0a 18446744073709551615   /tmp/a b "
                        "(deleted)\n"
                        "7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0     [stack]\n"
                        "7ffc00100000-7ffc00102000 r-xp 00000000 00:00 0     [vdso]\n"
                        "nonsense\n"
                        "7f0000009000-7f0000008000 r-xp 00000000 00:00 0\n"
                        "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0     [vsyscall]\n"
                        "7f00000a0000-7f00000a1000 r-xp 0000"; /* cut off */
        char text[sizeof(lines)];
        struct seen s = {0};

        memcpy(text, lines, sizeof(lines));
        assert_int_equal(process_scan_maps_text(text, on_map, &s), 5);
        assert_int_equal(s.m[0].start, 0x55d0c0a02000);
        assert_int_equal(s.m[0].end, 0x55d0c0a07000);
        assert_int_equal(s.m[0].offset, 0x2000);
        assert_int_equal(s.m[0].device, 8ull << 32 | 1);
        assert_int_equal(s.m[0].inode, 1311);
        assert_string_equal(s.name[0], "/usr/bin/cat");
        assert_string_equal(s.name[1], "//anon"); /* as the kernel's records call it */
        assert_int_equal(s.m[1].device, 0);
        assert_string_equal(s.name[2], "/tmp/a b (deleted)");
        assert_int_equal(s.m[2].device, 0x103ull << 32 | 10);
        assert_int_equal(s.m[2].inode, UINT64_MAX);
        assert_string_equal(s.name[3], "[vdso]");
        assert_string_equal(s.name[4], "[vsyscall]");
}

static void test_our_own_code_is_found(void **state)
{
        _cleanup_buf_ struct buf b = {0};
        struct seen s = {0};
        struct stat st;
        uint64_t here = (uint64_t)(uintptr_t)test_our_own_code_is_found;
        bool found = false;

        assert_int_equal(stat("/proc/self/exe", &st), 0);
        assert_true(process_scan_maps((uint32_t)getpid(), &b, on_map, &s) > 2);
        for (uint32_t i = 0; i < s.n; i++)
                found = found || (here >= s.m[i].start && here < s.m[i].end && s.m[i].inode == st.st_ino);
        assert_true(found);
        assert_int_equal(process_scan_maps(0x7ffffff0, &b, on_map, &s), -ENOENT);
}

static void test_a_comm_that_looks_like_the_rest_of_the_line(void **state)
{
        _cleanup_buf_ struct buf b = {0};
        struct process_stat s;
        uint64_t before = now_boottime_ns();
        int fds[2];
        char c;

        assert_int_equal(pipe(fds), 0);
        pid_t pid = fork();
        if (pid == 0) {
                prctl(PR_SET_NAME, "a) Z 1 (b) c");
                (void)!write(fds[1], "x", 1);
                pause();
        }
        assert_int_equal(read(fds[0], &c, 1), 1);
        assert_int_equal(process_scan_stat((uint32_t)pid, &b, &s), 0);
        assert_string_equal(s.comm, "a) Z 1 (b) c");
        assert_int_equal(s.ppid, getpid());
        assert_int_equal(s.threads, 1);
        assert_true(s.state == 'S' || s.state == 'R');
        /* Rounded down to a tick of the clock. */
        assert_true(s.start_ns + NSEC_PER_SEC / 100 >= before - NSEC_PER_SEC / 100);
        assert_true(s.start_ns <= now_boottime_ns());
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        assert_true(process_scan_stat((uint32_t)pid, &b, &s) < 0);
        close(fds[0]);
        close(fds[1]);
}

static void test_the_pid_in_its_own_namespace(void **state)
{
        _cleanup_buf_ struct buf b = {0};
        char line[256];
        unsigned expected = 0;

        _cleanup_fclose_ FILE *f = fopen("/proc/self/status", "re");
        while (fgets(line, sizeof(line), f))
                if (strncmp(line, "NSpid:", 6) == 0)
                        sscanf(strrchr(line, '\t'), "%u", &expected);
        assert_int_equal(process_scan_ns_pid((uint32_t)getpid(), &b), expected);
        assert_int_equal(process_scan_ns_pid(0x7ffffff0, &b), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                        cmocka_unit_test(test_lines_of_maps),
                        cmocka_unit_test(test_our_own_code_is_found),
                        cmocka_unit_test(test_a_comm_that_looks_like_the_rest_of_the_line),
                        cmocka_unit_test(test_the_pid_in_its_own_namespace),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
