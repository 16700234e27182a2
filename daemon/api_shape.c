/* What of a profile a client gets: the samples it may see, the labels it wants, as many samples as it can
 * take. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/idtable.h"
#include "daemon/api_internal.h"
#include "profile/copy.h"

#define REMAINDER "[remainder]"

/* Ledger lines that say how was sampled, and nothing of what others did. */
static const char *const harmless[] = {"profd",      "host",         "kernel",  "boot",
                                       "rate.asked", "rate.reached", "event.*", PROFILE_OBSERVED};

static bool is_harmless(const char *line)
{
        for (size_t i = 0; i < ARRAY_SIZE(harmless); i++) {
                size_t n = strcspn(harmless[i], "*");
                if (strncmp(line, harmless[i], n) == 0 && (harmless[i][n] == '*' || line[n] == ':'))
                        return true;
        }
        return false;
}

static bool may_see(const struct api_shape *shape, const struct profile *p, const struct profile_sample *s)
{
        if (!shape->peer || shape->peer->all)
                return true;
        const struct profile_label *l = profile_find_label(p, s, "uid");
        return l && !l->str && l->num == (int64_t)shape->peer->uid;
}

static bool is_listed(const char *list, const char *name)
{
        size_t n = strlen(name);

        for (const char *p = list; *p;) {
                size_t len = strcspn(p, ",");
                if (len == n && memcmp(p, name, n) == 0)
                        return true;
                p += len;
                p += *p == ',';
        }
        return false;
}

struct weight {
        uint64_t value;
        uint32_t sample;
};

static int compare_weight(const void *a, const void *b)
{
        const struct weight *x = a, *y = b;

        if (x->value != y->value)
                return x->value > y->value ? -1 : 1;
        return x->sample < y->sample ? -1 : x->sample > y->sample;
}

struct shaping {
        const struct api_shape *shape;
        const struct profile *from;
        struct profile *to;
        struct profile_copier *copier;
        int64_t *label_set; /* of `from` -> of `to` without the labels not wanted; -1: not known yet */
        struct weight *order;
        uint32_t n;
};

static int64_t thin_label_set(struct shaping *t, const struct profile_sample *s)
{
        struct profile_label labels[PROFILE_MAX_LABELS];
        uint32_t n = 0;

        if (!t->shape->labels)
                return profile_copier_label_set(t->copier, s->label_set);
        if (t->label_set[s->label_set] >= 0)
                return t->label_set[s->label_set];
        for (uint32_t i = 0; i < s->n_labels; i++) {
                const struct profile_label *l = &t->from->label[s->first_label + i];
                if (!is_listed(t->shape->labels, profile_str(t->from, l->key)))
                        continue;
                int64_t key = profile_copier_string(t->copier, l->key),
                        str = profile_copier_string(t->copier, l->str),
                        unit = profile_copier_string(t->copier, l->unit);
                if (key < 0 || str < 0 || unit < 0)
                        return -ENOMEM;
                labels[n++] = (struct profile_label){.key = (uint32_t)key,
                                                     .str = (uint32_t)str,
                                                     .num = l->num,
                                                     .unit = (uint32_t)unit};
        }
        return t->label_set[s->label_set] = profile_label_set(t->to, labels, n);
}

static int add_sample(struct shaping *t, uint32_t i)
{
        const struct profile_sample *s = &t->from->sample[i];
        int64_t stack = profile_copier_stack(t->copier, s->stack);
        int64_t labels = stack < 0 ? stack : thin_label_set(t, s);

        return labels < 0 ? (int)labels
                          : profile_sample_at(t->to, (uint32_t)stack, (uint32_t)labels,
                                              profile_values(t->from, i));
}

