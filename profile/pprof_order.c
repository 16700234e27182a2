/* Strings: those of labels and types first (their indices recur in every sample and should be short), then
 * files and the like, both sorted by text, then the names of functions as functions are ordered. Mappings:
 * objects before the kernel's (the first one counts as the main binary), those first in which the most
 * samples were taken. Locations by address: that the most used would have one-byte ids makes the plain file
 * smaller by 5 %, but the gzip'ed one larger by 9 %. Functions as locations name them, so that each number
 * is mostly the one before or its next: 3 % smaller than by name. Samples by stack from the root, so that
 * neighbours share most of their bytes. Ties are broken by content: for that, strings and functions are
 * sorted by text at first. */
#include "profile/pprof_order.h"

#include <errno.h>
#include <string.h>

struct sorter {
        const struct profile *p;
        const struct pprof_order *o;
        const uint64_t *self;      /* samples taken in a mapping, by the model's id */
        const unsigned char *mark; /* of strings: MARK_ */
        const uint32_t *stack_rank, *label_set_rank;
};

enum { MARK_UNUSED = 0, MARK_NAME = 1, MARK_USED = 2, MARK_SHORT = 3 };

#define COMPARE(a, b)                              \
        do {                                       \
                if ((a) != (b))                    \
                        return (a) < (b) ? -1 : 1; \
        } while (0)

static int compare_strings(const void *a, const void *b, void *ctx)
{
        const struct sorter *s = ctx;
        uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

        COMPARE(y == 0, x == 0); /* "" is the first */
        COMPARE(s->mark[y], s->mark[x]);
        return strcmp(s->p->string[x], s->p->string[y]);
}

static int compare_mappings(const void *a, const void *b, void *ctx)
{
        const struct sorter *s = ctx;
        uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
        const struct profile_mapping *x = &s->p->mapping[i], *y = &s->p->mapping[k];
        const uint32_t *string = s->o->string.number;

        COMPARE(s->p->string[x->file][0] == '[', s->p->string[y->file][0] == '[');
        COMPARE(s->self[k], s->self[i]);
        COMPARE(string[x->file], string[y->file]);
        COMPARE(string[x->build_id], string[y->build_id]);
        COMPARE(x->start, y->start);
        COMPARE(x->limit, y->limit);
        COMPARE(x->offset, y->offset);
        return 0;
}

static int compare_functions(const void *a, const void *b, void *ctx)
{
        const struct sorter *s = ctx;
        const struct profile_function *x = &s->p->function[*(const uint32_t *)a],
                                      *y = &s->p->function[*(const uint32_t *)b];
        const uint32_t *string = s->o->string.number;

        COMPARE(string[x->name], string[y->name]);
        COMPARE(string[x->system_name], string[y->system_name]);
        COMPARE(string[x->file], string[y->file]);
        COMPARE(x->start_line, y->start_line);
        return 0;
}

static int compare_locations(const void *a, const void *b, void *ctx)
{
        const struct sorter *s = ctx;
        const struct profile_location *x = &s->p->location[*(const uint32_t *)a],
                                      *y = &s->p->location[*(const uint32_t *)b];

        COMPARE(s->o->mapping.number[x->mapping], s->o->mapping.number[y->mapping]);
        COMPARE(x->address, y->address);
        COMPARE(x->n_lines, y->n_lines);
        for (uint32_t l = 0; l < x->n_lines; l++) {
                const struct profile_line *u = &s->p->line[x->first_line + l],
                                          *v = &s->p->line[y->first_line + l];
                COMPARE(s->o->function.number[u->function], s->o->function.number[v->function]);
                COMPARE(u->line, v->line);
        }
        return 0;
}

static int compare_stacks(const void *a, const void *b, void *ctx)
{
        const struct sorter *s = ctx;
        struct profile_span x = s->p->stack[*(const uint32_t *)a], y = s->p->stack[*(const uint32_t *)b];
        const uint32_t *location = s->o->location.number;

        for (uint32_t i = 1; i <= x.n && i <= y.n; i++) {
                uint32_t u = s->p->sample_location[x.first + x.n - i],
                         v = s->p->sample_location[y.first + y.n - i];
                if (u != v)
                        return location[u] < location[v] ? -1 : 1;
        }
        COMPARE(x.n, y.n);
        return 0;
}

static int compare_label(const struct sorter *s, const struct profile_label *x,
                         const struct profile_label *y)
{
        const uint32_t *string = s->o->string.number;

        COMPARE(string[x->key], string[y->key]);
        COMPARE(string[x->str], string[y->str]);
        COMPARE(x->num, y->num);
        COMPARE(string[x->unit], string[y->unit]);
        return 0;
}

