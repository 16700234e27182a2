/* Hardware cycles as a measure of CPU time.
 *
 * Cycles are sampled every `period` cycles, not so many times a second: in frequency mode the kernel adapts
 * the period to the cycles that a CPU makes, idle time included, so a CPU that is busy a tenth of the time
 * gives as many samples as a busy one, and they say nothing about time. With a fixed period the samples are
 * spread evenly over the cycles that were spent, and each stands for period / rate of CPU time, where rate
 * is the cycles that this CPU makes in a second of work.
 *
 * The rate differs by kind of core and moves with frequency scaling. It is measured: cycles counted by the
 * event itself, less those of the idle task, over the time that the kernel says the CPU was not idle. What
 * the event does not count (throttled, multiplexed with other events) lowers the rate, so that the samples
 * that are left stand for more, and totals stay right. */
#include <inttypes.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/sampler_impl.h"

#define PROBE_NS     (2 * NSEC_PER_MSEC)
#define DEFAULT_RATE 1e9 /* cycles a second, until measured */
#define MIN_RATE     1e7 /* outside: a counter that does not count cycles as we know them */
#define MAX_RATE     2e10
#define MIN_BUSY_NS  (200 * NSEC_PER_MSEC) /* /proc/stat counts in 10 ms */
#define PERIOD_SLACK 0.1 /* a period is changed when it is off by more: each change drops a part of one */

static double plausible(double rate)
{
        return rate >= MIN_RATE && rate <= MAX_RATE ? rate : DEFAULT_RATE;
}

/* Cycles a second where we run now: good for a start. */
double sampler_cycles_probe(const struct perf_event_attr *sampled)
{
        struct perf_event_attr attr = {
                        .type = sampled->type, .config = sampled->config, .size = sizeof(attr)};
        _cleanup_close_ int fd = (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
        struct timespec t;
        uint64_t begin, now, count;

        if (fd < 0)
                return DEFAULT_RATE;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        begin = (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
        ioctl(fd, PERF_EVENT_IOC_RESET, 0);
        do {
                clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
                now = (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
        } while (now - begin < PROBE_NS);
        if (read(fd, &count, sizeof(count)) != sizeof(count))
                return DEFAULT_RATE;
        return plausible((double)count * 1e9 / (double)(now - begin));
}

/* Takes up what a CPU did since the last call. True when there was enough of it for a new rate. */
bool cycle_rate_update(struct cycle_rate *r, uint64_t cycles, uint64_t busy_ns)
{
        double measured;

        r->cycles += cycles;
        r->busy_ns += busy_ns;
        if (r->busy_ns < MIN_BUSY_NS)
                return false;
        measured = (double)r->cycles * 1e9 / (double)r->busy_ns;
        r->cycles = r->busy_ns = 0;
        if (measured < MIN_RATE || measured > MAX_RATE)
                return false;
        r->rate = r->measured ? (r->rate + measured) / 2 : measured;
        r->measured = true;
        return true;
}

/* Time that each CPU was not busy, ns, from the lines "cpuN user nice system idle iowait irq softirq steal"
 * (proc(5)). CPUs without a line keep 0. */
void parse_idle_times(const char *stat, uint32_t n_cpus, uint64_t *ret_idle_ns)
{
        uint64_t tick_ns = NSEC_PER_SEC / (uint64_t)sysconf(_SC_CLK_TCK);

        memset(ret_idle_ns, 0, n_cpus * sizeof(*ret_idle_ns));
        for (const char *line = stat; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
                uint64_t idle, iowait, steal;
                uint32_t cpu;

                if (strncmp(line, "cpu", 3) || line[3] < '0' || line[3] > '9') /* "cpu " is the sum of all */
                        continue;
                if (sscanf(line + 3, "%" SCNu32 " %*u %*u %*u %" SCNu64 " %" SCNu64 " %*u %*u %" SCNu64,
                           &cpu, &idle, &iowait, &steal) == 4 &&
                    cpu < n_cpus)
                        ret_idle_ns[cpu] = (idle + iowait + steal) * tick_ns;
        }
}

/* What the event counted and what the CPU did since the last time: a new rate, and a new period when the old
 * one is off by much. */
void sampler_cycles_calibrate(struct sampler *s, uint32_t event, uint32_t cpu, uint64_t count,
                              uint64_t idle_ns, uint64_t now)
{
        struct sampler_open_event *e = &s->event[event];
        struct cycle_rate *r = &e->rate[cpu];
        uint64_t idle_samples = s->cpus[cpu].idle[event], wanted;
        uint64_t cycles = count - r->last_count,
                 idle = (idle_samples - r->last_idle_samples) * e->period[cpu];
        uint64_t wall_ns = now - r->last_ns, not_busy_ns = idle_ns - r->last_idle_ns;

        if (r->last_ns && wall_ns > not_busy_ns &&
            cycle_rate_update(r, cycles > idle ? cycles - idle : 0, wall_ns - not_busy_ns)) {
                wanted = (uint64_t)(r->rate / e->info.frequency);
                if (((double)wanted > (double)e->period[cpu] * (1 + PERIOD_SLACK) ||
                     (double)wanted < (double)e->period[cpu] * (1 - PERIOD_SLACK)) &&
                    !ioctl(e->fd[cpu], PERF_EVENT_IOC_PERIOD, &wanted))
                        e->period[cpu] = wanted;
                s->cpus[cpu].weight[event] = (uint64_t)((double)e->period[cpu] * 1e9 / r->rate);
        }
        r->last_count = count;
        r->last_idle_samples = idle_samples;
        r->last_idle_ns = idle_ns;
        r->last_ns = now;
}
