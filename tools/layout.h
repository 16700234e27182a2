/* How the rows of a table become lines of text: which columns, how wide. The same for report, top and diff.
 */
#ifndef TOOLS_LAYOUT_H
#define TOOLS_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "profile/table.h"

#define LAYOUT_KEYS 11

struct layout {
        uint32_t keys;          /* TABLE_ bits that have a column */
        int width[LAYOUT_KEYS]; /* by position in the line */
        bool children, interval, samples;
        int columns; /* of the line, -1: as long as it takes */
};

/* Columns fit for the first `n_rows` rows of the table. */
void layout_init(struct layout *l, const struct table *t, uint32_t n_rows, uint32_t keys, int columns);
void layout_titles(const struct layout *l, struct buf *out);
void layout_row(const struct layout *l, const struct table *t, const struct table_row *row, struct buf *out);

/* "function (object)", or what else the row has: for callers and callees, and to search in. */
void layout_name(const struct table_row *row, uint32_t keys, struct buf *out);

/* The keys of a comma-separated list ("process,symbol"); "self" and "children" in it go to `*ret_order`.
 * -EINVAL: a word is none. */
enum row_order { ORDER_SELF, ORDER_CHILDREN, ORDER_NAME };
int layout_parse_keys(const char *text, uint32_t *ret_keys, enum row_order *ret_order);

/* Sorts the rows; equal ones by name, so that the order is always the same. */
void layout_sort(struct table *t, enum row_order order);

/* Whether two rows, of different tables, are the same by these keys. */
bool layout_same(const struct table_row *a, const struct table_row *b, uint32_t keys);

/* The callers or callees of a row of a table that was made with `o`, of the row's own process, unit and so
 * on, largest first. */
int layout_edges(const struct profile *p, const struct table_options *o, enum table_direction direction,
                 const struct table_row *row, struct table **ret);

#endif
