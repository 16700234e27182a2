#include "tools/report.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "profile/table.h"
#include "tools/event.h"
#include "tools/layout.h"
#include "tools/say.h"
#include "tools/text.h"

#define EDGE_ROWS     10    /* callers or callees of one row */
#define EDGE_MIN      0.005 /* of the row's own */
#define EDGES_OF_ROWS 30    /* rows whose callers are shown, unless more are asked for */

struct report_options report_defaults(void)
{
        return (struct report_options){
                        .keys = TABLE_COMM | TABLE_OBJECT | TABLE_SYMBOL,
                        .order = ORDER_SELF,
        };
}

static int put_edges(const struct profile *p, const struct table_options *o, enum table_direction direction,
                     const struct table_row *row, struct buf *out)
{
        _cleanup_table_ struct table *t = NULL;

        int r = layout_edges(p, o, direction, row, &t);
        if (r < 0)
                return r;
        for (uint32_t i = 0; i < MIN_OF(t->n, (uint32_t)EDGE_ROWS); i++) {
                double share = row->total ? (double)t->row[i].total / (double)row->total : 0;
                if (share < EDGE_MIN)
                        break;
                buf_addf(out, "%12.2f%%  %s ", 100 * share, direction == TABLE_CALLERS ? "from" : "to");
                layout_name(&t->row[i], TABLE_SYMBOL | TABLE_OBJECT, out);
                buf_addc(out, '\n');
        }
        return 0;
}

void report_head(const struct profile *p, int type, const char *begin, struct buf *out)
{
        buf_adds(out, begin);
        event_summary(p, type, out);
        buf_addc(out, '\n');
        size_t before = out->len;
        buf_adds(out, begin);
        event_origin(p, out);
        if (out->len == before + strlen(begin))
                out->len = before;
        else
                buf_addc(out, '\n');
}

static int put_table(const struct profile *p, const struct report_options *o, int type, int columns,
                     struct buf *out)
{
        _cleanup_table_ struct table *t = NULL;
        struct layout layout;
        const struct table_options table = {
                        .keys = o->keys, .type = (uint32_t)type, .no_inline = o->no_inline};
        bool edges = (o->callers || o->callees) && (o->keys & TABLE_SYMBOL);

        int r = table_new(&t, p, &table);
        if (r < 0)
                return r;
        layout_sort(t, o->order);
        uint32_t n = o->max_rows ? MIN_OF(o->max_rows, t->n)
                     : edges     ? MIN_OF((uint32_t)EDGES_OF_ROWS, t->n)
                                 : t->n;
        for (uint32_t i = 0; o->only_self && i < n; i++)
                if (t->row[i].self == 0)
                        n = i; /* sorted by self */
        layout_init(&layout, t, n, o->keys, columns);
        report_head(p, type, "# ", out);
        buf_adds(out, "#\n#");
        _cleanup_buf_ struct buf line = {0};
        layout_titles(&layout, &line);
        buf_addf(out, "%s\n", line.len ? line.data + 1 : "");
        for (uint32_t i = 0; i < n; i++) {
                buf_clear(&line);
                layout_row(&layout, t, &t->row[i], &line);
                text_fit(out, buf_text(&line), columns, false);
                buf_addc(out, '\n');
                if (edges && o->callers && t->row[i].symbol)
                        r = put_edges(p, &table, TABLE_CALLERS, &t->row[i], out);
                if (r >= 0 && edges && o->callees && t->row[i].symbol)
                        r = put_edges(p, &table, TABLE_CALLEES, &t->row[i], out);
                if (r < 0)
                        return r;
        }
        if (n < t->n && !o->only_self)
                buf_addf(out, "# %u more\n", t->n - n);
        return buf_error(out);
}

int report_text(const struct profile *p, const struct report_options *o, int fd)
{
        _cleanup_buf_ struct buf out = {0};

        int type = event_index(p, o->event);
        if (type < 0)
                return STATUS_FAILED;
        int r = put_table(p, o, type, isatty(fd) ? text_columns(fd, 80) : -1, &out);
        if (r < 0)
                return say_failed("cannot make the table: %s", strerror(-r));
        return say_out(&out);
}
