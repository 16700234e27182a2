#include "daemon/governor.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/log.h"

/* What begins and ends all along is said again after so long without. */
#define QUIET_NS (300 * NSEC_PER_SEC)

/* Whether what begins now is to be said. */
static bool is_news(uint64_t *last_ns)
{
        uint64_t now = now_monotonic_ns();
        bool news = !*last_ns || now - *last_ns > QUIET_NS;

        *last_ns = now;
        return news;
}

static uint64_t naming_ns(const struct governor *g, const struct counters *now)
{
        return now->cost.worker_ns - g->before.cost.worker_ns + g->loop.naming_ns - g->loop_before.naming_ns;
}

static void set_rate(struct governor *g, uint32_t frequency, uint32_t before)
{
        const struct budget *b = &g->budget;
        const char *why = budget_why(b);

        int r = sampler_set_frequency(g->parts.sampler, frequency);
        if (r < 0) {
                log_error("cannot change the sampling rate to %u Hz: %s", frequency, strerror(-r));
                g->budget.frequency = before;
                return;
        }
        log_notice("sampling at %u Hz now (%u asked%s%s): Cpu= is %.2f %%, sampling took %.2f, following "
                   "processes %.2f, naming %.2f, queries and the store %.2f",
                   frequency, b->asked, why ? "; " : "", why ? why : "", b->limit_ppm / 1e4,
                   b->sampling_ppm / 1e4, b->following_ppm / 1e4, b->naming_ppm / 1e4, b->serving_ppm / 1e4);
}

static void end_interval(struct governor *g, const struct counters *now, uint32_t n_cpus)
{
        const struct cost *c = &now->cost, *was = &g->before.cost;
        uint64_t loop = c->loop_ns - was->loop_ns, daemon = c->daemon_ns - was->daemon_ns;
        uint64_t following = g->loop.following_ns - g->loop_before.following_ns;
        uint64_t apart = following + g->loop.naming_ns - g->loop_before.naming_ns;
        const struct budget_use use = {
                        .sampling_ns = c->kernel_ns - was->kernel_ns + (loop > apart ? loop - apart : 0),
                        .following_ns = following,
                        .naming_ns = naming_ns(g, now),
                        .serving_ns = daemon > loop ? daemon - loop : 0,
        };
        uint32_t before = g->budget.frequency;
        bool exceeded = g->budget.exceeded;
        uint32_t frequency = budget_update(&g->budget, &use, now->at_ns - g->before.at_ns, n_cpus);

        g->before = *now;
        g->loop_before = g->loop;
        if (frequency != before)
                set_rate(g, frequency, before);
        if (g->budget.exceeded && !exceeded && is_news(&g->exceeded_ns))
                log_warning("profd uses %.2f %% of the CPUs, over Cpu= (%.2f %%), at its lowest rate: "
                            "following processes takes %.2f, queries and the store %.2f",
                            g->budget.used_ppm / 1e4, g->budget.limit_ppm / 1e4,
                            g->budget.following_ppm / 1e4, g->budget.serving_ppm / 1e4);
}

static void hold_following(struct governor *g)
{
        bool waited = g->budget.following_waits;
        bool waits = budget_following_waits(&g->budget, g->loop.following_ns - g->loop_before.following_ns);

        tracker_hold(g->parts.tracker, waits);
        if (waits && !waited && is_news(&g->held_ns))
                log_notice("more processes start than Cpu= (%.2f %%) lets profd follow: samples of those "
                           "that it does not are counted, their frames have no names",
                           g->budget.limit_ppm / 1e4);
}

void governor_begin(struct governor *g, const struct counters *now)
{
        g->before = *now;
        g->loop_before = g->loop;
}

void governor_look(struct governor *g, const struct counters *now, uint32_t n_cpus)
{
        if (now->at_ns - g->before.at_ns >= BUDGET_INTERVAL_NS)
                end_interval(g, now, n_cpus);
        symclient_hold_names(g->parts.symbols, budget_names_wait(&g->budget, naming_ns(g, now)));
        hold_following(g);
}
