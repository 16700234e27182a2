/* The model's interning tables.
 *
 * Everything is kept once and found by hash: strings, mappings, functions, locations, stacks, label sets,
 * and samples as pairs of the last two. That makes merging cheap (a stack is translated once, not once a
 * sample) and equality of samples a comparison of two numbers. */
#include "profile/profile.h"

#include <errno.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/idtable.h"
#include "base/utf8.h"

#define ARENA_CHUNK (64u << 10)

struct chunk {
        struct chunk *next;
        char data[];
};

struct profile_index {
        struct idtable string, mapping, function, location, stack, label_set, sample;
        uint32_t cap_string, cap_mapping, cap_function, cap_line, cap_location, cap_label,
                        cap_sample_location;
        uint64_t *stack_hash; /* of p->stack: looking them over again is what growing the table would cost
                                 most */
        uint32_t cap_stack_hash;
        uint32_t cap_stack, cap_label_set, cap_sample, cap_value, cap_comment;
        struct chunk *chunk; /* of string bytes, newest first */
        size_t chunk_used, chunk_size;
};

int profile_new(struct profile **ret)
{
        _cleanup_profile_ struct profile *p = calloc(1, sizeof(*p));
        if (!p)
                return -ENOMEM;
        p->index = calloc(1, sizeof(*p->index));
        if (!p->index)
                return -ENOMEM;

        struct profile_index *x = p->index;
        int r = 0;
        if ((r = ARRAY_ROOM(p->mapping, x->cap_mapping, 1)) < 0 ||
            (r = ARRAY_ROOM(p->function, x->cap_function, 1)) < 0 ||
            (r = ARRAY_ROOM(p->location, x->cap_location, 1)) < 0)
                return r;
        p->mapping[0] = (struct profile_mapping){0};
        p->function[0] = (struct profile_function){0};
        p->location[0] = (struct profile_location){0};
        p->n_mappings = p->n_functions = p->n_locations = 1;
        int64_t empty = profile_string(p, "");
        if (empty < 0)
                return (int)empty;
        *ret = TAKE_PTR(p);
        return 0;
}

struct profile *profile_free(struct profile *p)
{
        if (!p)
                return NULL;
        struct profile_index *x = p->index;
        if (x) {
                struct idtable *tables[] = {&x->string, &x->mapping,   &x->function, &x->location,
                                            &x->stack,  &x->label_set, &x->sample};
                for (size_t i = 0; i < ARRAY_SIZE(tables); i++)
                        idtable_free(tables[i]);
                for (struct chunk *c = x->chunk, *next; c; c = next) {
                        next = c->next;
                        free(c);
                }
                free(x->stack_hash);
                free(x);
        }
        free(p->string);
        free(p->mapping);
        free(p->function);
        free(p->line);
        free(p->location);
        free(p->label);
        free(p->sample_location);
        free(p->stack);
        free(p->label_set);
        free(p->sample);
        free(p->value);
        free(p->comment);
        free(p);
        return NULL;
}

/* -- strings -- */

struct text {
        const char *s;
        size_t n;
};

static bool string_equal(const void *ctx, uint32_t id, const void *key)
{
        const struct profile *p = ctx;
        const struct text *t = key;

        return strncmp(p->string[id], t->s, t->n) == 0 && p->string[id][t->n] == 0;
}

static uint64_t string_hash(const void *ctx, uint32_t id)
{
        const struct profile *p = ctx;

        return hash_bytes(p->string[id], strlen(p->string[id]));
}

/* A copy of n bytes, ended with NUL, that lives as long as the profile. */
static char *arena_copy(struct profile_index *x, const char *s, size_t n)
{
        if (!x->chunk || x->chunk_size - x->chunk_used < n + 1) {
                size_t size = MAX_OF(n + 1, (size_t)ARENA_CHUNK);
                struct chunk *c = malloc(sizeof(*c) + size);
                if (!c)
                        return NULL;
                c->next = x->chunk;
                x->chunk = c;
                x->chunk_used = 0;
                x->chunk_size = size;
        }
        char *copy = x->chunk->data + x->chunk_used;
        memcpy(copy, s, n);
        copy[n] = 0;
        x->chunk_used += n + 1;
        return copy;
}

