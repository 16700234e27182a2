/* The flame graph: one HTML page that needs nothing else. */
#ifndef PROFILE_FLAMEGRAPH_H
#define PROFILE_FLAMEGRAPH_H

#include "base/buf.h"
#include "profile/export.h"
#include "profile/profile.h"

/* Appends the page. With `before` the two profiles are compared: frames are sized by `p` and coloured by the
 * change of their share; `o->type` is p's, found in `before` by its name (-ENOENT). */
int flamegraph_write(const struct profile *p, const struct profile *before, const struct export_options *o,
                     struct buf *out);

#endif