/* The samples that did not fit, as one. */
static int add_remainder(struct shaping *t, uint32_t first)
{
        int64_t sum[PROFILE_MAX_TYPES] = {0};

        for (uint32_t i = first; i < t->n; i++)
                for (uint32_t k = 0; k < t->from->n_types; k++)
                        if (__builtin_add_overflow(sum[k], profile_values(t->from, t->order[i].sample)[k],
                                                   &sum[k]))
                                sum[k] = INT64_MAX;
        int64_t name = profile_string(t->to, REMAINDER);
        if (name < 0)
                return (int)name;
        const struct profile_function f = {.name = (uint32_t)name, .system_name = (uint32_t)name};
        int64_t function = profile_function(t->to, &f);
        if (function < 0)
                return (int)function;
        const struct profile_line line = {.function = (uint32_t)function};
        int64_t location = profile_location(t->to, 0, 0, &line, 1);
        if (location < 0)
                return (int)location;
        const uint32_t id = (uint32_t)location;
        int r = profile_sample(t->to, &id, 1, NULL, 0, sum);
        return r < 0 ? r : profile_ledger_set(t->to, "folded.samples", t->n - first);
}

static int copy_types(struct shaping *t)
{
        for (uint32_t i = 0; i < t->from->n_types; i++) {
                int64_t r = profile_type(t->to, profile_str(t->from, t->from->type[i].type),
                                         profile_str(t->from, t->from->type[i].unit));
                if (r < 0)
                        return (int)r;
        }
        return 0;
}

static int copy_ledger(struct shaping *t)
{
        for (uint32_t i = 0; i < t->from->n_comments; i++) {
                const char *line = profile_str(t->from, t->from->comment[i]);
                int r = !t->shape->peer || t->shape->peer->all || is_harmless(line)
                                        ? profile_comment(t->to, line)
                                        : 0;
                if (r < 0)
                        return r;
        }
        return 0;
}

/* Which samples, largest first when not all fit. */
static int choose(struct shaping *t)
{
        const struct profile *p = t->from;

        t->order = calloc(p->n_samples + 1u, sizeof(*t->order));
        t->label_set = malloc((p->n_label_sets + 1u) * sizeof(*t->label_set));
        if (!t->order || !t->label_set)
                return -ENOMEM;
        for (uint32_t i = 0; i < p->n_label_sets + 1u; i++)
                t->label_set[i] = -1;
        for (uint32_t i = 0; i < p->n_samples; i++) {
                if (!may_see(t->shape, p, &p->sample[i]))
                        continue;
                int64_t v = p->n_types ? profile_values(p, i)[0] : 0;
                t->order[t->n++] = (struct weight){.value = v > 0 ? (uint64_t)v : 0, .sample = i};
        }
        if (t->shape->max_samples && t->n > t->shape->max_samples)
                qsort(t->order, t->n, sizeof(*t->order), compare_weight);
        return 0;
}

static int shape_samples(struct shaping *t)
{
        uint32_t max = t->shape->max_samples, n = !max || t->n <= max ? t->n : max - 1;

        int r = copy_types(t);
        for (uint32_t i = 0; i < n && r >= 0; i++)
                r = add_sample(t, t->order[i].sample);
        if (r >= 0)
                r = profile_copier_header(t->copier);
        if (r >= 0)
                r = copy_ledger(t);
        if (r >= 0 && n < t->n)
                r = add_remainder(t, n);
        return r;
}

int api_shape(const struct profile *p, const struct api_shape *shape, struct profile **ret)
{
        _cleanup_profile_ struct profile *to = NULL;
        _cleanup_profile_copier_ struct profile_copier *copier = NULL;
        struct shaping t = {.shape = shape, .from = p};

        int r = profile_new(&to);
        if (r >= 0)
                r = profile_copier_new(&copier, to, p);
        if (r < 0)
                return r;
        t.to = to;
        t.copier = copier;
        r = choose(&t);
        if (r >= 0)
                r = shape_samples(&t);
        free(t.order);
        free(t.label_set);
        if (r < 0)
                return r;
        to->time_ns = p->time_ns;
        to->duration_ns = p->duration_ns;
        *ret = TAKE_PTR(to);
        return 0;
}
