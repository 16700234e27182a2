/* The CPU budget: what profd does less of so that it keeps to [Limits] Cpu=.
 *
 * Three things can be done less of. The sampling rate goes down when sampling and following processes need
 * more than the limit; weights are periods, so totals stay unbiased at any rate. Naming waits when the
 * symbolizer's worker has had its share, a quarter of the limit and whatever the rest of profd leaves:
 * names come later, and are no reason to sample less. Following waits last, when more processes start than
 * half of the limit and what the others leave of it can follow.
 *
 * What people ask of profd counts as it is over a minute: one long report does not make the samples fewer.
 *
 * Over the limit in two intervals of five seconds in a row, or having used in one what ten seconds allow,
 * the rate goes down at once, at most to a tenth of what was asked. It comes back a step at a time where the
 * cost that grows with the rate leaves room. A step that had to be taken back is not tried again for a
 * minute, then two, at most half an hour, unless the host has become much quieter: so it does not swing.
 *
 * In its first minute a start may use a minute of the limit at once: the first look at a host costs once
 * what sampling never does. */
#ifndef DAEMON_BUDGET_H
#define DAEMON_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

/* CPU time in ns. */
struct budget_use {
        uint64_t sampling_ns;  /* grows with the rate: programs in the kernel, drains, windows */
        uint64_t following_ns; /* of processes and their mappings */
        uint64_t naming_ns;    /* the symbolizer's worker, and taking in its answers */
        uint64_t serving_ns;   /* queries, the store */
};

struct budget {
        uint32_t asked;     /* Hz */
        uint32_t frequency; /* Hz in force */
        uint32_t limit_ppm; /* of all CPUs */
        uint32_t used_ppm;  /* over the last interval */
        uint32_t sampling_ppm, following_ppm, naming_ppm;
        uint32_t serving_ppm; /* smoothed over a minute */
        uint64_t over_ns;     /* total time over the limit, as ten seconds show it, starts included */
        bool names_wait;      /* the worker has had its share */
        bool following_waits; /* following has */
        bool exceeded;        /* over the limit with the rate as low as it goes and names waiting */
        int64_t credit_ns;    /* of the whole: below 0, used up */
        int64_t naming_credit_ns, following_credit_ns;
        int64_t bucket_ns;   /* what a credit holds at most, after the start */
        bool started;        /* the credits were filled */
        uint64_t age_ns;     /* since then */
        uint32_t over, calm; /* intervals in a row */
        uint32_t since_raise;
        uint32_t since_wait;      /* intervals since following waited */
        uint32_t raised_from;     /* Hz before the last raise */
        uint32_t hold, hold_left; /* intervals without a raise: the next pause's, and what is left of this */
};

#define BUDGET_INTERVAL_NS 5000000000ull

void budget_init(struct budget *b, uint32_t frequency, uint32_t limit_ppm);

/* Takes what an interval of elapsed_ns (about BUDGET_INTERVAL_NS) has cost on n_cpus. Returns the rate for
 * the next one. */
uint32_t budget_update(struct budget *b, const struct budget_use *use, uint64_t elapsed_ns, uint32_t n_cpus);

/* Whether names have to wait, looked at within an interval in which the worker has used naming_ns so far. */
bool budget_names_wait(struct budget *b, uint64_t naming_ns);

/* The same for following, which has used following_ns so far. Once it waits it does so until it may go on
 * for seconds: each time it goes on all of /proc is read. */
bool budget_following_waits(struct budget *b, uint64_t following_ns);

/* What lowered the rate, for people; NULL when it is as asked. Valid until the next call of an update. */
const char *budget_why(const struct budget *b);

#endif
