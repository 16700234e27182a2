/* Keeps profd to [Limits] Cpu=: takes what it cost from the counters, lets the budget judge, and does what
 * it says to the rate, the names and the following of processes. What changes is said in the log. */
#ifndef DAEMON_GOVERNOR_H
#define DAEMON_GOVERNOR_H

#include "daemon/budget.h"
#include "daemon/counters.h"
#include "daemon/sampler.h"
#include "daemon/tracker.h"
#include "symbolizer/client.h"

struct governor_parts { /* borrowed */
        struct sampler *sampler;
        struct tracker *tracker;
        struct symclient *symbols;
};

/* CPU time of the event loop by what it does, where that is not sampling; totals. */
struct loop_cost {
        uint64_t following_ns, naming_ns;
};

struct governor {
        struct governor_parts parts;
        struct budget budget;
        struct loop_cost loop;  /* the owner adds to it */
        struct counters before; /* at the start of the budget's interval */
        struct loop_cost loop_before;
        uint64_t held_ns;     /* when following began to wait, last, */
        uint64_t exceeded_ns; /* and when the lowest rate was too much */
};

/* now: what was spent before its time began. */
void governor_begin(struct governor *g, const struct counters *now);

/* About once a second. */
void governor_look(struct governor *g, const struct counters *now, uint32_t n_cpus);

#endif
