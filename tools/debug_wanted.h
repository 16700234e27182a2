/* Which objects of a profile would be told better with debug information, and by how many samples. */
#ifndef TOOLS_DEBUG_WANTED_H
#define TOOLS_DEBUG_WANTED_H

#include <stdbool.h>
#include <stdint.h>

#include "profile/profile.h"

/* Of the outermost frame; "" without one. */
const char *location_name(const struct profile *p, const struct profile_location *l);
bool location_is_unnamed(const struct profile *p, const struct profile_location *l);
/* Whether the innermost frame has a source file or line. */
bool location_has_lines(const struct profile *p, const struct profile_location *l);

struct debug_object {
        const char *build_id; /* of the profile: hexadecimal digits */
        const char *file;
        int64_t lacking; /* samples with a frame of it that has no name or no source line */
};

/* All objects with a build ID, those that lack most first; the caller frees the array. 0 or -ENOMEM. */
int debug_wanted(const struct profile *p, struct debug_object **ret, uint32_t *ret_n);

#endif
