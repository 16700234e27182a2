/* Unwind tables in the maps of the kernel half: rules, rows and the index of pages.
 *
 * An object gets its part of the page index once, when its segments are known, and keeps it: lists of
 * mappings refer to it. What the entries point to comes and goes: rows are loaded by chunks of 64 pages,
 * evicted chunk by chunk by zeroing the entries (a walk that meets a zero hands its sample to user space,
 * which loads the chunk again), and reused after a grace period. Rows live in shards of 1 MiB, made on
 * demand up to the ceiling: adding one makes the kernel wait for its readers (10 ms), so they are large and
 * never given back.
 *
 * Rules of all objects share one dictionary. */
#ifndef DAEMON_UNWIND_TABLES_H
#define DAEMON_UNWIND_TABLES_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/sampler.h"
#include "symbolizer/client.h"

#define UNWIND_CHUNK_PAGES 64

struct unwind_tables;
struct unwind_index; /* the tables of one object */

/* max_bytes: of all rows; at least one shard is used. */
int unwind_tables_new(struct unwind_tables **ret, const struct unwind_maps *maps, uint64_t max_bytes);
struct unwind_tables *unwind_tables_free(struct unwind_tables *t); /* and what is left of its indexes */

/* Room in the page index for the executable segments of an object, at most max_bytes of text (what the file
 * can hold). Nothing is loaded. -ENOSPC. */
int unwind_index_new(struct unwind_tables *t, const struct sym_segment *segment, uint32_t n,
                     uint64_t max_bytes, struct unwind_index **ret);
/* No published list refers to it any more. */
struct unwind_index *unwind_index_free(struct unwind_tables *t, struct unwind_index *x);

/* Its table is about to come: room is made ready meanwhile. */
void unwind_index_expect(struct unwind_tables *t, const struct unwind_index *x);

/* Where in the page index the segment is that holds an ELF address; false when none does. */
struct unwind_place {
        uint32_t page, n_pages, first_page; /* as in abi_mapping */
};
bool unwind_index_place(const struct unwind_index *x, uint64_t address, struct unwind_place *ret);

/* Loads rows: all that there is room for, but at least of the chunks that were asked for with
 * unwind_index_want(). Returns 1 when all that was wanted is there, 0 when there was no room. */
int unwind_index_load(struct unwind_tables *t, struct unwind_index *x, const struct sym_table *table);

/* There is no unwind information (kind UNWIND_NONE: walk by frame pointer), or it cannot be used now
 * (UNWIND_UNSUPPORTED: end the stack, marked). Stands until the next load or eviction. */
void unwind_index_fill(struct unwind_tables *t, struct unwind_index *x, enum unwind_kind kind);

/* Takes such a filling back: what is not loaded is absent again. */
void unwind_index_unfill(struct unwind_tables *t, struct unwind_index *x);

/* A walk needs the page of this address. Returns true when it is not loaded (and notes it as wanted). */
bool unwind_index_want(struct unwind_tables *t, struct unwind_index *x, uint64_t address);

/* The rule for an address, as the kernel half finds it. 0; -EAGAIN: not loaded; -ENOENT: outside. */
int unwind_index_rule(const struct unwind_tables *t, const struct unwind_index *x, uint64_t address,
                      struct unwind_rule *ret);

/* Samples of it were seen: what was not seen for longest is evicted first. */
void unwind_index_touch(struct unwind_tables *t, struct unwind_index *x);

uint32_t unwind_index_rows(const struct unwind_index *x); /* loaded now */

/* Once per drain. */
void unwind_tables_tick(struct unwind_tables *t);

struct unwind_tables_stats {
        uint32_t shards, tables, rules, pages;
        uint64_t rows;      /* loaded now, with what rounding up takes */
        uint64_t max_rows;  /* the ceiling */
        uint64_t evictions; /* chunks */
        uint64_t no_room;   /* loads that found no room */
        uint64_t no_rules;  /* rules beyond the dictionary: their code ends stacks as unsupported */
};
void unwind_tables_stats(const struct unwind_tables *t, struct unwind_tables_stats *ret);

#endif
