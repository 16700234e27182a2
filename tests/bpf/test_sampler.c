/* The sampler on the running kernel, with workloads whose answers are known otherwise: CPU time from the
 * kernel's own accounting, page faults from getrusage(2), the split of a loop from its construction. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/log.h"
#include "daemon/sampler_impl.h"
#include "tests/bpf/own_text.h"

#define MAX_CHILDREN 8

static volatile uint64_t sink;

static uint64_t cpu_ns(void)
{
        struct timespec t;

        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
        return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

#define PLACED __attribute__((noinline, aligned(512)))

static PLACED uint64_t spin(uint64_t v, uint32_t n)
{
        for (uint32_t i = 0; i < n; i++) {
                v = v * 6364136223846793005ull + i;
                __asm__ volatile("" : "+r"(v) : "r"(__builtin_frame_address(0)));
        }
        return v;
}

/* The same loop, once more: three times as long as spin_one() in all. */
static PLACED uint64_t spin_three(uint64_t v, uint32_t n)
{
        for (uint32_t i = 0; i < 3 * n; i++) {
                v = v * 6364136223846793005ull + i;
                __asm__ volatile("" : "+r"(v) : "r"(__builtin_frame_address(0)));
        }
        return v + 1;
}

static PLACED uint64_t spin_one(uint64_t v, uint32_t n)
{
        for (uint32_t i = 0; i < n; i++) {
                v = v * 6364136223846793005ull + i;
                __asm__ volatile("" : "+r"(v) : "r"(__builtin_frame_address(0)));
        }
        return v + 2;
}

static bool in(uint64_t address, uint64_t (*function)(uint64_t, uint32_t))
{
        return address >= (uintptr_t)function && address < (uintptr_t)function + 512;
}

/* What was seen of the processes of interest: this one, or its children. */
struct seen {
        uint32_t pid[MAX_CHILDREN];
        uint64_t samples[MAX_CHILDREN], weight[MAX_CHILDREN];
        uint64_t rows, three, one, stamp, total, distinct_frames;
        uint64_t walk[ABI_WALK_MAX];
};

static void note(struct seen *s, uint32_t pid, uint64_t samples, uint64_t weight, uint64_t ip)
{
        s->total += samples;
        for (int i = 0; i < MAX_CHILDREN; i++) {
                if (!s->pid[i] || s->pid[i] != pid)
                        continue;
                s->samples[i] += samples;
                s->weight[i] += weight;
                s->three += in(ip, spin_three) ? samples : 0;
                s->one += in(ip, spin_one) ? samples : 0;
        }
}

static int take_row(void *ctx, const struct sample_row *row)
{
        struct seen *s = ctx;

        s->rows++;
        s->walk[row->key->walk] += row->samples;
        note(s, row->key->tgid, row->samples, row->weight,
             row->n_user ? ABI_FRAME_ADDRESS(row->user[0]) : 0);
        return 0;
}

static void take_raw(void *ctx, const struct abi_raw *raw, const uint64_t *kernel, uint32_t n)
{
        struct seen *s = ctx;

        assert_true(raw->leaf_len <= ABI_RAW_LEAF && raw->root_len <= ABI_RAW_ROOT);
        assert_true(!raw->key.kernel_stack || n > 0);
        note(s, raw->key.tgid, 1, raw->weight, raw->registers.ip);
        if (raw->key.tgid == (uint32_t)getpid())
                s->stamp = raw->stamp;
}

static struct sampler *start(const char *event, uint32_t frequency, uint32_t drain_ms)
{
        struct sampler_config c = {.events = &event,
                                   .n_events = 1,
                                   .frequency = frequency,
                                   .memory = 256 << 20,
                                   .drain_ms = drain_ms};
        struct sampler *s = NULL;

        assert_int_equal(sampler_new(&s, &c), 0);
        assert_int_equal(sampler_start(s), 0);
        return s;
}

static void drain(struct sampler *s, struct seen *seen)
{
        assert_int_equal(sampler_drain(s, take_row, take_raw, seen), 0);
}

static uint64_t lost(const uint64_t stats[])
{
        return stats[ABI_STAT_LOST_COUNTS_FULL] + stats[ABI_STAT_LOST_STACKS_FULL] +
               stats[ABI_STAT_LOST_BUSY] + stats[ABI_STAT_LOST_NESTED];
}

