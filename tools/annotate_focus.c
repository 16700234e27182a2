#include "tools/annotate.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

#define MAX_CANDIDATES 8

int annotated_add(struct annotated *a, double share, const char *fmt, ...)
{
        char *text;
        va_list ap;

        if ((a->n & (a->n - 1)) == 0) {
                struct annotated_line *more =
                                reallocarray(a->line, a->n ? (size_t)a->n * 2 : 1, sizeof(*more));
                if (!more)
                        return -ENOMEM;
                a->line = more;
        }
        va_start(ap, fmt);
        int n = vasprintf(&text, fmt, ap);
        va_end(ap);
        if (n < 0)
                return -ENOMEM;
        a->line[a->n++] = (struct annotated_line){.text = text, .share = share};
        return 0;
}

void annotated_free(struct annotated *a)
{
        for (uint32_t i = 0; i < a->n; i++)
                free(a->line[i].text);
        free(a->line);
        *a = (struct annotated){0};
}

/* -- which function -- */

enum match { MATCH_PART = 1, MATCH_BASE = 2, MATCH_EXACT = 3 };

static int match_name(const char *name, const char *wanted)
{
        size_t n = strlen(wanted);

        if (!strcmp(name, wanted))
                return MATCH_EXACT;
        /* Without parameters, template arguments, and what compilers hang on: "f(int)", "f<T>", "f.cold". */
        if (!strncmp(name, wanted, n) && strchr("(<.[", name[n]))
                return MATCH_BASE;
        return strstr(name, wanted) ? MATCH_PART : 0;
}

/* Value of the samples whose innermost code is in each function, by the function's name (string). */
static int self_by_name(const struct profile *p, uint32_t type, int64_t **ret)
{
        int64_t *value = calloc(p->n_strings, sizeof(*value));

        if (!value)
                return -ENOMEM;
        for (uint32_t i = 0; i < p->n_samples; i++) {
                const struct profile_sample *s = &p->sample[i];
                if (s->n_locations == 0)
                        continue;
                const struct profile_location *l = &p->location[p->sample_location[s->first_location]];
                for (uint32_t k = 0; k < l->n_lines; k++)
                        value[p->function[p->line[l->first_line + k].function].name] +=
                                        profile_values(p, i)[type];
        }
        *ret = value;
        return 0;
}

/* The best match; of equally good ones, when they are exact in their way, the one with the most samples. */
static int choose(const struct profile *p, const int64_t *value, const char *wanted, uint32_t *ret,
                  struct buf *why)
{
        uint32_t best = 0, n_parts = 0;
        int best_match = 0;
        _cleanup_buf_ struct buf parts = {0};
        _cleanup_free_ bool *seen = calloc(p->n_strings, sizeof(*seen));

        if (!seen)
                return -ENOMEM;
        for (uint32_t i = 1; i < p->n_functions; i++) {
                uint32_t name = p->function[i].name;
                int m = seen[name] ? 0 : match_name(p->string[name], wanted);
                seen[name] = true;
                if (m == MATCH_PART && ++n_parts <= MAX_CANDIDATES)
                        buf_addf(&parts, "%s%s", parts.len ? ", " : "", p->string[name]);
                if (m > best_match || (m && m == best_match && value[name] > value[best])) {
                        best_match = m;
                        best = name;
                }
        }
        if (best_match == 0) {
                buf_addf(why, "the profile has no function '%s'", wanted);
                return -ENOENT;
        }
        if (best_match == MATCH_PART && n_parts > 1) {
                buf_addf(why, "several functions have '%s' in their name: %s%s", wanted, buf_text(&parts),
                         n_parts > MAX_CANDIDATES ? ", ..." : "");
                return -ENOENT;
        }
        *ret = best;
        return 0;
}

/* The outermost line of a location that is the function; -1: none is. */
static int depth_of(const struct profile *p, uint32_t location, uint32_t name)
{
        const struct profile_location *l = &p->location[location];

        for (uint32_t k = l->n_lines; k-- > 0;)
                if (p->function[p->line[l->first_line + k].function].name == name)
                        return (int)k;
        return -1;
}

/* The event other than CPU time of which the function has the most; -1: it has none. */
static int other_type(const struct focus *f, uint32_t name)
{
        const struct profile *p = f->p;
        int64_t sum[PROFILE_MAX_TYPES] = {0};
        int best = -1;

        for (uint32_t i = 0; i < p->n_samples; i++) {
                const struct profile_sample *s = &p->sample[i];
                if (s->n_locations && depth_of(p, p->sample_location[s->first_location], name) >= 0)
                        for (uint32_t t = 0; t < p->n_types; t++)
                                sum[t] += profile_values(p, i)[t];
        }
        for (uint32_t t = 0; t < p->n_types; t++) {
                const char *type = p->string[p->type[t].type];
                if (t != f->type && strcmp(type, "samples") != 0 && strcmp(type, "cpu") != 0 &&
                    sum[t] > (best < 0 ? 0 : sum[best]))
                        best = (int)t;
        }
        return best;
}

void focus_put_other(const struct focus *f, int64_t value, struct buf *out)
{
        if (f->other >= 0 && value)
                buf_addf(out, " %6.2f%%", 100.0 * (double)value / (double)f->other_value);
        else if (f->other >= 0)
                buf_addf(out, "%8s", "");
}

static int collect_places(struct focus *f, uint32_t name)
{
        const struct profile *p = f->p;
        int count = profile_find_type(p, "samples");
        _cleanup_free_ int64_t *value = calloc((size_t)p->n_locations + 1, sizeof(*value));
        _cleanup_free_ int64_t *other = calloc((size_t)p->n_locations + 1, sizeof(*other));

        if (!value || !other)
                return -ENOMEM;
        f->other = other_type(f, name);
        for (uint32_t i = 0; i < p->n_samples; i++) {
                const struct profile_sample *s = &p->sample[i];
                int64_t v = profile_values(p, i)[f->type];
                f->whole += v;
                if (s->n_locations == 0 || depth_of(p, p->sample_location[s->first_location], name) < 0)
                        continue;
                int64_t o = f->other >= 0 ? profile_values(p, i)[f->other] : 0;
                value[p->sample_location[s->first_location]] += v;
                other[p->sample_location[s->first_location]] += o;
                f->value += v;
                f->other_value += o;
                f->samples += count >= 0 ? (uint64_t)profile_values(p, i)[count] : 0;
                const struct profile_label *pid = profile_find_label(p, s, "pid");
                if (f->pid < 0 && pid)
                        f->pid = pid->num;
        }
        f->place = calloc((size_t)p->n_locations + 1, sizeof(*f->place));
        if (!f->place)
                return -ENOMEM;
        for (uint32_t i = 1; i < p->n_locations; i++)
                if (value[i] || other[i])
                        f->place[f->n_places++] = (struct place){.location = i,
                                                                 .depth = (uint32_t)depth_of(p, i, name),
                                                                 .value = value[i],
                                                                 .other = other[i]};
        return 0;
}

int focus_find(const struct profile *p, uint32_t type, const char *name, struct focus *ret, struct buf *why)
{
        _cleanup_free_ int64_t *value = NULL;
        struct focus f = {.p = p, .type = type, .pid = -1};
        uint32_t found;

        int r = self_by_name(p, type, &value);
        if (r >= 0)
                r = choose(p, value, name, &found, why);
        if (r < 0)
                return r;
        f.function = p->string[found];
        r = collect_places(&f, found);
        if (r < 0) {
                focus_free(&f);
                return r;
        }
        *ret = f;
        return 0;
}

void focus_free(struct focus *f)
{
        free(f->place);
        f->place = NULL;
}
