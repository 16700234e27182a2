#include "symbolizer/cfi_rows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/hash.h"

#define FIRST_ROWS  1024
#define FIRST_SLOTS 256

int cfi_rows_init(struct cfi_rows *b, uint32_t n_pages)
{
        *b = (struct cfi_rows){.max_pages = n_pages, .last_rule = UNWIND_NONE};
        if (n_pages > CFI_MAX_PAGES)
                return -E2BIG;
        b->page_start = malloc(((size_t)n_pages + 1) * sizeof(*b->page_start));
        b->row = malloc(FIRST_ROWS * sizeof(*b->row));
        b->rule = malloc(FIRST_SLOTS / 2 * sizeof(*b->rule));
        b->slot = malloc(FIRST_SLOTS * sizeof(*b->slot));
        if (!b->page_start || !b->row || !b->rule || !b->slot) {
                cfi_rows_done(b);
                return -ENOMEM;
        }
        b->max_rows = FIRST_ROWS;
        b->max_rules = FIRST_SLOTS / 2;
        b->slot_mask = FIRST_SLOTS - 1;
        memset(b->slot, 0xff, FIRST_SLOTS * sizeof(*b->slot));
        return 0;
}

void cfi_rows_done(struct cfi_rows *b)
{
        free(b->row);
        free(b->page_start);
        free(b->rule);
        free(b->slot);
        *b = (struct cfi_rows){0};
}

void cfi_rows_reset(struct cfi_rows *b)
{
        b->n_rows = b->n_pages = b->n_rules = 0;
        b->last_rule = UNWIND_NONE;
        b->error = 0;
        memset(b->slot, 0xff, ((size_t)b->slot_mask + 1) * sizeof(*b->slot));
}

static inline uint64_t rule_bits(const struct unwind_rule *rule)
{
        uint64_t v;

        memcpy(&v, rule, sizeof(v));
        return v;
}

static int grow_rules(struct cfi_rows *b)
{
        uint32_t n = b->max_rules * 2, mask = n * 2 - 1;
        struct unwind_rule *rule = realloc(b->rule, n * sizeof(*rule));
        uint32_t *slot;

        if (!rule)
                return -ENOMEM;
        b->rule = rule;
        slot = malloc(((size_t)mask + 1) * sizeof(*slot));
        if (!slot)
                return -ENOMEM;
        memset(slot, 0xff, ((size_t)mask + 1) * sizeof(*slot));
        for (uint32_t i = 0; i < b->n_rules; i++) {
                uint32_t at = (uint32_t)hash_u64(rule_bits(&rule[i]), 0) & mask;

                while (slot[at] != UINT32_MAX)
                        at = (at + 1) & mask;
                slot[at] = i;
        }
        free(b->slot);
        b->slot = slot;
        b->slot_mask = mask;
        b->max_rules = n;
        return 0;
}

static uint32_t rule_id(struct cfi_rows *b, const struct unwind_rule *rule)
{
        uint64_t bits = rule_bits(rule);
        uint32_t at = (uint32_t)hash_u64(bits, 0) & b->slot_mask;

        while (b->slot[at] != UINT32_MAX) {
                if (rule_bits(&b->rule[b->slot[at]]) == bits)
                        return b->slot[at] + UNWIND_RULE_FIRST;
                at = (at + 1) & b->slot_mask;
        }
        if (b->n_rules == CFI_MAX_RULES)
                return UNWIND_UNSUPPORTED;
        if (b->n_rules == b->max_rules) {
                b->error = grow_rules(b);
                return b->error ? UNWIND_UNSUPPORTED : rule_id(b, rule);
        }
        b->rule[b->n_rules] = *rule;
        b->slot[at] = b->n_rules;
        return b->n_rules++ + UNWIND_RULE_FIRST;
}

static void push_row(struct cfi_rows *b, uint32_t row)
{
        if (b->n_rows == b->max_rows) {
                uint32_t n = b->max_rows * 2;
                uint32_t *p;

                if (n > CFI_MAX_ROWS) {
                        b->error = -E2BIG;
                        return;
                }
                p = realloc(b->row, n * sizeof(*p));
                if (!p) {
                        b->error = -ENOMEM;
                        return;
                }
                b->row = p;
                b->max_rows = n;
        }
        b->row[b->n_rows++] = row;
}

static void add_id(struct cfi_rows *b, uint32_t pc, uint32_t id)
{
        uint32_t page = pc >> UNWIND_PAGE_SHIFT, offset = pc & UNWIND_PAGE_MASK;

        if (id == b->last_rule || b->error)
                return;
        if (page >= b->max_pages) {
                b->error = -E2BIG;
                return;
        }
        while (b->n_pages <= page && !b->error) {
                b->page_start[b->n_pages++] = b->n_rows;
                push_row(b, UNWIND_ROW(0, b->last_rule));
        }
        if (b->error)
                return;
        b->last_rule = id;
        if (UNWIND_ROW_OFFSET(b->row[b->n_rows - 1]) != offset) {
                push_row(b, UNWIND_ROW(offset, id));
                return;
        }
        /* Replaces what began at the same address, and may then say the same as the row before it. */
        b->row[b->n_rows - 1] = UNWIND_ROW(offset, id);
        if (b->n_rows - 1 > b->page_start[b->n_pages - 1] && UNWIND_ROW_RULE(b->row[b->n_rows - 2]) == id)
                b->n_rows--;
}

void cfi_rows_add(struct cfi_rows *b, uint32_t pc, const struct unwind_rule *rule)
{
        uint32_t kind = UNWIND_RULE_KIND(rule);

        add_id(b, pc, kind < UNWIND_RULE_FIRST ? kind : rule_id(b, rule));
}

void cfi_rows_add_plain(struct cfi_rows *b, uint32_t pc, enum unwind_kind kind)
{
        add_id(b, pc, kind);
}

int cfi_rows_finish(struct cfi_rows *b)
{
        if (!b->error)
                b->page_start[b->n_pages] = b->n_rows;
        return b->error;
}
