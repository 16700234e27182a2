/* What a DIE is in: namespaces, modules, types and functions. DIEs do not name their parents, so a unit in
 * which this is asked is walked once more, and the extent of each such DIE kept. */
#ifndef SYMBOLIZER_DWARF_SCOPES_H
#define SYMBOLIZER_DWARF_SCOPES_H

#include "symbolizer/dwarf_unit.h"

/* Offsets in .debug_info of the DIEs around the one at `offset`, innermost first. -EBADMSG, -E2BIG, -ENOMEM.
 */
int dwarf_scopes_of(struct dwarf_unit *u, uint64_t offset, struct dwarf_abbrev_set *abbrevs, uint64_t *ret,
                    uint32_t max, uint32_t *ret_n);

void dwarf_scopes_free(struct dwarf_scopes *s, struct dwarf_budget *budget);

#endif
