/* profctl report on a terminal: a table in which Enter opens the callers and callees of a line, as deep as
 * one likes. What is shown is a stack of pages; Escape leaves the last one. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "profile/symbols.h"
#include "profile/table.h"
#include "tools/annotate.h"
#include "tools/event.h"
#include "tools/layout.h"
#include "tools/report.h"
#include "tools/say.h"
#include "tools/screen.h"
#include "tools/text.h"

#define MAX_PAGES   64
#define HOT         0.05
#define WARM        0.005
#define FILTER_SIZE 64

/* The table, or the callers and callees of one function. */
struct page {
        struct table *table; /* the whole table; NULL: edges */
        struct table *callers, *callees;
        char *symbol, *object; /* of the function, NULL: the whole table */
        int64_t total;         /* of the function */
        uint32_t *shown;       /* rows that pass the filter; the edges' lines follow a fixed order instead */
        uint32_t n_shown;
        uint32_t selected, first;
};

struct browser {
        const struct profile *p;
        struct report_options options;
        int type;
        int64_t whole; /* value of all samples */
        struct page page[MAX_PAGES];
        uint32_t n_pages;
        char filter[FILTER_SIZE];
        struct buf message; /* shown until the next key */
        struct layout layout;
        struct screen_view view;
};

static const char *const help[] = {
                "profctl report",
                "",
                "Each line: the share of samples in the function itself (self), the half width of the",
                "interval that holds the true share with 95 % certainty, the share with all that the",
                "function called (children), its samples, and what it is.",
                "",
                "Up Down PgUp PgDn Home End   move",
                "Enter                        callers and callees of the line",
                "a                            its source lines and instructions",
                "Escape, Backspace, Left      back",
                "/                            show lines with a text only; an empty text shows all",
                "s  c  n                      sort by self, by children, by name",
                "i                            inlined functions on their own, or not",
                "h  F1  ?                     this help",
                "q                            quit",
                "",
                "Any key goes back.",
                NULL,
};

static struct page *top_page(struct browser *b)
{
        return &b->page[b->n_pages - 1];
}

static void page_clear(struct page *p)
{
        table_free(p->table);
        table_free(p->callers);
        table_free(p->callees);
        free(p->symbol);
        free(p->object);
        free(p->shown);
        *p = (struct page){0};
}

/* -- what a page shows -- */

static bool contains(const char *text, const char *part)
{
        return !part[0] || strcasestr(text, part) != NULL;
}

static int apply_filter(struct browser *b)
{
        struct page *p = &b->page[0];

        free(p->shown);
        p->n_shown = 0;
        p->shown = calloc((size_t)p->table->n + 1, sizeof(*p->shown));
        if (!p->shown)
                return -ENOMEM;
        for (uint32_t i = 0; i < p->table->n; i++) {
                _cleanup_buf_ struct buf name = {0};
                layout_name(&p->table->row[i], b->options.keys, &name);
                if (contains(buf_text(&name), b->filter))
                        p->shown[p->n_shown++] = i;
        }
        p->selected = p->first = 0;
        return 0;
}

static struct table_options table_options(const struct browser *b, uint32_t keys)
{
        return (struct table_options){
                        .keys = keys, .type = (uint32_t)b->type, .no_inline = b->options.no_inline};
}

static int load_table(struct browser *b)
{
        const struct table_options o = table_options(b, b->options.keys);
        struct table *t;

        int r = table_new(&t, b->p, &o);
        if (r < 0)
                return r;
        layout_sort(t, b->options.order);
        table_free(b->page[0].table);
        b->page[0].table = t;
        b->whole = t->total;
        return apply_filter(b);
}

/* The callers and callees of a row; a row of edges is of the whole function, in whichever process. */
static int open_edges(struct browser *b, const struct table_row *row, uint32_t keys, int64_t total)
{
        const struct table_options o = table_options(b, keys);
        struct page p = {.total = total};

        if (b->n_pages == MAX_PAGES || !row->symbol)
                return 0;
        p.symbol = strdup(row->symbol);
        p.object = row->object ? strdup(row->object) : NULL;
        int r = p.symbol && (p.object || !row->object) ? 0 : -ENOMEM;
        if (r >= 0)
                r = layout_edges(b->p, &o, TABLE_CALLERS, row, &p.callers);
        if (r >= 0)
                r = layout_edges(b->p, &o, TABLE_CALLEES, row, &p.callees);
        if (r < 0) {
                page_clear(&p);
                return r;
        }
        p.selected = p.callers->n; /* the function itself, between the two */
        b->page[b->n_pages++] = p;
        return 0;
}

