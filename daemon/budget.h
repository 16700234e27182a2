/* The CPU budget: how far the sampling rate has to go down so that profd keeps to [Limits] Cpu=.
 *
 * Looks at what profd used over an interval (programs in the kernel, daemon, worker). Over the budget the
 * rate goes down at once, in proportion, at most to a tenth of what was asked; well under it, it comes back
 * a step at a time, so that it does not swing. Weights are periods, so totals stay unbiased at any rate. */
#ifndef DAEMON_BUDGET_H
#define DAEMON_BUDGET_H

#include <stdint.h>

struct budget {
        uint32_t asked;     /* Hz */
        uint32_t frequency; /* Hz in force */
        uint32_t limit_ppm; /* of all CPUs */
        uint32_t used_ppm;  /* over the last interval */
        uint32_t calm;      /* intervals in a row in which a higher rate would have fitted */
};

void budget_init(struct budget *b, uint32_t frequency, uint32_t limit_ppm);

/* Takes the CPU time used in an interval of elapsed_ns on n_cpus. Returns the rate for the next one. */
uint32_t budget_update(struct budget *b, uint64_t used_ns, uint64_t elapsed_ns, uint32_t n_cpus);

#endif