/* The length of s without bytes that are not UTF-8 from there on. */
static size_t valid_prefix(const char *s, size_t n)
{
        size_t i = 0;

        while (i < n) {
                unsigned char at[5] = {0}; /* so that a sequence cut off at n ends in NUL */
                if ((unsigned char)s[i] < 0x80) {
                        i++;
                        continue;
                }
                memcpy(at, s + i, MIN_OF(n - i, (size_t)4));
                size_t k = utf8_len(at);
                if (k == 0)
                        break;
                i += k;
        }
        return i;
}

static int64_t string_add(struct profile *p, const char *s, size_t n)
{
        struct profile_index *x = p->index;
        struct text key = {s, n};
        uint64_t hash = hash_bytes(s, n);
        uint32_t id = idtable_find(&x->string, hash, string_equal, p, &key);
        if (id != IDTABLE_NONE)
                return id;

        int r = ARRAY_ROOM(p->string, x->cap_string, (uint64_t)p->n_strings + 1);
        if (r < 0)
                return r;
        const char *copy = arena_copy(x, s, n);
        if (!copy)
                return -ENOMEM;
        r = idtable_add(&x->string, hash, p->n_strings, string_hash, p);
        if (r < 0)
                return r;
        p->string[p->n_strings] = copy;
        return p->n_strings++;
}

int64_t profile_string_n(struct profile *p, const char *s, size_t n)
{
        n = strnlen(s, n);
        size_t valid = valid_prefix(s, n);
        if (valid == n)
                return string_add(p, s, n);

        if (n > SIZE_MAX / 4)
                return -E2BIG;
        _cleanup_free_ char *fixed = malloc(n * 3 + 1);
        if (!fixed)
                return -ENOMEM;
        size_t k = 0;
        for (size_t i = 0; i < n;) {
                memcpy(fixed + k, s + i, valid);
                k += valid;
                i += valid;
                if (i < n) {
                        memcpy(fixed + k, UTF8_REPLACEMENT, 3);
                        k += 3;
                        i++;
                }
                valid = valid_prefix(s + i, n - i);
        }
        return string_add(p, fixed, k);
}

int64_t profile_string(struct profile *p, const char *s)
{
        return profile_string_n(p, s, strlen(s));
}

/* -- types -- */

/* Makes room for one more value in every sample. */
static int widen_values(struct profile *p)
{
        uint32_t old = p->n_types, new = old + 1;

        if (!p->n_samples)
                return 0;
        int r = ARRAY_ROOM(p->value, p->index->cap_value, (uint64_t)p->n_samples * new);
        if (r < 0)
                return r;
        for (uint32_t i = p->n_samples; i-- > 0;) {
                memmove(p->value + (size_t)i * new, p->value + (size_t)i * old, old * sizeof(*p->value));
                p->value[(size_t)i * new + old] = 0;
        }
        return 0;
}

int64_t profile_type(struct profile *p, const char *type, const char *unit)
{
        int64_t t = profile_string(p, type), u = profile_string(p, unit);
        if (t < 0 || u < 0)
                return t < 0 ? t : u;
        for (uint32_t i = 0; i < p->n_types; i++)
                if (p->type[i].type == t && p->type[i].unit == u)
                        return i;
        if (p->n_types == PROFILE_MAX_TYPES)
                return -E2BIG;
        int r = widen_values(p);
        if (r < 0)
                return r;
        p->type[p->n_types] = (struct profile_value_type){.type = (uint32_t)t, .unit = (uint32_t)u};
        return p->n_types++;
}

/* -- mappings, functions, locations -- */

