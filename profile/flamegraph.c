/* The page is profile/web/ with the data in the middle, as JSON:
 *
 *   level, symbol, value, before   one entry a frame, each frame before its children: depth, 2 x index in
 *                                  `symbols` + (1: inlined), value, and in a comparison the value before
 *   symbols                        [name, object, file, kind]: object and file as indices in `texts`
 *
 *   rest                           the value of children left out, so that it is not taken for a frame's own
 *
 * Frames too small to be seen are left out where there are very many. */
#include "profile/flamegraph.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_out.h"
#include "profile/flame_tree.h"
#include "profile/pair.h"
#include "profile/web.h"
#include "profile/weight.h"

#define MAX_NODES 150000 /* about 3 MB of page, drawn at once by any browser */

/* Known to flamegraph.js. */
enum kind { KIND_USER = 0, KIND_KERNEL = 1, KIND_PROCESS = 2, KIND_UNNAMED = 3 };

struct page {
        const struct profile *p, *before;
        struct profile *pair;
        const struct export_options *o;
        struct flame_tree *t;
        uint32_t *object, *file; /* of a symbol: strings */
        uint32_t *process;       /* string of a process's name -> its index behind the symbols */
        uint32_t *text;          /* string -> index in texts */
        uint32_t n_texts;
        struct weight_sums sums[2];
        int64_t smallest; /* nodes below are left out */
        uint32_t n_left_out;
};

static void page_done(struct page *g)
{
        flame_tree_free(g->t);
        free(g->text);
        free(g->process);
        free(g->object);
        free(g->file);
        profile_free(g->pair);
}

/* By which children are ordered, too: those left out are the last. */
static int64_t weight_of_node(const struct flame_node *n)
{
        return n->value[0] + n->value[1];
}

static int compare_weights(const void *a, const void *b)
{
        int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

        return x > y ? -1 : x < y;
}

/* Finds the value below which nodes are left out. A child is never larger than its parent. */
static int choose_smallest(struct page *g)
{
        _cleanup_free_ int64_t *values = malloc((size_t)g->t->n * sizeof(*values));

        g->smallest = INT64_MIN;
        if (!values)
                return -ENOMEM;
        if (g->t->n <= MAX_NODES)
                return 0;
        for (uint32_t i = 0; i < g->t->n; i++)
                values[i] = weight_of_node(&g->t->node[i]);
        qsort(values, g->t->n, sizeof(*values), compare_weights);
        g->smallest = values[MAX_NODES] + 1;
        for (uint32_t i = 0; i < g->t->n; i++)
                g->n_left_out += values[i] < g->smallest;
        return 0;
}

static bool is_shown(const struct page *g, uint32_t node)
{
        return weight_of_node(&g->t->node[node]) >= g->smallest;
}

/* The next node in the order of the page, which has each node before its children; 0 at the end. */
static uint32_t next_node(const struct page *g, uint32_t at, uint32_t *level)
{
        const struct flame_node *node = g->t->node;
        uint32_t child = node[at].first_child;

        if (child && is_shown(g, child)) {
                (*level)++;
                return child;
        }
        while (at) {
                uint32_t next = node[at].next;
                if (next && is_shown(g, next))
                        return next;
                at = node[at].parent;
                (*level)--;
        }
        return 0;
}

/* -- the data -- */

static int find_files(struct page *g)
{
        const struct symbols *s = g->t->symbols;
        const struct profile *p = g->pair;

        g->object = calloc(s->n, sizeof(*g->object));
        g->file = calloc(s->n, sizeof(*g->file));
        g->text = malloc(p->n_strings * sizeof(*g->text));
        g->process = calloc(p->n_strings, sizeof(*g->process));
        if (!g->object || !g->file || !g->text || !g->process)
                return -ENOMEM;
        memset(g->text, 0xff, p->n_strings * sizeof(*g->text));
        for (uint32_t l = 1; l < p->n_locations; l++)
                for (uint32_t i = s->first[l]; i < s->first[l + 1]; i++) {
                        const struct symbol_frame *f = &s->frame[i];
                        g->object[f->symbol] = p->mapping[p->location[l].mapping].file;
                        if (f->function && !g->file[f->symbol])
                                g->file[f->symbol] = p->function[f->function].file;
                }
        return 0;
}

static void write_text(struct page *g, struct json_out *j, uint32_t string)
{
        if (g->text[string] != UINT32_MAX)
                return;
        g->text[string] = g->n_texts++;
        json_string(j, NULL, g->pair->string[string]);
}

static void write_symbol(struct json_out *j, const char *name, uint32_t object, uint32_t file,
                         enum kind kind)
{
        json_array_begin(j, NULL);
        json_string(j, NULL, name);
        json_u64(j, NULL, object);
        json_u64(j, NULL, file);
        json_u64(j, NULL, kind);
        json_array_end(j);
}

static void write_names(struct page *g, struct json_out *j)
{
        const struct symbols *s = g->t->symbols;
        uint32_t n = s->n;

        json_array_begin(j, "texts");
        write_text(g, j, 0);
        for (uint32_t i = 0; i < s->n; i++) {
                write_text(g, j, g->object[i]);
                write_text(g, j, g->file[i]);
        }
        json_array_end(j);
        json_array_begin(j, "symbols");
        for (uint32_t i = 0; i < s->n; i++) {
                const struct symbol *symbol = &s->symbol[i];
                write_symbol(j, symbol->name, g->text[g->object[i]], g->text[g->file[i]],
                             symbol->kernel  ? KIND_KERNEL
                             : symbol->named ? KIND_USER
                                             : KIND_UNNAMED);
        }
        for (uint32_t i = 0; i < g->t->n; i++) {
                uint32_t process = g->t->node[i].process;
                if (!process || g->process[process])
                        continue;
                g->process[process] = n++;
                write_symbol(j, g->pair->string[process], 0, 0, KIND_PROCESS);
        }
        json_array_end(j);
}