static int compare_label_sets(const void *a, const void *b, void *ctx)
{
        const struct sorter *s = ctx;
        struct profile_span x = s->p->label_set[*(const uint32_t *)a],
                            y = s->p->label_set[*(const uint32_t *)b];

        for (uint32_t i = 0; i < x.n && i < y.n; i++) {
                int r = compare_label(s, &s->p->label[x.first + i], &s->p->label[y.first + i]);
                if (r)
                        return r;
        }
        COMPARE(x.n, y.n);
        return 0;
}

static int compare_samples(const void *a, const void *b, void *ctx)
{
        const struct sorter *s = ctx;
        const struct profile_sample *x = &s->p->sample[*(const uint32_t *)a],
                                    *y = &s->p->sample[*(const uint32_t *)b];

        COMPARE(s->stack_rank[x->stack], s->stack_rank[y->stack]);
        COMPARE(s->label_set_rank[x->label_set], s->label_set_rank[y->label_set]);
        return 0;
}

/* The ids of [first, n) that are used, in order; `at` and `number` as numbering says, from `first` on. */
static int number_used(struct pprof_numbering *ret, uint32_t first, uint32_t n, const uint64_t *uses,
                       const unsigned char *mark, int (*compare)(const void *, const void *, void *),
                       struct sorter *s)
{
        ret->number = calloc((size_t)n + 1, sizeof(*ret->number));
        ret->at = calloc((size_t)n + 1, sizeof(*ret->at));
        if (!ret->number || !ret->at)
                return -ENOMEM;
        uint32_t k = first;
        for (uint32_t i = first; i < n; i++)
                if (uses ? uses[i] > 0 : mark[i] != MARK_UNUSED)
                        ret->at[k++] = i;
        qsort_r(ret->at + first, k - first, sizeof(*ret->at), compare, s);
        for (uint32_t i = first; i < k; i++)
                ret->number[ret->at[i]] = i;
        ret->n = first ? k - first : k;
        return 0;
}

/* The rank of each of n things. */
static int rank_all(uint32_t **ret, uint32_t n, int (*compare)(const void *, const void *, void *),
                    struct sorter *s)
{
        _cleanup_free_ uint32_t *order = malloc(((size_t)n + 1) * sizeof(*order));
        uint32_t *rank = malloc(((size_t)n + 1) * sizeof(*rank));

        if (!order || !rank) {
                free(rank);
                return -ENOMEM;
        }
        for (uint32_t i = 0; i < n; i++)
                order[i] = i;
        qsort_r(order, n, sizeof(*order), compare, s);
        for (uint32_t i = 0; i < n; i++)
                rank[order[i]] = i;
        *ret = rank;
        return 0;
}

/* How often each thing is used, by the model's id. */
struct uses {
        uint64_t *stack, *location, *function, *mapping;
        uint64_t *self; /* of mappings: the first value of the samples that were taken in it */
        unsigned char *string;
};

static void uses_done(struct uses *u)
{
        free(u->stack);
        free(u->location);
        free(u->function);
        free(u->mapping);
        free(u->self);
        free(u->string);
}

static void mark_strings(const struct profile *p, const struct uses *u)
{
        unsigned char *mark = u->string;

        for (uint32_t i = 1; i < p->n_functions; i++)
                if (u->function[i])
                        mark[p->function[i].name] = mark[p->function[i].system_name] = MARK_NAME;
        for (uint32_t i = 1; i < p->n_functions; i++)
                if (u->function[i])
                        mark[p->function[i].file] = MARK_USED;
        for (uint32_t i = 1; i < p->n_mappings; i++)
                if (u->mapping[i])
                        mark[p->mapping[i].file] = mark[p->mapping[i].build_id] = MARK_USED;
        for (uint32_t i = 0; i < p->n_comments; i++)
                mark[p->comment[i]] = MARK_USED;
        for (uint32_t i = 0; i < p->n_types; i++)
                mark[p->type[i].type] = mark[p->type[i].unit] = MARK_SHORT;
        mark[p->period_type.type] = mark[p->period_type.unit] = mark[p->default_type] = MARK_SHORT;
        for (uint32_t i = 0; i < p->n_samples; i++)
                for (uint32_t k = 0; k < p->sample[i].n_labels; k++) {
                        const struct profile_label *l = &p->label[p->sample[i].first_label + k];
                        mark[l->key] = mark[l->str] = mark[l->unit] = MARK_SHORT;
                }
        mark[0] = MARK_SHORT;
}