/* After the events are off: what was taken is what was handed over, and what is counted as lost. */
static void check_sum(struct sampler *s, struct seen *seen)
{
        uint64_t stats[ABI_STAT_MAX];

        sampler_stop(s);
        drain(s, seen);
        sampler_stats(s, stats);
        assert_int_equal(stats[ABI_STAT_TAKEN],
                         stats[ABI_STAT_DELIVERED] + stats[ABI_STAT_DEFERRED] + lost(stats));
        assert_int_equal(seen->total, stats[ABI_STAT_DELIVERED] + stats[ABI_STAT_DEFERRED]);
}

/* Runs fn() in a child on a CPU (-1: any) for some CPU time; its exit is waited for in reap(). */
static pid_t child(int cpu, void (*fn)(uint64_t until), uint64_t ns)
{
        pid_t pid = fork();

        if (!pid) {
                if (cpu >= 0) {
                        cpu_set_t set;
                        CPU_ZERO(&set);
                        CPU_SET(cpu, &set);
                        sched_setaffinity(0, sizeof(set), &set);
                }
                fn(cpu_ns() + ns);
                _exit(0);
        }
        assert_true(pid > 0);
        return pid;
}

/* CPU time of a child, ns. */
static uint64_t reap(pid_t pid)
{
        struct rusage u;
        int status;

        assert_int_equal(wait4(pid, &status, 0, &u), pid);
        assert_true(WIFEXITED(status) && !WEXITSTATUS(status));
        return ((uint64_t)u.ru_utime.tv_sec + (uint64_t)u.ru_stime.tv_sec) * NSEC_PER_SEC +
               ((uint64_t)u.ru_utime.tv_usec + (uint64_t)u.ru_stime.tv_usec) * 1000;
}

static void burn(uint64_t until)
{
        while (cpu_ns() < until)
                sink += spin(sink, 100000);
}

static void split(uint64_t until)
{
        while (cpu_ns() < until) {
                sink += spin_three(sink, 20000);
                sink += spin_one(sink, 20000);
        }
}

/* No kernel known runs one of our programs on top of another (bpf_overflow_handler() looks at
 * bpf_prog_active): such a one would find the CPU marked as busy. Here the mark is made by hand. */
static void test_nested(void **state)
{
        struct sampler *s = start("cpu-clock", 999, 1000);
        uint64_t stats[ABI_STAT_MAX] = {0}, end = cpu_ns() + 20 * NSEC_PER_SEC;
        struct seen seen = {0};

        while (stats[ABI_STAT_LOST_NESTED] < 10 && cpu_ns() < end) {
                for (uint32_t i = 0; i < s->sizes.cpus; i++)
                        *(volatile uint32_t *)&s->cpus[i].busy = 1;
                sink += spin(sink, 100000);
                sampler_stats(s, stats);
        }
        for (uint32_t i = 0; i < s->sizes.cpus; i++)
                *(volatile uint32_t *)&s->cpus[i].busy = 0;
        assert_true(stats[ABI_STAT_LOST_NESTED] >= 10);
        check_sum(s, &seen);
        sampler_free(s);
}

/* Two functions share the time 3:1. The count of the one is binomial: within 4 standard deviations but once
 * in 15,000 runs. */
static void test_split(void **state)
{
        struct sampler *s = start("cpu-clock", 999, 1000);
        struct seen seen = {0};
        double n, p;

        seen.pid[0] = (uint32_t)child(-1, split, 3 * NSEC_PER_SEC);
        reap((pid_t)seen.pid[0]);
        check_sum(s, &seen);
        sampler_free(s);

        n = (double)(seen.three + seen.one);
        assert_true(n >
                    300); /* enough to judge by: ticks are missed where a hypervisor takes the CPU away */
        p = (double)seen.three / n;
        if (fabs(p - 0.75) >= 4 * sqrt(0.75 * 0.25 / n))
                fprintf(stderr, "%.4f of %.0f samples\n", p, n);
        assert_true(fabs(p - 0.75) < 4 * sqrt(0.75 * 0.25 / n));
}

/* Every CPU busy: samples of the workloads are their CPU time times the rate, weights are their CPU time.
 * Ticks that never came, on a host whose CPU is taken away, are counted, and account for what is short. */
