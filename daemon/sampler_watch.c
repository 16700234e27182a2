/* Looks after the open events, about once a second: CPUs that went, came and came back, what cycles are
 * worth, and what is not counted because other events share the counters.
 *
 * A look at a counter interrupts its CPU, so CPUs that take no samples are looked at rarely. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "base/log.h"
#include "daemon/sampler_impl.h"

#define STAT_PATH "/proc/stat"
#define STAT_MAX  (4u << 20)
#define RARELY_NS (10 * NSEC_PER_SEC)
#define QUIET_NS  (NSEC_PER_SEC / 2) /* no tick for so long: the clock stands still, at 2 Hz and more */
#define STILL_NS  NSEC_PER_SEC       /* no tick for so much work: does the counter run? */
#define SCALE_ONE 65536.0
#define MAX_SCALE 1000.0

/* An event whose CPU was away stays dead when the CPU is back: its time stands still. */
static bool is_dead(const struct event_watch *w, const struct counter *c, uint64_t now)
{
        return w->last_ns && c->enabled_ns - w->enabled_ns < (now - w->last_ns) / 2;
}

/* A hardware event that has to share its counter counts part of the time: its samples stand for the rest. */
uint32_t watch_scale(uint64_t enabled_ns, uint64_t running_ns)
{
        double scale = running_ns ? (double)enabled_ns / (double)running_ns : 1;

        if (scale < 1.001)
                return 0;
        return (uint32_t)(SCALE_ONE * (scale < MAX_SCALE ? scale : MAX_SCALE));
}

static uint64_t ticks(const struct sampler *s, uint32_t event, uint32_t cpu)
{
        return s->cpus[cpu].taken[event] + s->cpus[cpu].idle[event];
}

void watch_begin(struct sampler *s, uint32_t event, uint32_t cpu)
{
        uint64_t now = now_monotonic_ns();

        s->event[event].watch[cpu] = (struct event_watch){
                        .ticked_ns = now, .since_ns = now, .since_ticks = ticks(s, event, cpu)};
}

void watch_end(struct sampler *s, uint32_t event, uint32_t cpu)
{
        s->missed += s->event[event].watch[cpu].missed;
        s->event[event].watch[cpu] = (struct event_watch){0};
}

/* Ticks that should have come since the rate was set and did not, but for `most`; one may be under way.
 * Never less than found before. */
uint64_t missed_ticks(const struct event_watch *w, uint64_t now_ticks, uint64_t most, uint64_t period_ns,
                      uint64_t now)
{
        uint64_t expected = (now - w->since_ns) / period_ns, came = now_ticks - w->since_ticks;
        uint64_t missed = expected > came + 1 ? MIN_OF(expected - came - 1, most) : 0;

        return MAX_OF(missed, w->missed);
}

/* A tick that an idle CPU did not get is no sample lost (and a virtual machine that is idle gets few): the
 * busy time says how many there should be. */
uint64_t missed_at_most(struct event_watch *w, uint64_t taken, uint64_t idle_ns, uint64_t period_ns,
                        uint64_t now)
{
        if (!w->base_ns) {
                w->base_ns = now;
                w->base_idle_ns = idle_ns;
                w->base_taken = taken;
        }
        uint64_t passed = now - w->base_ns, idle = idle_ns > w->base_idle_ns ? idle_ns - w->base_idle_ns : 0;
        uint64_t busy = passed > idle ? (passed - idle) / period_ns : 0, came = taken - w->base_taken;

        return busy > came ? busy - came : 0;
}

/* 0, or 1 when the event is dead. */
static int look(struct sampler *s, uint32_t event, uint32_t cpu, uint64_t idle_ns, uint64_t now)
{
        struct sampler_open_event *e = &s->event[event];
        struct event_watch *w = &e->watch[cpu];
        struct counter c;

        if (read(e->fd[cpu], &c, sizeof(c)) != sizeof(c) || is_dead(w, &c, now))
                return 1;
        w->starved = e->kind.hardware &&
                     counter_starved(c.enabled_ns - w->enabled_ns, c.running_ns - w->running_ns);
        if (w->starved)
                ; /* says nothing about rates */
        else if (e->kind.weight == EVENT_WEIGHT_CYCLES)
                sampler_cycles_calibrate(s, event, cpu, c.count, idle_ns, now);
        else if (e->kind.hardware && w->last_ns)
                s->cpus[cpu].scale[event] =
                                watch_scale(c.enabled_ns - w->enabled_ns, c.running_ns - w->running_ns);
        w->ticks = ticks(s, event, cpu);
        w->ticked_ns = w->last_ns = now;
        w->ticked_idle_ns = idle_ns;
        w->enabled_ns = c.enabled_ns;
        w->running_ns = c.running_ns;
        return 0;
}