/* The callers are listed from the smallest to the largest, so that the largest is next to the function; then
 * the function; then its callees from the largest on. NULL: the function itself. */
static const struct table_row *edge_row(const struct page *p, uint32_t i, bool *ret_caller)
{
        *ret_caller = i < p->callers->n;
        if (*ret_caller)
                return &p->callers->row[p->callers->n - 1 - i];
        return i == p->callers->n ? NULL : &p->callees->row[i - p->callers->n - 1];
}

/* -- drawing -- */

static enum screen_style style_of(double share)
{
        return share >= HOT ? STYLE_HOT : share >= WARM ? STYLE_WARM : STYLE_NORMAL;
}

static bool draw_head(void *ctx, uint32_t i, int columns, struct buf *out)
{
        struct browser *b = ctx;

        if (i == 0)
                event_summary(b->p, b->type, out);
        else if (i == 1 && b->message.len)
                buf_adds(out, buf_text(&b->message));
        else if (i == 1)
                event_origin(b->p, out);
        if (i == 1 && b->filter[0] && !b->message.len)
                buf_addf(out, "%slines with \"%s\"", out->len ? "; " : "", b->filter);
        return i < 2;
}

static void draw_titles(void *ctx, int columns, struct buf *out)
{
        struct browser *b = ctx;
        struct page *p = top_page(b);

        if (p->table)
                layout_titles(&b->layout, out);
        else
                buf_adds(out, "    all  of this");
}

static enum screen_style draw_edge(struct browser *b, const struct page *p, uint32_t i, struct buf *out)
{
        bool caller;
        const struct table_row *row = edge_row(p, i, &caller);
        int64_t value = row ? row->total : p->total;
        double share = b->whole ? (double)value / (double)b->whole : 0;
        double part = p->total ? (double)value / (double)p->total : 0;

        if (!row) {
                buf_addf(out, "%6.2f%%           ", 100 * share);
                text_fit(out, p->symbol, -1, false);
                if (p->object) {
                        buf_adds(out, " (");
                        text_fit(out, object_base_name(p->object), -1, false);
                        buf_addc(out, ')');
                }
                return STYLE_STRONG;
        }
        buf_addf(out, "%6.2f%%  %6.2f%%  %s ", 100 * share, 100 * part, caller ? "from" : "  to");
        layout_name(row, TABLE_SYMBOL | TABLE_OBJECT, out);
        return style_of(share);
}

static enum screen_style draw_row(void *ctx, uint32_t i, int columns, struct buf *out)
{
        struct browser *b = ctx;
        struct page *p = top_page(b);

        if (!p->table)
                return draw_edge(b, p, i, out);
        const struct table_row *row = &p->table->row[p->shown[i]];
        layout_row(&b->layout, p->table, row, out);
        return style_of(b->whole ? (double)row->self / (double)b->whole : 0);
}

static void prepare_view(struct browser *b)
{
        struct page *p = top_page(b);

        b->view.keys = p->table ? "Enter callers, callees  a annotate  / filter  s self  c children  n name "
                                  " i inlined  h help  q quit"
                                : "Enter its callers, callees  a annotate  Esc back  h help  q quit";
        b->view.n_rows = p->table ? p->n_shown : p->callers->n + 1 + p->callees->n;
        b->view.selected = p->selected;
        b->view.first = p->first;
        layout_init(&b->layout, b->page[0].table, MIN_OF(b->page[0].table->n, 200u), b->options.keys, -1);
}

/* -- keys -- */

/* What a function has in all, whichever process it ran in. */
static int total_of(const struct browser *b, const struct table_row *row, int64_t *ret)
{
        const struct table_options o = table_options(b, TABLE_SYMBOL | TABLE_OBJECT);
        struct table *t;

        int r = table_new(&t, b->p, &o);
        if (r < 0)
                return r;
        for (uint32_t i = 0; i < t->n; i++)
                if (!strcmp(t->row[i].symbol, row->symbol) && !strcmp(t->row[i].object, row->object))
                        *ret = t->row[i].total;
        table_free(t);
        return 0;
}

