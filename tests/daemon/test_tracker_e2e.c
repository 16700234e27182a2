/* The tracker on the real kernel: programs whose hot function is known, and ways in which they come, change
 * and go. Shares are over the samples that have a user stack at all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <linux/sched.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "symbolizer/client.h"
#include "tests/daemon/tracker_rig.h"

#define HZ     499
#define MEMORY (32u << 20)

struct place {
        char dir[PATH_MAX]; /* scratch, removed afterwards */
        char work[PATH_MAX], work_static[PATH_MAX], library[2][PATH_MAX];
        struct rig *rig;
};

static struct place place;

static const char *in_dir(const char *name)
{
        static char path[8][PATH_MAX + 64]; /* the last eight stay */
        static unsigned turn;

        turn = (turn + 1) % ARRAY_SIZE(path);
        snprintf(path[turn], sizeof(path[turn]), "%s/%s", place.dir, name);
        return path[turn];
}

/* Through a new file (0), or over the contents of what is there (O_TRUNC). */
static void copy(const char *from, const char *to, int flags)
{
        _cleanup_buf_ struct buf b = {0};

        assert_int_equal(read_file(from, 64 << 20, &b), 0);
        if (!(flags & O_TRUNC))
                unlink(to);
        _cleanup_close_ int fd = open(to, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0755);
        assert_true(fd >= 0);
        assert_int_equal(write_all(fd, b.data, b.len), 0);
}

static int setup_rig(void **state)
{
        place.rig = rig_new(HZ, MEMORY);
        if (!place.rig)
                return -1;
        rig_run(place.rig, 200);
        return 0;
}

/* Also after a failed test, which has left its children. */
static int teardown_rig(void **state)
{
        rig_kill_children();
        if (place.rig)
                rig_free(place.rig);
        place.rig = NULL;
        return 0;
}

static uint64_t with_stack(const struct rig_count *c)
{
        return c->samples - c->walk[ABI_WALK_NONE] - c->walk[ABI_WALK_EXITED] - c->walk[ABI_WALK_IN_EXEC];
}

static void show(const char *what, const struct rig_count *c)
{
        printf("%s: %llu samples, %llu with a stack, %llu complete, %llu in the function, %llu deferred\n",
               what, (unsigned long long)c->samples, (unsigned long long)with_stack(c),
               (unsigned long long)c->complete, (unsigned long long)c->hit, (unsigned long long)c->deferred);
}

/* Of n samples those that a host which keeps us from our work may have cost: counted by the parts that gave
 * up on them, and believed for a third at most. */
static double excused(double n)
{
        uint64_t given_up = rig_given_up(place.rig);

        if (given_up)
                printf("  %llu samples did not get the time they needed\n", (unsigned long long)given_up);
        return (double)given_up < n / 3 ? (double)given_up : n / 3;
}

/* The CPU time that was burnt is known; what arrives varies as the root of the count. A hypervisor that
 * takes the CPU away lets time pass without ticks: half of them may be missing. */
static void assert_hits(const char *what, const struct rig_count *c, double cpu_seconds)
{
        double expected = cpu_seconds * HZ, slack = 5 * sqrt(expected);

        show(what, c);
        assert_true((double)c->hit > expected / 2 - slack - excused(expected / 2));
        assert_true((double)c->hit < expected * 1.2 + slack);
}

static void assert_complete(const struct rig_count *c, double percent)
{
        double all = (double)with_stack(c);

        assert_true((double)c->complete >= all * percent / 100 - 3 - excused(all));
}

static void test_processes_of_milliseconds(void **state)
{
        struct rig *r = place.rig;
        const char *program = in_dir("short_lived");

        copy(place.work, program, 0);
        char *argv[] = {place.work, "many", "300", "5", (char *)program, NULL};
        rig_run_child(r, rig_spawn(argv));
        rig_settle(r);
        struct rig_count c = rig_count(r, "short_lived", program, NULL, "hot_burn");
        assert_hits("short-lived", &c, 300 * 0.005);
        assert_complete(&c, 97);
        assert_true((double)c.walk[ABI_WALK_NO_PROCESS] <=
                    (double)with_stack(&c) / 100 + excused((double)with_stack(&c)));
}

