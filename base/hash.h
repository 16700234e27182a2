/* 64-bit hashes for in-memory tables: xxHash's XXH3, inlined. Not for anything that is stored. */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static inline uint64_t hash_bytes(const void *data, size_t n)
{
        return XXH3_64bits(data, n);
}

/* For one or two integers: a multiplication and a fold. */
static inline uint64_t hash_u64(uint64_t a, uint64_t b)
{
        unsigned __int128 m = (unsigned __int128)(a ^ 0x9E3779B97F4A7C15ull) * (b ^ 0xE7037ED1A0B428DBull);
        return (uint64_t)m ^ (uint64_t)(m >> 64);
}

#endif
