#include "tools/layout.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "profile/symbols.h"
#include "tools/human.h"
#include "tools/text.h"

/* In the order of the line; the last one takes what is left of it. */
static const struct {
        uint32_t key;
        const char *title;
        int max_width;
} column[LAYOUT_KEYS] = {
                {TABLE_COMM, "process", 16},  {TABLE_PID, "pid", 8},
                {TABLE_THREAD, "thread", 16}, {TABLE_TID, "tid", 8},
                {TABLE_UNIT, "unit", 32},     {TABLE_CONTAINER, "container", 12},
                {TABLE_USER, "user", 16},     {TABLE_OBJECT, "object", 24},
                {TABLE_FILE, "source", 40},   {TABLE_LINE, "line", 6},
                {TABLE_SYMBOL, "symbol", 0},
};

static const char *cell(const struct table_row *r, uint32_t key, char *number)
{
        int64_t n = -1;

        switch (key) {
        case TABLE_COMM:
                return r->comm;
        case TABLE_THREAD:
                return r->thread;
        case TABLE_UNIT:
                return r->unit;
        case TABLE_CONTAINER:
                return r->container;
        case TABLE_USER:
                return r->user;
        case TABLE_OBJECT:
                return r->object ? object_base_name(r->object) : NULL;
        case TABLE_FILE:
                return r->file;
        case TABLE_SYMBOL:
                return r->symbol;
        case TABLE_PID:
                n = r->pid;
                break;
        case TABLE_TID:
                n = r->tid;
                break;
        case TABLE_LINE:
                n = r->line;
                break;
        }
        if (n < 0)
                return NULL;
        snprintf(number, HUMAN_MAX, "%" PRId64, n);
        return number;
}

static bool is_last(const struct layout *l, unsigned i)
{
        for (i++; i < LAYOUT_KEYS; i++)
                if (l->keys & column[i].key)
                        return false;
        return true;
}

void layout_init(struct layout *l, const struct table *t, uint32_t n_rows, uint32_t keys, int columns)
{
        *l = (struct layout){
                        .keys = keys,
                        .children = keys & TABLE_FRAME_KEYS,
                        .interval = true,
                        .samples = true,
                        .columns = columns,
        };
        for (unsigned i = 0; i < LAYOUT_KEYS; i++) {
                char number[HUMAN_MAX];
                int width = text_width(column[i].title);
                if (!(keys & column[i].key))
                        continue;
                for (uint32_t r = 0; r < MIN_OF(n_rows, t->n); r++) {
                        const char *text = cell(&t->row[r], column[i].key, number);
                        width = text ? MAX_OF(width, text_width(text)) : width;
                }
                l->width[i] = column[i].max_width ? MIN_OF(width, column[i].max_width) : width;
        }
}

void layout_titles(const struct layout *l, struct buf *out)
{
        buf_adds(out, "   self");
        if (l->interval)
                buf_adds(out, "      \xc2\xb1");
        if (l->children)
                buf_adds(out, "  children");
        if (l->samples)
                buf_adds(out, "    samples");
        for (unsigned i = 0; i < LAYOUT_KEYS; i++)
                if (l->keys & column[i].key) {
                        buf_adds(out, "  ");
                        text_fit(out, column[i].title, is_last(l, i) ? -1 : l->width[i], true);
                }
}

static double share(int64_t part, int64_t whole)
{
        return whole ? 100.0 * (double)part / (double)whole : 0;
}

void layout_row(const struct layout *l, const struct table *t, const struct table_row *row, struct buf *out)
{
        char number[HUMAN_MAX];

        buf_addf(out, "%6.2f%%", share(row->self, t->total));
        if (l->interval)
                buf_addf(out, " %5.2f%%", 50 * (row->self_high - row->self_low));
        if (l->children)
                buf_addf(out, "   %6.2f%%", share(row->total, t->total));
        if (l->samples)
                text_right(out, human_count(number, (uint64_t)row->self_samples), 11);
        for (unsigned i = 0; i < LAYOUT_KEYS; i++) {
                if (!(l->keys & column[i].key))
                        continue;
                const char *text = cell(row, column[i].key, number);
                bool last = is_last(l, i);
                buf_adds(out, "  ");
                if (column[i].max_width && column[i].max_width < 10)
                        text_right(out, text ? text : "-", l->width[i]);
                else
                        text_fit(out, text ? text : "-", last ? -1 : l->width[i], !last);
                if (column[i].key == TABLE_SYMBOL && row->inlined)
                        buf_adds(out, " (inlined)");
        }
}

