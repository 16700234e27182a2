/* `.eh_frame` and `.debug_frame` → unwind rows (symbolizer/unwind_format.h). Runs in the worker.
 *
 * An evaluator of our own for call frame information (DWARF 5, section 6.4; LSB core, exception frames),
 * x86-64 and aarch64: one pass, bounded work, trusts nothing. */
#ifndef SYMBOLIZER_CFI_H
#define SYMBOLIZER_CFI_H

#include "symbolizer/elf_image.h"
#include "symbolizer/unwind_format.h"

struct cfi_function { /* bytes after function_base */
        uint32_t start, end;
};

struct cfi_table {
        uint32_t first_page, n_pages, n_rows, n_rules;
        uint32_t *page_start; /* n_pages + 1 */
        uint32_t *row;
        struct unwind_rule *rule; /* ids from UNWIND_RULE_FIRST on */
        uint32_t bad_fdes;        /* skipped, or cut short by damage */
        uint64_t function_base;
        uint32_t n_functions;
        struct cfi_function *function; /* FDEs by start */
};

/* `debug` may hold .debug_frame for what `e` has no CFI for; NULL. Pages lie within the executable segments
 * of `e`. Code without CFI that is known by its bytes (program entry, .init and .fini, PLTs, signal
 * trampolines) gets rows too. -ENODATA: there is nothing of all this; -E2BIG over a limit; -EBADMSG: nothing
 * of it can be read; -ENOMEM. */
int cfi_build(struct elf_image *e, struct elf_image *debug, struct cfi_table **ret);
struct cfi_table *cfi_table_free(struct cfi_table *t);

/* The id of the rule that holds at an address. */
uint32_t cfi_table_find(const struct cfi_table *t, uint64_t address);

/* The function that covers an address: bounds of its FDE. False when none does. For naming by FDE bounds. */
bool cfi_function_bounds(const struct cfi_table *t, uint64_t address, uint64_t *ret_start,
                         uint64_t *ret_end);

#endif
