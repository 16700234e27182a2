#include "profile/pair.h"

#include <errno.h>

#include "profile/copy.h"
#include "profile/limit.h"
#include "profile/weight.h"

static int add_side(struct profile *pair, const struct profile *from, const char *type, bool after,
                    const char *const *keys, uint32_t n_keys)
{
        _cleanup_profile_ struct profile *reduced = NULL;
        _cleanup_profile_copier_ struct profile_copier *c = NULL;
        int t = profile_find_type(from, type);

        if (t < 0)
                return t;
        int r = profile_reduce_labels(from, keys, n_keys, false, &reduced);
        if (r < 0)
                return r;
        r = profile_copier_new(&c, pair, reduced);
        if (r < 0)
                return r;
        struct weight w = weight_of_type(reduced, (uint32_t)t);
        for (uint32_t i = 0; i < reduced->n_samples; i++) {
                int64_t stack = profile_copier_stack(c, reduced->sample[i].stack),
                        set = profile_copier_label_set(c, reduced->sample[i].label_set);
                if (stack < 0 || set < 0)
                        return (int)(stack < 0 ? stack : set);
                const int64_t *from_values = profile_values(reduced, i);
                int64_t values[PAIR_TYPES] = {0};
                values[after ? PAIR_AFTER : PAIR_BEFORE] = from_values[t];
                values[after ? PAIR_AFTER_SAMPLES : PAIR_BEFORE_SAMPLES] = weight_samples(&w, from_values);
                r = profile_sample_at(pair, (uint32_t)stack, (uint32_t)set, values);
                if (r < 0)
                        return r;
        }
        return 0;
}

int profile_pair(const struct profile *before, const struct profile *after, const char *type,
                 const char *const *keys, uint32_t n_keys, struct profile **ret)
{
        static const char *const types[PAIR_TYPES] = {
                        [PAIR_BEFORE] = "before",
                        [PAIR_AFTER] = "after",
                        [PAIR_BEFORE_SAMPLES] = "before samples",
                        [PAIR_AFTER_SAMPLES] = "after samples",
        };
        _cleanup_profile_ struct profile *pair = NULL;

        if (!after->n_types)
                return -ENOENT;
        if (!type)
                type = after->string[after->type[profile_default_type(after)].type];
        int r = profile_new(&pair);
        if (r < 0)
                return r;
        for (int i = 0; i < PAIR_TYPES; i++) {
                int64_t id = profile_type(pair, types[i], "");
                if (id < 0)
                        return (int)id;
        }
        if (before && (r = add_side(pair, before, type, false, keys, n_keys)) < 0)
                return r;
        r = add_side(pair, after, type, true, keys, n_keys);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(pair);
        return 0;
}
