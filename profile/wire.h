/* A bounded reader of the protocol buffers wire format (protobuf.dev, "Encoding"): it reads within [at, end)
 * and nowhere else, whatever the bytes say. Groups (wire types 3 and 4, deprecated) are refused. */
#ifndef PROFILE_WIRE_H
#define PROFILE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "profile/pprof_format.h"

struct wire {
        const unsigned char *at, *end;
};

struct wire_field {
        uint32_t number;
        enum wire_type type;
        uint64_t value;    /* of WIRE_VARINT and the fixed ones */
        struct wire bytes; /* of WIRE_BYTES */
};

static inline bool wire_varint(struct wire *w, uint64_t *ret)
{
        uint64_t v = 0;

        if (w->at < w->end && *w->at < 0x80) {
                *ret = *w->at++;
                return true;
        }
        for (unsigned shift = 0; shift < 64 && w->at < w->end; shift += 7) {
                unsigned char c = *w->at++;
                v |= (uint64_t)(c & 0x7f) << shift;
                if (c < 0x80) {
                        *ret = v;
                        return true;
                }
        }
        return false;
}

static inline bool wire_fixed(struct wire *w, size_t n, uint64_t *ret)
{
        uint64_t v = 0;

        if ((size_t)(w->end - w->at) < n)
                return false;
        for (size_t i = 0; i < n; i++)
                v |= (uint64_t)*w->at++ << (8 * i);
        *ret = v;
        return true;
}

/* The next field; 1, 0 at the end, -1 when the bytes are not in the format. */
static inline int wire_next(struct wire *w, struct wire_field *ret)
{
        uint64_t tag, n;

        if (w->at == w->end)
                return 0;
        if (!wire_varint(w, &tag) || tag >> 3 == 0 || tag > UINT32_MAX)
                return -1;
        ret->number = (uint32_t)(tag >> 3);
        ret->type = (enum wire_type)(tag & 7);
        switch (tag & 7) {
        case WIRE_VARINT:
                return wire_varint(w, &ret->value) ? 1 : -1;
        case WIRE_FIXED64:
                return wire_fixed(w, 8, &ret->value) ? 1 : -1;
        case WIRE_FIXED32:
                return wire_fixed(w, 4, &ret->value) ? 1 : -1;
        case WIRE_BYTES:
                if (!wire_varint(w, &n) || n > (uint64_t)(w->end - w->at))
                        return -1;
                ret->bytes = (struct wire){w->at, w->at + n};
                w->at += n;
                return 1;
        default:
                return -1;
        }
}

#endif
