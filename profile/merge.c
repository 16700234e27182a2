/* Adding one profile to another.
 *
 * Ids are translated once each, lazily, so that what is not used costs nothing; a sample is then two
 * look-ups of its translated stack and label set and one of the pair. */
#include "profile/profile.h"

#include <stdint.h>

#include "profile/copy.h"

/* `type`: from's index -> into's. */
static int merge_types(struct profile *into, const struct profile *from, uint32_t *type)
{
        for (uint32_t i = 0; i < from->n_types; i++) {
                int64_t id = profile_type(into, from->string[from->type[i].type],
                                          from->string[from->type[i].unit]);
                if (id < 0)
                        return (int)id;
                type[i] = (uint32_t)id;
        }
        return 0;
}

static int merge_samples(struct profile *into, const struct profile *from, const uint32_t *type)
{
        _cleanup_profile_copier_ struct profile_copier *c = NULL;

        int r = profile_copier_new(&c, into, from);
        if (r < 0)
                return r;
        for (uint32_t i = 0; i < from->n_samples; i++) {
                int64_t values[PROFILE_MAX_TYPES] = {0};
                int64_t stack = profile_copier_stack(c, from->sample[i].stack);
                if (stack < 0)
                        return (int)stack;
                int64_t label_set = profile_copier_label_set(c, from->sample[i].label_set);
                if (label_set < 0)
                        return (int)label_set;
                for (uint32_t k = 0; k < from->n_types; k++)
                        values[type[k]] = profile_values(from, i)[k];
                r = profile_sample_at(into, (uint32_t)stack, (uint32_t)label_set, values);
                if (r < 0)
                        return r;
        }
        return profile_copier_header(c);
}

static int64_t end_of(int64_t start, int64_t duration)
{
        int64_t end;

        return __builtin_add_overflow(start, duration, &end) ? INT64_MAX : end;
}

static void merge_times(struct profile *into, const struct profile *from)
{
        if (!from->time_ns && !from->duration_ns)
                return;
        if (!into->time_ns && !into->duration_ns) {
                into->time_ns = from->time_ns;
                into->duration_ns = from->duration_ns;
                return;
        }
        int64_t end = MAX_OF(end_of(into->time_ns, into->duration_ns),
                             end_of(from->time_ns, from->duration_ns));
        into->time_ns = MIN_OF(into->time_ns, from->time_ns);
        if (__builtin_sub_overflow(end, into->time_ns, &into->duration_ns))
                into->duration_ns = INT64_MAX;
}

int profile_merge(struct profile *into, const struct profile *from)
{
        uint32_t type[PROFILE_MAX_TYPES];
        bool first = !into->n_samples && !into->duration_ns && !into->n_comments;
        int64_t observed;

        if (__builtin_add_overflow(profile_observed_ns(into), profile_observed_ns(from), &observed))
                observed = INT64_MAX;
        int r = merge_types(into, from, type);
        if (r < 0)
                return r;
        r = merge_samples(into, from, type);
        if (r < 0)
                return r;
        r = profile_ledger_merge(into, from);
        if (r < 0)
                return r;
        merge_times(into, from);
        return first ? 0 : profile_ledger_set(into, PROFILE_OBSERVED, observed);
}
