/* Profiles with known content, for the tests. */
#ifndef TESTS_PROFILE_SAMPLE_PROFILE_H
#define TESTS_PROFILE_SAMPLE_PROFILE_H

#include "profile/profile.h"

/* A two-type profile (samples/count, cpu/nanoseconds) that is empty. */
struct profile *test_new_profile(void);

/* Adds `samples` samples of 10 ms of a stack, named root first and separated by ";", to process `comm` with
 * `pid`. A frame "[k]name" is the kernel's; "outer+inner" is one location with `inner` inlined in `outer`.
 */
void test_add(struct profile *p, const char *comm, int64_t pid, const char *stack, int64_t samples);

/* The value of the sample of this stack (as above), process and pid, of sample type `type`; 0 when none. */
int64_t test_value(const struct profile *p, const char *comm, int64_t pid, const char *stack,
                   const char *type);

int64_t test_total(const struct profile *p, const char *type);

#endif
