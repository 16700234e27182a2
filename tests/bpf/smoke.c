/* Does the kernel half work on this kernel? One line for each check: OK or FAIL, name, figures. Needs
 * nothing but the kernel, so that it runs in a bare guest of any version; exits 0 when all is well.
 *
 *   smoke [EVENT [FREQUENCY]]        default: cpu-clock 499 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/log.h"
#include "daemon/sampler.h"
#include "tests/bpf/own_text.h"

static int failures;

static void report(bool ok, const char *name, const char *fmt, ...)
{
        va_list ap;

        failures += !ok;
        printf("%s %s: ", ok ? "OK" : "FAIL", name);
        va_start(ap, fmt);
        vprintf(fmt, ap);
        va_end(ap);
        printf("\n");
        fflush(stdout);
}

static volatile uint64_t sink;

static uint64_t cpu_ns(void)
{
        struct timespec t;

        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
        return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

/* outer() -> middle() -> inner(), nearly all of the time in inner(); the numbers keep the calls from being
 * tail calls. */
static __attribute__((noinline, aligned(256))) uint64_t inner(uint64_t n)
{
        uint64_t v = n;

        for (uint32_t i = 0; i < 400000; i++) {
                v = v * 6364136223846793005ull + i;
                __asm__ volatile("" : : "r"(__builtin_frame_address(0))); /* a leaf has none otherwise */
        }
        return v;
}

static __attribute__((noinline, aligned(256))) uint64_t middle(uint64_t n)
{
        return inner(n) + 1;
}

static __attribute__((noinline, aligned(256))) uint64_t outer(uint64_t n)
{
        return middle(n) + 2;
}

static __attribute__((noinline, aligned(256))) void burn(uint64_t ns)
{
        uint64_t end = cpu_ns() + ns;

        while (cpu_ns() < end)
                sink += outer(sink);
}

static void read_zeros(uint64_t ns)
{
        static char buf[1 << 20];
        uint64_t end = cpu_ns() + ns;
        _cleanup_close_ int fd = open("/dev/zero", O_RDONLY);

        while (fd >= 0 && cpu_ns() < end)
                if (read(fd, buf, sizeof(buf)) < 0)
                        return;
}

/* What a drain brought of this process. */
struct seen {
        uint64_t samples, weight, kernel_samples, kernel_frames, chain, inner, rows, deferred;
        uint64_t stamp;
        uint64_t walk[ABI_WALK_MAX];
};

static bool within(uint64_t frame, void *function, size_t size)
{
        uint64_t a = ABI_FRAME_ADDRESS(frame);
        return ABI_FRAME_OBJECT(frame) == OWN_TEXT_OBJECT && a >= (uintptr_t)function &&
               a < (uintptr_t)function + size;
}

static int take_row(void *ctx, const struct sample_row *row)
{
        struct seen *s = ctx;

        if (row->key->tgid != (uint32_t)getpid())
                return 0;
        s->rows++;
        s->samples += row->samples;
        s->weight += row->weight;
        s->walk[row->key->walk] += row->samples;
        if (row->n_kernel) {
                s->kernel_samples += row->samples;
                s->kernel_frames += row->samples * row->n_kernel;
        }
        /* Each function is smaller than its alignment. */
        if (row->n_user && within(row->user[0], inner, 256)) {
                s->inner += row->samples;
                if (row->n_user > 3 && within(row->user[1], middle, 256) &&
                    within(row->user[2], outer, 256) && within(row->user[3], burn, 256))
                        s->chain += row->samples;
        }
        return 0;
}

static void take_raw(void *ctx, const struct abi_raw *raw, const uint64_t *kernel, uint32_t n)
{
        struct seen *s = ctx;

        if (raw->key.tgid != (uint32_t)getpid())
                return;
        s->deferred++;
        s->stamp = raw->stamp;
}

static struct seen drain(struct sampler *sampler)
{
        struct seen s = {0};
        int r = sampler_drain(sampler, take_row, take_raw, &s);

        if (r < 0)
                report(false, "drain", "%s", strerror(-r));
        return s;
}

static void map_own_text(struct sampler *sampler, uint64_t stamp, bool table)
{
        int r = own_text_map(sampler, stamp, table);

        if (r < 0)
                report(false, "map", "%s", strerror(-r));
}

static void check_walk(struct sampler *sampler, const char *name)
{
        struct seen s;

        drain(sampler);
        burn(NSEC_PER_SEC);
        s = drain(sampler);
        report(s.inner > 20 && s.chain * 100 >= s.inner * 98, name,
               "%llu samples, %llu in inner(), %llu with the whole chain, %llu deferred",
               (unsigned long long)s.samples, (unsigned long long)s.inner, (unsigned long long)s.chain,
               (unsigned long long)s.deferred);
}

