#include "symbolizer/inflate.h"

#include <errno.h>
#include <limits.h>
#include <lzma.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <zlib.h>
#include <zstd.h>

#include "base/cleanup.h"

/* Deflate cannot do better than 1032 to 1 (zlib's technical notes): a larger announcement is a lie, refused
 * before memory is taken for it. */
#define DEFLATE_MAX_RATIO 1032

/* Dictionaries of 64 MiB are what `xz -9` writes; more is not needed to read what strip tools embed. */
#define XZ_MEMORY ((uint64_t)80 << 20)

/* As many bytes are inflated before pages of the result are given back. */
#define SHARED_PART ((size_t)8 << 20)

static int inflate_zlib(const uint8_t *data, size_t n, uint8_t *out, size_t size, bool shared)
{
        size_t part = shared ? SHARED_PART : (size_t)INT_MAX, given_back = 0;

        z_stream z = {.next_in = (uint8_t *)(uintptr_t)data, .next_out = out};
        int r;

        if (inflateInit(&z) != Z_OK)
                return -ENOMEM;
        do { /* its counters have 32 bits */
                size_t in = data + n - z.next_in, room = out + size - z.next_out;
                uInt in_part = (uInt)MIN_OF(in, (size_t)INT_MAX), room_part = (uInt)MIN_OF(room, part);

                z.avail_in = in_part;
                z.avail_out = room_part;
                r = inflate(&z, Z_NO_FLUSH);
                if (z.avail_in == in_part && z.avail_out == room_part)
                        break;
                if (shared && (size_t)(z.next_out - out) - given_back >= SHARED_PART) {
                        madvise(out + given_back, SHARED_PART, MADV_DONTNEED);
                        given_back += SHARED_PART;
                }
        } while (r == Z_OK);

        size_t got = z.next_out - out;

        inflateEnd(&z);
        return r == Z_MEM_ERROR ? -ENOMEM : r == Z_STREAM_END && got == size ? 0 : -EBADMSG;
}

bool inflate_is_possible(enum inflate_type type, size_t n, uint64_t size)
{
        return size < SIZE_MAX && (type != INFLATE_ZLIB || size / DEFLATE_MAX_RATIO <= n);
}

int inflate_into(enum inflate_type type, const void *data, size_t n, uint8_t *out, size_t size, bool shared)
{
        int r;

        if (type == INFLATE_ZLIB)
                r = inflate_zlib(data, n, out, size, shared);
        else /* an error code is larger than any size */
                r = ZSTD_decompress(out, size, data, n) == size ? 0 : -EBADMSG;
        if (shared)
                madvise(out, size, MADV_DONTNEED);
        return r;
}

int inflate_exactly(enum inflate_type type, const void *data, size_t n, uint64_t size, uint8_t **ret)
{
        if (!inflate_is_possible(type, n, size))
                return -EBADMSG;

        _cleanup_free_ uint8_t *out = malloc(size + 1);
        int r;

        if (!out)
                return -ENOMEM;
        r = inflate_into(type, data, n, out, size, false);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(out);
        return 0;
}

int inflate_xz(const void *data, size_t n, uint64_t max, uint8_t **ret, size_t *ret_size)
{
        lzma_stream z = LZMA_STREAM_INIT;
        _cleanup_free_ uint8_t *out = NULL;
        size_t cap = 0;
        lzma_ret r;

        if (lzma_stream_decoder(&z, XZ_MEMORY, 0) != LZMA_OK)
                return -ENOMEM;
        z.next_in = data;
        z.avail_in = n;
        do {
                if (z.avail_out == 0) {
                        if (cap >= max) {
                                lzma_end(&z);
                                return -E2BIG;
                        }

                        size_t want = MIN_OF(cap ? 2 * cap : MAX_OF(4 * n, (size_t)65536), (size_t)max);
                        uint8_t *p = realloc(out, want);

                        if (!p) {
                                lzma_end(&z);
                                return -ENOMEM;
                        }
                        out = p;
                        z.next_out = out + cap;
                        z.avail_out = want - cap;
                        cap = want;
                }
                r = lzma_code(&z, LZMA_FINISH);
        } while (r == LZMA_OK);

        size_t got = z.total_out;

        lzma_end(&z);
        if (r != LZMA_STREAM_END)
                return r == LZMA_MEM_ERROR ? -ENOMEM : r == LZMA_MEMLIMIT_ERROR ? -E2BIG : -EBADMSG;
        *ret = TAKE_PTR(out);
        *ret_size = got;
        return 0;
}
