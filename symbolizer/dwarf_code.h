/* The code of one unit as a search wants it: disjoint ascending segments of addresses, each with the
 * innermost function or inlined call that covers it, and the rows of the line table.
 *
 * Most of a unit's bytes are in the bodies of its functions, and of most functions nobody asks. Where DIEs
 * say where their next sibling is (GCC), functions are passed over in the first walk, and walked each on its
 * own when an address is inside. */
#ifndef SYMBOLIZER_DWARF_CODE_H
#define SYMBOLIZER_DWARF_CODE_H

#include "symbolizer/dwarf_line.h"

/* A function, or the place where one was inlined. Number 0 of each unit is none. */
struct dwarf_node {
        uint32_t die;    /* offset from its unit */
        uint32_t parent; /* the node it is inlined into; always the smaller number; 0: not inlined */
        uint32_t call_line;
        uint32_t function; /* id of its names; 0: not asked for yet */
        uint32_t body_end; /* of a function that was passed over: offset from its unit; 0: it was walked */
        uint16_t call_file;
};

struct dwarf_segment {
        uint32_t start; /* offset from the unit's base address; it reaches to the next one's */
        uint32_t node;
};

struct dwarf_part {
        uint32_t n_nodes, n_segments;
        struct dwarf_node *node;
        struct dwarf_segment *segment;
};

/* Addresses are kept as offsets from `base` in 32 bits: code of one unit that is 4 GiB or more apart is not
 * found. */
struct dwarf_code {
        uint64_t base;
        uint32_t n_rows, n_files;
        struct dwarf_part whole;
        struct dwarf_part **body; /* by node, of functions that were passed over and then asked for; NULL */
        bool has_skipped;         /* there are functions whose bodies `whole` does not know */
        /* Rows, in three arrays of n_rows in one allocation. */
        uint32_t *row_start;
        uint32_t *row_line;
        uint16_t *row_file; /* UINT16_MAX: no line information */
        const char **path;  /* by file number, as far as asked for; NULL until one is */
};

/* What walks need from unit to unit; a zeroed struct is ready. */
struct dwarf_walker {
        struct dwarf_abbrev_set abbrevs;
        struct dwarf_line_scratch lines;
        struct dwarf_node *node;
        struct dwarf_interval *interval, *merged;
        struct dwarf_edge *edge;
        struct dwarf_open *open;
        struct dwarf_level *level; /* a fixed number */
        uint64_t n_nodes, cap_nodes, n_intervals, cap_intervals, cap_merged, n_edges, cap_edges, cap_open;
};
void dwarf_walker_clear(struct dwarf_walker *w, struct dwarf_budget *budget);

/* Walks the DIEs of `dies` (the split unit, where there is one, else `lines`), with `in_full` also all
 * bodies of functions, and runs the line program of `lines`. A damaged unit gives what stands before the
 * damage. -E2BIG, -ENOMEM. */
int dwarf_code_build(struct dwarf_walker *w, struct dwarf_unit *dies, const struct dwarf_unit *lines,
                     const struct dwarf_text *text, bool in_full, struct dwarf_code **ret);
/* The part that knows the body of a function that was passed over; walks it the first time. */
int dwarf_code_body(struct dwarf_walker *w, struct dwarf_unit *dies, const struct dwarf_text *text,
                    struct dwarf_code *c, uint32_t node, struct dwarf_part **ret);
void dwarf_code_free(struct dwarf_code *c, struct dwarf_budget *budget);

struct dwarf_open { /* an interval that the sweep is inside of */
        uint64_t hi;
        uint32_t id, depth;
};

struct dwarf_edge { /* from `start` to the next edge's */
        uint64_t start;
        uint32_t id; /* 0: nothing */
};

/* Makes of intervals that may nest and overlap disjoint edges, w->edge[0 .. n_edges): the deeper interval
 * wins, then the one that begins later. Sorts w->interval. */
int dwarf_flatten(struct dwarf_walker *w, struct dwarf_budget *budget);

/* Adds [lo, hi) to w->interval, cut to the range of `text` that holds its begin; drops it when none does. */
int dwarf_add_interval(struct dwarf_walker *w, struct dwarf_budget *budget, const struct dwarf_text *text,
                       struct dwarf_interval i);

#endif
