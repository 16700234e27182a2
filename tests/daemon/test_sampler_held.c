/* The sampler on a machine whose hardware counters another user holds, lets go of, and takes again: on this
 * kernel, where perf events of the hardware are those of the clock, unless they are held. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "daemon/sampler.h"

#define MAX_FDS    4096
#define HELD       "another user holds the hardware counters"
#define A_MINUTE   (61 * NSEC_PER_SEC)
#define BURN_NS    (NSEC_PER_SEC / 2)
#define PATIENCE   1200 /* tenths of a second */
#define N_COUNTERS 3    /* of read(2): count, time enabled, time running */

static enum { COUNTERS_FREE, COUNTERS_RESERVED, COUNTERS_PINNED } counters;
static uint64_t passed_ns; /* that the test need not wait for */
static struct {
        bool hardware;
        uint64_t running; /* as it was read last, while the counter was ours */
} opened[MAX_FDS];

/* Instead of profd's own calls, by the linker's --wrap. */
uint64_t __real_now_monotonic_ns(void);
uint64_t __wrap_now_monotonic_ns(void);
uint64_t __wrap_now_monotonic_ns(void)
{
        return __real_now_monotonic_ns() + passed_ns;
}

static int open_hardware(struct perf_event_attr attr, int cpu, unsigned long flags)
{
        long fd;

        if (counters == COUNTERS_RESERVED) {
                errno = EBUSY;
                return -1;
        }
        attr.type = PERF_TYPE_SOFTWARE;
        attr.config = counters == COUNTERS_PINNED ? PERF_COUNT_SW_DUMMY : PERF_COUNT_SW_CPU_CLOCK;
        __typeof__(&syscall) next = (__typeof__(&syscall))dlsym(RTLD_NEXT, "syscall");
        fd = next(SYS_perf_event_open, &attr, cpu < 0 ? 0 : -1, cpu, -1, flags);
        assert_true(fd < MAX_FDS);
        if (fd >= 0) {
                opened[fd].hardware = true;
                opened[fd].running = 0;
        }
        return (int)fd;
}

