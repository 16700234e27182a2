#include "profile/inflate.h"

#include <errno.h>
#include <limits.h>
#include <zlib.h>

#include "base/cleanup.h"

#define GZIP_WINDOW   (15 + 16) /* zlib.h, inflateInit2(): any window, gzip header */
#define FIRST_ROOM    ((size_t)64 << 10)
#define MAX_EXPANSION 1032 /* of deflate, zlib's "Maximum Compression Factor" */
#define MEMBER_MIN    18   /* bytes of the smallest member: header 10, trailer 8 */

/* The size that the trailer claims (modulo 2^32, RFC 1952), when it can be true; else 0. */
static size_t claimed_size(const unsigned char *data, size_t n)
{
        if (n < MEMBER_MIN)
                return 0;
        const unsigned char *t = data + n - 4;
        size_t size = (size_t)t[0] | (size_t)t[1] << 8 | (size_t)t[2] << 16 | (size_t)t[3] << 24;
        return size / MAX_EXPANSION <= n ? size : 0;
}

static int inflate_members(z_stream *z, const unsigned char *data, size_t n, size_t max, struct buf *out)
{
        size_t fed = 0, have = 0, claimed = MIN_OF(claimed_size(data, n), max);

        for (;;) {
                if (z->avail_in == 0) {
                        z->next_in = (unsigned char *)(uintptr_t)(data + fed);
                        z->avail_in = (uInt)MIN_OF(n - fed, (size_t)UINT_MAX);
                        fed += z->avail_in;
                }
                if (have > max)
                        return -EFBIG;
                size_t room = MIN_OF(MAX_OF(FIRST_ROOM, claimed > have ? claimed - have : 0),
                                     max - have + 1);
                room = MIN_OF(room, (size_t)UINT_MAX);
                unsigned char *to = buf_reserve(out, room);
                if (!to)
                        return buf_error(out) == -E2BIG ? -EFBIG : buf_error(out);
                z->next_out = to;
                z->avail_out = (uInt)room;
                int r = inflate(z, Z_NO_FLUSH);
                buf_commit(out, room - z->avail_out);
                have += room - z->avail_out;

                if (r == Z_STREAM_END) {
                        if (z->avail_in == 0 && fed == n)
                                return have > max ? -EFBIG : 0;
                        if (inflateReset(z) != Z_OK)
                                return -EBADMSG;
                } else if (r == Z_MEM_ERROR) {
                        return -ENOMEM;
                } else if (r != Z_OK) {
                        return -EBADMSG; /* Z_BUF_ERROR too: there is room, so the input is at its end */
                }
        }
}

int gzip_inflate(const void *data, size_t n, size_t max, struct buf *out)
{
        z_stream z = {0};

        if (inflateInit2(&z, GZIP_WINDOW) != Z_OK)
                return -ENOMEM;
        int r = inflate_members(&z, data, n, max, out);
        inflateEnd(&z);
        return r;
}