static bool mapping_equal(const void *ctx, uint32_t id, const void *key)
{
        const struct profile_mapping *a = &((const struct profile *)ctx)->mapping[id], *b = key;

        return a->start == b->start && a->limit == b->limit && a->offset == b->offset &&
               a->file == b->file && a->build_id == b->build_id;
}

static uint64_t mapping_hash_of(const struct profile_mapping *m)
{
        return hash_u64(hash_u64(m->start, m->limit),
                        hash_u64(m->offset, (uint64_t)m->file << 32 | m->build_id));
}

static uint64_t mapping_hash(const void *ctx, uint32_t id)
{
        return mapping_hash_of(&((const struct profile *)ctx)->mapping[id]);
}

int64_t profile_mapping(struct profile *p, const struct profile_mapping *m)
{
        struct profile_index *x = p->index;
        uint64_t hash = mapping_hash_of(m);
        uint32_t id = idtable_find(&x->mapping, hash, mapping_equal, p, m);
        if (id != IDTABLE_NONE) {
                struct profile_mapping *old = &p->mapping[id];
                old->has_functions |= m->has_functions;
                old->has_filenames |= m->has_filenames;
                old->has_lines |= m->has_lines;
                old->has_inline |= m->has_inline;
                return id;
        }
        int r = ARRAY_ROOM(p->mapping, x->cap_mapping, (uint64_t)p->n_mappings + 1);
        if (r < 0)
                return r;
        r = idtable_add(&x->mapping, hash, p->n_mappings, mapping_hash, p);
        if (r < 0)
                return r;
        p->mapping[p->n_mappings] = *m;
        return p->n_mappings++;
}

static bool function_equal(const void *ctx, uint32_t id, const void *key)
{
        const struct profile_function *a = &((const struct profile *)ctx)->function[id], *b = key;

        return a->name == b->name && a->system_name == b->system_name && a->file == b->file &&
               a->start_line == b->start_line;
}

static uint64_t function_hash_of(const struct profile_function *f)
{
        return hash_u64((uint64_t)f->name << 32 | f->system_name,
                        (uint64_t)f->file << 32 ^ (uint64_t)f->start_line);
}

static uint64_t function_hash(const void *ctx, uint32_t id)
{
        return function_hash_of(&((const struct profile *)ctx)->function[id]);
}

int64_t profile_function(struct profile *p, const struct profile_function *f)
{
        struct profile_index *x = p->index;
        uint64_t hash = function_hash_of(f);
        uint32_t id = idtable_find(&x->function, hash, function_equal, p, f);
        if (id != IDTABLE_NONE)
                return id;
        int r = ARRAY_ROOM(p->function, x->cap_function, (uint64_t)p->n_functions + 1);
        if (r < 0)
                return r;
        r = idtable_add(&x->function, hash, p->n_functions, function_hash, p);
        if (r < 0)
                return r;
        p->function[p->n_functions] = *f;
        return p->n_functions++;
}

struct location_key {
        uint64_t address;
        uint32_t mapping, n_lines;
        const struct profile_line *lines;
};

static bool location_equal(const void *ctx, uint32_t id, const void *key)
{
        const struct profile *p = ctx;
        const struct profile_location *a = &p->location[id];
        const struct location_key *b = key;

        if (a->address != b->address || a->mapping != b->mapping || a->n_lines != b->n_lines)
                return false;
        for (uint32_t i = 0; i < a->n_lines; i++) {
                const struct profile_line *l = &p->line[a->first_line + i];
                if (l->function != b->lines[i].function || l->line != b->lines[i].line)
                        return false;
        }
        return true;
}

static uint64_t location_hash_of(const struct location_key *k)
{
        uint64_t hash = hash_u64(k->address, (uint64_t)k->mapping << 32 | k->n_lines);

        for (uint32_t i = 0; i < k->n_lines; i++)
                hash = hash_u64(hash, (uint64_t)k->lines[i].function << 32 ^ (uint64_t)k->lines[i].line);
        return hash;
}

