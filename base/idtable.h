/* An open-addressing table from a 64-bit hash to a 32-bit id: the index of every interning table
 * (strings, functions, stacks, objects).
 *
 * The table holds no keys: the caller keeps the things in an array, and compares. Ids are the caller's,
 * any value below IDTABLE_NONE. Linear probing, at most 3/4 full; removal shifts back, so there are no
 * tombstones. A zeroed struct is an empty table. */
#ifndef BASE_IDTABLE_H
#define BASE_IDTABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IDTABLE_NONE UINT32_MAX

struct idtable_slot {
        uint32_t hash; /* the upper half of the hash: most mismatches end here */
        uint32_t id;   /* IDTABLE_NONE: free */
};

struct idtable {
        struct idtable_slot *slot;
        uint32_t n;
        uint32_t mask; /* slots - 1; 0 while empty */
};

/* Tells whether the thing with this id is the one looked for. */
typedef bool (*idtable_equal_fn)(const void *ctx, uint32_t id, const void *key);
/* The hash of the thing with this id. */
typedef uint64_t (*idtable_hash_fn)(const void *ctx, uint32_t id);

/* The id of the thing that has this hash and for which equal() is true; IDTABLE_NONE when there is none. */
uint32_t idtable_find(const struct idtable *t, uint64_t hash, idtable_equal_fn equal, const void *ctx,
                      const void *key);

/* Adds an id. The caller has seen to it that the thing is not in the table. hash_of() is called for the ids
 * already there when the table grows. 0 or -ENOMEM. */
int idtable_add(struct idtable *t, uint64_t hash, uint32_t id, idtable_hash_fn hash_of, const void *ctx);

/* Removes an id; it must be there under this hash. */
void idtable_remove(struct idtable *t, uint64_t hash, uint32_t id, idtable_hash_fn hash_of, const void *ctx);

void idtable_clear(struct idtable *t); /* forgets the ids, keeps the memory */
void idtable_free(struct idtable *t);

#endif
