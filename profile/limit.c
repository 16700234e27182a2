#include "profile/limit.h"

#include <errno.h>
#include <string.h>

#include "profile/copy.h"
#include "profile/pprof_format.h"
#include "profile/weight.h"

/* A new profile with p's types, in their order, and its times. */
static int begin_copy(struct profile **ret, const struct profile *p)
{
        _cleanup_profile_ struct profile *to = NULL;

        int r = profile_new(&to);
        if (r < 0)
                return r;
        for (uint32_t i = 0; i < p->n_types; i++) {
                int64_t id = profile_type(to, p->string[p->type[i].type], p->string[p->type[i].unit]);
                if (id < 0)
                        return (int)id;
        }
        to->time_ns = p->time_ns;
        to->duration_ns = p->duration_ns;
        r = profile_ledger_merge(to, p);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(to);
        return 0;
}

/* -- labels -- */

static bool key_is_kept(const char *key, const char *const *keys, uint32_t n_keys)
{
        for (uint32_t i = 0; i < n_keys; i++)
                if (!strcmp(key, keys[i]))
                        return true;
        return false;
}

/* The label set in `to` of those labels of a set of `p` that are kept. */
static int64_t reduced_set(const struct profile *p, struct profile *to, struct profile_copier *c,
                           uint32_t set, const char *const *keys, uint32_t n_keys, bool numbers)
{
        struct profile_label labels[PROFILE_MAX_LABELS];
        struct profile_span span = p->label_set[set];
        uint32_t n = 0;

        for (uint32_t i = 0; i < span.n; i++) {
                const struct profile_label *l = &p->label[span.first + i];
                if (l->str ? !key_is_kept(p->string[l->key], keys, n_keys) : !numbers)
                        continue;
                int64_t key = profile_copier_string(c, l->key), str = profile_copier_string(c, l->str),
                        unit = profile_copier_string(c, l->unit);
                if (key < 0 || str < 0 || unit < 0)
                        return key < 0 ? key : str < 0 ? str : unit;
                labels[n++] = (struct profile_label){.key = (uint32_t)key,
                                                     .str = (uint32_t)str,
                                                     .num = l->num,
                                                     .unit = (uint32_t)unit};
        }
        return profile_label_set(to, labels, n);
}

int profile_reduce_labels(const struct profile *p, const char *const *keys, uint32_t n_keys, bool numbers,
                          struct profile **ret)
{
        _cleanup_profile_ struct profile *to = NULL;
        _cleanup_profile_copier_ struct profile_copier *c = NULL;
        _cleanup_free_ uint32_t *set = malloc(((size_t)p->n_label_sets + 1) * sizeof(*set));

        if (!set)
                return -ENOMEM;
        int r = begin_copy(&to, p);
        if (r < 0)
                return r;
        r = profile_copier_new(&c, to, p);
        if (r < 0)
                return r;
        for (uint32_t i = 0; i < p->n_label_sets; i++) {
                int64_t id = reduced_set(p, to, c, i, keys, n_keys, numbers);
                if (id < 0)
                        return (int)id;
                set[i] = (uint32_t)id;
        }
        for (uint32_t i = 0; i < p->n_samples; i++) {
                int64_t stack = profile_copier_stack(c, p->sample[i].stack);
                if (stack < 0)
                        return (int)stack;
                r = profile_sample_at(to, (uint32_t)stack, set[p->sample[i].label_set],
                                      profile_values(p, i));
                if (r < 0)
                        return r;
        }
        r = profile_copier_header(c);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(to);
        return 0;
}

int profile_keep_labels(const struct profile *p, const char *const *keys, uint32_t n_keys,
                        struct profile **ret)
{
        return profile_reduce_labels(p, keys, n_keys, true, ret);
}

/* -- size -- */

static uint64_t varint_size(uint64_t v)
{
        uint64_t n = 1;

        for (; v >= 0x80; v >>= 7)
                n++;
        return n;
}

/* A message or text as a field: tag, length, bytes. */
static uint64_t field_size(uint64_t bytes)
{
        return 1 + varint_size(bytes) + bytes;
}