long syscall(long number, ...)
{
        __typeof__(&syscall) next = (__typeof__(&syscall))dlsym(RTLD_NEXT, "syscall");
        long a[6];
        va_list list;

        va_start(list, number);
        for (int i = 0; i < 6; i++)
                a[i] = va_arg(list, long);
        va_end(list);
        if (number == SYS_perf_event_open) {
                const struct perf_event_attr *attr = (const struct perf_event_attr *)a[0];
                if (attr->type == PERF_TYPE_HARDWARE)
                        return open_hardware(*attr, (int)a[2], (unsigned long)a[4]);
                long fd = next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
                if (fd >= 0 && fd < MAX_FDS)
                        opened[fd].hardware = false;
                return fd;
        }
        return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

ssize_t read(int fd, void *data, size_t size)
{
        uint64_t *c = data;
        ssize_t n = syscall(SYS_read, fd, data, size);

        if (n != N_COUNTERS * sizeof(*c) || fd >= MAX_FDS || !opened[fd].hardware)
                return n;
        if (counters == COUNTERS_PINNED)
                c[2] = opened[fd].running;
        opened[fd].running = c[2];
        return n;
}

struct rows {
        uint64_t samples, weight; /* of this process, by cycles */
};

static int on_row(void *ctx, const struct sample_row *row)
{
        struct rows *rows = ctx;

        if (row->key->tgid != (uint32_t)getpid() || row->key->event != 0)
                return 0;
        rows->samples += row->samples;
        rows->weight += row->weight;
        return 0;
}

static void on_raw(void *ctx, const struct abi_raw *raw, const uint64_t *kernel, uint32_t n_kernel)
{
        struct rows *rows = ctx;

        if (raw->key.tgid != (uint32_t)getpid() || raw->key.event != 0)
                return;
        rows->samples++;
        rows->weight += raw->weight;
}

/* Works, and finds itself: at 99 Hz some 49 samples of half a second, at the very least a fifth of them. */
static void sampled(struct sampler *s)
{
        struct rows rows = {0};
        struct timespec t;
        uint64_t begin, now;

        assert_int_equal(sampler_drain(s, on_row, on_raw, &rows), 0);
        rows = (struct rows){0};
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        begin = (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
        do {
                clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
                now = (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
        } while (now - begin < BURN_NS);
        assert_int_equal(sampler_drain(s, on_row, on_raw, &rows), 0);
        print_message("%lu samples, %lu ms\n", (unsigned long)rows.samples,
                      (unsigned long)(rows.weight / 1000000));
        assert_true(rows.samples >= 10);
        assert_true(rows.weight >= BURN_NS / 5);
}

static struct sampler *start(void)
{
        static const char *const events[] = {"cycles", "cache-misses"};
        const struct sampler_config config = {
                        .events = events, .n_events = 2, .frequency = 99, .memory = 16 << 20};
        struct sampler *s;

        assert_int_equal(sampler_new(&s, &config), 0);
        assert_int_equal(sampler_start(s), 0);
        return s;
}

static void is(struct sampler *s, const char *actual, const char *why)
{
        const struct sampler_event *e = sampler_event(s, 0);

        assert_string_equal(e->actual, actual);
        assert_int_equal(e->cpus, sysconf(_SC_NPROCESSORS_ONLN));
        assert_true(e->time);
        if (why)
                assert_string_equal(e->why, why);
        else
                assert_null(e->why);
        sampled(s);
}

/* A minute later it is tried again; what comes of it is seen a second after that. */
static void try_again(struct sampler *s)
{
        const struct timespec second = {.tv_sec = 1};

        passed_ns += A_MINUTE;
        assert_int_equal(sampler_follow_cpus(s), 0);
        nanosleep(&second, NULL);
        assert_int_equal(sampler_follow_cpus(s), 0);
}

static void test_reserved_and_let_go(void **state)
{
        counters = COUNTERS_RESERVED;
        struct sampler *s = start();
        const struct sampler_event *other = sampler_event(s, 1);

        is(s, "cpu-clock", HELD);
        assert_string_equal(other->actual, "cache-misses");
        assert_string_equal(other->why, HELD);
        assert_int_equal(other->cpus, 0);
        try_again(s);
        is(s, "cpu-clock", HELD);
        assert_int_equal(other->cpus, 0);

        counters = COUNTERS_FREE;
        assert_int_equal(sampler_follow_cpus(s), 0);
        is(s, "cpu-clock", HELD); /* not at once */
        try_again(s);
        is(s, "cycles", NULL);
        assert_null(other->why);
        assert_int_equal(other->cpus, sysconf(_SC_NPROCESSORS_ONLN));
        sampler_free(s);
}

static void test_pinned_at_the_start_and_let_go(void **state)
{
        counters = COUNTERS_PINNED;
        struct sampler *s = start();

        is(s, "cpu-clock", HELD);
        try_again(s);
        is(s, "cpu-clock", HELD);
        counters = COUNTERS_FREE;
        try_again(s);
        is(s, "cycles", NULL);
        sampler_free(s);
}

static void test_pinned_in_the_middle(void **state)
{
        const struct timespec tenth = {.tv_nsec = 100000000};

        counters = COUNTERS_FREE;
        struct sampler *s = start();
        is(s, "cycles", NULL);
        assert_int_equal(sampler_follow_cpus(s), 0);

        counters = COUNTERS_PINNED;
        for (int i = 0; i < PATIENCE && !strcmp(sampler_event(s, 0)->actual, "cycles"); i++) {
                nanosleep(&tenth, NULL);
                passed_ns += NSEC_PER_SEC / 10;
                assert_int_equal(sampler_follow_cpus(s), 0);
        }
        is(s, "cpu-clock", HELD);
        assert_string_equal(sampler_event(s, 1)->actual, "cache-misses");
        counters = COUNTERS_FREE;
        try_again(s);
        is(s, "cycles", NULL);
        sampler_free(s);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                        cmocka_unit_test(test_reserved_and_let_go),
                        cmocka_unit_test(test_pinned_at_the_start_and_let_go),
                        cmocka_unit_test(test_pinned_in_the_middle),
        };

        if (geteuid() != 0) {
                puts("skipped: needs root: BPF programs are loaded");
                return 77;
        }
        return cmocka_run_group_tests(tests, NULL, NULL);
}
