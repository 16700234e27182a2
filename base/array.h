/* Growing arrays: by half, at least to `need` items. 0 or -ENOMEM; the array is unchanged then. */
#ifndef BASE_ARRAY_H
#define BASE_ARRAY_H

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

static inline int array_grow(void **array, uint32_t *cap, uint64_t need, size_t size)
{
        if (need <= *cap)
                return 0;
        if (need > UINT32_MAX / 2)
                return -ENOMEM;
        uint64_t bigger = *cap ? *cap + *cap / 2 : 64;
        if (bigger < need)
                bigger = need;
        void *p = realloc(*array, bigger * size);
        if (!p)
                return -ENOMEM;
        *array = p;
        *cap = (uint32_t)bigger;
        return 0;
}

/* ARRAY_ROOM(w->stack, w->cap_stacks, n): room for n items of the array's type. */
#define ARRAY_ROOM(array, cap, need) array_grow((void **)&(array), &(cap), (need), sizeof(*(array)))

#endif
