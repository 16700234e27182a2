/* Names of functions and files, resolved when first asked for and kept once each. */
#ifndef SYMBOLIZER_DWARF_NAMES_H
#define SYMBOLIZER_DWARF_NAMES_H

#include "symbolizer/dwarf_unit.h"

struct dwarf_names;

struct dwarf_function {
        const char *name;       /* linkage name; where there is none, the name with what it is in; NULL */
        const char *short_name; /* DW_AT_name; NULL */
        uint32_t line;          /* where it is declared; 0 */
        uint16_t language;
};

/* `abbrevs` is memory of the walker's that may be used while no walk runs. */
int dwarf_names_new(struct dwarf_names **ret, struct dwarf_budget *budget, struct dwarf_abbrev_set *abbrevs);
struct dwarf_names *dwarf_names_free(struct dwarf_names *n);

/* The id of the function that the DIE at this offset is, or is an instance of; ids are from 1 on. A DIE that
 * cannot be read gives a function without names. -E2BIG, -ENOMEM. */
int dwarf_names_function(struct dwarf_names *n, struct dwarf_unit *u, uint64_t offset, uint32_t *ret_id);
/* Valid until the next call of dwarf_names_function(); its strings for good. */
const struct dwarf_function *dwarf_names_get(const struct dwarf_names *n, uint32_t id);

/* The string, kept once. NULL with errno E2BIG or ENOMEM. */
const char *dwarf_names_intern(struct dwarf_names *n, const char *s, size_t len);

#endif
