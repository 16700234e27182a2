/* profd's kernel half with what serves it, as the benchmarks run it: sampler, tracker, and the worker that
 * makes unwind tables. */
#ifndef BENCH_PROFD_HALF_H
#define BENCH_PROFD_HALF_H

#include "daemon/sampler.h"
#include "daemon/tracker.h"
#include "symbolizer/client.h"

struct profd_half {
        struct sampler *sampler;
        struct tracker *tracker;
        struct symclient *symbols;
};

/* Opens all and begins to sample cpu-clock. 0 or -errno; what was opened until then is the process's to the
 * end. */
int profd_half_open(struct profd_half *h, uint32_t frequency, uint32_t drain_ms);
void profd_half_close(struct profd_half *h);

/* What the daemon does when something is readable. */
void profd_half_poll(struct profd_half *h);
/* Hands over all that was sampled since the last time. 0 or -errno. */
int profd_half_drain(struct profd_half *h, sample_row_fn row, void *ctx);

#endif