static void test_totals(void **state)
{
        struct sampler *s = start("cpu-clock", 999, 1000);
        struct seen seen = {0};
        uint32_t n = sampler_event(s, 0)->cpus;
        uint64_t used = 0, samples = 0, weight = 0, stats[ABI_STAT_MAX];
        double expected, missed;

        if (n > MAX_CHILDREN)
                n = MAX_CHILDREN;
        for (uint32_t i = 0; i < n; i++)
                seen.pid[i] = (uint32_t)child((int)i, burn, 4 * NSEC_PER_SEC);
        for (uint32_t i = 0; i < n; i++)
                used += reap((pid_t)seen.pid[i]);
        assert_int_equal(sampler_follow_cpus(s), 0); /* reckons what was missed */
        sampler_stats(s, stats);
        check_sum(s, &seen);
        for (uint32_t i = 0; i < n; i++) {
                samples += seen.samples[i];
                weight += seen.weight[i];
        }
        expected = (double)used / 1e9 * sampler_event(s, 0)->frequency;
        missed = (double)stats[ABI_STAT_MISSED] / expected;
        sampler_free(s);
        if (fabs((double)samples / expected - 1) >= 0.02 || fabs((double)weight / (double)used - 1) >= 0.02)
                fprintf(stderr, "%llu samples, %.0f expected, %llu ticks missed; %llu ns, %llu expected\n",
                        (unsigned long long)samples, expected, (unsigned long long)stats[ABI_STAT_MISSED],
                        (unsigned long long)weight, (unsigned long long)used);
        assert_true((double)samples / expected < 1.03);
        assert_true((double)samples / expected + missed > 0.97);
        assert_true((double)weight / (double)used < 1.03);
        assert_true((double)weight / (double)used + missed > 0.97);
}

static uint64_t (*volatile hop_again)(uint64_t, uint32_t);

/* Each bit of `path` decides from which of two places the next call is made: 2^depth distinct stacks. */
static PLACED uint64_t hop(uint64_t path, uint32_t depth)
{
        if (!depth)
                return spin(path, 400);
        if (path & 1)
                return hop_again(path >> 1, depth - 1) + 1;
        return hop_again(path >> 1, depth - 1) + 3;
}

static void many_stacks(uint64_t until)
{
        uint64_t path = (uint64_t)getpid();

        hop_again = hop;
        while (cpu_ns() < until)
                for (int i = 0; i < 100; i++) {
                        path = path * 6364136223846793005ull + 1442695040888963407ull;
                        sink += hop(path >> 16, 30);
                }
}

/* The list of this process, which its forked children share. Returns the samples drained meanwhile. */
static uint64_t map_self(struct sampler *s)
{
        struct seen seen = {.pid = {(uint32_t)getpid()}};

        for (int i = 0; i < 20 && !seen.stamp; i++) {
                burn(cpu_ns() + NSEC_PER_SEC / 10);
                drain(s, &seen);
        }
        assert_true(seen.stamp);
        assert_int_equal(own_text_map(s, seen.stamp, false), 0);
        return seen.total;
}

/* Hundreds of thousands of distinct stacks a second run, nearly each sample has one of its own: none is lost
 * without a count, and none is lost at all when the drains come in time. */
static void test_distinct_stacks(void **state)
{
        struct sampler *s = start("cpu-clock", 999, 1000);
        struct seen seen = {0};
        uint64_t stats[ABI_STAT_MAX], last, longest = 0;
        int left = 2;

        map_self(s);
        last = now_monotonic_ns();
        for (int i = 0; i < 2; i++)
                seen.pid[i] = (uint32_t)child(-1, many_stacks, 3 * NSEC_PER_SEC);
        while (left) {
                siginfo_t info = {0};
                usleep(500000);
                drain(s, &seen);
                longest = MAX_OF(longest, now_monotonic_ns() - last);
                last = now_monotonic_ns();
                left = 0;
                for (int i = 0; i < 2; i++)
                        left += !waitid(P_PID, seen.pid[i], &info, WEXITED | WNOHANG | WNOWAIT) &&
                                !info.si_pid;
        }
        for (int i = 0; i < 2; i++)
                reap((pid_t)seen.pid[i]);
        sampler_stop(s);
        drain(s, &seen);
        sampler_stats(s, stats);
        assert_int_equal(stats[ABI_STAT_TAKEN],
                         stats[ABI_STAT_DELIVERED] + stats[ABI_STAT_DEFERRED] + lost(stats));
        assert_true(seen.samples[0] + seen.samples[1] > 600);
        assert_true(seen.rows * 2 > seen.samples[0] + seen.samples[1]); /* distinct indeed */
        if (longest < NSEC_PER_SEC)
                assert_int_equal(lost(stats), 0);
        else
                fprintf(stderr, "%llu samples lost, %.1f s between two drains: a busy host\n",
                        (unsigned long long)lost(stats), (double)longest / 1e9);
        sampler_free(s);
}

/* Without a list samples are deferred, until their ring is full: then they are delivered as they are. */
static void test_raws_full(void **state)
{
        struct sampler *s = start("cpu-clock", 999, 1);
        struct seen seen = {0};
        uint64_t stats[ABI_STAT_MAX];

        reap(child(-1, many_stacks, 2 * NSEC_PER_SEC));
        check_sum(s, &seen);
        sampler_stats(s, stats);
        assert_true(stats[ABI_STAT_RAWS_FULL] > 0);
        sampler_free(s);
}

