#include "tools/debug_wanted.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "profile/symbols.h"

const char *location_name(const struct profile *p, const struct profile_location *l)
{
        return l->n_lines ? p->string[p->function[p->line[l->first_line + l->n_lines - 1].function].name]
                          : "";
}

/* "object+0x123" is how profd writes an address that has no name. */
bool location_is_unnamed(const struct profile *p, const struct profile_location *l)
{
        const char *name = location_name(p, l),
                   *object = object_base_name(p->string[p->mapping[l->mapping].file]);
        size_t n = strlen(object);

        return !*name || (!strncmp(name, object, n) && !strncmp(name + n, "+0x", 3));
}

bool location_has_lines(const struct profile *p, const struct profile_location *l)
{
        return l->n_lines > 0 &&
               (p->line[l->first_line].line > 0 || p->function[p->line[l->first_line].function].file);
}

/* It becomes a file name and a part of a URL, and the profile may be anyone's. */
static bool is_build_id(const char *s)
{
        size_t n = strspn(s, "0123456789abcdef");

        return n >= 8 && n <= 64 && n % 2 == 0 && !s[n];
}

static int by_lacking(const void *a, const void *b)
{
        const struct debug_object *x = a, *y = b;

        if (x->lacking != y->lacking)
                return x->lacking < y->lacking ? 1 : -1;
        return strcmp(x->build_id, y->build_id);
}

int debug_wanted(const struct profile *p, struct debug_object **ret, uint32_t *ret_n)
{
        /* By the string of the build ID, which stands once in a profile. */
        _cleanup_free_ struct debug_object *by_id = calloc(p->n_strings, sizeof(*by_id));
        _cleanup_free_ uint32_t *last = calloc(p->n_strings, sizeof(*last));
        int type = profile_find_type(p, "samples");
        uint32_t n = 0;

        if (!by_id || !last)
                return -ENOMEM;
        for (uint32_t i = 0; i < p->n_mappings; i++) {
                const struct profile_mapping *m = &p->mapping[i];

                if (is_build_id(p->string[m->build_id]) && p->string[m->file][0] == '/')
                        by_id[m->build_id] =
                                        (struct debug_object){p->string[m->build_id], p->string[m->file], 0};
        }
        for (uint32_t i = 0; i < p->n_samples; i++) {
                const struct profile_sample *s = &p->sample[i];

                for (uint32_t k = 0; k < s->n_locations; k++) {
                        const struct profile_location *l =
                                        &p->location[p->sample_location[s->first_location + k]];
                        uint32_t id = p->mapping[l->mapping].build_id;

                        if (!by_id[id].build_id || last[id] == i + 1 ||
                            (location_has_lines(p, l) && !location_is_unnamed(p, l)))
                                continue;
                        last[id] = i + 1;
                        by_id[id].lacking += type >= 0 ? profile_values(p, i)[type] : 1;
                }
        }
        for (uint32_t i = 0; i < p->n_strings; i++)
                if (by_id[i].build_id)
                        by_id[n++] = by_id[i];
        qsort(by_id, n, sizeof(*by_id), by_lacking);
        *ret = TAKE_PTR(by_id);
        *ret_n = n;
        return 0;
}