/* Hardware events: when they were sampled, and cycles when they were not though the CPU worked. The clock,
 * which ticks on an idle CPU too: when it has not for a while. All of them once in a while. */
static bool is_due(struct sampler *s, uint32_t event, uint32_t cpu, uint64_t idle_ns, uint64_t now)
{
        const struct sampler_open_event *e = &s->event[event];
        struct event_watch *w = &e->watch[cpu];
        bool ticked = ticks(s, event, cpu) != w->ticks;

        if (now - w->last_ns >= RARELY_NS)
                return true;
        if (ticked) {
                w->ticks = ticks(s, event, cpu);
                w->ticked_ns = now;
                w->ticked_idle_ns = idle_ns;
        }
        if (e->kind.weight == EVENT_WEIGHT_CLOCK)
                return now - w->ticked_ns > QUIET_NS;
        if (e->kind.weight == EVENT_WEIGHT_CYCLES &&
            now - w->ticked_ns > STILL_NS + idle_ns - w->ticked_idle_ns)
                return true;
        return e->kind.hardware && ticked;
}

static void count_missed(struct sampler *s, uint32_t event, uint32_t cpu, uint64_t idle_ns, uint64_t now)
{
        struct sampler_open_event *e = &s->event[event];
        struct event_watch *w = &e->watch[cpu];
        uint64_t most = missed_at_most(w, s->cpus[cpu].taken[event], idle_ns, e->period[cpu], now);

        w->missed = missed_ticks(w, ticks(s, event, cpu), most, e->period[cpu], now);
}

static void watch_event(struct sampler *s, uint32_t event, const uint64_t *idle_ns, uint64_t now)
{
        struct sampler_open_event *e = &s->event[event];
        bool starved = false;

        for (uint32_t cpu = 0; cpu < s->sizes.cpus; cpu++) {
                if (e->fd[cpu] < 0)
                        continue;
                if (is_due(s, event, cpu, idle_ns[cpu], now) && look(s, event, cpu, idle_ns[cpu], now))
                        sampler_event_close(s, event, cpu); /* opened again below */
                else if (e->kind.weight == EVENT_WEIGHT_CLOCK)
                        count_missed(s, event, cpu, idle_ns[cpu], now);
                starved |= e->watch[cpu].starved;
        }
        if (starved)
                counters_starved(s, event, idle_ns, now);
        else if (e->kind.hardware && e->info.cpus)
                e->info.why = NULL; /* they run */
        counters_follow(s, event, now);
}

int sampler_follow_cpus(struct sampler *s)
{
        _cleanup_free_ uint64_t *idle_ns = calloc(s->sizes.cpus, sizeof(*idle_ns));
        _cleanup_buf_ struct buf stat = {0};
        struct cpu_set online;
        uint64_t now;
        int r, result = 0;

        if (!idle_ns)
                return -ENOMEM;
        r = sampler_online(s, &online);
        if (r < 0)
                return r;
        cpu_set_free(&s->online);
        s->online = online;
        r = read_file(STAT_PATH, STAT_MAX, &stat);
        now = now_monotonic_ns();
        if (r >= 0)
                parse_idle_times(buf_text(&stat), s->sizes.cpus, idle_ns);
        for (uint32_t i = 0; i < s->n_events; i++) {
                if (s->event[i].off)
                        continue;
                for (uint32_t cpu = 0; cpu < s->sizes.cpus; cpu++)
                        if (!cpu_set_has(&online, cpu))
                                sampler_event_close(s, i, cpu);
                watch_event(s, i, idle_ns, now);
                r = sampler_event_open(s, i);
                if (r < 0 && r != -EBUSY && !result) /* held by another: its status says so */
                        result = r;
        }
        return result;
}
