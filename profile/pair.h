/* Two profiles as one, so that what is compared is named and matched by one table. */
#ifndef PROFILE_PAIR_H
#define PROFILE_PAIR_H

#include "profile/profile.h"

/* The sample types of a pair. */
enum { PAIR_BEFORE = 0, PAIR_AFTER = 1, PAIR_BEFORE_SAMPLES = 2, PAIR_AFTER_SAMPLES = 3, PAIR_TYPES = 4 };

/* Makes a profile of the samples of both: their values of the type named `type` (NULL: the default one of
 * `after`) and how many samples that is. Only the string labels with these keys are kept. -ENOENT: one of
 * the two has no such type. `before` may be NULL: all its values are 0. */
int profile_pair(const struct profile *before, const struct profile *after, const char *type,
                 const char *const *keys, uint32_t n_keys, struct profile **ret);

#endif