static uint64_t location_hash(const void *ctx, uint32_t id)
{
        const struct profile *p = ctx;
        const struct profile_location *l = &p->location[id];

        return location_hash_of(&(struct location_key){.address = l->address,
                                                       .mapping = l->mapping,
                                                       .n_lines = l->n_lines,
                                                       .lines = p->line + l->first_line});
}

int64_t profile_location(struct profile *p, uint32_t mapping, uint64_t address,
                         const struct profile_line *lines, uint32_t n_lines)
{
        struct profile_index *x = p->index;
        struct location_key key = {
                        .address = address, .mapping = mapping, .n_lines = n_lines, .lines = lines};
        uint64_t hash = location_hash_of(&key);
        uint32_t id = idtable_find(&x->location, hash, location_equal, p, &key);
        if (id != IDTABLE_NONE)
                return id;

        int r = ARRAY_ROOM(p->location, x->cap_location, (uint64_t)p->n_locations + 1);
        if (r < 0)
                return r;
        r = ARRAY_ROOM(p->line, x->cap_line, (uint64_t)p->n_lines + n_lines);
        if (r < 0)
                return r;
        r = idtable_add(&x->location, hash, p->n_locations, location_hash, p);
        if (r < 0)
                return r;
        p->location[p->n_locations] = (struct profile_location){.address = address,
                                                                .mapping = mapping,
                                                                .first_line = p->n_lines,
                                                                .n_lines = n_lines};
        for (uint32_t i = 0; i < n_lines; i++)
                p->line[p->n_lines++] = lines[i];
        return p->n_locations++;
}

/* -- samples -- */

struct stack_key {
        const uint32_t *locations;
        uint32_t n;
};

static bool stack_equal(const void *ctx, uint32_t id, const void *key)
{
        const struct profile *p = ctx;
        const struct stack_key *k = key;
        struct profile_span s = p->stack[id];

        return s.n == k->n &&
               (s.n == 0 || !memcmp(p->sample_location + s.first, k->locations, s.n * sizeof(uint32_t)));
}

static uint64_t stack_hash(const void *ctx, uint32_t id)
{
        return ((const struct profile *)ctx)->index->stack_hash[id];
}

int64_t profile_stack(struct profile *p, const uint32_t *locations, uint32_t n)
{
        struct profile_index *x = p->index;
        struct stack_key key = {locations, n};

        if (n > PROFILE_MAX_FRAMES)
                return -E2BIG;
        uint64_t hash = hash_bytes(locations, n * sizeof(uint32_t));
        uint32_t id = idtable_find(&x->stack, hash, stack_equal, p, &key);
        if (id != IDTABLE_NONE)
                return id;

        int r = ARRAY_ROOM(p->stack, x->cap_stack, (uint64_t)p->n_stacks + 1);
        if (r < 0)
                return r;
        r = ARRAY_ROOM(x->stack_hash, x->cap_stack_hash, (uint64_t)p->n_stacks + 1);
        if (r < 0)
                return r;
        r = ARRAY_ROOM(p->sample_location, x->cap_sample_location, (uint64_t)p->n_sample_locations + n);
        if (r < 0)
                return r;
        r = idtable_add(&x->stack, hash, p->n_stacks, stack_hash, p);
        if (r < 0)
                return r;
        x->stack_hash[p->n_stacks] = hash;
        p->stack[p->n_stacks] = (struct profile_span){.first = p->n_sample_locations, .n = n};
        if (n)
                memcpy(p->sample_location + p->n_sample_locations, locations, n * sizeof(*locations));
        p->n_sample_locations += n;
        return p->n_stacks++;
}

struct label_key {
        const struct profile_label *labels;
        uint32_t n;
};

