/* Decompression into a size known beforehand, for sections and for what is embedded in them. Every result is
 * of exactly the size that was announced, or an error: nothing grows beyond it. */
#ifndef SYMBOLIZER_INFLATE_H
#define SYMBOLIZER_INFLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum inflate_type { /* ELFCOMPRESS_ZLIB and ELFCOMPRESS_ZSTD of the generic ABI */
                    INFLATE_ZLIB = 1,
                    INFLATE_ZSTD = 2,
};

/* The stream must give exactly `size` bytes; *ret is for the caller to free(). -EBADMSG, -ENOMEM. */
int inflate_exactly(enum inflate_type type, const void *data, size_t n, uint64_t size, uint8_t **ret);

/* The same into memory of the caller's. With `shared` that is a file's: its pages are given back on the way.
 */
int inflate_into(enum inflate_type type, const void *data, size_t n, uint8_t *out, size_t size, bool shared);

/* Whether `n` bytes can inflate to that many at all. */
bool inflate_is_possible(enum inflate_type type, size_t n, uint64_t size);

/* An xz stream (.gnu_debugdata) of any size up to `max`: -E2BIG when it is larger. */
int inflate_xz(const void *data, size_t n, uint64_t max, uint8_t **ret, size_t *ret_size);

#endif
