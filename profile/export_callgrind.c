/* The format of callgrind's output files (Valgrind manual, "Callgrind Format Specification"), version 1: for
 * each function its own cost by line, and for each of its lines the cost of what is called from there.
 *
 * The calls are not counted by sampling; "calls=" says how many samples saw one. A call that recurs in a
 * stack counts once a sample. */
#include "profile/export_formats.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/idtable.h"
#include "profile/symbols.h"
#include "profile/weight.h"

#define NO_CALLEE UINT32_MAX

struct cost {
        uint32_t symbol, file; /* file: string of the line's file */
        int64_t line;
        uint32_t callee; /* symbol; NO_CALLEE: own cost */
        uint32_t stamp;  /* the last sample counted, + 1 */
        int64_t value, samples;
};

struct costs {
        struct cost *cost;
        uint32_t n, cap;
        struct idtable index;
};

static void costs_done(struct costs *c)
{
        free(c->cost);
        idtable_free(&c->index);
}

static bool cost_equal(const void *ctx, uint32_t id, const void *key)
{
        const struct cost *a = &((const struct costs *)ctx)->cost[id], *b = key;

        return a->symbol == b->symbol && a->file == b->file && a->line == b->line && a->callee == b->callee;
}

static uint64_t hash_of_cost(const struct cost *c)
{
        return hash_u64((uint64_t)c->symbol << 32 | c->callee, (uint64_t)c->file << 32 ^ (uint64_t)c->line);
}

static uint64_t cost_hash(const void *ctx, uint32_t id)
{
        return hash_of_cost(&((const struct costs *)ctx)->cost[id]);
}

static int add_cost(struct costs *c, const struct cost *key, uint32_t sample, int64_t value, int64_t samples)
{
        uint64_t hash = hash_of_cost(key);
        uint32_t id = idtable_find(&c->index, hash, cost_equal, c, key);

        if (id == IDTABLE_NONE) {
                int r = ARRAY_ROOM(c->cost, c->cap, (uint64_t)c->n + 1);
                if (r < 0)
                        return r;
                r = idtable_add(&c->index, hash, c->n, cost_hash, c);
                if (r < 0)
                        return r;
                id = c->n++;
                c->cost[id] = *key;
        }
        struct cost *cost = &c->cost[id];
        if (cost->stamp == sample + 1)
                return 0;
        cost->stamp = sample + 1;
        cost->value += value;
        cost->samples += samples;
        return 0;
}

static int add_sample(struct costs *c, const struct profile *p, const struct symbols *s,
                      const struct frame_list *frames, uint32_t sample, int64_t value, int64_t samples)
{
        struct cost key = {.symbol = s->no_stack, .callee = NO_CALLEE};

        if (!frames->n)
                return add_cost(c, &key, sample, value, samples);
        for (uint32_t i = 0; i < frames->n; i++) {
                const struct symbol_frame *f = &s->frame[frames->frame[i]];
                key.symbol = f->symbol;
                key.file = f->function ? p->function[f->function].file : 0;
                key.line = f->line;
                int r = add_cost(c, &key, sample, value, samples);
                if (r < 0)
                        return r;
                key.callee = f->symbol;
        }
        return 0;
}

static int compare_costs(const void *a, const void *b)
{
        const struct cost *x = a, *y = b;

        if (x->symbol != y->symbol)
                return x->symbol < y->symbol ? -1 : 1;
        if (x->file != y->file)
                return x->file < y->file ? -1 : 1;
        if ((x->callee == NO_CALLEE) != (y->callee == NO_CALLEE))
                return x->callee == NO_CALLEE ? -1 : 1;
        if (x->line != y->line)
                return x->line < y->line ? -1 : 1;
        return x->callee < y->callee ? -1 : x->callee > y->callee;
}

/* "fn=(7) name" the first time, "fn=(7)" after that. */
static void add_name(struct buf *out, const char *field, uint32_t id, const char *name, bool *said)
{
        buf_addf(out, "%s=(%u)", field, id + 1);
        if (!said[id]) {
                buf_addc(out, ' ');
                for (; *name; name++)
                        buf_addc(out, *name == '\n' || *name == '\r' ? ' ' : *name);
                said[id] = true;
        }
        buf_addc(out, '\n');
}

struct names {
        uint32_t *object; /* by symbol: string */
        uint32_t *file;   /* by symbol: string */
        bool *said_object, *said_file, *said_function;
};