static void test_a_chain_of_execs(void **state)
{
        struct rig *r = place.rig;
        char *argv[] = {place.work, "chain", "100", "8", NULL};

        rig_run_child(r, rig_spawn(argv));
        rig_settle(r);
        /* Its comm is that of /proc/self/exe. */
        struct rig_count c = rig_count(r, "exe", place.work, NULL, "hot_chain");
        assert_hits("chain", &c, 99 * 0.008);
        assert_complete(&c, 97);
}

static void test_fork_without_exec(void **state)
{
        struct rig *r = place.rig;
        char *argv[] = {place.work, "forks", "200", "5", NULL};

        rig_run_child(r, rig_spawn(argv));
        rig_settle(r);
        struct rig_count c = rig_count(r, "tracker_work", place.work, NULL, "hot_fork");
        assert_hits("forks", &c, 200 * 0.005);
        assert_complete(&c, 97);
}

static void test_code_that_is_loaded_later(void **state)
{
        struct rig *r = place.rig;
        char *argv[] = {place.work, "load", place.library[0], "600", NULL};

        rig_run_child(r, rig_spawn(argv));
        rig_settle(r);
        struct rig_count c = rig_count(r, "tracker_work", place.work, NULL, "hot_load");
        assert_hits("before dlopen", &c, 0.6);
        c = rig_count(r, "tracker_work", place.library[0], NULL, "hot_library");
        assert_hits("after dlopen", &c, 0.6);
        assert_complete(&c, 97);
}

/* A program that waits for a byte; returns its pid. */
static int start_waiting(const char *program, const char *ms, int *ret_fd)
{
        int fds[2];
        char fd[16];

        /* The child gets the end that it reads, and not the other one: it sees when we are gone. */
        assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
        assert_int_equal(fcntl(fds[0], F_SETFD, 0), 0);
        snprintf(fd, sizeof(fd), "%d", fds[0]);
        char *argv[] = {(char *)program, "wait", fd, (char *)ms, NULL};
        int pid = rig_spawn(argv);
        close(fds[0]);
        *ret_fd = fds[1];
        return pid;
}

static void go_on(int fd)
{
        assert_int_equal(write(fd, "x", 1), 1);
        close(fd);
}

static void test_a_program_that_is_deleted_while_it_runs(void **state)
{
        struct rig *r = place.rig;
        const char *program = in_dir("deleted");
        int fd;

        copy(place.work, program, 0);
        int pid = start_waiting(program, "600", &fd);
        rig_run(r, 300); /* not sampled yet: it does not work */
        assert_int_equal(unlink(program), 0);
        go_on(fd);
        rig_run_child(r, pid);
        rig_settle(r);
        struct rig_count c = rig_count(r, "deleted", place.work, program, "hot_wait");
        assert_hits("deleted", &c, 0.6);
        assert_complete(&c, 97);
}

/* The object of the frames in a function, over the rows of one process: the one with most samples. */
static uint32_t object_of(const struct rig *r, int pid, const char *file, const char *function)
{
        uint64_t start, end, best = 0;
        uint32_t object = 0;

        assert_true(rig_function(file, function, &start, &end));
        for (uint32_t i = 0; i < r->n; i++)
                for (uint32_t k = 0; r->row[i].pid == (uint32_t)pid && k < r->row[i].n; k++) {
                        const struct rig_frame *f = &r->row[i].frame[k];
                        if (f->named && f->address >= start && f->address < end &&
                            r->row[i].samples > best) {
                                best = r->row[i].samples;
                                object = f->object;
                        }
                }
        return object;
}

static void test_a_program_that_is_replaced(void **state)
{
        struct rig *r = place.rig;
        const char *program = in_dir("replaced");
        int fd;

        copy(place.work, program, 0);
        int old = start_waiting(program, "400", &fd);
        rig_run(r, 200);
        copy(place.work_static, in_dir("new"), 0);
        assert_int_equal(rename(in_dir("new"), program), 0);
        char *argv[] = {(char *)program, "burn", "400", NULL};
        int new = rig_spawn(argv);
        go_on(fd);
        rig_run_child(r, old);
        rig_run_child(r, new);
        rig_settle(r);
        /* Each with the symbols of its own file, both under the name. */
        struct rig_count a = rig_count(r, "replaced", place.work, program, "hot_wait");
        struct rig_count b = rig_count(r, "replaced", place.work_static, program, "hot_burn");
        assert_hits("old", &a, 0.4);
        assert_hits("new", &b, 0.4);
        assert_int_not_equal(object_of(r, old, place.work, "hot_wait"),
                             object_of(r, new, place.work_static, "hot_burn"));
}