static int enter(struct browser *b)
{
        struct page *p = top_page(b);
        bool caller;

        if (p->table) {
                const struct table_row *row = p->n_shown ? &p->table->row[p->shown[p->selected]] : NULL;
                return row ? open_edges(b, row, b->options.keys, row->total) : 0;
        }
        const struct table_row *row = edge_row(p, p->selected, &caller);
        if (!row || !row->symbol || !row->object)
                return 0;
        struct table_row whole = {.symbol = row->symbol, .object = row->object, .pid = -1, .tid = -1};
        int64_t total = row->total;
        int r = total_of(b, row, &total);
        return r < 0 ? r : open_edges(b, &whole, TABLE_SYMBOL | TABLE_OBJECT, total);
}

static int resort(struct browser *b, enum row_order order)
{
        b->options.order = order;
        layout_sort(b->page[0].table, order);
        return apply_filter(b);
}

/* The selected function's lines and instructions; what is in the way is said in the second line of the head.
 */
static int annotate(struct browser *b)
{
        struct page *p = top_page(b);
        bool caller;
        const char *symbol = NULL;

        if (p->table && p->n_shown) {
                symbol = p->table->row[p->shown[p->selected]].symbol;
        } else if (!p->table) {
                const struct table_row *row = edge_row(p, p->selected, &caller);
                symbol = row ? row->symbol : p->symbol;
        }
        if (!symbol)
                return 0;
        int r = annotate_browse(b->p, (uint32_t)b->type, symbol, &b->message);
        return r == -ENOENT || r == -ENODATA ? 0 : r;
}

/* 1: the user leaves. */
static int handle(struct browser *b, int key)
{
        bool table = top_page(b)->table != NULL;

        switch (key) {
        case 'q':
                return 1;
        case 'h':
        case '?':
        case SCREEN_KEY_F1:
                screen_help(&b->view);
                return 0;
        case '\r':
        case '\n':
        case SCREEN_KEY_ENTER:
                return enter(b);
        case SCREEN_KEY_ESCAPE:
        case SCREEN_KEY_BACK:
        case SCREEN_KEY_LEFT:
        case 127:
                if (!table)
                        page_clear(&b->page[--b->n_pages]);
                else if (b->filter[0]) {
                        b->filter[0] = 0;
                        return apply_filter(b);
                }
                return 0;
        case 'a':
                return annotate(b);
        case 's':
                return table ? resort(b, ORDER_SELF) : 0;
        case 'c':
                return table ? resort(b, ORDER_CHILDREN) : 0;
        case 'n':
                return table ? resort(b, ORDER_NAME) : 0;
        case 'i':
                b->options.no_inline = !b->options.no_inline;
                return table ? load_table(b) : 0;
        case '/':
                return table && screen_prompt(&b->view, "show lines with", b->filter, FILTER_SIZE)
                                       ? apply_filter(b)
                                       : 0;
        default:
                return 0;
        }
}

static int run(struct browser *b)
{
        int r = 0;

        while (r == 0) {
                prepare_view(b);
                screen_draw(&b->view);
                int key = screen_key(-1);
                if (key == SCREEN_KEY_END)
                        return 1;
                buf_clear(&b->message);
                screen_move(&b->view, key);
                top_page(b)->selected = b->view.selected;
                top_page(b)->first = b->view.first;
                r = handle(b, key);
        }
        return r;
}

int report_browse(const struct profile *p, const struct report_options *o)
{
        struct browser b = {.p = p, .options = *o, .n_pages = 1};

        b.type = event_index(p, o->event);
        if (b.type < 0)
                return STATUS_FAILED;
        b.view = (struct screen_view){
                        .ctx = &b,
                        .head = draw_head,
                        .titles = draw_titles,
                        .row = draw_row,
                        .help = help,
                        .rows_selectable = true,
        };
        int r = load_table(&b);
        if (r >= 0)
                r = screen_open();
        if (r >= 0) {
                r = run(&b);
                screen_close();
        } else if (r == -ENOTTY) {
                r = report_text(p, o, STDOUT_FILENO);
        }
        while (b.n_pages > 0)
                page_clear(&b.page[--b.n_pages]);
        buf_free(&b.message);
        return r < 0 ? say_failed("cannot show the table: %s", strerror(-r)) : STATUS_DONE;
}
