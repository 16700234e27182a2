/* Split units: the bulk of a unit's DIEs in a .dwo file or in a package (.dwp) of many, found by the id that
 * its skeleton in the object carries. */
#ifndef SYMBOLIZER_DWARF_SPLIT_H
#define SYMBOLIZER_DWARF_SPLIT_H

#include "symbolizer/dwarf_index.h"
#include "symbolizer/dwarf_unit.h"

struct dwarf_split;

int dwarf_split_new(struct dwarf_split **ret, const struct dwarf_sources *sources,
                    struct dwarf_budget *budget);
struct dwarf_split *dwarf_split_free(struct dwarf_split *s);

/* The unit that a skeleton stands for, made to read the skeleton's addresses and ranges. NULL in *ret: it is
 * nowhere. -E2BIG, -ENOMEM. */
int dwarf_split_find(struct dwarf_split *s, const struct dwarf_unit *skeleton, struct dwarf_unit **ret);

#endif