/* How many bytes of pprof a growing choice of samples takes, from above: every id as long as the longest. */
struct sizer {
        const struct profile *p;
        bool *string, *function, *location, *mapping;                /* already counted */
        uint64_t string_index, function_id, location_id, mapping_id; /* bytes of an id */
        uint64_t bytes;
};

static void sizer_done(struct sizer *z)
{
        free(z->string);
        free(z->function);
        free(z->location);
        free(z->mapping);
}

static void add_string(struct sizer *z, uint32_t id)
{
        if (z->string[id])
                return;
        z->string[id] = true;
        z->bytes += field_size(strlen(z->p->string[id]));
}

static void add_function(struct sizer *z, uint32_t id)
{
        const struct profile_function *f = &z->p->function[id];

        if (z->function[id])
                return;
        z->function[id] = true;
        add_string(z, f->name);
        add_string(z, f->system_name);
        add_string(z, f->file);
        z->bytes += field_size(1 + z->function_id + 3 * (1 + z->string_index) + 1 +
                               varint_size((uint64_t)f->start_line));
}

static void add_mapping(struct sizer *z, uint32_t id)
{
        const struct profile_mapping *m = &z->p->mapping[id];

        if (z->mapping[id] || id == 0)
                return;
        z->mapping[id] = true;
        add_string(z, m->file);
        add_string(z, m->build_id);
        z->bytes += field_size(1 + z->mapping_id + 3 * (1 + WIRE_MAX_VARINT) + 2 * (1 + z->string_index) +
                               4 * 2);
}

static void add_location(struct sizer *z, uint32_t id)
{
        const struct profile_location *l = &z->p->location[id];
        uint64_t bytes = 1 + z->location_id + 1 + z->mapping_id + 1 + varint_size(l->address) + 2;

        if (z->location[id])
                return;
        z->location[id] = true;
        add_mapping(z, l->mapping);
        for (uint32_t i = 0; i < l->n_lines; i++) {
                const struct profile_line *line = &z->p->line[l->first_line + i];
                add_function(z, line->function);
                bytes += field_size(1 + z->function_id + 1 + varint_size((uint64_t)line->line));
        }
        z->bytes += field_size(bytes);
}

static void add_sample(struct sizer *z, uint32_t i)
{
        const struct profile *p = z->p;
        const struct profile_sample *s = &p->sample[i];
        uint64_t bytes = field_size(s->n_locations * z->location_id), values = 0;

        for (uint32_t k = 0; k < s->n_locations; k++)
                add_location(z, p->sample_location[s->first_location + k]);
        for (uint32_t k = 0; k < p->n_types; k++)
                values += varint_size((uint64_t)profile_values(p, i)[k]);
        bytes += field_size(values);
        for (uint32_t k = 0; k < s->n_labels; k++) {
                const struct profile_label *l = &p->label[s->first_label + k];
                add_string(z, l->key);
                add_string(z, l->str);
                add_string(z, l->unit);
                bytes += field_size(3 * (1 + z->string_index) + 1 + varint_size((uint64_t)l->num));
        }
        z->bytes += field_size(bytes);
}

static int sizer_begin(struct sizer *z)
{
        const struct profile *p = z->p;

        z->string = calloc(p->n_strings, sizeof(bool));
        z->function = calloc(p->n_functions, sizeof(bool));
        z->location = calloc(p->n_locations, sizeof(bool));
        z->mapping = calloc(p->n_mappings, sizeof(bool));
        if (!z->string || !z->function || !z->location || !z->mapping)
                return -ENOMEM;
        z->string_index = varint_size(p->n_strings);
        z->function_id = varint_size(p->n_functions);
        z->location_id = varint_size(p->n_locations);
        z->mapping_id = varint_size(p->n_mappings);
        z->bytes = 1024; /* header, the remainder's sample and the ledger's new lines */
        for (uint32_t i = 0; i < p->n_comments; i++)
                z->bytes += field_size(strlen(p->string[p->comment[i]])) + WIRE_MAX_VARINT;
        return 0;
}

