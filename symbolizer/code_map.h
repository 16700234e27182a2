/* Address → entry, for code that is made and replaced while a program runs: of entries that overlap, the one
 * that was added last wins. Runs in the worker. */
#ifndef SYMBOLIZER_CODE_MAP_H
#define SYMBOLIZER_CODE_MAP_H

#include <stdbool.h>
#include <stdint.h>

#define CODE_MAP_MAX (4u << 20) /* entries */

struct code_entry {
        uint64_t start, end;
        uint32_t name, lines; /* the caller's */
};

struct code_segment {
        uint64_t start, end;
        uint32_t entry;
};

/* A zeroed struct is empty. */
struct code_map {
        struct code_entry *entry; /* in the order in which they were added */
        uint32_t n, cap;
        struct code_segment *segment; /* disjoint, ascending: of the first n_sorted entries */
        uint32_t n_segments, n_sorted;
};

void code_map_free(struct code_map *m);
int code_map_add(struct code_map *m, const struct code_entry *e); /* -E2BIG, -ENOMEM */

/* To be called after entries were added, before the next look-up. */
int code_map_settle(struct code_map *m);
const struct code_entry *code_map_find(const struct code_map *m, uint64_t address);

#endif