int main(int argc, char **argv)
{
        const char *event = argc > 1 ? argv[1] : "cpu-clock";
        struct sampler_config config = {.events = &event,
                                        .n_events = 1,
                                        .frequency = argc > 2 ? (uint32_t)atoi(argv[2]) : 499,
                                        .memory = 128 << 20,
                                        .drain_ms = 5000};
        struct sampler *sampler;
        const struct sampler_event *e;
        uint64_t stats[ABI_STAT_MAX], begin = now_monotonic_ns(), used, lost;
        struct seen s;
        int r;

        log_set_level(LOG_DEBUG);
        r = sampler_new(&sampler, &config);
        report(!r, "load", "%s, %llu ms", strerror(-r),
               (unsigned long long)(now_monotonic_ns() - begin) / 1000000);
        if (r)
                return 1;
        r = sampler_start(sampler);
        e = sampler_event(sampler, 0);
        report(!r && e->actual && e->cpus, "event", "%s: %s at %u Hz on %u CPUs%s%s", e->name,
               e->actual ? e->actual : "off", e->frequency, e->cpus, e->why ? ", " : "",
               e->why ? e->why : "");
        if (r)
                return 1;

        drain(sampler);
        used = cpu_ns();
        burn(NSEC_PER_SEC / 2);
        used = cpu_ns() - used;
        s = drain(sampler);
        report(s.deferred > 0 && s.stamp, "deferred",
               "%llu samples without a mapping list went to user space", (unsigned long long)s.deferred);

        map_own_text(sampler, s.stamp, false);
        check_walk(sampler, "frame pointers");
        map_own_text(sampler, s.stamp, true);
        check_walk(sampler, "table");

        used = cpu_ns();
        burn(NSEC_PER_SEC);
        used = cpu_ns() - used;
        s = drain(sampler);
        if (e->time)
                /* an emulated CPU on a busy host misses many ticks */
                report(s.weight > used / 10 && s.weight < used * 11 / 10, "weight",
                       "%llu ms of CPU time by samples, %llu ms really",
                       (unsigned long long)s.weight / 1000000, (unsigned long long)used / 1000000);
        else
                report(s.weight >= s.samples, "weight", "%llu events in %llu samples",
                       (unsigned long long)s.weight, (unsigned long long)s.samples);

        read_zeros(NSEC_PER_SEC / 2);
        s = drain(sampler);
        report(s.kernel_samples > 5 && s.kernel_frames >= 3 * s.kernel_samples, "kernel stacks",
               "%llu samples with %llu frames", (unsigned long long)s.kernel_samples,
               (unsigned long long)s.kernel_frames);

        r = sampler_set_frequency(sampler, config.frequency / 2);
        drain(sampler);
        burn(NSEC_PER_SEC);
        s = drain(sampler);
        report(!r && s.samples > config.frequency / 20 && s.samples < config.frequency * 2 / 3, "frequency",
               "%llu samples a second of CPU time at %u Hz", (unsigned long long)s.samples, e->frequency);

        drain(sampler);
        sampler_stats(sampler, stats);
        lost = stats[ABI_STAT_LOST_COUNTS_FULL] + stats[ABI_STAT_LOST_STACKS_FULL] +
               stats[ABI_STAT_LOST_BUSY] + stats[ABI_STAT_LOST_NESTED];
        /* a sample may be under way */
        report(stats[ABI_STAT_TAKEN] - (stats[ABI_STAT_DELIVERED] + stats[ABI_STAT_DEFERRED] + lost) <=
                               e->cpus,
               "sum", "%llu taken, %llu delivered, %llu deferred, %llu lost",
               (unsigned long long)stats[ABI_STAT_TAKEN], (unsigned long long)stats[ABI_STAT_DELIVERED],
               (unsigned long long)stats[ABI_STAT_DEFERRED], (unsigned long long)lost);
        report(true, "run time", "%llu ns a sample, %llu bytes of maps",
               (unsigned long long)(stats[ABI_STAT_TAKEN]
                                                    ? sampler_run_time_ns(sampler) / stats[ABI_STAT_TAKEN]
                                                    : 0),
               (unsigned long long)sampler_memory(sampler));
        sampler_free(sampler);
        printf("%s\n", failures ? "FAILED" : "PASSED");
        return !!failures;
}