static void test_a_library_whose_file_is_written_over(void **state)
{
        struct rig *r = place.rig;
        const char *library = in_dir("library.so");
        char *argv[] = {place.work, "load", (char *)library, "500", NULL};

        copy(place.library[0], library, 0);
        int first = rig_spawn(argv);
        rig_run_child(r, first);
        rig_run(r, 1500); /* a file is looked at again after a second */
        copy(place.library[1], library, O_TRUNC);
        int second = rig_spawn(argv);
        rig_run_child(r, second);
        rig_settle(r);
        uint32_t a = object_of(r, first, place.library[0], "hot_library");
        uint32_t b = object_of(r, second, place.library[1], "hot_library");
        assert_int_not_equal(a, 0);
        assert_int_not_equal(b, 0);
        assert_int_not_equal(a, b);
}

static void test_another_mount_namespace(void **state)
{
        struct rig *r = place.rig;
        const char *dir = in_dir("root");

        assert_int_equal(mkdir(dir, 0755), 0);
        assert_int_equal(mount("tmpfs", dir, "tmpfs", 0, NULL), 0);
        copy(place.work_static, in_dir("root/tracker_work"), 0);
        char *argv[] = {place.work, "root", (char *)in_dir("root"), "600", NULL};
        int status = rig_run_child(r, rig_spawn(argv));
        umount2(in_dir("root"), MNT_DETACH);
        if (WEXITSTATUS(status) == 77) {
                printf("skipped: no mount namespace can be made here\n");
                skip();
        }
        rig_settle(r);
        struct rig_count c = rig_count(r, "tracker_work", place.work_static, "/tracker_work", "hot_burn");
        assert_hits("in a root of its own", &c, 0.6);
        assert_complete(&c, 97);
}

/* Starts a program under a pid of our choice; -1 when it is taken. */
static int spawn_as(int pid, char *const argv[])
{
        pid_t tid = pid;
        struct clone_args args = {
                        .exit_signal = SIGCHLD, .set_tid = (uint64_t)(uintptr_t)&tid, .set_tid_size = 1};
        long child = syscall(SYS_clone3, &args, sizeof(args));

        if (child == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                execv(argv[0], argv);
                _exit(127);
        }
        return (int)child;
}

static void test_a_pid_that_is_used_again(void **state)
{
        struct rig *r = place.rig;
        const char *name[2] = {"reuse_a", "reuse_b"};
        int pid = 0;

        for (int i = 0; i < 2; i++)
                copy(i ? place.work_static : place.work, in_dir(name[i]), 0);
        for (int i = 0; i < 10; i++) {
                char *argv[] = {(char *)in_dir(name[i % 2]), "burn", "60", NULL};
                int child = pid ? spawn_as(pid, argv) : rig_spawn(argv);
                if (child < 0 && errno == EPERM) {
                        printf("skipped: no right to choose a pid\n");
                        skip();
                }
                assert_true(child > 0);
                pid = child;
                rig_run_child(r, child);
        }
        rig_settle(r);
        uint64_t hits = 0;
        for (int i = 0; i < 2; i++) {
                const char *file = i ? place.work_static : place.work;
                struct rig_count c = rig_count(r, name[i], file, in_dir(name[i]), "hot_burn");
                assert_hits(name[i], &c, 5 * 0.06);
                hits += c.hit;
                /* No frame of one in a stack of the other. */
                c = rig_count(r, name[!i], file, in_dir(name[i]), "hot_burn");
                assert_int_equal(c.hit, 0);
        }
        assert_true(hits > 0);
        /* Each life of the pid has a start of its own. One may end before its first sample. */
        uint64_t start[16];
        uint32_t n = 0;
        for (uint32_t i = 0; i < r->n; i++) {
                bool known = r->row[i].pid != (uint32_t)pid;
                for (uint32_t k = 0; k < n && !known; k++)
                        known = start[k] == r->row[i].start_ns;
                if (!known && n < ARRAY_SIZE(start))
                        start[n++] = r->row[i].start_ns;
        }
        assert_in_range(n, 8, 10);
}

