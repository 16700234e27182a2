/* Hardware counters that another user holds.
 *
 * The kernel tells of it in two ways. Where the counters are reserved, an event cannot be opened (EBUSY).
 * Where others have pinned their events, ours is opened and never scheduled: it is enabled, and does not run
 * (perf_event_open(2), time_enabled and time_running). Cycles are replaced by the clock then, which weighs
 * the same, ns of CPU time, so windows and totals go on. Every now and then counting events are opened
 * beside it; when all of them run, cycles are sampled again. Another event has no replacement: it says why
 * there is nothing of it, and the kernel goes on with it by itself. */
#include <errno.h>
#include <inttypes.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/log.h"
#include "daemon/sampler_impl.h"

#define RETRY_NS    (60 * NSEC_PER_SEC)
#define STARVED_NS  (NSEC_PER_SEC / 2)
#define ROTATION_NS (5 * NSEC_PER_MSEC) /* more than what others get of a shared counter at a time, 4 ms */
#define ROTATIONS   10                  /* at the start, before it is taken for held */

bool counter_starved(uint64_t enabled_ns, uint64_t running_ns)
{
        return enabled_ns >= STARVED_NS && !running_ns;
}

void counters_say_held(struct sampler_open_event *e)
{
        snprintf(e->why, sizeof(e->why), "%s", COUNTERS_HELD);
        e->info.why = e->why;
}

/* Whether a descriptor of an event has run; one that was closed by the kernel (its CPU went) has not. */
static bool has_run(int fd)
{
        struct counter c;

        return read(fd, &c, sizeof(c)) == sizeof(c) && c.running_ns;
}

bool counters_granted(const struct sampler *s, uint32_t event)
{
        const struct timespec rotation = {.tv_nsec = ROTATION_NS};
        const struct sampler_open_event *e = &s->event[event];

        for (int i = 0;; i++) {
                bool all = true;
                for (uint32_t cpu = 0; cpu < s->sizes.cpus; cpu++)
                        all &= e->fd[cpu] < 0 || has_run(e->fd[cpu]);
                if (all || i == ROTATIONS)
                        return all;
                nanosleep(&rotation, NULL);
        }
}

static void close_all(struct sampler *s, uint32_t event)
{
        for (uint32_t cpu = 0; cpu < s->sizes.cpus; cpu++)
                sampler_event_close(s, event, cpu);
}

int counters_fall_back(struct sampler *s, uint32_t event)
{
        struct sampler_open_event *e = &s->event[event];
        int r;

        close_all(s, event);
        e->hardware = e->kind;
        event_by_name("cpu-clock", &e->kind);
        e->info.actual = "cpu-clock";
        e->held = true;
        e->retry_ns = now_monotonic_ns() + RETRY_NS;
        counters_say_held(e);
        r = sampler_event_open(s, event);
        if (r >= 0)
                log_notice("%s: %s: sampling cpu-clock instead, until they are free", e->name,
                           COUNTERS_HELD);
        return r;
}

static void return_to_counters(struct sampler *s, uint32_t event)
{
        struct sampler_open_event *e = &s->event[event];
        int r;

        close_all(s, event);
        e->kind = e->hardware;
        e->info.actual = e->name;
        e->info.why = NULL;
        e->held = false;
        r = sampler_event_open(s, event);
        if (r >= 0) {
                log_notice("%s: the hardware counters are free again: sampling them", e->name);
                return;
        }
        r = counters_fall_back(s, event); /* somebody was faster */
        if (r < 0)
                log_warning("%s: cannot be sampled: %s", e->name, strerror(-r));
}

void counters_end_trial(struct sampler *s, uint32_t event)
{
        struct sampler_open_event *e = &s->event[event];

        for (uint32_t cpu = 0; e->trial && cpu < s->sizes.cpus; cpu++) {
                if (e->trial[cpu] >= 0)
                        close(e->trial[cpu]);
                e->trial[cpu] = -1;
        }
        e->in_trial = false;
}

/* Counts, and samples nothing, so it may run beside what is sampled. */
static int open_trial(const struct sampler *s, const struct sampler_open_event *e, uint32_t cpu)
{
        struct perf_event_attr attr = {
                        .size = sizeof(attr),
                        .read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING,
        };
        uint32_t type;
        uint64_t config;

        event_on_cpu(&e->hardware, &s->pmus, cpu, &type, &config);
        attr.type = type;
        attr.config = config;
        return (int)syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
}

static void begin_trial(struct sampler *s, uint32_t event)
{
        struct sampler_open_event *e = &s->event[event];

        e->retry_ns = now_monotonic_ns() + RETRY_NS;
        e->in_trial = true;
        for (uint32_t cpu = 0; cpu < s->sizes.cpus; cpu++) {
                if (!cpu_set_has(&s->online, cpu))
                        continue;
                e->trial[cpu] = open_trial(s, e, cpu);
                if (e->trial[cpu] < 0) {
                        counters_end_trial(s, event);
                        return;
                }
        }
}

static bool trial_ran(const struct sampler *s, const struct sampler_open_event *e)
{
        for (uint32_t cpu = 0; cpu < s->sizes.cpus; cpu++)
                if (cpu_set_has(&s->online, cpu) && (e->trial[cpu] < 0 || !has_run(e->trial[cpu])))
                        return false;
        return true;
}

void counters_follow(struct sampler *s, uint32_t event, uint64_t now)
{
        struct sampler_open_event *e = &s->event[event];

        if (!e->held)
                return;
        if (e->in_trial) {
                bool ran = trial_ran(s, e);
                counters_end_trial(s, event);
                if (ran)
                        return_to_counters(s, event);
        } else if (now >= e->retry_ns) {
                begin_trial(s, event);
        }
}

/* Busy time of a CPU since its event was last seen to run, or was opened: these ticks did not come. */
static uint64_t starved_ticks(const struct sampler_open_event *e, uint32_t cpu, uint64_t idle_ns,
                              uint64_t now)
{
        const struct cycle_rate *r = &e->rate[cpu];
        uint64_t passed = now - (r->last_ns ? r->last_ns : e->watch[cpu].since_ns);
        uint64_t idle = r->last_ns && idle_ns > r->last_idle_ns ? idle_ns - r->last_idle_ns : 0;

        return passed > idle ? (passed - idle) * e->info.frequency / NSEC_PER_SEC : 0;
}

void counters_starved(struct sampler *s, uint32_t event, const uint64_t *idle_ns, uint64_t now)
{
        struct sampler_open_event *e = &s->event[event];

        if (e->kind.weight != EVENT_WEIGHT_CYCLES) {
                if (!e->info.why)
                        log_notice("%s: %s: nothing is sampled until they are free", e->name, COUNTERS_HELD);
                counters_say_held(e);
                return;
        }
        for (uint32_t cpu = 0; cpu < s->sizes.cpus; cpu++)
                if (e->watch[cpu].starved)
                        s->missed += starved_ticks(e, cpu, idle_ns[cpu], now);
        int r = counters_fall_back(s, event);
        if (r < 0)
                log_warning("%s: cannot be sampled: %s", e->name, strerror(-r));
}
