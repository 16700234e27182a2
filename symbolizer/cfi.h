/* `.eh_frame` and `.debug_frame` → unwind rows (symbolizer/unwind_format.h). Runs in the worker.
 *
 * An evaluator of our own for call frame information (DWARF 5, section 6.4; LSB core, exception frames),
 * x86-64 and aarch64: one pass, bounded work, trusts nothing. */
#ifndef SYMBOLIZER_CFI_H
#define SYMBOLIZER_CFI_H

#include "symbolizer/elf_image.h"
#include "symbolizer/unwind_format.h"

struct cfi_table {
        uint32_t first_page, n_pages, n_rows, n_rules;
        uint32_t *page_start; /* n_pages + 1 */
        uint32_t *row;
        struct unwind_rule *rule; /* ids from UNWIND_RULE_FIRST on */
        uint32_t bad_fdes;    /* skipped, or cut short by damage */
};

/* `debug` may hold .debug_frame where `e` has no CFI of its own; NULL. -ENODATA: neither has any; -E2BIG over
 * a limit; -EBADMSG. */
int cfi_build(struct elf_image *e, struct elf_image *debug, struct cfi_table **ret);
struct cfi_table *cfi_table_free(struct cfi_table *t);

/* The function that covers an address: bounds of its FDE. False when none does. For naming by FDE bounds. */
bool cfi_function_bounds(const struct cfi_table *t, uint64_t address, uint64_t *ret_start, uint64_t *ret_end);

#endif
