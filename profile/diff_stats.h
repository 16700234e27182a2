/* The statistics behind diff.h: which changes of counts are more than noise. */
#ifndef PROFILE_DIFF_STATS_H
#define PROFILE_DIFF_STATS_H

#include <stdint.h>

/* What one thing has on both sides, as numbers of equal samples; `exposure` is what they are out of: all
 * samples of the side for shares (share: true), or its time in units of one expected sample for rates. */
struct stat_row {
        double count[2];
        double p; /* filled in: corrected for the number of rows */
};

struct stat_sides {
        double exposure[2];
        int share;
};

/* The factor by which counts vary more than independent samples would. */
double stat_overdispersion(const struct stat_row *row, uint32_t n, const struct stat_sides *sides);

/* Fills in p of all rows. 0 or -ENOMEM. */
int stat_test(struct stat_row *row, uint32_t n, const struct stat_sides *sides, double overdispersion);

/* Newcombe's interval of the difference of two shares found in n[0] and n[1] samples. */
void stat_share_interval(const double share[2], const double n[2], double *ret_low, double *ret_high);

#endif