/* By the texts, so that the order does not depend on which string came first. */
static int label_compare(const struct profile *p, const struct profile_label *a,
                         const struct profile_label *b)
{
        if (a->key != b->key)
                return strcmp(p->string[a->key], p->string[b->key]);
        if (a->str != b->str)
                return strcmp(p->string[a->str], p->string[b->str]);
        if (a->num != b->num)
                return a->num < b->num ? -1 : 1;
        return a->unit == b->unit ? 0 : strcmp(p->string[a->unit], p->string[b->unit]);
}

static bool label_set_equal(const void *ctx, uint32_t id, const void *key)
{
        const struct profile *p = ctx;
        const struct label_key *k = key;
        struct profile_span s = p->label_set[id];

        if (s.n != k->n)
                return false;
        for (uint32_t i = 0; i < s.n; i++)
                if (label_compare(p, &p->label[s.first + i], &k->labels[i]) != 0)
                        return false;
        return true;
}

static uint64_t label_set_hash_of(const struct profile_label *labels, uint32_t n)
{
        uint64_t hash = n;

        for (uint32_t i = 0; i < n; i++) {
                hash = hash_u64(hash, (uint64_t)labels[i].key << 32 | labels[i].str);
                hash = hash_u64(hash, (uint64_t)labels[i].num ^ (uint64_t)labels[i].unit << 40);
        }
        return hash;
}

static uint64_t label_set_hash(const void *ctx, uint32_t id)
{
        const struct profile *p = ctx;

        return label_set_hash_of(p->label + p->label_set[id].first, p->label_set[id].n);
}

int64_t profile_label_set(struct profile *p, const struct profile_label *labels, uint32_t n)
{
        struct profile_index *x = p->index;
        struct profile_label sorted[PROFILE_MAX_LABELS];

        if (n > PROFILE_MAX_LABELS)
                return -E2BIG;
        for (uint32_t i = 0; i < n; i++) { /* insertion sort: they are few and mostly sorted */
                uint32_t k = i;
                for (; k > 0 && label_compare(p, &sorted[k - 1], &labels[i]) > 0; k--)
                        sorted[k] = sorted[k - 1];
                sorted[k] = labels[i];
        }

        struct label_key key = {sorted, n};
        uint64_t hash = label_set_hash_of(sorted, n);
        uint32_t id = idtable_find(&x->label_set, hash, label_set_equal, p, &key);
        if (id != IDTABLE_NONE)
                return id;

        int r = ARRAY_ROOM(p->label_set, x->cap_label_set, (uint64_t)p->n_label_sets + 1);
        if (r < 0)
                return r;
        r = ARRAY_ROOM(p->label, x->cap_label, (uint64_t)p->n_labels + n);
        if (r < 0)
                return r;
        r = idtable_add(&x->label_set, hash, p->n_label_sets, label_set_hash, p);
        if (r < 0)
                return r;
        p->label_set[p->n_label_sets] = (struct profile_span){.first = p->n_labels, .n = n};
        for (uint32_t i = 0; i < n; i++)
                p->label[p->n_labels++] = sorted[i];
        return p->n_label_sets++;
}

struct sample_key {
        uint32_t stack, label_set;
};

static bool sample_equal(const void *ctx, uint32_t id, const void *key)
{
        const struct profile_sample *s = &((const struct profile *)ctx)->sample[id];
        const struct sample_key *k = key;

        return s->stack == k->stack && s->label_set == k->label_set;
}

static uint64_t sample_hash(const void *ctx, uint32_t id)
{
        const struct profile_sample *s = &((const struct profile *)ctx)->sample[id];

        return hash_u64(s->stack, s->label_set);
}

