/* profctl report --timeline: the share of each line over time. The windows of the range are put into as many
 * columns as there is room for; each column is a table of its own. */
#include "tools/timeline.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "tools/event.h"
#include "tools/human.h"
#include "tools/layout.h"
#include "tools/say.h"
#include "tools/source.h"
#include "tools/text.h"
#include "tools/windows.h"

#define MAX_COLUMNS 60
#define MIN_COLUMNS 10
#define NAME_ROOM   45
#define LINES       20

struct column {
        uint64_t start_ns, end_ns;
        struct profile *profile; /* NULL: no window has its middle here */
        struct table *table;
        uint32_t shown; /* the column whose table is shown here: of a window that is wider than a column */
};

struct timeline {
        struct column column[MAX_COLUMNS];
        uint32_t n;
        uint64_t start_ns, end_ns;
        struct profile *whole;
        int type;
};

static void release(struct timeline *t)
{
        for (uint32_t i = 0; i < t->n; i++) {
                table_free(t->column[i].table);
                profile_free(t->column[i].profile);
        }
        profile_free(t->whole);
}

static int merge_into(struct profile **into, struct profile *p)
{
        if (!*into) {
                *into = p;
                return 0;
        }
        int r = profile_merge(*into, p);
        profile_free(p);
        return r;
}

static int copy_into(struct profile **into, const struct profile *p)
{
        if (!*into) {
                int r = profile_new(into);
                if (r < 0)
                        return r;
        }
        return profile_merge(*into, p);
}

/* The column of an instant. */
static uint32_t column_of(const struct timeline *t, uint64_t ns)
{
        uint64_t span = t->end_ns - t->start_ns;

        return ns <= t->start_ns ? 0
                                 : MIN_OF((uint32_t)((double)(ns - t->start_ns) / (double)span * t->n),
                                          t->n - 1);
}

/* For a column without a window of its own: that of a window which reaches over its middle. */
static uint32_t column_covering(const struct timeline *t, const struct windows *w, uint32_t i)
{
        uint64_t middle = t->column[i].start_ns + (t->column[i].end_ns - t->column[i].start_ns) / 2;

        for (size_t k = 0; k < w->n; k++)
                if (!w->window[k].reason[0] && w->window[k].start_ns <= middle &&
                    w->window[k].end_ns > middle)
                        return column_of(t,
                                         w->window[k].start_ns +
                                                         (w->window[k].end_ns - w->window[k].start_ns) / 2);
        return i;
}

static int read_columns(struct timeline *t, const struct query *q, const struct windows *w)
{
        for (size_t i = 0; i < w->n; i++) {
                const struct window *window = &w->window[i];
                struct profile *p;
                if (window->reason[0])
                        continue;
                int r = windows_profile(q, window, &p);
                if (r != STATUS_DONE)
                        return r;
                r = copy_into(&t->whole, p);
                uint64_t middle = window->start_ns + (window->end_ns - window->start_ns) / 2;
                if (r < 0)
                        profile_free(p);
                else
                        r = merge_into(&t->column[column_of(t, middle)].profile, p);
                if (r < 0)
                        return say_failed("cannot merge the windows: %s", strerror(-r));
        }
        for (uint32_t i = 0; i < t->n; i++)
                t->column[i].shown = t->column[i].profile ? i : column_covering(t, w, i);
        return STATUS_DONE;
}

static void set_span(struct timeline *t, const struct windows *w, uint32_t room)
{
        uint64_t widest = 1;

        t->start_ns = w->window[0].start_ns;
        for (size_t i = 0; i < w->n; i++) {
                t->end_ns = MAX_OF(t->end_ns, w->window[i].end_ns);
                if (!w->window[i].reason[0])
                        widest = MAX_OF(widest, w->window[i].end_ns - w->window[i].start_ns);
        }
        t->end_ns = MAX_OF(t->end_ns, t->start_ns + 1);
        uint64_t columns = (t->end_ns - t->start_ns + widest / 2) / widest;
        t->n = (uint32_t)MAX_OF(MIN_OF(columns, (uint64_t)room), 1ull);
        for (uint32_t i = 0; i < t->n; i++) {
                t->column[i].start_ns = t->start_ns + (t->end_ns - t->start_ns) / t->n * i;
                t->column[i].end_ns = t->start_ns + (t->end_ns - t->start_ns) / t->n * (i + 1);
        }
}

static const struct table_row *find_row(const struct table *t, const struct table_row *row, uint32_t keys)
{
        for (uint32_t i = 0; i < t->n; i++)
                if (layout_same(&t->row[i], row, keys))
                        return &t->row[i];
        return NULL;
}

static int64_t value_of(const struct table_row *r, enum row_order order)
{
        return !r ? 0 : order == ORDER_CHILDREN ? r->total : r->self;
}

