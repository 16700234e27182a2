/* A row is a frame part (symbol, object, ...) with a sample part (process, unit, ...). Both parts are
 * numbered first: one for each frame of each location, one for each label set. The samples are then gone
 * through one sample part after the other, so that a row is found by indexing with the frame part alone,
 * without a hash: a day's profile has tens of millions of frames. Recursion is counted once by a stamp of
 * the sample in the row. */
#include "profile/table.h"

#include <errno.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/idtable.h"
#include "profile/symbols.h"
#include "profile/weight.h"

#define NO_ROW UINT32_MAX

static const struct {
        const char *name;
        enum table_key key;
} key_names[] = {
                {"symbol", TABLE_SYMBOL},       {"object", TABLE_OBJECT}, {"file", TABLE_FILE},
                {"line", TABLE_LINE},           {"comm", TABLE_COMM},     {"pid", TABLE_PID},
                {"thread", TABLE_THREAD},       {"tid", TABLE_TID},       {"unit", TABLE_UNIT},
                {"container", TABLE_CONTAINER}, {"user", TABLE_USER},
};

int table_key_by_name(const char *name)
{
        for (size_t i = 0; i < ARRAY_SIZE(key_names); i++)
                if (!strcmp(name, key_names[i].name))
                        return (int)key_names[i].key;
        return -EINVAL;
}

/* A part of a row's key, as numbers that can be compared: strings by their index in the profile. */
struct part {
        uint64_t field[5];
};

struct parts {
        struct part *part;
        uint32_t n, cap;
        struct idtable index;
};

struct builder {
        const struct profile *p;
        const struct table_options *o;
        struct weight weight;
        struct table *t;
        uint32_t cap_rows;
        struct parts frame_part, sample_part;
        uint32_t *part_of_frame; /* by index in symbols->frame; one more for stacks without frames */
        uint32_t *part_of_set;   /* by label set */
        uint32_t *row_of_part;   /* of the sample part at hand: row by frame part */
        uint32_t *stamp;         /* by row: the last sample that counted in its total, + 1 */
        uint32_t cap_stamps;
        bool *not_inlined; /* by row */
        uint32_t cap_not_inlined;
        uint32_t *order; /* samples by sample part */
};

static void builder_done(struct builder *b)
{
        table_free(b->t);
        struct parts *all[] = {&b->frame_part, &b->sample_part};
        for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
                free(all[i]->part);
                idtable_free(&all[i]->index);
        }
        free(b->part_of_frame);
        free(b->part_of_set);
        free(b->row_of_part);
        free(b->stamp);
        free(b->not_inlined);
        free(b->order);
}

static bool part_equal(const void *ctx, uint32_t id, const void *key)
{
        return !memcmp(&((const struct parts *)ctx)->part[id], key, sizeof(struct part));
}

static uint64_t part_hash(const void *ctx, uint32_t id)
{
        return hash_bytes(&((const struct parts *)ctx)->part[id], sizeof(struct part));
}

static int64_t part_number(struct parts *parts, const struct part *part)
{
        uint64_t hash = hash_bytes(part, sizeof(*part));
        uint32_t id = idtable_find(&parts->index, hash, part_equal, parts, part);
        int r;

        if (id != IDTABLE_NONE)
                return id;
        if ((r = ARRAY_ROOM(parts->part, parts->cap, (uint64_t)parts->n + 1)) < 0 ||
            (r = idtable_add(&parts->index, hash, parts->n, part_hash, parts)) < 0)
                return r;
        parts->part[parts->n] = *part;
        return parts->n++;
}

/* -- frame parts -- */

enum { FRAME_SYMBOL, FRAME_OBJECT, FRAME_FILE, FRAME_LINE };

static int64_t frame_part(struct builder *b, uint32_t symbol, uint32_t mapping, uint32_t function,
                          int64_t line)
{
        struct part part = {0};

        if (b->o->keys & TABLE_SYMBOL)
                part.field[FRAME_SYMBOL] = symbol + 1ull;
        if (b->o->keys & TABLE_OBJECT)
                part.field[FRAME_OBJECT] = b->p->mapping[mapping].file;
        if (b->o->keys & (TABLE_FILE | TABLE_LINE))
                part.field[FRAME_FILE] = function ? b->p->function[function].file : 0;
        if (b->o->keys & TABLE_LINE)
                part.field[FRAME_LINE] = (uint64_t)line;
        return part_number(&b->frame_part, &part);
}

