/* How much is known from samples: their number, the number of equal ones that would say as much, and the
 * uncertainty of a share. */
#ifndef PROFILE_WEIGHT_H
#define PROFILE_WEIGHT_H

#include "profile/profile.h"

struct weight {
        uint32_t type;
        int count_type; /* index of samples/count when it counts what `type` weighs; else -1 */
};

struct weight weight_of_type(const struct profile *p, uint32_t type);

/* How many samples a row of values is. Where that is not recorded a row with a value is one sample: too few
 * after merging, which makes intervals too wide, never too narrow. */
static inline int64_t weight_samples(const struct weight *w, const int64_t *values)
{
        return w->count_type >= 0 ? values[w->count_type] : values[w->type] != 0;
}

struct weight_sums {
        int64_t value, samples;
        double squares; /* sum of the samples' squared weights */
};

static inline void weight_add(const struct weight *w, struct weight_sums *sums, const int64_t *values)
{
        int64_t n = weight_samples(w, values);
        double v = (double)values[w->type];

        sums->value += values[w->type];
        sums->samples += n;
        if (n > 0)
                sums->squares += v * v / (double)n;
}

/* (sum of weights)^2 / (sum of squares), Kish's effective sample size. */
double weight_effective(const struct weight_sums *sums);

/* Wilson's score interval of a share found in n samples; z: 1.96 for 95 %. */
#define WEIGHT_Z95 1.959964
void weight_interval(double share, double n, double z, double *ret_low, double *ret_high);

#endif