/* Not drained in time: the rows run full, the rest is counted as lost, and nothing is mixed up. */
static void test_rows_full(void **state)
{
        struct sampler *s = start("cpu-clock", 999, 1);
        struct seen seen = {0};
        uint64_t stats[ABI_STAT_MAX];

        seen.total = map_self(s); /* so that nearly each sample has a stack of its own */
        /* on one CPU: rows are per CPU, and a child that moves may fill neither's */
        reap(child(0, many_stacks, 2 * NSEC_PER_SEC));
        check_sum(s, &seen);
        sampler_stats(s, stats);
        assert_true(stats[ABI_STAT_LOST_COUNTS_FULL] > 0);
        sampler_free(s);
}

static uint64_t (*volatile deep_again)(uint64_t, uint32_t);

static PLACED uint64_t deep(uint64_t path, uint32_t depth)
{
        if (!depth)
                return spin(path, 1000);
        if (path >> depth % 61 & 1)
                return deep_again(path, depth - 1) + 1;
        return deep_again(path, depth - 1) + 3;
}

static void deep_stacks(uint64_t until)
{
        uint64_t path = (uint64_t)getpid();

        deep_again = deep;
        while (cpu_ns() < until)
                for (int i = 0; i < 10; i++) {
                        path = path * 6364136223846793005ull + 1442695040888963407ull;
                        sink += deep(path, 500);
                }
}

/* Deep stacks, each new, and nobody reads: the ring runs full, and that is counted. */
static void test_ring_full(void **state)
{
        struct sampler *s = start("cpu-clock", 999, 1000);
        struct seen seen = {0};
        uint64_t stats[ABI_STAT_MAX];

        map_self(s);
        seen.pid[0] = (uint32_t)child(-1, deep_stacks, NSEC_PER_SEC);
        reap((pid_t)seen.pid[0]);
        sampler_stop(s);
        drain(s, &seen);
        sampler_stats(s, stats);
        assert_int_equal(stats[ABI_STAT_TAKEN],
                         stats[ABI_STAT_DELIVERED] + stats[ABI_STAT_DEFERRED] + lost(stats));
        assert_true(stats[ABI_STAT_LOST_STACKS_FULL] > 0);
        assert_true(seen.walk[ABI_WALK_DEPTH] == 0);
        sampler_free(s);
}

#define FAULT_PAGES 2000

static void touch_pages(uint64_t until)
{
        while (cpu_ns() < until) {
                char *p = mmap(NULL, FAULT_PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                               -1, 0);
                if (p == MAP_FAILED)
                        _exit(1);
                madvise(p, FAULT_PAGES * 4096, MADV_NOHUGEPAGE);
                for (int i = 0; i < FAULT_PAGES; i++)
                        p[i * 4096l] = 1;
                munmap(p, FAULT_PAGES * 4096);
        }
}

/* An event that is counted: the weights add up to the true count. In frequency mode the kernel seeks the
 * period, so a little is missing at the start and at the end. */
static void test_page_faults(void **state)
{
        struct sampler *s = start("page-faults", 999, 1000);
        struct seen seen = {0};
        struct rusage u;
        pid_t pid = child(-1, touch_pages, 2 * NSEC_PER_SEC);
        int status;

        seen.pid[0] = (uint32_t)pid;
        assert_false(sampler_event(s, 0)->time);
        assert_int_equal(wait4(pid, &status, 0, &u), pid);
        check_sum(s, &seen);
        sampler_free(s);
        if (fabs((double)seen.weight[0] / (double)u.ru_minflt - 1) >= 0.1)
                fprintf(stderr, "%llu faults by %llu samples, %ld really\n",
                        (unsigned long long)seen.weight[0], (unsigned long long)seen.samples[0],
                        u.ru_minflt);
        assert_true(fabs((double)seen.weight[0] / (double)u.ru_minflt - 1) < 0.1);
}

