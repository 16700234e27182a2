/* One look at everything profd counts: what the ledger of a window is a difference of, and what status and
 * metrics show. */
#ifndef DAEMON_COUNTERS_H
#define DAEMON_COUNTERS_H

#include <stdint.h>

#include "daemon/api.h"
#include "daemon/budget.h"
#include "daemon/pipeline.h"
#include "daemon/sampler.h"
#include "daemon/store.h"
#include "daemon/tracker.h"
#include "daemon/writer.h"
#include "symbolizer/client.h"

/* What profd costs, totals since start. */
struct cost {
        uint64_t daemon_ns; /* CPU time of the daemon's threads, */
        uint64_t loop_ns;   /* of the one that reads the counters, the event loop's */
        uint64_t worker_ns; /* of the symbolizer's workers */
        uint64_t kernel_ns; /* in the BPF programs */
        uint64_t resident;  /* bytes of the daemon */
        uint64_t worker_resident;
        uint64_t maps; /* bytes of BPF maps */
};

struct counters {
        uint64_t at_ns; /* monotonic */
        uint64_t stat[ABI_STAT_MAX];
        struct tracker_stats tracker;
        struct pipeline_stats pipeline;
        struct symclient_stats symbols;
        struct writer_stats writer;
        struct cost cost;
};

/* A loss of samples by its cause, as the ledger, status and metrics name it. */
struct loss {
        const char *cause;
        const char *meaning; /* one line for people: what happened and what helps */
        uint64_t samples;
};
#define COUNTERS_LOSSES 10

/* Writer NULL before it is started. */
int counters_read(struct counters *ret, struct sampler *sampler, struct tracker *tracker,
                  struct pipeline *pipeline, struct symclient *symbols, struct writer *writer);

/* Losses between two looks (`before` NULL: since start). */
void counters_losses(const struct counters *before, const struct counters *now,
                     struct loss ret[COUNTERS_LOSSES]);

/* Samples taken since start are: delivered (in a profile that is stored or will be), lost by one of the
 * causes above save `missed` (which were not taken), or waiting (for the next drain, or for an unwind
 * table). */
uint64_t counters_delivered(const struct counters *c);
uint64_t counters_waiting(const struct counters *c);

static inline uint64_t cost_cpu_ns(const struct cost *c)
{
        return c->daemon_ns + c->worker_ns + c->kernel_ns;
}

#endif
