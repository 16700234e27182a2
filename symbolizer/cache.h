/* Names and unwind tables on disk, by build ID (or file, where there is none): what was parsed once is not
 * parsed again after a restart.
 *
 * One file for an object's names, flat and mapped: sorted addresses, frames, strings; one for its unwind
 * table. Written to a temporary name and renamed. A file that is damaged, of another version, or made by
 * another build of the worker, is as good as none. The least used files are deleted when all together are
 * too large, or fill their file system.
 *
 * The owner of the object is part of the key: nobody can have another user's objects named by what he has
 * put into a file with their build ID. */
#ifndef SYMBOLIZER_CACHE_H
#define SYMBOLIZER_CACHE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "symbolizer/client.h"
#include "symbolizer/names.h"

struct cache;
struct cache_object; /* the names of one */

/* What names were made from; more is better. */
enum name_quality { NAMES_FROM_DYNSYM = 0, NAMES_FROM_SYMTAB = 1, NAMES_FROM_DWARF = 2 };

struct cache_key {
        uint8_t build_id[SYM_BUILD_ID_MAX];
        uint32_t build_id_len;
        uid_t owner;
};

/* maker: a number for the build of the worker. max: bytes; 0: 256 MiB. The directory exists. */
int cache_new(struct cache **ret, const char *dir, uint64_t max, uint64_t maker);
struct cache *cache_free(struct cache *c);
uint64_t cache_bytes(const struct cache *c);
/* Gives way where the file system has too little room left for what others write there. */
void cache_make_room(struct cache *c);

/* Opens an object's names. Those made from less than debug information count only while nothing has changed
 * where debug information is looked for (`place`, any number that says so) and the object itself has none.
 */
int cache_open(struct cache *c, const struct cache_key *key, uint64_t place, bool has_debug,
               struct cache_object **ret);
/* Writes what was added. */
struct cache_object *cache_close(struct cache *c, struct cache_object *o);
int cache_flush(struct cache *c, struct cache_object *o);

/* 1: the result was copied as the next one of `into`; 0: not known. */
int cache_find(const struct cache_object *o, uint64_t address, struct names *into);
int cache_add(struct cache_object *o, uint64_t address, const struct names *from, uint32_t result,
              enum name_quality quality);
uint32_t cache_n_added(const struct cache_object *o); /* since the last flush */

/* The bytes of a table as it was stored, appended to `ret`; -ENOENT. */
int cache_load_table(struct cache *c, const struct cache_key *key, struct buf *ret);
int cache_store_table(struct cache *c, const struct cache_key *key, const void *data, size_t n);

#endif