void layout_name(const struct table_row *row, uint32_t keys, struct buf *out)
{
        char number[HUMAN_MAX];
        const char *main = NULL;

        if (keys & TABLE_SYMBOL) {
                main = row->symbol ? row->symbol : "-";
                text_fit(out, main, -1, false);
                if (row->inlined)
                        buf_adds(out, " (inlined)");
        }
        for (unsigned i = LAYOUT_KEYS - 1; i-- > 0;) {
                const char *text = keys & column[i].key ? cell(row, column[i].key, number) : NULL;
                if (!text)
                        continue;
                buf_adds(out, main ? " (" : "");
                text_fit(out, text, -1, false);
                buf_adds(out, main ? ")" : "");
                main = text;
        }
}

int layout_parse_keys(const char *text, uint32_t *ret_keys, enum row_order *ret_order)
{
        uint32_t keys = 0;

        while (*text) {
                char word[32];
                size_t n = strcspn(text, ",");
                if (n == 0 || n >= sizeof(word))
                        return -EINVAL;
                memcpy(word, text, n);
                word[n] = 0;
                text += n + (text[n] == ',');
                if (!strcmp(word, "self")) {
                        *ret_order = ORDER_SELF;
                } else if (!strcmp(word, "children") || !strcmp(word, "total")) {
                        *ret_order = ORDER_CHILDREN;
                } else {
                        unsigned i = 0;
                        if (!strcmp(word, "function"))
                                strcpy(word, "symbol");
                        while (i < LAYOUT_KEYS && strcmp(column[i].title, word) != 0)
                                i++;
                        if (i == LAYOUT_KEYS)
                                return -EINVAL;
                        keys |= column[i].key;
                }
        }
        if (keys)
                *ret_keys = keys;
        return 0;
}

static int by_text(const char *a, const char *b)
{
        return strcmp(a ? a : "", b ? b : "");
}

static int by_name(const struct table_row *a, const struct table_row *b)
{
        int c = by_text(a->symbol, b->symbol);

        c = c ? c : by_text(a->object, b->object);
        c = c ? c : by_text(a->file, b->file);
        c = c ? c : by_text(a->comm, b->comm);
        c = c ? c : by_text(a->thread, b->thread);
        c = c ? c : by_text(a->unit, b->unit);
        c = c ? c : by_text(a->container, b->container);
        c = c ? c : by_text(a->user, b->user);
        c = c ? c : (a->line > b->line) - (a->line < b->line);
        c = c ? c : (a->pid > b->pid) - (a->pid < b->pid);
        return c ? c : (a->tid > b->tid) - (a->tid < b->tid);
}

static int compare(const void *a, const void *b, void *ctx)
{
        const struct table_row *x = a, *y = b;
        enum row_order order = *(const enum row_order *)ctx;
        int self = (y->self > x->self) - (y->self < x->self);
        int total = (y->total > x->total) - (y->total < x->total);

        if (order == ORDER_NAME)
                return by_name(x, y);
        int first = order == ORDER_SELF ? self : total, second = order == ORDER_SELF ? total : self;
        return first ? first : second ? second : by_name(x, y);
}

void layout_sort(struct table *t, enum row_order order)
{
        if (t->n)
                qsort_r(t->row, t->n, sizeof(*t->row), compare, &order);
}

static bool same_text(const char *a, const char *b)
{
        return a == b || !strcmp(a ? a : "", b ? b : "");
}

/* Whether two rows are of the same process, unit and so on. */
static bool same_sample_keys(const struct table_row *a, const struct table_row *b)
{
        return same_text(a->comm, b->comm) && same_text(a->thread, b->thread) &&
               same_text(a->unit, b->unit) && same_text(a->container, b->container) &&
               same_text(a->user, b->user) && a->pid == b->pid && a->tid == b->tid;
}

bool layout_same(const struct table_row *a, const struct table_row *b, uint32_t keys)
{
        char x[HUMAN_MAX], y[HUMAN_MAX];

        for (unsigned i = 0; i < LAYOUT_KEYS; i++) {
                if (!(keys & column[i].key))
                        continue;
                if (column[i].key == TABLE_OBJECT
                                    ? !same_text(a->object, b->object)
                                    : !same_text(cell(a, column[i].key, x), cell(b, column[i].key, y)))
                        return false;
        }
        return true;
}

int layout_edges(const struct profile *p, const struct table_options *o, enum table_direction direction,
                 const struct table_row *row, struct table **ret)
{
        struct table_options edge = *o;
        struct table *t;
        uint32_t kept = 0;

        edge.keys = (o->keys & ~(uint32_t)TABLE_FRAME_KEYS) | TABLE_SYMBOL | TABLE_OBJECT;
        int r = table_edges(&t, p, &edge, direction, row->symbol, row->object);
        if (r < 0)
                return r;
        for (uint32_t i = 0; i < t->n; i++)
                if (same_sample_keys(&t->row[i], row))
                        t->row[kept++] = t->row[i];
        t->n = kept;
        layout_sort(t, ORDER_CHILDREN);
        *ret = t;
        return 0;
}