/* -- folding -- */

struct by_value {
        const struct profile *p;
        uint32_t type;
};

static int compare_values(const void *a, const void *b, void *ctx)
{
        const struct by_value *v = ctx;
        uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
        int64_t x = profile_values(v->p, i)[v->type], y = profile_values(v->p, k)[v->type];

        if (x != y)
                return x > y ? -1 : 1;
        return i < k ? -1 : i > k;
}

static int64_t remainder_stack(struct profile *to)
{
        int64_t name = profile_string(to, PROFILE_REMAINDER);
        if (name < 0)
                return name;
        int64_t function = profile_function(to, &(struct profile_function){.name = (uint32_t)name,
                                                                           .system_name = (uint32_t)name});
        if (function < 0)
                return function;
        struct profile_line line = {.function = (uint32_t)function};
        int64_t location = profile_location(to, 0, 0, &line, 1);
        if (location < 0)
                return location;
        uint32_t id = (uint32_t)location;
        return profile_stack(to, &id, 1);
}

/* How many of the samples in `order` fit. */
static int count_fitting(const struct profile *p, const uint32_t *order, uint32_t max_samples,
                         uint64_t max_bytes, uint32_t *ret)
{
        _cleanup_(sizer_done) struct sizer z = {.p = p};
        uint32_t n = 0;

        int r = sizer_begin(&z);
        if (r < 0)
                return r;
        while (n < p->n_samples && (!max_samples || n < max_samples)) {
                add_sample(&z, order[n]);
                if (max_bytes && z.bytes > max_bytes)
                        break;
                n++;
        }
        if (n < p->n_samples && max_samples && n == max_samples)
                n--; /* one is the remainder */
        *ret = n;
        return 0;
}

static int fold(const struct profile *p, const uint32_t *order, uint32_t kept, struct profile *to)
{
        _cleanup_profile_copier_ struct profile_copier *c = NULL;
        struct weight w = weight_of_type(p, profile_default_type(p));
        int64_t samples = 0;

        int r = profile_copier_new(&c, to, p);
        if (r < 0)
                return r;
        for (uint32_t i = 0; i < p->n_samples; i++) {
                const struct profile_sample *s = &p->sample[order[i]];
                int64_t stack = i < kept ? profile_copier_stack(c, s->stack) : remainder_stack(to);
                int64_t set = i < kept ? profile_copier_label_set(c, s->label_set)
                                       : profile_label_set(to, NULL, 0);
                if (stack < 0 || set < 0)
                        return (int)(stack < 0 ? stack : set);
                const int64_t *values = profile_values(p, order[i]);
                r = profile_sample_at(to, (uint32_t)stack, (uint32_t)set, values);
                if (r < 0)
                        return r;
                if (i >= kept)
                        samples += weight_samples(&w, values);
        }
        r = profile_copier_header(c);
        if (r < 0 || kept == p->n_samples)
                return r;
        r = profile_ledger_add(to, "folded.stacks", p->n_samples - kept);
        return r < 0 ? r : profile_ledger_add(to, "folded.samples", samples);
}

int profile_limit(const struct profile *p, uint32_t max_samples, uint64_t max_bytes, struct profile **ret)
{
        _cleanup_profile_ struct profile *to = NULL;
        _cleanup_free_ uint32_t *order = malloc(((size_t)p->n_samples + 1) * sizeof(*order));
        struct by_value by = {.p = p, .type = profile_default_type(p)};
        uint32_t kept;

        if (!order)
                return -ENOMEM;
        for (uint32_t i = 0; i < p->n_samples; i++)
                order[i] = i;
        if (p->n_types)
                qsort_r(order, p->n_samples, sizeof(*order), compare_values, &by);
        int r = count_fitting(p, order, max_samples, max_bytes, &kept);
        if (r < 0)
                return r;
        r = begin_copy(&to, p);
        if (r < 0)
                return r;
        r = fold(p, order, kept, to);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(to);
        return 0;
}
