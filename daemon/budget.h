/* The CPU budget: how far the sampling rate has to go down so that profd keeps to [Limits] Cpu=.
 *
 * A bucket: each interval takes out what profd used (programs in the kernel, daemon, worker) and puts in
 * what the limit allows. It is filled with a minute of the limit at first, since naming a whole host costs
 * once what sampling never does, and holds ten seconds of it later. When it is empty the rate goes down at
 * once, in proportion, at most to a tenth of what was asked; well under the limit it comes back a step at a
 * time, so that it does not swing. Weights are periods, so totals stay unbiased at any rate. */
#ifndef DAEMON_BUDGET_H
#define DAEMON_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

struct budget {
        uint32_t asked;     /* Hz */
        uint32_t frequency; /* Hz in force */
        uint32_t limit_ppm; /* of all CPUs */
        uint32_t used_ppm;  /* over the last interval */
        int64_t credit_ns;  /* in the bucket */
        bool started;       /* the bucket was filled */
        uint32_t calm;      /* intervals in a row in which a higher rate would have fitted */
};

void budget_init(struct budget *b, uint32_t frequency, uint32_t limit_ppm);

/* Takes the CPU time used in an interval of elapsed_ns on n_cpus. Returns the rate for the next one. */
uint32_t budget_update(struct budget *b, uint64_t used_ns, uint64_t elapsed_ns, uint32_t n_cpus);

#endif
