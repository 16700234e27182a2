/* The rows of a comparison: both profiles are made one (pair.h), summed up by function, stack, unit, process
 * or object, and each row tested (diff_stats.h).
 *
 * Functions are matched by name and by the base name of their object: that is the same for equal build IDs,
 * and finds a function again in the next version of a file, also where releases have directories of their
 * own. */
#include "profile/diff.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/hash.h"
#include "base/idtable.h"
#include "profile/diff_stats.h"
#include "profile/pair.h"
#include "profile/symbols.h"
#include "profile/table.h"
#include "profile/weight.h"

#define LEVEL 0.05 /* of significance */

static const char *const by_names[] = {
                [DIFF_FUNCTION] = "function", [DIFF_STACK] = "stack",   [DIFF_UNIT] = "unit",
                [DIFF_PROCESS] = "process",   [DIFF_OBJECT] = "object",
};

int diff_by_name(const char *name)
{
        for (size_t i = 0; i < ARRAY_SIZE(by_names); i++)
                if (!strcmp(name, by_names[i]))
                        return (int)i;
        return -EINVAL;
}

struct builder {
        const struct profile *pair;
        const struct diff_options *o;
        struct diff *d;
        uint32_t cap_rows;
        struct idtable index;
        struct buf text;
        size_t (*text_at)[2]; /* by row: name, object */
        uint32_t cap_text_at;
};

static void builder_done(struct builder *b)
{
        diff_free(b->d);
        idtable_free(&b->index);
        buf_free(&b->text);
        free(b->text_at);
}

struct row_key {
        const char *name, *object;
};

static bool row_equal(const void *ctx, uint32_t id, const void *key)
{
        const struct builder *b = ctx;
        const struct row_key *k = key;

        return !strcmp(b->text.data + b->text_at[id][0], k->name) &&
               !strcmp(b->text.data + b->text_at[id][1], k->object);
}

static uint64_t hash_of_key(const char *name, const char *object)
{
        return hash_u64(hash_bytes(name, strlen(name)), hash_bytes(object, strlen(object)));
}

static uint64_t row_hash(const void *ctx, uint32_t id)
{
        const struct builder *b = ctx;

        return hash_of_key(b->text.data + b->text_at[id][0], b->text.data + b->text_at[id][1]);
}

static int add_value(struct builder *b, int side, const char *name, const char *object, bool kernel,
                     int64_t value)
{
        struct diff *d = b->d;
        struct row_key key = {name, object_base_name(object)};
        uint64_t hash = hash_of_key(key.name, key.object);
        uint32_t id = idtable_find(&b->index, hash, row_equal, b, &key);
        int r;

        if (!value)
                return 0;
        if (id == IDTABLE_NONE) {
                if ((r = ARRAY_ROOM(d->row, b->cap_rows, (uint64_t)d->n + 1)) < 0 ||
                    (r = ARRAY_ROOM(b->text_at, b->cap_text_at, (uint64_t)d->n + 1)) < 0)
                        return r;
                b->text_at[d->n][0] = b->text.len;
                buf_add(&b->text, key.name, strlen(key.name) + 1);
                b->text_at[d->n][1] = b->text.len;
                buf_add(&b->text, key.object, strlen(key.object) + 1);
                if (buf_error(&b->text))
                        return buf_error(&b->text);
                d->row[d->n] = (struct diff_row){.kernel = kernel};
                r = idtable_add(&b->index, hash, d->n, row_hash, b);
                if (r < 0)
                        return r;
                id = d->n++;
        }
        d->row[id].side[side].value += value;
        return 0;
}

/* -- rows of tables -- */

