/* A cursor over bytes that nobody vouches for: every read is checked, and the first one past the end marks
 * the cursor bad and yields zero from then on, so that a reader checks once, after a group of reads. */
#ifndef SYMBOLIZER_DWARF_CURSOR_H
#define SYMBOLIZER_DWARF_CURSOR_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "symbolizer/elf_image.h"

struct dwarf_cursor {
        const uint8_t *p, *end;
        bool bad;
};

static inline struct dwarf_cursor dwarf_cursor_at(struct span s, uint64_t offset)
{
        static const uint8_t nothing[1];

        if (!s.data || offset > s.size)
                return (struct dwarf_cursor){.p = nothing, .end = nothing, .bad = true};
        return (struct dwarf_cursor){.p = s.data + offset, .end = s.data + s.size};
}

static inline uint64_t cursor_left(const struct dwarf_cursor *c)
{
        return (uint64_t)(c->end - c->p);
}

static inline uint64_t cursor_fail(struct dwarf_cursor *c)
{
        c->p = c->end;
        c->bad = true;
        return 0;
}

/* A little-endian integer of n (1 to 8) bytes. */
static inline uint64_t cursor_uint(struct dwarf_cursor *c, unsigned n)
{
        uint64_t v = 0;

        if (cursor_left(c) < n)
                return cursor_fail(c);
        memcpy(&v, c->p, n);
        c->p += n;
        return v;
}

static inline uint8_t cursor_u8(struct dwarf_cursor *c)
{
        if (c->p >= c->end)
                return (uint8_t)cursor_fail(c);
        return *c->p++;
}

static inline uint16_t cursor_u16(struct dwarf_cursor *c)
{
        return (uint16_t)cursor_uint(c, 2);
}

static inline uint32_t cursor_u32(struct dwarf_cursor *c)
{
        return (uint32_t)cursor_uint(c, 4);
}

/* DWARF 5, section 7.6. Padding bytes are legal, bits above the 64th are dropped. */
static inline uint64_t cursor_uleb(struct dwarf_cursor *c)
{
        const uint8_t *p = c->p;
        uint64_t v = 0;
        unsigned shift = 0;

        if (p < c->end && *p < 0x80) {
                c->p++;
                return *p;
        }
        while (p < c->end) {
                uint8_t b = *p++;
                if (shift < 64)
                        v |= (uint64_t)(b & 0x7f) << shift;
                shift += 7;
                if (b < 0x80) {
                        c->p = p;
                        return v;
                }
        }
        return cursor_fail(c);
}

static inline int64_t cursor_sleb(struct dwarf_cursor *c)
{
        const uint8_t *p = c->p;
        uint64_t v = 0;
        unsigned shift = 0;

        while (p < c->end) {
                uint8_t b = *p++;
                if (shift < 64)
                        v |= (uint64_t)(b & 0x7f) << shift;
                shift += 7;
                if (b < 0x80) {
                        if (shift < 64 && (b & 0x40))
                                v |= ~(uint64_t)0 << shift;
                        c->p = p;
                        return (int64_t)v;
                }
        }
        return (int64_t)cursor_fail(c);
}

static inline void cursor_skip(struct dwarf_cursor *c, uint64_t n)
{
        if (cursor_left(c) < n)
                cursor_fail(c);
        else
                c->p += n;
}

/* The NUL-terminated string here, the cursor behind it; NULL when it does not end. */
static inline const char *cursor_string(struct dwarf_cursor *c)
{
        const char *s = (const char *)c->p;
        const uint8_t *nul = c->bad ? NULL : memchr(c->p, 0, cursor_left(c));

        if (!nul) {
                cursor_fail(c);
                return NULL;
        }
        c->p = nul + 1;
        return s;
}

#endif