/* Of what happens while records are lost, or held off, the tracker knows what it must afterwards. */
static void assert_made_up_for(bool held)
{
        struct rig *r = place.rig = rig_new(HZ, 1 << 20); /* and rings of 64 KiB */
        char *many[] = {place.work, "many", "400", "0", place.work, NULL};
        struct tracker_stats s;
        int fd, burn;

        assert_non_null(r);
        rig_run(r, 300);
        tracker_hold(r->tracker, held);
        r->only_pid = 1; /* of what is started now and ends unseen nothing is promised */
        /* Nobody reads the rings meanwhile, or all of them is skipped. */
        int first = rig_spawn(many);
        if (held)
                rig_run_child(r, first);
        else
                waitpid(first, NULL, 0);
        int burning = start_waiting(place.work, "1000", &burn);
        int idle = start_waiting(place.work_static, "1", &fd);
        int last = rig_spawn(many);
        if (held)
                rig_run_child(r, last);
        else
                waitpid(last, NULL, 0);
        tracker_hold(r->tracker, false);

        r->only_pid = (uint32_t)burning;
        go_on(burn);
        rig_run_child(r, burning);
        rig_run(r, 6000); /* all of /proc is read at most each 5 s */
        rig_settle(r);
        tracker_stats(r->tracker, &s);
        printf("%llu records, %llu lost, %llu skipped\n", (unsigned long long)s.records,
               (unsigned long long)s.records_lost, (unsigned long long)s.records_skipped);
        /* Two times 400 children, of each at least a record of its start, its name and its end. */
        assert_true(held ? s.records_skipped > 2 * 400 * 3 : s.records_lost > 0);
        struct rig_count c = rig_count(r, "tracker_work", place.work, NULL, "hot_wait");
        show("started meanwhile", &c);
        assert_true(c.hit > 0);
        assert_complete(&c, 97);
        const struct process *p = tracker_process(r->tracker, (uint32_t)idle, 0);
        assert_non_null(p);
        assert_string_equal(p->comm, "tracker_work_st");
        assert_int_equal(p->ppid, getpid());
        assert_false(p->exited);
        /* What ended unseen is not taken for alive. */
        p = tracker_process(r->tracker, (uint32_t)first, 0);
        assert_true(!p || p->exited);
        go_on(fd);
        waitpid(idle, NULL, 0);
}

static void test_records_that_were_lost_are_made_up_for(void **state)
{
        assert_made_up_for(false);
}

static void test_records_that_were_held_off_are_made_up_for(void **state)
{
        assert_made_up_for(true);
}

