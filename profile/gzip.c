#include "profile/gzip.h"

#include <errno.h>
#include <libdeflate.h>
#include <stdint.h>
#include <string.h>

#include "base/cleanup.h"

#define FIRST_ROOM    ((size_t)64 << 10)
#define MAX_EXPANSION 1032 /* of deflate: zlib's technical notes, "Maximum Compression Factor" */
#define MEMBER_MIN    18   /* bytes of the smallest member: header 10, trailer 8 */
#define FLAG_COMMENT  0x10

DEFINE_CLEANUP(struct libdeflate_decompressor, libdeflate_free_decompressor);
DEFINE_CLEANUP(struct libdeflate_compressor, libdeflate_free_compressor);

/* The size that the trailer claims (modulo 2^32, RFC 1952), when it can be true; else 0. */
static size_t claimed_size(const unsigned char *data, size_t n)
{
        if (n < MEMBER_MIN)
                return 0;
        const unsigned char *t = data + n - 4;
        size_t size = (size_t)t[0] | (size_t)t[1] << 8 | (size_t)t[2] << 16 | (size_t)t[3] << 24;
        return size / MAX_EXPANSION <= n ? size : 0;
}

/* One member. The library wants room for all of it: when the guess is too small, it begins again with twice
 * as much. `max`: bytes that it may have. */
static int inflate_member(struct libdeflate_decompressor *d, const unsigned char *data, size_t n,
                          size_t guess, size_t max, size_t *ret_used, struct buf *out)
{
        for (size_t room = MAX_OF(guess, FIRST_ROOM);; room *= 2) {
                size_t used, have;

                room = MIN_OF(room, max);
                unsigned char *to = buf_reserve(out, room + 1); /* 0 bytes of room have no address */
                if (!to)
                        return buf_error(out) == -E2BIG ? -EFBIG : buf_error(out);
                enum libdeflate_result r = libdeflate_gzip_decompress_ex(d, data, n, to, room, &used, &have);
                if (r == LIBDEFLATE_SUCCESS) {
                        buf_commit(out, have);
                        *ret_used = used;
                        return 0;
                }
                if (r != LIBDEFLATE_INSUFFICIENT_SPACE)
                        return -EBADMSG;
                if (room == max)
                        return -EFBIG;
        }
}

int gzip_inflate(const void *data, size_t n, size_t max, struct buf *out)
{
        _cleanup_(libdeflate_free_decompressor_cleanup) struct libdeflate_decompressor *d =
                        libdeflate_alloc_decompressor();
        const unsigned char *at = data, *end = at + n;
        size_t begin = out->len, claimed = claimed_size(data, n);

        if (!d)
                return -ENOMEM;
        do {
                size_t used = 0;
                int r = inflate_member(d, at, (size_t)(end - at), claimed, max - (out->len - begin), &used,
                                       out);
                if (r < 0)
                        return r;
                at += used;
        } while (at < end);
        return 0;
}

static void add_le32(struct buf *b, uint32_t v)
{
        const uint8_t bytes[4] = {(uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16), (uint8_t)(v >> 24)};

        buf_add(b, bytes, sizeof(bytes));
}

int gzip_deflate(const void *data, size_t n, int level, const char *comment, struct buf *out)
{
        _cleanup_(libdeflate_free_compressor_cleanup) struct libdeflate_compressor *c =
                        libdeflate_alloc_compressor(level);
        const uint8_t head[GZIP_COMMENT_AT] = {0x1f, 0x8b, 8, comment ? FLAG_COMMENT : 0, 0, 0, 0, 0, 0, 3};

        if (!c)
                return -ENOMEM;
        if (n > UINT32_MAX)
                return -EFBIG;
        buf_add(out, head, sizeof(head));
        if (comment)
                buf_add(out, comment, strlen(comment) + 1);
        size_t bound = libdeflate_deflate_compress_bound(c, n);
        unsigned char *to = buf_reserve(out, bound);
        if (!to)
                return buf_error(out);
        buf_commit(out, libdeflate_deflate_compress(c, data, n, to, bound));
        add_le32(out, libdeflate_crc32(0, data, n));
        add_le32(out, (uint32_t)n);
        return buf_error(out);
}