static int number_frames(struct builder *b)
{
        const struct symbols *s = b->t->symbols;
        uint32_t n = s->first[b->p->n_locations];

        b->part_of_frame = malloc(((size_t)n + 1) * sizeof(*b->part_of_frame));
        if (!b->part_of_frame)
                return -ENOMEM;
        for (uint32_t l = 1; l < b->p->n_locations; l++)
                for (uint32_t i = s->first[l]; i < s->first[l + 1]; i++) {
                        const struct symbol_frame *f = &s->frame[i];
                        int64_t part = frame_part(b, f->symbol, b->p->location[l].mapping, f->function,
                                                  f->line);
                        if (part < 0)
                                return (int)part;
                        b->part_of_frame[i] = (uint32_t)part;
                }
        int64_t part = frame_part(b, s->no_stack, 0, 0, 0);
        if (part < 0)
                return (int)part;
        b->part_of_frame[n] = (uint32_t)part;
        b->row_of_part = malloc((size_t)b->frame_part.n * sizeof(*b->row_of_part));
        return b->row_of_part ? 0 : -ENOMEM;
}

/* -- sample parts -- */

/* The keys that a sample's labels give, in the order of part.field; `numeric` ones are kept + 1, 0 is none.
 */
static const struct {
        enum table_key key;
        const char *label;
        bool numeric;
} label_keys[] = {
                {TABLE_COMM, "comm", false},          {TABLE_PID, "pid", true},
                {TABLE_THREAD, "thread_name", false}, {TABLE_TID, "thread_id", true},
                {TABLE_UNIT, "unit", false},          {TABLE_CONTAINER, "container_id", false},
                {TABLE_USER, "user", false},
};

/* Two keys share a field where there are more keys than fields: strings and ids are 32 bits. */
static void set_key(struct part *part, size_t key, uint32_t value)
{
        part->field[key / 2] |= (uint64_t)value << (key % 2 * 32);
}

static uint32_t get_key(const struct part *part, size_t key)
{
        return (uint32_t)(part->field[key / 2] >> (key % 2 * 32));
}

static int number_label_sets(struct builder *b)
{
        const struct profile *p = b->p;

        b->part_of_set = malloc(((size_t)p->n_label_sets + 1) * sizeof(*b->part_of_set));
        if (!b->part_of_set)
                return -ENOMEM;
        for (uint32_t s = 0; s < p->n_label_sets; s++) {
                const struct profile_sample of_set = {.first_label = p->label_set[s].first,
                                                      .n_labels = p->label_set[s].n};
                struct part part = {0};
                for (size_t k = 0; k < ARRAY_SIZE(label_keys); k++) {
                        if (!(b->o->keys & label_keys[k].key))
                                continue;
                        const struct profile_label *l = profile_find_label(p, &of_set, label_keys[k].label);
                        if (l && label_keys[k].numeric && !l->str && l->num >= 0 && l->num < UINT32_MAX)
                                set_key(&part, k, (uint32_t)l->num + 1);
                        else if (l && !label_keys[k].numeric)
                                set_key(&part, k, l->str);
                }
                int64_t number = part_number(&b->sample_part, &part);
                if (number < 0)
                        return (int)number;
                b->part_of_set[s] = (uint32_t)number;
        }
        return 0;
}

/* The samples, those of one sample part together (a counting sort). */
static int order_samples(struct builder *b)
{
        const struct profile *p = b->p;
        _cleanup_free_ uint32_t *at = calloc((size_t)b->sample_part.n + 1, sizeof(*at));

        b->order = malloc(((size_t)p->n_samples + 1) * sizeof(*b->order));
        if (!at || !b->order)
                return -ENOMEM;
        for (uint32_t i = 0; i < p->n_samples; i++)
                at[b->part_of_set[p->sample[i].label_set] + 1]++;
        for (uint32_t i = 1; i <= b->sample_part.n; i++)
                at[i] += at[i - 1];
        for (uint32_t i = 0; i < p->n_samples; i++)
                b->order[at[b->part_of_set[p->sample[i].label_set]]++] = i;
        return 0;
}

/* -- rows -- */

