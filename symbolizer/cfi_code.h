/* Rows for code that has no call frame information and that is known by its bytes: program entry, `.init`
 * and
 * `.fini`, PLTs, signal trampolines. */
#ifndef SYMBOLIZER_CFI_CODE_H
#define SYMBOLIZER_CFI_CODE_H

#include "symbolizer/cfi_section.h"
#include "symbolizer/elf_image.h"

#define CFI_CODE_MAX_ROWS (1u << 20)

struct cfi_code {
        uint32_t n, max;
        struct cfi_code_row {
                uint32_t pc; /* after text base */
                struct unwind_rule rule;
        } * row; /* owned */
};

/* Adds entries with cie CFI_FDE_CODE to `x`, whose FDEs are sorted, where these cover nothing. Sorted
 * afterwards. */
int cfi_code_find(struct elf_image *e, struct cfi_entries *x, struct cfi_code *code);
void cfi_code_done(struct cfi_code *code);

#endif