static int add_table(struct builder *b, int side)
{
        static const uint32_t keys[] = {
                        [DIFF_FUNCTION] = TABLE_SYMBOL | TABLE_OBJECT,
                        [DIFF_UNIT] = TABLE_UNIT,
                        [DIFF_PROCESS] = TABLE_COMM,
                        [DIFF_OBJECT] = TABLE_OBJECT,
        };
        _cleanup_table_ struct table *t = NULL;
        struct table_options o = {.keys = keys[b->o->by],
                                  .type = side ? PAIR_AFTER : PAIR_BEFORE,
                                  .no_inline = b->o->no_inline};

        int r = table_new(&t, b->pair, &o);
        for (uint32_t i = 0; r == 0 && i < t->n; i++) {
                const struct table_row *row = &t->row[i];
                const char *name = b->o->by == DIFF_FUNCTION  ? row->symbol
                                   : b->o->by == DIFF_UNIT    ? row->unit
                                   : b->o->by == DIFF_PROCESS ? row->comm
                                                              : row->object;
                const char *object = b->o->by == DIFF_FUNCTION && row->object ? row->object : "";
                r = add_value(b, side, name ? name : "[none]", object, row->kernel,
                              b->o->children ? row->total : row->self);
        }
        return r;
}

/* -- rows of stacks -- */

static int add_stacks(struct builder *b)
{
        _cleanup_symbols_ struct symbols *s = NULL;
        _cleanup_frame_list_ struct frame_list frames = {0};
        _cleanup_buf_ struct buf text = {0};

        int r = symbols_new(&s, b->pair, !b->o->no_inline);
        for (uint32_t i = 0; r == 0 && i < b->pair->n_samples; i++) {
                r = symbols_frames(s, b->pair, &b->pair->sample[i], &frames);
                if (r < 0)
                        return r;
                buf_clear(&text);
                for (uint32_t k = frames.n; k-- > 0;)
                        buf_addf(&text, "%s%s", s->symbol[s->frame[frames.frame[k]].symbol].name,
                                 k ? ";" : "");
                if (buf_error(&text))
                        return buf_error(&text);
                const char *name = frames.n ? buf_text(&text) : s->symbol[s->no_stack].name;
                bool kernel = frames.n && s->symbol[s->frame[frames.frame[0]].symbol].kernel;
                for (int side = 0; side < 2 && r == 0; side++)
                        r = add_value(b, side, name, "", kernel,
                                      profile_values(b->pair, i)[side ? PAIR_AFTER : PAIR_BEFORE]);
        }
        return r;
}

/* -- objects built anew -- */

struct build {
        const char *object, *build_id;
        bool seen[2];
};

struct builds {
        struct build *build;
        uint32_t n, cap;
};

static void builds_done(struct builds *x)
{
        free(x->build);
}

static int add_builds(struct builds *x, const struct profile *p)
{
        _cleanup_free_ bool(*seen)[2] = calloc(p->n_mappings, sizeof(*seen));

        if (!seen)
                return -ENOMEM;
        for (uint32_t i = 0; i < p->n_samples; i++)
                for (uint32_t k = 0; k < p->sample[i].n_locations; k++) {
                        uint32_t l = p->sample_location[p->sample[i].first_location + k];
                        for (int side = 0; side < 2; side++)
                                seen[p->location[l].mapping][side] |=
                                                profile_values(p, i)[side ? PAIR_AFTER : PAIR_BEFORE] != 0;
                }
        for (uint32_t m = 1; m < p->n_mappings; m++) {
                if (!p->mapping[m].build_id)
                        continue;
                int r = ARRAY_ROOM(x->build, x->cap, (uint64_t)x->n + 1);
                if (r < 0)
                        return r;
                x->build[x->n++] = (struct build){.object = object_base_name(p->string[p->mapping[m].file]),
                                                  .build_id = p->string[p->mapping[m].build_id],
                                                  .seen = {seen[m][0], seen[m][1]}};
        }
        return 0;
}