static void name_row(struct builder *b, struct table_row *row, const struct part *frame,
                     const struct part *sample)
{
        const struct profile *p = b->p;
        const char *text[ARRAY_SIZE(label_keys)];
        int64_t number[ARRAY_SIZE(label_keys)];

        *row = (struct table_row){.line = -1};
        if (frame->field[FRAME_SYMBOL]) {
                const struct symbol *s = &b->t->symbols->symbol[frame->field[FRAME_SYMBOL] - 1];
                row->symbol = s->name;
                row->kernel = s->kernel;
                if (b->o->keys & TABLE_OBJECT)
                        row->object = s->object;
        }
        if (frame->field[FRAME_OBJECT]) {
                row->object = p->string[frame->field[FRAME_OBJECT]];
                row->kernel = profile_object_is_kernel(row->object);
        }
        if (frame->field[FRAME_FILE])
                row->file = p->string[frame->field[FRAME_FILE]];
        if (b->o->keys & TABLE_LINE && frame->field[FRAME_LINE])
                row->line = (int64_t)frame->field[FRAME_LINE];
        for (size_t k = 0; k < ARRAY_SIZE(label_keys); k++) {
                uint32_t v = get_key(sample, k);
                text[k] = v && !label_keys[k].numeric ? p->string[v] : NULL;
                number[k] = (int64_t)v - 1;
        }
        row->comm = text[0];
        row->pid = number[1];
        row->thread = text[2];
        row->tid = number[3];
        row->unit = text[4];
        row->container = text[5];
        row->user = text[6];
}

static int64_t row_of(struct builder *b, uint32_t frame_number, uint32_t sample_number)
{
        struct table *t = b->t;
        int r;

        if (b->row_of_part[frame_number] != NO_ROW)
                return b->row_of_part[frame_number];
        if ((r = ARRAY_ROOM(t->row, b->cap_rows, (uint64_t)t->n + 1)) < 0 ||
            (r = ARRAY_ROOM(b->stamp, b->cap_stamps, (uint64_t)t->n + 1)) < 0 ||
            (r = ARRAY_ROOM(b->not_inlined, b->cap_not_inlined, (uint64_t)t->n + 1)) < 0)
                return r;
        name_row(b, &t->row[t->n], &b->frame_part.part[frame_number], &b->sample_part.part[sample_number]);
        b->stamp[t->n] = 0;
        b->not_inlined[t->n] = false;
        b->row_of_part[frame_number] = t->n;
        return t->n++;
}

struct value {
        int64_t value, samples;
        uint32_t sample, part;
};

static int count_frame(struct builder *b, const struct value *v, uint32_t frame, bool leaf, bool inlined)
{
        int64_t row = row_of(b, b->part_of_frame[frame], v->part);
        if (row < 0)
                return (int)row;
        struct table_row *r = &b->t->row[row];

        b->not_inlined[row] |= !inlined;
        if (leaf) {
                r->self += v->value;
                r->self_samples += v->samples;
        }
        if (b->stamp[row] != v->sample + 1) {
                b->stamp[row] = v->sample + 1;
                r->total += v->value;
                r->total_samples += v->samples;
        }
        return 0;
}

static int count_sample(struct builder *b, const struct value *v)
{
        const struct profile *p = b->p;
        const struct symbols *s = b->t->symbols;
        const struct profile_sample *sample = &p->sample[v->sample];
        bool leaf = true;

        if (!sample->n_locations || !(b->o->keys & TABLE_FRAME_KEYS))
                return count_frame(b, v, s->first[p->n_locations], true, false);
        for (uint32_t i = 0; i < sample->n_locations; i++) {
                uint32_t l = p->sample_location[sample->first_location + i];
                for (uint32_t f = s->first[l]; f < s->first[l + 1]; f++) {
                        int r = count_frame(b, v, f, leaf, s->frame[f].inlined);
                        if (r < 0)
                                return r;
                        leaf = false;
                }
        }
        return 0;
}

/* -- edges -- */

struct edges {
        enum table_direction direction;
        const bool *is_function;  /* by symbol: the function asked about */
        struct frame_list frames; /* of the sample at hand */
};

static int count_edges(struct builder *b, struct edges *e, const struct value *v)
{
        const struct symbol_frame *frame = b->t->symbols->frame;

        int r = symbols_frames(b->t->symbols, b->p, &b->p->sample[v->sample], &e->frames);
        if (r < 0)
                return r;
        for (uint32_t i = 0; i < e->frames.n; i++) {
                bool is_end = e->direction == TABLE_CALLERS ? i + 1 == e->frames.n : i == 0;
                if (is_end || !e->is_function[frame[e->frames.frame[i]].symbol])
                        continue;
                uint32_t other = e->frames.frame[e->direction == TABLE_CALLERS ? i + 1 : i - 1];
                r = count_frame(b, v, other, false, frame[other].inlined);
                if (r < 0)
                        return r;
        }
        return 0;
}

/* -- the whole -- */

