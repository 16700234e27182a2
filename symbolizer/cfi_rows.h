/* Builds the rows and the rule list of an unwind table, in ascending order of address. */
#ifndef SYMBOLIZER_CFI_ROWS_H
#define SYMBOLIZER_CFI_ROWS_H

#include <stdint.h>

#include "symbolizer/unwind_format.h"

#define CFI_MAX_PAGES (1u << 19) /* 2 GiB of text, as far as a 32-bit displacement reaches */
#define CFI_MAX_ROWS  (1u << 24) /* twenty times librustc_driver's */
#define CFI_MAX_RULES (65536u - UNWIND_RULE_FIRST)

struct cfi_rows {
        uint32_t *row, *page_start;
        struct unwind_rule *rule;
        uint32_t n_rows, max_rows, n_pages, max_pages, n_rules, max_rules;
        uint32_t *slot; /* rule index by hash, open addressing; UINT32_MAX: free */
        uint32_t slot_mask;
        uint32_t last_rule; /* id that holds at the end of the rows so far */
        int error;          /* sticky: -ENOMEM or -E2BIG */
};

/* `n_pages`: pages from the base that addresses are counted from to the last one that may get a row. */
int cfi_rows_init(struct cfi_rows *b, uint32_t n_pages);
void cfi_rows_done(struct cfi_rows *b);
/* Forgets the rows and rules and keeps the memory. */
void cfi_rows_reset(struct cfi_rows *b);

/* From `pc` (bytes after the base, which is page-aligned) on, `rule` holds. Not below the pc before. */
void cfi_rows_add(struct cfi_rows *b, uint32_t pc, const struct unwind_rule *rule);
/* The same for the kinds without parameters. */
void cfi_rows_add_plain(struct cfi_rows *b, uint32_t pc, enum unwind_kind kind);
/* Closes the last page. */
int cfi_rows_finish(struct cfi_rows *b);

#endif