int profile_sample_at(struct profile *p, uint32_t stack, uint32_t label_set, const int64_t *values)
{
        struct profile_index *x = p->index;
        struct sample_key key = {stack, label_set};
        uint64_t hash = hash_u64(stack, label_set);
        uint32_t id = idtable_find(&x->sample, hash, sample_equal, p, &key);

        if (id == IDTABLE_NONE) {
                int r = ARRAY_ROOM(p->sample, x->cap_sample, (uint64_t)p->n_samples + 1);
                if (r < 0)
                        return r;
                r = ARRAY_ROOM(p->value, x->cap_value,
                               ((uint64_t)p->n_samples + 1) * MAX_OF(p->n_types, 1u));
                if (r < 0)
                        return r;
                r = idtable_add(&x->sample, hash, p->n_samples, sample_hash, p);
                if (r < 0)
                        return r;
                id = p->n_samples++;
                p->sample[id] = (struct profile_sample){
                                .first_location = p->stack[stack].first,
                                .n_locations = p->stack[stack].n,
                                .first_label = p->label_set[label_set].first,
                                .n_labels = p->label_set[label_set].n,
                                .stack = stack,
                                .label_set = label_set,
                };
                memcpy(p->value + (size_t)id * p->n_types, values, p->n_types * sizeof(*values));
                return 0;
        }
        int64_t *v = p->value + (size_t)id * p->n_types;
        for (uint32_t i = 0; i < p->n_types; i++)
                if (__builtin_add_overflow(v[i], values[i], &v[i]))
                        v[i] = values[i] < 0 ? INT64_MIN : INT64_MAX;
        return 0;
}

int profile_sample(struct profile *p, const uint32_t *locations, uint32_t n_locations,
                   const struct profile_label *labels, uint32_t n_labels, const int64_t *values)
{
        int64_t stack = profile_stack(p, locations, n_locations);
        if (stack < 0)
                return (int)stack;
        int64_t label_set = profile_label_set(p, labels, n_labels);
        if (label_set < 0)
                return (int)label_set;
        return profile_sample_at(p, (uint32_t)stack, (uint32_t)label_set, values);
}

int profile_comment(struct profile *p, const char *text)
{
        if (p->n_comments >= PROFILE_MAX_COMMENTS)
                return -E2BIG;
        int64_t s = profile_string(p, text);
        if (s < 0)
                return (int)s;
        int r = ARRAY_ROOM(p->comment, p->index->cap_comment, (uint64_t)p->n_comments + 1);
        if (r < 0)
                return r;
        p->comment[p->n_comments++] = (uint32_t)s;
        return 0;
}

/* -- reading helpers -- */

int profile_find_type(const struct profile *p, const char *type)
{
        for (uint32_t i = 0; i < p->n_types; i++)
                if (!strcmp(p->string[p->type[i].type], type))
                        return (int)i;
        return -ENOENT;
}

uint32_t profile_default_type(const struct profile *p)
{
        int t = p->default_type ? profile_find_type(p, p->string[p->default_type]) : -ENOENT;

        if (t < 0)
                t = profile_find_type(p, "cpu");
        return t >= 0 ? (uint32_t)t : p->n_types ? p->n_types - 1 : 0;
}

const struct profile_label *profile_find_among(const struct profile *p, const struct profile_label *label,
                                               uint32_t n, const char *key)
{
        for (uint32_t i = 0; i < n; i++)
                if (!strcmp(p->string[label[i].key], key))
                        return &label[i];
        return NULL;
}

const struct profile_label *profile_find_label(const struct profile *p, const struct profile_sample *s,
                                               const char *key)
{
        return s->n_labels ? profile_find_among(p, p->label + s->first_label, s->n_labels, key) : NULL;
}

bool profile_object_is_kernel(const char *object)
{
        static const char *const user[] = {"[vdso",  "[vvar", "[vsyscall", "[heap",
                                           "[stack", "[anon", "[uprobes"};

        if (object[0] != '[')
                return false;
        for (size_t i = 0; i < ARRAY_SIZE(user); i++)
                if (!strncmp(object, user[i], strlen(user[i])))
                        return false;
        return true;
}

bool profile_mapping_is_kernel(const struct profile *p, uint32_t mapping)
{
        return profile_object_is_kernel(p->string[p->mapping[mapping].file]);
}