static int count_all(struct builder *b, struct edges *e)
{
        const struct profile *p = b->p;
        struct weight_sums sums = {0};
        uint32_t group = NO_ROW;

        for (uint32_t i = 0; i < p->n_samples; i++) {
                uint32_t sample = b->order[i];
                const int64_t *values = profile_values(p, sample);
                struct value v = {.value = values[b->weight.type],
                                  .samples = weight_samples(&b->weight, values),
                                  .sample = sample,
                                  .part = b->part_of_set[p->sample[sample].label_set]};
                weight_add(&b->weight, &sums, values);
                if (!v.value && !v.samples)
                        continue;
                if (v.part != group) {
                        memset(b->row_of_part, 0xff, b->frame_part.n * sizeof(*b->row_of_part));
                        group = v.part;
                }
                int r = e ? count_edges(b, e, &v) : count_sample(b, &v);
                if (r < 0)
                        return r;
        }
        b->t->total = sums.value;
        b->t->samples = sums.samples;
        b->t->effective = weight_effective(&sums);
        return 0;
}

static int compare_text(const char *a, const char *b)
{
        return strcmp(a ? a : "", b ? b : "");
}

static int compare_rows(const void *x, const void *y)
{
        const struct table_row *a = x, *b = y;

        if (a->self != b->self)
                return a->self > b->self ? -1 : 1;
        if (a->total != b->total)
                return a->total > b->total ? -1 : 1;
        int r = compare_text(a->symbol, b->symbol);
        if (!r)
                r = compare_text(a->object, b->object);
        if (!r)
                r = compare_text(a->comm, b->comm);
        if (!r)
                r = compare_text(a->unit, b->unit);
        if (!r)
                r = a->pid < b->pid ? -1 : a->pid > b->pid;
        return r ? r : a->line < b->line ? -1 : a->line > b->line;
}

static double share_of(int64_t value, int64_t total)
{
        double share = total > 0 ? (double)value / (double)total : 0;

        return share < 0 ? 0 : share > 1 ? 1 : share;
}

static void finish_rows(struct builder *b, bool edges)
{
        struct table *t = b->t;

        for (uint32_t i = 0; i < t->n; i++) {
                struct table_row *r = &t->row[i];
                if (edges) {
                        r->self = r->total;
                        r->self_samples = r->total_samples;
                }
                r->inlined = r->symbol && !b->not_inlined[i];
                weight_interval(share_of(r->self, t->total), t->effective, WEIGHT_Z95, &r->self_low,
                                &r->self_high);
                weight_interval(share_of(r->total, t->total), t->effective, WEIGHT_Z95, &r->total_low,
                                &r->total_high);
        }
        if (t->n)
                qsort(t->row, t->n, sizeof(*t->row), compare_rows);
}

static int builder_begin(struct builder *b)
{
        const struct profile *p = b->p;

        if (b->o->type >= p->n_types)
                return -EINVAL;
        b->t = calloc(1, sizeof(*b->t));
        if (!b->t)
                return -ENOMEM;
        b->weight = weight_of_type(p, b->o->type);
        b->t->type = p->string[p->type[b->o->type].type];
        b->t->unit = p->string[p->type[b->o->type].unit];
        int r = symbols_new(&b->t->symbols, p, !b->o->no_inline);
        if (r == 0)
                r = number_frames(b);
        if (r == 0)
                r = number_label_sets(b);
        return r < 0 ? r : order_samples(b);
}

int table_new(struct table **ret, const struct profile *p, const struct table_options *o)
{
        _cleanup_(builder_done) struct builder b = {.p = p, .o = o};

        int r = builder_begin(&b);
        if (r < 0)
                return r;
        r = count_all(&b, NULL);
        if (r < 0)
                return r;
        finish_rows(&b, false);
        *ret = TAKE_PTR(b.t);
        return 0;
}

int table_edges(struct table **ret, const struct profile *p, const struct table_options *o,
                enum table_direction direction, const char *symbol, const char *object)
{
        _cleanup_(builder_done) struct builder b = {.p = p, .o = o};
        _cleanup_free_ bool *is_function = NULL;
        struct edges e = {.direction = direction};

        int r = builder_begin(&b);
        if (r < 0)
                return r;
        is_function = calloc(b.t->symbols->n, sizeof(*is_function));
        if (!is_function)
                return -ENOMEM;
        for (uint32_t i = 0; i < b.t->symbols->n; i++)
                is_function[i] = !strcmp(b.t->symbols->symbol[i].name, symbol) &&
                                 (!object || !strcmp(b.t->symbols->symbol[i].object, object));
        e.is_function = is_function;
        r = count_all(&b, &e);
        frame_list_free(&e.frames);
        if (r < 0)
                return r;
        finish_rows(&b, true);
        *ret = TAKE_PTR(b.t);
        return 0;
}

struct table *table_free(struct table *t)
{
        if (!t)
                return NULL;
        free(t->row);
        symbols_free(t->symbols);
        free(t);
        return NULL;
}