static void test_event_choice(void **state)
{
        static const char *const names[] = {"cycles", "no-such-event", "context-switches"};
        struct sampler_config c = {.events = names, .n_events = 3, .frequency = 99, .memory = 256 << 20};
        struct sampler *s;
        const char *off[] = {"no-such-event"};

        assert_int_equal(sampler_new(&s, &c), 0);
        assert_int_equal(sampler_start(s), 0);
        assert_int_equal(sampler_n_events(s), 3);
        assert_string_equal(sampler_event(s, 0)->name, "cycles");
        assert_true(sampler_event(s, 0)->time);
        if (strcmp(sampler_event(s, 0)->actual, "cycles")) { /* no PMU here */
                assert_string_equal(sampler_event(s, 0)->actual, "cpu-clock");
                assert_non_null(sampler_event(s, 0)->why);
        }
        assert_null(sampler_event(s, 1)->actual);
        assert_non_null(sampler_event(s, 1)->why);
        assert_string_equal(sampler_event(s, 2)->actual, "context-switches");
        sampler_free(s);

        c.events = off;
        c.n_events = 1;
        assert_int_equal(sampler_new(&s, &c), 0);
        assert_int_equal(sampler_start(s), -ENODEV);
        sampler_free(s);
}

static int write_file(const char *path, const char *text)
{
        _cleanup_fclose_ FILE *f = fopen(path, "w");
        return f && fputs(text, f) >= 0 && !fflush(f) ? 0 : -errno;
}

#define ONLINE "/sys/devices/system/cpu/cpu1/online"

static void put_cpu_back(void)
{
        write_file(ONLINE, "1");
}

/* A CPU goes and comes back: samples are taken on it again. */
static void test_hotplug(void **state)
{
        struct sampler *s;
        struct seen seen = {0};
        uint32_t cpus;

        if (access(ONLINE, W_OK) < 0) {
                fprintf(stderr, "skipped: cpu1 cannot be taken off line here\n");
                skip();
        }
        s = start("cpu-clock", 499, 1000);
        cpus = sampler_event(s, 0)->cpus;
        atexit(put_cpu_back);
        if (write_file(ONLINE, "0") < 0) {
                sampler_free(s);
                fprintf(stderr, "skipped: cpu1 cannot be taken off line here\n");
                skip();
        }
        assert_int_equal(sampler_follow_cpus(s), 0);
        assert_int_equal(sampler_event(s, 0)->cpus, cpus - 1);
        put_cpu_back();
        assert_int_equal(sampler_follow_cpus(s), 0);
        assert_int_equal(sampler_event(s, 0)->cpus, cpus);
        seen.pid[0] = (uint32_t)child(1, burn, NSEC_PER_SEC);
        reap((pid_t)seen.pid[0]);
        drain(s, &seen);
        assert_true(seen.samples[0] > 100);

        /* gone and back before anybody looked */
        assert_int_equal(sampler_follow_cpus(s), 0);
        assert_int_equal(write_file(ONLINE, "0"), 0);
        put_cpu_back();
        for (int i = 0; i < 3;
             i++) { /* its clock stands still: seen at the second look after at the latest */
                usleep(700000);
                assert_int_equal(sampler_follow_cpus(s), 0);
        }
        assert_int_equal(sampler_event(s, 0)->cpus, cpus);
        seen.pid[1] = (uint32_t)child(1, burn, NSEC_PER_SEC);
        reap((pid_t)seen.pid[1]);
        check_sum(s, &seen);
        assert_true(seen.samples[1] > 100);
        sampler_free(s);
}

#define MAX_RATE "/proc/sys/kernel/perf_event_max_sample_rate"

static char max_rate[32];

static void put_rate_back(void)
{
        write_file(MAX_RATE, max_rate);
}

/* The kernel allows less than what is asked, then and there: ours is lowered, and said. */
static void test_max_rate(void **state)
{
        int64_t before;
        struct sampler *s;

        assert_int_equal(read_file_i64(MAX_RATE, &before), 0);
        snprintf(max_rate, sizeof(max_rate), "%lld", (long long)before);
        atexit(put_rate_back);
        if (write_file(MAX_RATE, "500") < 0) {
                fprintf(stderr, "skipped: kernel.perf_event_max_sample_rate cannot be changed here\n");
                skip();
        }
        s = start("page-faults", 999, 1000);
        put_rate_back();
        assert_int_equal(sampler_event(s, 0)->requested, 999);
        assert_int_equal(sampler_event(s, 0)->frequency, 500);
        assert_int_equal(sampler_set_frequency(s, 700), 0);
        assert_int_equal(sampler_event(s, 0)->frequency, 700);
        sampler_free(s);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                        cmocka_unit_test(test_event_choice),    cmocka_unit_test(test_split),
                        cmocka_unit_test(test_nested),          cmocka_unit_test(test_totals),
                        cmocka_unit_test(test_distinct_stacks), cmocka_unit_test(test_raws_full),
                        cmocka_unit_test(test_rows_full),       cmocka_unit_test(test_ring_full),
                        cmocka_unit_test(test_page_faults),     cmocka_unit_test(test_hotplug),
                        cmocka_unit_test(test_max_rate),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
