#include "profile/copy.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#define UNKNOWN UINT32_MAX

struct profile_copier {
        struct profile *into;
        const struct profile *from;
        uint32_t *string, *mapping, *function, *location, *stack, *label_set; /* from's id -> into's */
};

static int make_ids(uint32_t **ret, uint32_t n)
{
        uint32_t *ids = malloc(((size_t)n + 1) * sizeof(*ids));
        if (!ids)
                return -ENOMEM;
        memset(ids, 0xff, ((size_t)n + 1) * sizeof(*ids));
        *ret = ids;
        return 0;
}

int profile_copier_new(struct profile_copier **ret, struct profile *into, const struct profile *from)
{
        _cleanup_profile_copier_ struct profile_copier *c = calloc(1, sizeof(*c));
        int r;

        if (!c)
                return -ENOMEM;
        c->into = into;
        c->from = from;
        if ((r = make_ids(&c->string, from->n_strings)) < 0 ||
            (r = make_ids(&c->mapping, from->n_mappings)) < 0 ||
            (r = make_ids(&c->function, from->n_functions)) < 0 ||
            (r = make_ids(&c->location, from->n_locations)) < 0 ||
            (r = make_ids(&c->stack, from->n_stacks)) < 0 ||
            (r = make_ids(&c->label_set, from->n_label_sets)) < 0)
                return r;
        c->mapping[0] = c->function[0] = c->location[0] = 0;
        *ret = TAKE_PTR(c);
        return 0;
}

struct profile_copier *profile_copier_free(struct profile_copier *c)
{
        if (!c)
                return NULL;
        free(c->string);
        free(c->mapping);
        free(c->function);
        free(c->location);
        free(c->stack);
        free(c->label_set);
        free(c);
        return NULL;
}

/* Remembers a new id; passes an error on. */
static int64_t known(uint32_t *slot, int64_t id)
{
        if (id >= 0)
                *slot = (uint32_t)id;
        return id;
}

int64_t profile_copier_string(struct profile_copier *c, uint32_t id)
{
        if (c->string[id] != UNKNOWN)
                return c->string[id];
        return known(&c->string[id], profile_string(c->into, c->from->string[id]));
}

static int64_t mapping_of(struct profile_copier *c, uint32_t id)
{
        if (c->mapping[id] != UNKNOWN)
                return c->mapping[id];
        struct profile_mapping m = c->from->mapping[id];
        int64_t file = profile_copier_string(c, m.file), build_id = profile_copier_string(c, m.build_id);
        if (file < 0 || build_id < 0)
                return file < 0 ? file : build_id;
        m.file = (uint32_t)file;
        m.build_id = (uint32_t)build_id;
        return known(&c->mapping[id], profile_mapping(c->into, &m));
}

static int64_t function_of(struct profile_copier *c, uint32_t id)
{
        if (c->function[id] != UNKNOWN)
                return c->function[id];
        struct profile_function f = c->from->function[id];
        int64_t name = profile_copier_string(c, f.name),
                system_name = profile_copier_string(c, f.system_name),
                file = profile_copier_string(c, f.file);
        if (name < 0 || system_name < 0 || file < 0)
                return name < 0 ? name : system_name < 0 ? system_name : file;
        f.name = (uint32_t)name;
        f.system_name = (uint32_t)system_name;
        f.file = (uint32_t)file;
        return known(&c->function[id], profile_function(c->into, &f));
}

int64_t profile_copier_location(struct profile_copier *c, uint32_t id)
{
        if (c->location[id] != UNKNOWN)
                return c->location[id];
        const struct profile_location *l = &c->from->location[id];
        struct profile_line few[16];
        _cleanup_free_ struct profile_line *many = NULL;
        struct profile_line *lines = few;

        if (l->n_lines > ARRAY_SIZE(few)) {
                many = malloc(l->n_lines * sizeof(*many));
                if (!many)
                        return -ENOMEM;
                lines = many;
        }
        int64_t mapping = mapping_of(c, l->mapping);
        if (mapping < 0)
                return mapping;
        for (uint32_t i = 0; i < l->n_lines; i++) {
                lines[i] = c->from->line[l->first_line + i];
                int64_t function = function_of(c, lines[i].function);
                if (function < 0)
                        return function;
                lines[i].function = (uint32_t)function;
        }
        int64_t r = known(&c->location[id],
                          profile_location(c->into, (uint32_t)mapping, l->address, lines, l->n_lines));
        if (r >= 0 && l->folded)
                c->into->location[r].folded = true;
        return r;
}

int64_t profile_copier_stack(struct profile_copier *c, uint32_t id)
{
        if (c->stack[id] != UNKNOWN)
                return c->stack[id];
        struct profile_span s = c->from->stack[id];
        uint32_t locations[PROFILE_MAX_FRAMES];

        for (uint32_t i = 0; i < s.n; i++) {
                int64_t location = profile_copier_location(c, c->from->sample_location[s.first + i]);
                if (location < 0)
                        return location;
                locations[i] = (uint32_t)location;
        }
        return known(&c->stack[id], profile_stack(c->into, locations, s.n));
}

int64_t profile_copier_label_set(struct profile_copier *c, uint32_t id)
{
        if (c->label_set[id] != UNKNOWN)
                return c->label_set[id];
        struct profile_span s = c->from->label_set[id];
        struct profile_label labels[PROFILE_MAX_LABELS];

        for (uint32_t i = 0; i < s.n; i++) {
                labels[i] = c->from->label[s.first + i];
                int64_t key = profile_copier_string(c, labels[i].key),
                        str = profile_copier_string(c, labels[i].str),
                        unit = profile_copier_string(c, labels[i].unit);
                if (key < 0 || str < 0 || unit < 0)
                        return key < 0 ? key : str < 0 ? str : unit;
                labels[i].key = (uint32_t)key;
                labels[i].str = (uint32_t)str;
                labels[i].unit = (uint32_t)unit;
        }
        return known(&c->label_set[id], profile_label_set(c->into, labels, s.n));
}

int profile_copier_header(struct profile_copier *c)
{
        struct profile *into = c->into;
        const struct profile *from = c->from;

        if (!into->period && !into->period_type.type) {
                int64_t type = profile_copier_string(c, from->period_type.type),
                        unit = profile_copier_string(c, from->period_type.unit);
                if (type < 0 || unit < 0)
                        return (int)(type < 0 ? type : unit);
                into->period_type.type = (uint32_t)type;
                into->period_type.unit = (uint32_t)unit;
                into->period = from->period;
        }
        if (!into->default_type) {
                int64_t type = profile_copier_string(c, from->default_type);
                if (type < 0)
                        return (int)type;
                into->default_type = (uint32_t)type;
        }
        return 0;
}
