/* gzip (RFC 1952) of whole buffers, by libdeflate: a third of zlib's CPU time in both directions. */
#ifndef PROFILE_GZIP_H
#define PROFILE_GZIP_H

#include <stddef.h>

#include "base/buf.h"

/* Levels: what is written once and soon read or merged, and what is kept for weeks. */
#define GZIP_LEVEL      6
#define GZIP_LEVEL_KEPT 9

/* Appends to `out` what one or more gzip members hold, at most `max` bytes. -EBADMSG: damaged, or cut short,
 * or followed by something else; -EFBIG: more than `max`; -ENOMEM. */
int gzip_inflate(const void *data, size_t n, size_t max, struct buf *out);

/* Appends one member that holds the data, with a comment in its header (FCOMMENT) when there is one; the
 * comment's text begins GZIP_COMMENT_AT bytes behind the member's begin. Equal input gives equal bytes. 0 or
 * -errno. */
#define GZIP_COMMENT_AT 10
int gzip_deflate(const void *data, size_t n, int level, const char *comment, struct buf *out);

#endif
