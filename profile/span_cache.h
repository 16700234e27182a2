/* Remembers what spans of bytes were read as. The samples of a file repeat their packed locations and their
 * labels byte for byte (one stack in many processes, one process on many stacks); reading a span again costs
 * a hash and a comparison. Direct-mapped, of a fixed size: what collides is read anew. */
#ifndef PROFILE_SPAN_CACHE_H
#define PROFILE_SPAN_CACHE_H

#include <stdint.h>
#include <string.h>

#include "base/hash.h"
#include "profile/wire.h"

#define SPAN_CACHE_SLOTS 4096u

struct span_cache {
        struct {
                struct wire span; /* within the file, which outlives the cache; at NULL: free */
                uint32_t id;
        } slot[SPAN_CACHE_SLOTS];
};

static inline uint32_t span_cache_slot(struct wire span)
{
        return (uint32_t)hash_bytes(span.at, (size_t)(span.end - span.at)) % SPAN_CACHE_SLOTS;
}

/* What the span was read as, or -1. */
static inline int64_t span_cache_find(const struct span_cache *c, uint32_t slot, struct wire span)
{
        const struct wire *known = &c->slot[slot].span;
        size_t n = (size_t)(span.end - span.at);

        return known->at && (size_t)(known->end - known->at) == n && memcmp(known->at, span.at, n) == 0
                               ? (int64_t)c->slot[slot].id
                               : -1;
}

static inline void span_cache_set(struct span_cache *c, uint32_t slot, struct wire span, uint32_t id)
{
        c->slot[slot].span = span;
        c->slot[slot].id = id;
}

#endif
