/* Answers of the worker are checked here before anything in them is used: it may have been taken over by the
 * file that it was reading. */
#include <string.h>

#include "symbolizer/client_internal.h"

static bool rules_are_sound(const struct unwind_rule *rule, uint32_t n)
{
        for (uint32_t i = 0; i < n; i++) {
                uint32_t kind = UNWIND_RULE_KIND(&rule[i]);

                if (kind < UNWIND_SP || kind > UNWIND_RA_IN ||
                    UNWIND_RULE_FP(&rule[i]) > UNWIND_FP_UNDEFINED)
                        return false;
        }
        return true;
}

/* Every page begins with a row at its start; offsets ascend; rules exist. */
static bool rows_are_sound(const struct wire_table *t, const uint32_t *page, const uint32_t *row)
{
        if (page[0] != 0 || page[t->n_pages] != t->n_rows)
                return false;
        for (uint32_t p = 0; p < t->n_pages; p++) {
                if (page[p + 1] <= page[p] || page[p + 1] > t->n_rows ||
                    UNWIND_ROW_OFFSET(row[page[p]]) != 0)
                        return false;
                for (uint32_t i = page[p]; i < page[p + 1]; i++) {
                        if (UNWIND_ROW_OFFSET(row[i]) > UNWIND_PAGE_MASK ||
                            UNWIND_ROW_RULE(row[i]) >= UNWIND_RULE_FIRST + t->n_rules ||
                            (i > page[p] && UNWIND_ROW_OFFSET(row[i]) <= UNWIND_ROW_OFFSET(row[i - 1])))
                                return false;
                }
        }
        return true;
}

bool table_is_sound(const struct buf *b)
{
        const struct wire_table *t = (const struct wire_table *)b->data;
        const uint32_t *page = (const uint32_t *)(t + 1);

        if (b->len < sizeof(*t) || t->n_pages == 0 || t->first_page > UINT32_MAX - t->n_pages ||
            b->len - sizeof(*t) != ((uint64_t)t->n_pages + 1 + t->n_rows) * sizeof(uint32_t) +
                                                   (uint64_t)t->n_rules * sizeof(struct unwind_rule))
                return false;
        return rows_are_sound(t, page, page + t->n_pages + 1) &&
               rules_are_sound((const struct unwind_rule *)(page + t->n_pages + 1 + t->n_rows), t->n_rules);
}

static bool is_text(const char *bytes, size_t n, uint32_t at)
{
        return at < n && memchr(bytes + at, 0, n - at);
}

bool functions_are_sound(const struct buf *b)
{
        const struct wire_function *f = (const struct wire_function *)(b->data + sizeof(uint64_t));
        uint64_t n;

        if (b->len < sizeof(n))
                return false;
        memcpy(&n, b->data, sizeof(n));
        if (n > SYM_MAX_FUNCTIONS || (b->len - sizeof(n)) / sizeof(*f) < n)
                return false;

        const char *bytes = (const char *)(f + n);
        size_t size = b->len - sizeof(n) - n * sizeof(*f);

        for (uint64_t i = 0; i < n; i++)
                if (!is_text(bytes, size, f[i].name) || !is_text(bytes, size, f[i].linkage) ||
                    f[i].code > size || f[i].code_size > size - f[i].code)
                        return false;
        return true;
}