static int count_uses(struct uses *u, const struct profile *p)
{
        u->stack = calloc((size_t)p->n_stacks + 1, sizeof(*u->stack));
        u->location = calloc(p->n_locations, sizeof(*u->location));
        u->function = calloc(p->n_functions, sizeof(*u->function));
        u->mapping = calloc(p->n_mappings, sizeof(*u->mapping));
        u->self = calloc(p->n_mappings, sizeof(*u->self));
        u->string = calloc(p->n_strings, 1);
        if (!u->stack || !u->location || !u->function || !u->mapping || !u->self || !u->string)
                return -ENOMEM;

        for (uint32_t i = 0; i < p->n_samples; i++) {
                struct profile_span stack = p->stack[p->sample[i].stack];
                u->stack[p->sample[i].stack]++;
                if (stack.n > 0 && p->n_types > 0 && profile_values(p, i)[0] > 0)
                        u->self[p->location[p->sample_location[stack.first]].mapping] +=
                                        (uint64_t)profile_values(p, i)[0];
        }
        for (uint32_t i = 0; i < p->n_stacks; i++)
                for (uint32_t k = 0; u->stack[i] && k < p->stack[i].n; k++)
                        u->location[p->sample_location[p->stack[i].first + k]] += u->stack[i];
        for (uint32_t i = 1; i < p->n_locations; i++) {
                const struct profile_location *l = &p->location[i];
                if (!u->location[i])
                        continue;
                u->mapping[l->mapping] += u->location[i];
                for (uint32_t k = 0; k < l->n_lines; k++)
                        u->function[p->line[l->first_line + k].function]++;
        }
        mark_strings(p, u);
        return 0;
}

static int order_samples(struct pprof_order *o, struct sorter *s)
{
        _cleanup_free_ uint32_t *stack_rank = NULL, *label_set_rank = NULL;
        const struct profile *p = s->p;

        int r = rank_all(&stack_rank, p->n_stacks, compare_stacks, s);
        if (r < 0)
                return r;
        r = rank_all(&label_set_rank, p->n_label_sets, compare_label_sets, s);
        if (r < 0)
                return r;
        s->stack_rank = stack_rank;
        s->label_set_rank = label_set_rank;
        o->sample = malloc(((size_t)p->n_samples + 1) * sizeof(*o->sample));
        if (!o->sample)
                return -ENOMEM;
        for (uint32_t i = 0; i < p->n_samples; i++)
                o->sample[i] = i;
        qsort_r(o->sample, p->n_samples, sizeof(*o->sample), compare_samples, s);
        return 0;
}

/* Functions again, in the order of the locations. */
static void renumber_functions(struct pprof_order *o, const struct profile *p)
{
        struct pprof_numbering *f = &o->function;
        uint32_t next = 1;

        memset(f->number, 0, p->n_functions * sizeof(*f->number));
        for (uint32_t i = 1; i <= o->location.n; i++) {
                const struct profile_location *l = &p->location[o->location.at[i]];
                for (uint32_t k = 0; k < l->n_lines; k++) {
                        uint32_t function = p->line[l->first_line + k].function;
                        if (f->number[function])
                                continue;
                        f->number[function] = next;
                        f->at[next++] = function;
                }
        }
}

/* Names again, which are the last of the strings, in the order of the functions. */
static void renumber_names(struct pprof_order *o, const struct profile *p, unsigned char *mark)
{
        struct pprof_numbering *s = &o->string;
        uint32_t next = 0;

        while (next < s->n && mark[s->at[next]] != MARK_NAME)
                next++;
        for (uint32_t i = 1; i <= o->function.n; i++) {
                const struct profile_function *f = &p->function[o->function.at[i]];
                const uint32_t names[] = {f->name, f->system_name};
                for (size_t k = 0; k < ARRAY_SIZE(names); k++) {
                        if (mark[names[k]] != MARK_NAME)
                                continue;
                        mark[names[k]] = MARK_USED; /* once */
                        s->number[names[k]] = next;
                        s->at[next++] = names[k];
                }
        }
}

int pprof_order_make(struct pprof_order *o, const struct profile *p)
{
        _cleanup_(uses_done) struct uses u = {0};
        struct sorter s = {.p = p, .o = o};

        *o = (struct pprof_order){0};
        int r = count_uses(&u, p);
        if (r < 0)
                return r;
        s.mark = u.string;
        r = number_used(&o->string, 0, p->n_strings, NULL, u.string, compare_strings, &s);
        if (r < 0)
                return r;
        s.self = u.self;
        r = number_used(&o->mapping, 1, p->n_mappings, u.mapping, NULL, compare_mappings, &s);
        if (r < 0)
                return r;
        r = number_used(&o->function, 1, p->n_functions, u.function, NULL, compare_functions, &s);
        if (r < 0)
                return r;
        r = number_used(&o->location, 1, p->n_locations, u.location, NULL, compare_locations, &s);
        if (r < 0)
                return r;
        renumber_functions(o, p);
        renumber_names(o, p, u.string);
        return order_samples(o, &s);
}

void pprof_order_done(struct pprof_order *o)
{
        struct pprof_numbering *all[] = {&o->string, &o->mapping, &o->function, &o->location};

        for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
                free(all[i]->number);
                free(all[i]->at);
        }
        free(o->sample);
        *o = (struct pprof_order){0};
}
