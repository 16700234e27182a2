/* Translation of one profile's ids into another's: what merging, selecting and folding are made of. Each
 * thing is added to `into` when its id is first asked for, and remembered. Functions return the id in
 * `into`, or -errno. Both profiles must outlive the copier; `from` must not change while it lives. */
#ifndef PROFILE_COPY_H
#define PROFILE_COPY_H

#include "profile/profile.h"

struct profile_copier;

int profile_copier_new(struct profile_copier **ret, struct profile *into, const struct profile *from);
struct profile_copier *profile_copier_free(struct profile_copier *c);
DEFINE_CLEANUP(struct profile_copier, profile_copier_free);
#define _cleanup_profile_copier_ _cleanup_(profile_copier_free_cleanup)

int64_t profile_copier_string(struct profile_copier *c, uint32_t string);
int64_t profile_copier_location(struct profile_copier *c, uint32_t location);
int64_t profile_copier_stack(struct profile_copier *c, uint32_t stack);
int64_t profile_copier_label_set(struct profile_copier *c, uint32_t label_set);

/* Period and default sample type: the first profile to have them wins. */
int profile_copier_header(struct profile_copier *c);

#endif
