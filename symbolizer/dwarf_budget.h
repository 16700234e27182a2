/* What one index may cost. The input chooses neither: memory that is kept or grown is charged before it is
 * had, and work (DIEs, abbreviations, ranges, line rows read) as it is done. */
#ifndef SYMBOLIZER_DWARF_BUDGET_H
#define SYMBOLIZER_DWARF_BUDGET_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

struct dwarf_budget {
        uint64_t memory, max_memory; /* bytes */
        uint64_t work, max_work;
};

static inline bool dwarf_work(struct dwarf_budget *b, uint64_t n)
{
        b->work += n;
        return b->work <= b->max_work;
}

static inline bool dwarf_work_left(const struct dwarf_budget *b)
{
        return b->work <= b->max_work;
}

/* Zeroed memory; NULL with errno ENOMEM or E2BIG. Free with dwarf_release() and the same size. */
static inline void *dwarf_alloc(struct dwarf_budget *b, uint64_t n, uint64_t size)
{
        uint64_t bytes;
        void *p;

        if (__builtin_mul_overflow(n, size, &bytes) || bytes > b->max_memory - b->memory) {
                errno = E2BIG;
                return NULL;
        }
        p = calloc(1, bytes ? bytes : 1);
        if (p)
                b->memory += bytes;
        return p;
}

static inline void dwarf_release(struct dwarf_budget *b, void *p, uint64_t n, uint64_t size)
{
        if (p)
                b->memory -= n * size;
        free(p);
}

/* A growing array that is reused: room for one more element after the first n. 0, -ENOMEM or -E2BIG. */
int dwarf_grow(struct dwarf_budget *b, void **array, uint64_t *cap, uint64_t n, uint64_t size);

#define DWARF_GROW(budget, array, cap, n) \
        ((n) < (cap) ? 0 : dwarf_grow((budget), (void **)&(array), &(cap), (n), sizeof(*(array))))

#endif