/* Both sides know builds of the object, and one of them a build that the other has not. */
static bool is_rebuilt(const struct builds *x, const char *object)
{
        bool any[2] = {false, false}, only[2] = {false, false};

        for (uint32_t i = 0; i < x->n; i++) {
                bool seen[2] = {false, false};
                if (strcmp(x->build[i].object, object) != 0)
                        continue;
                for (uint32_t k = 0; k < x->n; k++)
                        if (!strcmp(x->build[k].object, object) &&
                            !strcmp(x->build[k].build_id, x->build[i].build_id))
                                for (int side = 0; side < 2; side++)
                                        seen[side] |= x->build[k].seen[side];
                for (int side = 0; side < 2; side++) {
                        any[side] |= seen[side];
                        only[side] |= seen[side] && !seen[!side];
                }
        }
        return any[0] && any[1] && (only[0] || only[1]);
}

static int mark_rebuilt(struct builder *b)
{
        _cleanup_(builds_done) struct builds x = {0};
        const char *last = NULL;
        bool rebuilt = false;

        if (b->o->by != DIFF_FUNCTION && b->o->by != DIFF_OBJECT)
                return 0;
        int r = add_builds(&x, b->pair);
        for (uint32_t i = 0; r == 0 && i < b->d->n; i++) {
                const char *object = b->o->by == DIFF_OBJECT ? object_base_name(b->d->row[i].name)
                                                             : b->d->row[i].object;
                if (!last || strcmp(last, object) != 0) /* rows of one object mostly follow each other */
                        rebuilt = is_rebuilt(&x, object);
                last = object;
                b->d->row[i].rebuilt = rebuilt;
        }
        return r;
}

/* -- numbers -- */

struct totals {
        struct weight_sums sums[2];
        double effective[2], observed[2];
        double weight[2]; /* value of one effective sample */
};

static void sum_up(struct totals *t, const struct profile *pair, const struct profile *before,
                   const struct profile *after)
{
        const struct weight w[2] = {{.type = PAIR_BEFORE, .count_type = PAIR_BEFORE_SAMPLES},
                                    {.type = PAIR_AFTER, .count_type = PAIR_AFTER_SAMPLES}};

        for (uint32_t i = 0; i < pair->n_samples; i++)
                for (int side = 0; side < 2; side++)
                        weight_add(&w[side], &t->sums[side], profile_values(pair, i));
        for (int side = 0; side < 2; side++) {
                t->effective[side] = weight_effective(&t->sums[side]);
                t->observed[side] = (double)profile_observed_ns(side ? after : before);
                t->weight[side] = t->effective[side] > 0 ? (double)t->sums[side].value / t->effective[side]
                                                         : 0;
        }
}

static void fill_sides(struct diff_row *row, const struct totals *t, double factor)
{
        double share[2], n[2], error = 0;

        for (int side = 0; side < 2; side++) {
                struct diff_side *s = &row->side[side];
                double total = (double)t->sums[side].value, value = (double)s->value;
                s->share = total > 0 ? value / total : 0;
                s->samples = s->share * (double)t->sums[side].samples;
                s->rate = t->observed[side] > 0 ? value / t->observed[side] : NAN;
                share[side] = s->share;
                n[side] = t->effective[side] / factor;
                /* A count's variance is the count; one that is 0 could have been 1. */
                double count = t->weight[side] > 0 ? value / t->weight[side] : 0;
                double of_rate = sqrt(fmax(count, 1) * factor) * t->weight[side] / t->observed[side];
                error = hypot(error, of_rate);
        }
        row->share_change = share[1] - share[0];
        stat_share_interval(share, n, &row->share_low, &row->share_high);
        row->rate_change = row->side[1].rate - row->side[0].rate;
        row->rate_low = row->rate_change - WEIGHT_Z95 * error;
        row->rate_high = row->rate_change + WEIGHT_Z95 * error;
}