static void put_row(const struct timeline *t, const struct table *whole, const struct table_row *row,
                    const struct report_options *o, struct buf *out)
{
        static const char *const level[] = {" ",
                                            "\xe2\x96\x81",
                                            "\xe2\x96\x82",
                                            "\xe2\x96\x83",
                                            "\xe2\x96\x84",
                                            "\xe2\x96\x85",
                                            "\xe2\x96\x86",
                                            "\xe2\x96\x87",
                                            "\xe2\x96\x88"};
        double share[MAX_COLUMNS], most = 0;

        for (uint32_t i = 0; i < t->n; i++) {
                const struct table *c = t->column[t->column[i].shown].table;
                share[i] = c && c->total ? (double)value_of(find_row(c, row, o->keys), o->order) /
                                                           (double)c->total
                                         : -1;
                most = MAX_OF(most, share[i]);
        }
        double all = whole->total ? (double)value_of(row, o->order) / (double)whole->total : 0;
        buf_addf(out, "%6.2f%% %6.2f%% |", 100 * all, 100 * most);
        for (uint32_t i = 0; i < t->n; i++) {
                int step = most > 0 && share[i] > 0 ? (int)(share[i] / most * 8 + 0.5) : 0;
                buf_adds(out, share[i] < 0 ? "." : level[share[i] > 0 ? MAX_OF(step, 1) : 0]);
        }
        buf_adds(out, "| ");
        layout_name(row, o->keys, out);
}

static void put_axis(const struct timeline *t, struct buf *out)
{
        char a[HUMAN_MAX], b[HUMAN_MAX], width[HUMAN_MAX];
        _cleanup_buf_ struct buf range = {0};

        human_clock(a, t->start_ns);
        human_clock(b, t->end_ns);
        buf_addf(out, "#   all    most  ");
        if (t->n >= 18)
                buf_addf(out, "%s%*s%s\n", a, (int)t->n - 16, "", b);
        else
                buf_addf(out, "%s to %s\n", a, b);
        human_range(&range, t->start_ns, t->end_ns);
        buf_addf(out, "# %s; a column is %s; %s\n", buf_text(&range),
                 human_duration(width, (t->end_ns - t->start_ns) / t->n),
                 "each line is scaled to its own most; '.': no data");
}

static int make_tables(struct timeline *t, const struct report_options *o, struct table **ret)
{
        struct table_options table = {.keys = o->keys, .type = (uint32_t)t->type, .no_inline = o->no_inline};

        for (uint32_t i = 0; i < t->n; i++) {
                if (!t->column[i].profile)
                        continue;
                int type = event_find(t->column[i].profile, o->event);
                table.type = (uint32_t)type;
                int r = type < 0 ? 0 : table_new(&t->column[i].table, t->column[i].profile, &table);
                if (r < 0)
                        return r;
        }
        table.type = (uint32_t)t->type;
        int r = table_new(ret, t->whole, &table);
        if (r >= 0)
                layout_sort(*ret, o->order);
        return r;
}

static int draw(struct timeline *t, const struct report_options *o, int fd)
{
        _cleanup_table_ struct table *whole = NULL;
        _cleanup_buf_ struct buf out = {0};
        int columns = isatty(fd) ? text_columns(fd, 80) : -1;

        int r = make_tables(t, o, &whole);
        if (r < 0)
                return say_failed("cannot make the chart: %s", strerror(-r));
        report_head(t->whole, t->type, "# ", &out);
        put_axis(t, &out);
        for (uint32_t i = 0; i < MIN_OF(whole->n, o->max_rows ? o->max_rows : (uint32_t)LINES); i++) {
                _cleanup_buf_ struct buf line = {0};
                put_row(t, whole, &whole->row[i], o, &line);
                text_fit(&out, buf_text(&line), columns, false);
                buf_addc(&out, '\n');
        }
        return say_out(&out);
}

int timeline_text(const struct query *q, const struct report_options *o, int fd)
{
        struct timeline t = {0};
        struct windows w;
        int columns = text_columns(fd, 100);
        struct query range = *q;

        /* The default of the other reports, five minutes, makes no timeline. */
        if (q->n_files == 0 && q->when == WHEN_DEFAULT) {
                range.when = WHEN_RANGE;
                range.since_ns = range.until_ns - 3600 * NSEC_PER_SEC;
        }
        int r = windows_read(&range, &w);
        if (r != STATUS_DONE)
                return r;
        if (w.n > 0) {
                set_span(&t, &w, (uint32_t)MIN_OF(MAX_OF(columns - NAME_ROOM, MIN_COLUMNS), MAX_COLUMNS));
                r = read_columns(&t, &range, &w);
        }
        windows_free(&w);
        if (r == STATUS_DONE && (!t.whole || t.whole->n_samples == 0))
                r = source_say_empty(&range);
        else if (r == STATUS_DONE) {
                t.type = event_index(t.whole, o->event);
                r = t.type < 0 ? STATUS_FAILED : draw(&t, o, fd);
        }
        release(&t);
        return r;
}
