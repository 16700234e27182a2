/* Profiles made smaller for those who take no large ones. */
#ifndef PROFILE_LIMIT_H
#define PROFILE_LIMIT_H

#include "profile/profile.h"

/* A profile of at most `max_samples` samples and `max_bytes` of uncompressed pprof (0: no limit). The
 * samples with the smallest values are added to one without labels whose only frame is PROFILE_REMAINDER;
 * the ledger then says how many under "folded.stacks" and "folded.samples". Totals stay as they are. */
#define PROFILE_REMAINDER "[smaller stacks]"
int profile_limit(const struct profile *p, uint32_t max_samples, uint64_t max_bytes, struct profile **ret);

/* A profile whose samples keep only the string labels with these keys, and the numeric ones; samples that
 * become equal are one. */
int profile_keep_labels(const struct profile *p, const char *const *keys, uint32_t n_keys,
                        struct profile **ret);

/* The same; `numbers` tells whether the numeric ones are kept. */
int profile_reduce_labels(const struct profile *p, const char *const *keys, uint32_t n_keys, bool numbers,
                          struct profile **ret);

#endif
