#include "tests/profile/sample_profile.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"

#define PERIOD_NS 10000000

static uint32_t id(int64_t v)
{
        assert(v >= 0);
        return (uint32_t)v;
}

struct profile *test_new_profile(void)
{
        struct profile *p;

        assert(profile_new(&p) == 0);
        id(profile_type(p, "samples", "count"));
        id(profile_type(p, "cpu", "nanoseconds"));
        p->period_type.type = id(profile_string(p, "cpu"));
        p->period_type.unit = id(profile_string(p, "nanoseconds"));
        p->period = PERIOD_NS;
        return p;
}

static uint32_t function(struct profile *p, const char *name)
{
        return id(profile_function(
                        p, &(struct profile_function){
                                           .name = id(profile_string(p, name)),
                                           .system_name = id(profile_string(p, name)),
                                           .file = id(profile_string(p, *name == '[' ? "" : "main.c")),
                                           .start_line = 1}));
}

static uint32_t location(struct profile *p, char *frame)
{
        bool kernel = !strncmp(frame, "[k]", 3);
        struct profile_line lines[8];
        uint32_t n = 0;
        uint64_t address = 0x1000 + hash_bytes(frame, strlen(frame)) % 0xfffff;
        struct profile_mapping m = {
                        .start = 0x1000,
                        .limit = 0x200000,
                        .file = id(profile_string(p, kernel ? "[kernel.kallsyms]" : "/usr/bin/app")),
                        .build_id = id(profile_string(p, kernel ? "" : "00aa11bb")),
                        .has_functions = true,
        };
        uint32_t mapping = id(profile_mapping(p, &m));
        char *rest = frame + (kernel ? 3 : 0), *inner;

        do { /* the last name is the innermost, which comes first */
                inner = strrchr(rest, '+');
                lines[n++] = (struct profile_line){.function = function(p, inner ? inner + 1 : rest),
                                                   .line = 10};
                if (inner)
                        *inner = 0;
        } while (inner);
        return id(profile_location(p, mapping, address, lines, n));
}

static uint32_t locations_of(struct profile *p, const char *stack, uint32_t *ret)
{
        char copy[4096], *frame, *at = copy;
        uint32_t n = 0, root_first[256];

        snprintf(copy, sizeof(copy), "%s", stack);
        while ((frame = strsep(&at, ";")))
                root_first[n++] = location(p, frame);
        for (uint32_t i = 0; i < n; i++)
                ret[i] = root_first[n - 1 - i];
        return n;
}

void test_add(struct profile *p, const char *comm, int64_t pid, const char *stack, int64_t samples)
{
        uint32_t locations[256], n = locations_of(p, stack, locations);
        struct profile_label labels[] = {
                        {.key = id(profile_string(p, "pid")), .num = pid},
                        {.key = id(profile_string(p, "comm")), .str = id(profile_string(p, comm))},
        };
        int64_t values[PROFILE_MAX_TYPES] = {samples, samples * PERIOD_NS};

        assert(profile_sample(p, locations, n, labels, 2, values) == 0);
}

/* The frames of a sample as test_add() takes them. */
static void stack_text(const struct profile *p, const struct profile_sample *s, char *out, size_t size)
{
        size_t used = 0;

        out[0] = 0;
        for (uint32_t i = s->n_locations; i-- > 0;) {
                const struct profile_location *l = &p->location[p->sample_location[s->first_location + i]];
                used += (size_t)snprintf(out + used, size - used, "%s%s", used ? ";" : "",
                                         profile_mapping_is_kernel(p, l->mapping) ? "[k]" : "");
                for (uint32_t k = l->n_lines; k-- > 0;)
                        used += (size_t)snprintf(
                                        out + used, size - used, "%s%s",
                                        p->string[p->function[p->line[l->first_line + k].function].name],
                                        k ? "+" : "");
        }
}

int64_t test_value(const struct profile *p, const char *comm, int64_t pid, const char *stack,
                   const char *type)
{
        int t = profile_find_type(p, type);
        int64_t sum = 0;

        for (uint32_t i = 0; t >= 0 && i < p->n_samples; i++) {
                const struct profile_label *c = profile_find_label(p, &p->sample[i], "comm"),
                                           *d = profile_find_label(p, &p->sample[i], "pid");
                char text[4096];
                stack_text(p, &p->sample[i], text, sizeof(text));
                if (c && d && !strcmp(p->string[c->str], comm) && d->num == pid && !strcmp(text, stack))
                        sum += profile_values(p, i)[t];
        }
        return sum;
}

int64_t test_total(const struct profile *p, const char *type)
{
        int t = profile_find_type(p, type);
        int64_t sum = 0;

        for (uint32_t i = 0; t >= 0 && i < p->n_samples; i++)
                sum += profile_values(p, i)[t];
        return sum;
}
