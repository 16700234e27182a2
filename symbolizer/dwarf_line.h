/* Line tables of DWARF 2 to 5: a unit's program run once into rows that a search can use, and the names of
 * its files, read again from the header when one is asked for. */
#ifndef SYMBOLIZER_DWARF_LINE_H
#define SYMBOLIZER_DWARF_LINE_H

#include "symbolizer/dwarf_unit.h"

#define DWARF_NO_FILE UINT32_MAX

struct dwarf_row { /* from `address` to the next row's */
        uint64_t address;
        uint32_t file; /* as the table numbers them; DWARF_NO_FILE: no line information from here on */
        uint32_t line;
};

/* Ranges that hold code, ascending and disjoint. Whatever begins elsewhere was dropped by the linker, which
 * leaves 0, 1, -1, -2 or an offset from these in its place. */
struct dwarf_text {
        struct dwarf_interval *range;
        uint64_t n, cap;
};

/* The index of the range that holds an address; -1. */
int64_t dwarf_text_find(const struct dwarf_text *t, uint64_t address);

/* Memory that is reused from unit to unit. */
struct dwarf_line_scratch {
        struct dwarf_row *row, *out;
        struct dwarf_sequence *sequence;
        uint64_t n_rows, cap_rows, n_out, cap_out, n_sequences, cap_sequences;
};
void dwarf_line_scratch_clear(struct dwarf_line_scratch *s, struct dwarf_budget *budget);

/* Runs the unit's program; rows ascending in s->out[0 .. n_out). A damaged program gives the rows before the
 * damage. -E2BIG, -ENOMEM. */
int dwarf_line_rows(const struct dwarf_unit *u, const struct dwarf_text *text, struct dwarf_line_scratch *s);

struct dwarf_file_name {
        const char *comp_dir, *dir, *name; /* to be joined; NULL where there is none */
};

/* The file with this number. False: the table has none. */
bool dwarf_line_file(const struct dwarf_unit *u, uint64_t number, struct dwarf_file_name *ret);

#endif
