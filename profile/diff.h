/* What changed from one profile to another, and what is only the noise of sampling.
 *
 * See diff.c for the statistics: shares and CPU per time with their intervals; a row is `changed` only when
 * it would be called so by chance, in all of the table, at most once in 20 comparisons of equal runs. */
#ifndef PROFILE_DIFF_H
#define PROFILE_DIFF_H

#include "profile/profile.h"

enum diff_by { DIFF_FUNCTION, DIFF_STACK, DIFF_UNIT, DIFF_PROCESS, DIFF_OBJECT };
int diff_by_name(const char *name); /* "function", "stack", "unit", "process", "object"; -EINVAL */

enum diff_order { DIFF_BY_SHARE, DIFF_BY_RATE };

struct diff_options {
        enum diff_by by;
        const char *type; /* name of the sample type in both; NULL: the default of the second */
        bool no_inline;
        bool children; /* functions with what they call, instead of self alone */
        enum diff_order order;
};

struct diff_side {
        int64_t value; /* ns, or events */
        double samples;
        double share; /* of the side's total, 0..1 */
        double rate; /* value per ns observed: CPUs busy, or events per ns; NAN when the time is not known */
};

struct diff_row {
        const char *name, *object; /* object "" but for functions; of a stack "root;...;leaf" */
        bool kernel;
        bool rebuilt; /* the build ID of its object differs from one side to the other */
        struct diff_side side[2];
        double share_change;          /* side[1].share - side[0].share */
        double share_low, share_high; /* its 95 % interval */
        double rate_change, rate_low, rate_high;
        double p; /* probability of a change as large by chance, corrected for the table's size */
        bool changed;
};

struct diff {
        struct diff_row *row; /* those that changed, the largest change first; then the others, by size */
        uint32_t n, n_changed;
        int64_t total[2];
        double effective[2];   /* number of samples, see table.h */
        double overdispersion; /* factor by which the variance of counts exceeds the multinomial's, 1 or more
                                */
        const char *type, *unit; /* of the profile `after`, which must outlive them */
        char *text;              /* of the names, private */
};

/* -ENOENT: a profile does not have the sample type. */
int diff_new(struct diff **ret, const struct profile *before, const struct profile *after,
             const struct diff_options *o);
struct diff *diff_free(struct diff *d);
DEFINE_CLEANUP(struct diff, diff_free);
#define _cleanup_diff_ _cleanup_(diff_free_cleanup)

#endif
