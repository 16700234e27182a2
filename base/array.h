/* Growing arrays: by half, at least to `need` items, of at most UINT32_MAX / 2. */
#ifndef BASE_ARRAY_H
#define BASE_ARRAY_H

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

/* The array with room for `need` items, moved if it had to be; unchanged on error: -ENOMEM, -E2BIG. */
static inline void *array_grown(void *array, uint32_t *cap, uint64_t need, size_t size, int *ret_error)
{
        *ret_error = 0;
        if (need <= *cap)
                return array;
        if (need > UINT32_MAX / 2) {
                *ret_error = -E2BIG;
                return array;
        }
        uint64_t bigger = (uint64_t)*cap + *cap / 2;
        if (bigger < 64)
                bigger = 64;
        if (bigger < need)
                bigger = need;
        void *moved = reallocarray(array, bigger, size);
        if (!moved) {
                *ret_error = -ENOMEM;
                return array;
        }
        *cap = (uint32_t)bigger;
        return moved;
}

/* ARRAY_ROOM(w->stack, w->cap_stacks, n): room for n items of the array's type; 0 or -errno. It assigns the
 * pointer itself, as its own type: writing it through a void ** would break aliasing rules. */
#define ARRAY_ROOM(array, cap, need)                                                            \
        ({                                                                                      \
                int _room_error;                                                                \
                (array) = array_grown((array), &(cap), (need), sizeof(*(array)), &_room_error); \
                _room_error;                                                                    \
        })

#endif