static int test_rows(struct builder *b, const struct totals *t)
{
        struct diff *d = b->d;
        bool by_rate = b->o->order == DIFF_BY_RATE && t->observed[0] > 0 && t->observed[1] > 0;
        _cleanup_free_ struct stat_row *row = calloc((size_t)d->n + 1, sizeof(*row));
        struct stat_sides sides = {.share = !by_rate};

        if (!row)
                return -ENOMEM;
        for (int side = 0; side < 2; side++) {
                double unit = t->weight[side] > 0 ? t->weight[side] : 1;
                sides.exposure[side] = by_rate ? t->observed[side] / unit : t->effective[side];
                for (uint32_t i = 0; i < d->n; i++)
                        row[i].count[side] = (double)d->row[i].side[side].value / unit;
        }
        d->overdispersion = stat_overdispersion(row, d->n, &sides);
        int r = stat_test(row, d->n, &sides, d->overdispersion);
        if (r < 0)
                return r;
        for (uint32_t i = 0; i < d->n; i++) {
                fill_sides(&d->row[i], t, d->overdispersion);
                d->row[i].p = row[i].p;
                d->row[i].changed = row[i].p < LEVEL;
                d->n_changed += d->row[i].changed;
        }
        return 0;
}

/* -- order -- */

static double size_of_change(const struct diff_row *r, const struct diff_options *o)
{
        return fabs(o->order == DIFF_BY_RATE && !isnan(r->rate_change) ? r->rate_change : r->share_change);
}

static int compare_rows(const void *a, const void *b, void *ctx)
{
        const struct diff_row *x = a, *y = b;
        double u, v;

        if (x->changed != y->changed)
                return x->changed ? -1 : 1;
        if (x->changed) {
                u = size_of_change(x, ctx);
                v = size_of_change(y, ctx);
        } else {
                u = x->side[0].share + x->side[1].share;
                v = y->side[0].share + y->side[1].share;
        }
        if (u != v)
                return u > v ? -1 : 1;
        int r = strcmp(x->name, y->name);
        return r ? r : strcmp(x->object, y->object);
}

static int finish(struct builder *b, const struct profile *before, const struct profile *after)
{
        struct diff *d = b->d;
        struct totals t = {0};

        for (uint32_t i = 0; i < d->n; i++) {
                d->row[i].name = b->text.data + b->text_at[i][0];
                d->row[i].object = b->text.data + b->text_at[i][1];
        }
        sum_up(&t, b->pair, before, after);
        for (int side = 0; side < 2; side++) {
                d->total[side] = t.sums[side].value;
                d->effective[side] = t.effective[side];
        }
        int r = test_rows(b, &t);
        if (r == 0)
                r = mark_rebuilt(b);
        if (r < 0)
                return r;
        if (d->n)
                qsort_r(d->row, d->n, sizeof(*d->row), compare_rows, (void *)(uintptr_t)b->o);
        d->text = TAKE_PTR(b->text.data);
        return 0;
}

int diff_new(struct diff **ret, const struct profile *before, const struct profile *after,
             const struct diff_options *o)
{
        static const char *const unit[] = {"unit"}, *const comm[] = {"comm"};
        _cleanup_profile_ struct profile *pair = NULL;
        _cleanup_(builder_done) struct builder b = {.o = o, .d = calloc(1, sizeof(*b.d))};

        if (!b.d)
                return -ENOMEM;
        int r = profile_pair(before, after, o->type, o->by == DIFF_UNIT ? unit : comm,
                             o->by == DIFF_UNIT || o->by == DIFF_PROCESS, &pair);
        if (r < 0)
                return r;
        b.pair = pair;
        if (o->by == DIFF_STACK) {
                r = add_stacks(&b);
        } else {
                r = add_table(&b, 0);
                if (r == 0)
                        r = add_table(&b, 1);
        }
        if (r == 0)
                r = finish(&b, before, after);
        if (r < 0)
                return r;
        int type = o->type ? profile_find_type(after, o->type) : (int)profile_default_type(after);
        b.d->type = after->string[after->type[type].type];
        b.d->unit = after->string[after->type[type].unit];
        *ret = TAKE_PTR(b.d);
        return 0;
}

struct diff *diff_free(struct diff *d)
{
        if (!d)
                return NULL;
        free(d->row);
        free(d->text);
        free(d);
        return NULL;
}
