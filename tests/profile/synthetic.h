/* Synthetic hosts: profiles as large and as varied as those of busy servers, the same for the same seed.
 *
 * A host runs some programs, each a random call graph whose callees are taken with very uneven odds, in
 * several processes, and calls a kernel now and then. Depth, inlining, the number of distinct stacks and the
 * length of names are as in profiles of databases, web servers and compilers. */
#ifndef TESTS_PROFILE_SYNTHETIC_H
#define TESTS_PROFILE_SYNTHETIC_H

#include <stdint.h>

#include "profile/profile.h"

struct synthetic;

struct synthetic_options {
        uint64_t seed;
        uint32_t n_programs;  /* 12 */
        uint32_t n_processes; /* 40 */
        uint32_t n_functions; /* of a program: 1500 */
};

int synthetic_new(struct synthetic **ret, const struct synthetic_options *o);
struct synthetic *synthetic_free(struct synthetic *s);
DEFINE_CLEANUP(struct synthetic, synthetic_free);
#define _cleanup_synthetic_ _cleanup_(synthetic_free_cleanup)

/* Multiplies the time that program 0 spends in its function `n` (its name is synthetic_name()). */
void synthetic_slow_down(struct synthetic *s, uint32_t function, double factor);
const char *synthetic_name(const struct synthetic *s, uint32_t function);

/* A profile of `samples` samples at 99 Hz, with a ledger, from `start_ns` for `duration_ns`; another draw
 * for each `draw`. */
int synthetic_profile(struct synthetic *s, uint64_t draw, uint32_t samples, int64_t start_ns,
                      int64_t duration_ns, struct profile **ret);

#endif