static void test_a_ceiling_that_is_far_too_low(void **state)
{
        struct tracker_stats s;

        if (access("/usr/bin/clang", X_OK) < 0) {
                printf("skipped: clang, whose libraries have the large tables, is not there\n");
                skip();
        }
        /* libLLVM and libclang alone have four times as many rows. */
        struct rig *r = place.rig = rig_new(HZ, 1 << 20);
        assert_non_null(r);
        char *burn[] = {place.work, "burn", "3000", NULL};
        char *compile[] = {"/usr/bin/clang",        "-x", "c",         "-O2", "-c",
                           (char *)in_dir("big.c"), "-o", "/dev/null", NULL};
        _cleanup_buf_ struct buf source = {0};
        for (int i = 0; i < 1000; i++)
                buf_addf(&source,
                         "int f%d(int a, int b) { for (int i = 0; i < b; i++) a ^= i * %d; return a; }\n", i,
                         i);
        _cleanup_close_ int fd = open(in_dir("big.c"), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        assert_int_equal(write_all(fd, source.data, source.len), 0);

        int burning = rig_spawn(burn);
        /* Pages of tables come as samples touch them: one run of the compiler may touch few. */
        s = (struct tracker_stats){0};
        for (int i = 0; i < 20 && !s.evictions; i++) {
                rig_run_child(r, rig_spawn(compile));
                tracker_stats(r->tracker, &s);
        }
        rig_run_child(r, burning);
        rig_settle(r);
        struct symclient_stats worker;
        tracker_stats(r->tracker, &s);
        symclient_stats(r->symbols, &worker);
        printf("worker: %.2f s CPU, %llu requests\n", (double)worker.cpu_ns / 1e9,
               (unsigned long long)worker.requests);
        printf("%llu rows in %u shards, %llu evictions, %llu times no room\n", (unsigned long long)s.rows,
               s.shards, (unsigned long long)s.evictions, (unsigned long long)s.no_room);
        struct rig_count c = rig_count(r, "tracker_work", place.work, NULL, "hot_burn");
        show("small program", &c);
        for (uint32_t i = 0; i < ABI_WALK_MAX; i++)
                if (c.walk[i])
                        printf("  walk %u: %llu\n", i, (unsigned long long)c.walk[i]);
        assert_int_equal(s.shards, 1);
        assert_true(s.rows <= ABI_SHARD_ROWS);
        assert_true(s.evictions > 0);
        assert_complete(&c, 90);
        struct rig_count all = rig_count(r, "clang", NULL, NULL, NULL);
        show("compiler", &all);
        /* Of its many rows only some are ever there: its stacks say so. */
        assert_true(all.complete + all.walk[ABI_WALK_NO_TABLE] + all.walk[ABI_WALK_PAGE_MISSING] > 0);
}

int main(int argc, char **argv)
{
        const struct CMUnitTest tests[] = {
                        cmocka_unit_test_setup_teardown(test_processes_of_milliseconds, setup_rig,
                                                        teardown_rig),
                        cmocka_unit_test_setup_teardown(test_a_chain_of_execs, setup_rig, teardown_rig),
                        cmocka_unit_test_setup_teardown(test_fork_without_exec, setup_rig, teardown_rig),
                        cmocka_unit_test_setup_teardown(test_code_that_is_loaded_later, setup_rig,
                                                        teardown_rig),
                        cmocka_unit_test_setup_teardown(test_a_program_that_is_deleted_while_it_runs,
                                                        setup_rig, teardown_rig),
                        cmocka_unit_test_setup_teardown(test_a_program_that_is_replaced, setup_rig,
                                                        teardown_rig),
                        cmocka_unit_test_setup_teardown(test_a_library_whose_file_is_written_over, setup_rig,
                                                        teardown_rig),
                        cmocka_unit_test_setup_teardown(test_another_mount_namespace, setup_rig,
                                                        teardown_rig),
                        cmocka_unit_test_setup_teardown(test_a_pid_that_is_used_again, setup_rig,
                                                        teardown_rig),
                        cmocka_unit_test_teardown(test_records_that_were_lost_are_made_up_for, teardown_rig),
                        cmocka_unit_test_teardown(test_records_that_were_held_off_are_made_up_for,
                                                  teardown_rig),
                        cmocka_unit_test_teardown(test_a_ceiling_that_is_far_too_low, teardown_rig),
        };
        char self[PATH_MAX];

        ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
        if (n < 0)
                return 1;
        self[n] = 0;
        const char *here = dirname(self);
        snprintf(place.work, sizeof(place.work), "%s/tracker_work", here);
        snprintf(place.work_static, sizeof(place.work_static), "%s/tracker_work_static", here);
        for (int i = 0; i < 2; i++)
                snprintf(place.library[i], sizeof(place.library[i]), "%s/libtracker%d.so", here, i + 1);
        if (geteuid() != 0) {
                printf("skipped: it takes root to sample the whole host\n");
                return 77;
        }
        snprintf(place.dir, sizeof(place.dir), "/tmp/tracker_e2e.XXXXXX");
        if (!mkdtemp(place.dir))
                return 1;
        if (argc > 1)
                cmocka_set_test_filter(argv[1]);
        /* On a busy host what is measured must not starve what measures. */
        setpriority(PRIO_PROCESS, 0, -10);
        int failed = cmocka_run_group_tests(tests, NULL, NULL);
        char command[PATH_MAX + 16];
        snprintf(command, sizeof(command), "rm -rf %s", place.dir);
        if (system(command) != 0)
                printf("cannot remove %s\n", place.dir);
        return failed;
}
