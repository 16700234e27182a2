/* Bounded gzip decompression. */
#ifndef PROFILE_INFLATE_H
#define PROFILE_INFLATE_H

#include <stddef.h>

#include "base/buf.h"

/* Appends to `out` what one or more gzip members hold, at most `max` bytes. -EBADMSG: damaged, or cut short,
 * or followed by something else; -EFBIG: more than `max`; -ENOMEM. */
int gzip_inflate(const void *data, size_t n, size_t max, struct buf *out);

#endif