enum column { COLUMN_LEVEL, COLUMN_SYMBOL, COLUMN_AFTER, COLUMN_BEFORE };

static void write_column(const struct page *g, struct json_out *j, const char *key, enum column column)
{
        uint32_t level = 0, at = 0;

        json_array_begin(j, key);
        do {
                const struct flame_node *n = &g->t->node[at];
                switch (column) {
                case COLUMN_LEVEL:
                        json_u64(j, NULL, level);
                        break;
                case COLUMN_SYMBOL:
                        json_u64(j, NULL,
                                 2ull * (n->process ? g->process[n->process] : n->symbol) + n->inlined);
                        break;
                case COLUMN_AFTER:
                        json_i64(j, NULL, n->value[1]);
                        break;
                case COLUMN_BEFORE:
                        json_i64(j, NULL, n->value[0]);
                        break;
                }
        } while ((at = next_node(g, at, &level)));
        json_array_end(j);
}

/* What was left out below each frame shown: number of the frame, value, value before. */
static void write_rest(const struct page *g, struct json_out *j)
{
        uint32_t level = 0, at = 0, number = 0;

        json_array_begin(j, "rest");
        do {
                int64_t rest[2] = {0};
                for (uint32_t c = g->t->node[at].first_child; c; c = g->t->node[c].next)
                        for (int side = 0; side < 2 && !is_shown(g, c); side++)
                                rest[side] += g->t->node[c].value[side];
                if (rest[0] || rest[1]) {
                        json_u64(j, NULL, number);
                        json_i64(j, NULL, rest[1]);
                        json_i64(j, NULL, rest[0]);
                }
                number++;
        } while ((at = next_node(g, at, &level)));
        json_array_end(j);
}

static void write_facts(struct json_out *j, const char *key, const struct profile *p,
                        const struct weight_sums *sums)
{
        const char *host = profile_ledger(p, "host");

        json_object_begin(j, key);
        json_string(j, "host", host);
        json_double(j, "start", (double)p->time_ns / 1e9);
        json_double(j, "duration", (double)p->duration_ns / 1e9);
        json_double(j, "observed", (double)profile_observed_ns(p) / 1e9);
        json_i64(j, "samples", sums->samples);
        json_double(j, "effective", weight_effective(sums));
        json_array_begin(j, "ledger");
        for (uint32_t i = 0; i < p->n_comments; i++)
                json_string(j, NULL, p->string[p->comment[i]]);
        json_array_end(j);
        json_object_end(j);
}

static void write_data(struct page *g, struct buf *out)
{
        struct json_out j = {.out = out};
        const struct profile *p = g->p;

        json_object_begin(&j, NULL);
        json_string(&j, "title", g->o->title);
        json_string(&j, "type", p->string[p->type[g->o->type].type]);
        json_string(&j, "unit", p->string[p->type[g->o->type].unit]);
        write_facts(&j, "after", p, &g->sums[1]);
        if (g->before)
                write_facts(&j, "before", g->before, &g->sums[0]);
        json_u64(&j, "leftOut", g->n_left_out);
        write_names(g, &j);
        write_column(g, &j, "level", COLUMN_LEVEL);
        write_column(g, &j, "symbol", COLUMN_SYMBOL);
        write_column(g, &j, "value", COLUMN_AFTER);
        if (g->before)
                write_column(g, &j, "valueBefore", COLUMN_BEFORE);
        write_rest(g, &j);
        json_object_end(&j);
}

/* Within <script> no text may look like a tag (HTML standard, 4.12.1.3): '<' occurs in strings alone, and is
 * written as an escape there. */
static void add_escaped(struct buf *out, const struct buf *json)
{
        const char *at = buf_text(json), *lt;

        while ((lt = strchr(at, '<'))) {
                buf_add(out, at, (size_t)(lt - at));
                buf_adds(out, "\\u003c");
                at = lt + 1;
        }
        buf_adds(out, at);
}

static void sum_up(struct page *g)
{
        const struct weight w[2] = {{.type = PAIR_BEFORE, .count_type = PAIR_BEFORE_SAMPLES},
                                    {.type = PAIR_AFTER, .count_type = PAIR_AFTER_SAMPLES}};

        for (uint32_t i = 0; i < g->pair->n_samples; i++)
                for (int side = 0; side < 2; side++)
                        weight_add(&w[side], &g->sums[side], profile_values(g->pair, i));
}

int flamegraph_write(const struct profile *p, const struct profile *before, const struct export_options *o,
                     struct buf *out)
{
        _cleanup_(page_done) struct page g = {.p = p, .before = before, .o = o};
        _cleanup_buf_ struct buf json = {0};
        static const char *const keys[] = {"comm"};

        if (o->type >= p->n_types)
                return -EINVAL;
        int r = profile_pair(before, p, p->string[p->type[o->type].type], keys, 1, &g.pair);
        if (r < 0)
                return r;
        r = flame_tree_new(&g.t, g.pair, o->no_inline);
        if (r < 0)
                return r;
        if ((r = choose_smallest(&g)) < 0 || (r = find_files(&g)) < 0)
                return r;
        sum_up(&g);
        write_data(&g, &json);
        if (buf_error(&json))
                return buf_error(&json);
        buf_add(out, web_flamegraph_head, web_flamegraph_head_size);
        add_escaped(out, &json);
        buf_add(out, web_flamegraph_tail, web_flamegraph_tail_size);
        return buf_error(out);
}