static void names_done(struct names *n)
{
        free(n->object);
        free(n->file);
        free(n->said_object);
        free(n->said_file);
        free(n->said_function);
}

static int find_names(struct names *n, const struct profile *p, const struct symbols *s)
{
        n->object = calloc(s->n, sizeof(*n->object));
        n->file = calloc(s->n, sizeof(*n->file));
        n->said_object = calloc(p->n_strings, sizeof(bool));
        n->said_file = calloc(p->n_strings, sizeof(bool));
        n->said_function = calloc(s->n, sizeof(bool));
        if (!n->object || !n->file || !n->said_object || !n->said_file || !n->said_function)
                return -ENOMEM;
        for (uint32_t l = 1; l < p->n_locations; l++)
                for (uint32_t i = s->first[l]; i < s->first[l + 1]; i++) {
                        const struct symbol_frame *f = &s->frame[i];
                        n->object[f->symbol] = p->mapping[p->location[l].mapping].file;
                        if (f->function && !n->file[f->symbol])
                                n->file[f->symbol] = p->function[f->function].file;
                }
        return 0;
}

static const char *text_of(const struct profile *p, uint32_t string)
{
        return string ? p->string[string] : "???"; /* callgrind's own word for it */
}

static void write_costs(const struct costs *c, const struct profile *p, const struct symbols *s,
                        struct names *n, struct buf *out)
{
        uint32_t symbol = UINT32_MAX, file = 0;

        for (uint32_t i = 0; i < c->n; i++) {
                const struct cost *cost = &c->cost[i];
                uint32_t callee = cost->callee;
                if (cost->symbol != symbol) {
                        symbol = cost->symbol;
                        file = n->file[symbol];
                        buf_addc(out, '\n');
                        add_name(out, "ob", n->object[symbol], text_of(p, n->object[symbol]),
                                 n->said_object);
                        add_name(out, "fl", file, text_of(p, file), n->said_file);
                        add_name(out, "fn", symbol, s->symbol[symbol].name, n->said_function);
                }
                if (cost->file != file) { /* lines of another file within the function */
                        file = cost->file;
                        add_name(out, "fi", file, text_of(p, file), n->said_file);
                }
                if (callee != NO_CALLEE) {
                        add_name(out, "cob", n->object[callee], text_of(p, n->object[callee]),
                                 n->said_object);
                        add_name(out, "cfi", n->file[callee], text_of(p, n->file[callee]), n->said_file);
                        add_name(out, "cfn", callee, s->symbol[callee].name, n->said_function);
                        buf_addf(out, "calls=%" PRId64 " 0\n", cost->samples);
                }
                buf_addf(out, "%" PRId64 " %" PRId64 "\n", cost->line > 0 ? cost->line : 0, cost->value);
        }
}

int export_callgrind(const struct profile *p, const struct export_options *o, struct buf *out)
{
        _cleanup_symbols_ struct symbols *s = NULL;
        _cleanup_frame_list_ struct frame_list frames = {0};
        _cleanup_(costs_done) struct costs costs = {0};
        _cleanup_(names_done) struct names names = {0};
        struct weight w = weight_of_type(p, o->type);
        const char *type = p->string[p->type[o->type].type], *unit = p->string[p->type[o->type].unit];
        int64_t total = 0;

        int r = symbols_new(&s, p, !o->no_inline);
        if (r < 0)
                return r;
        for (uint32_t i = 0; i < p->n_samples; i++) {
                const int64_t *values = profile_values(p, i);
                if (!values[o->type])
                        continue;
                if ((r = symbols_frames(s, p, &p->sample[i], &frames)) < 0 ||
                    (r = add_sample(&costs, p, s, &frames, i, values[o->type], weight_samples(&w, values))) <
                                    0)
                        return r;
                total += values[o->type];
        }
        r = find_names(&names, p, s);
        if (r < 0)
                return r;
        if (costs.n)
                qsort(costs.cost, costs.n, sizeof(*costs.cost), compare_costs);
        buf_addf(out, "# callgrind format\nversion: 1\ncreator: profd %s\npositions: line\n", PROFD_VERSION);
        buf_addf(out, "event: %s : %s (%s)\nevents: %s\nsummary: %" PRId64 "\n", type, type, unit, type,
                 total);
        write_costs(&costs, p, s, &names, out);
        buf_addf(out, "\ntotals: %" PRId64 "\n", total);
        return buf_error(out);
}
