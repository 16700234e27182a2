#include "daemon/ledger.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/io.h"

void ledger_host(struct ledger_host *ret)
{
        struct ledger_host h = {0};
        _cleanup_buf_ struct buf id = {0};
        struct utsname u;

        gethostname(h.host, sizeof(h.host) - 1);
        if (uname(&u) == 0)
                snprintf(h.kernel, sizeof(h.kernel), "%.60s %.60s", u.release, u.machine);
        if (read_file("/proc/sys/kernel/random/boot_id", 64, &id) >= 0)
                snprintf(h.boot_id, sizeof(h.boot_id), "%.36s", buf_text(&id));
        *ret = h;
}

static int __attribute__((format(printf, 2, 3))) line(struct profile *p, const char *fmt, ...)
{
        char text[512];
        va_list ap;

        va_start(ap, fmt);
        vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
        return profile_comment(p, text);
}

static int add_events(struct profile *p, const struct sampler *sampler)
{
        int r = 0;

        for (uint32_t i = 0; i < sampler_n_events(sampler) && r >= 0; i++) {
                const struct sampler_event *e = sampler_event(sampler, i);
                const char *open = e->why ? " (" : "", *why = e->why ? e->why : "",
                           *close = e->why ? ")" : "";
                if (e->actual)
                        r = line(p, "event.%s: %s at %u Hz%s%s%s", e->name, e->actual, e->frequency, open,
                                 why, close);
                else
                        r = line(p, "event.%s: off%s%s%s", e->name, open, why, close);
        }
        return r;
}

static int add_numbers(struct profile *p, const struct counters *before, const struct counters *now)
{
        struct loss losses[COUNTERS_LOSSES];
        int r = line(p, "samples.taken: %" PRIu64, now->stat[ABI_STAT_TAKEN] - before->stat[ABI_STAT_TAKEN]);

        if (r >= 0)
                r = line(p, "samples.deferred: %" PRIu64,
                         now->stat[ABI_STAT_DEFERRED] - before->stat[ABI_STAT_DEFERRED]);
        /* Delivered, but with a stack that is cut. */
        if (r >= 0)
                r = line(p, "samples.hurried: %" PRIu64,
                         now->tracker.deferred_hurried - before->tracker.deferred_hurried);
        if (r >= 0)
                r = line(p, "samples.not_deferred: %" PRIu64,
                         now->stat[ABI_STAT_RAWS_FULL] - before->stat[ABI_STAT_RAWS_FULL]);
        counters_losses(before, now, losses);
        for (int i = 0; i < COUNTERS_LOSSES && r >= 0; i++)
                r = line(p, "lost.%s: %" PRIu64, losses[i].cause, losses[i].samples);
        if (r >= 0)
                r = line(p, "records.lost: %" PRIu64,
                         now->tracker.records_lost - before->tracker.records_lost);
        if (r >= 0)
                r = line(p, "records.skipped: %" PRIu64,
                         now->tracker.records_skipped - before->tracker.records_skipped);
        if (r >= 0)
                r = line(p, "cost.cpu_ms: %" PRIu64,
                         (uint64_t)((cost_cpu_ns(&now->cost) - cost_cpu_ns(&before->cost)) / NSEC_PER_MSEC));
        return r;
}

/* The weight of each sample is its own period: these two say how fine the picture is. */
static int add_rate(struct profile *p, const struct budget *budget, uint32_t lowest)
{
        const char *why = budget_why(budget);
        char least[32] = "";

        if (lowest < budget->frequency)
                snprintf(least, sizeof(least), " (%u Hz at the least)", lowest);
        return line(p, "rate.reached: %u Hz%s%s%s%s", budget->frequency, least, why ? " (" : "",
                    why ? why : "", why ? ")" : "");
}

int ledger_add(struct profile *p, const struct ledger_host *host, const struct sampler *sampler,
               const struct budget *budget, uint32_t lowest, const struct counters *before,
               const struct counters *now)
{
        int r = line(p, "profd: %s", PROFD_VERSION);

        if (r >= 0)
                r = line(p, "host: %s", host->host);
        if (r >= 0)
                r = line(p, "kernel: %s", host->kernel);
        if (r >= 0)
                r = line(p, "boot: %s", host->boot_id);
        if (r >= 0)
                r = line(p, "rate.asked: %u Hz", budget->asked);
        if (r >= 0)
                r = add_rate(p, budget, lowest);
        if (r >= 0)
                r = add_events(p, sampler);
        if (r >= 0)
                r = add_numbers(p, before, now);
        return r;
}
