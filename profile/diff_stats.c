/* One row's test. Counts x, y out of exposures m, n: with Anscombe's root, which makes the variance of a
 * count nearly the same for all of 5 or more,
 *
 *     z = 2 (sqrt(y + 3/8) - sqrt(n / m) sqrt(x + 3/8)) / sqrt(1 + n / m)
 *
 * is normal when the two rates are equal (Huffman 1984; Gu et al., "Testing the ratio of two Poisson rates",
 * 2008). Shares are binomial, not Poisson: their variance is smaller by 1 - p, and those above one half are
 * tested as the shares of all else.
 *
 * Overdispersion. Samples at a fixed rate are not independent draws: CPUs are sampled at the same instants,
 * phases of a program last many samples, and no two runs of one program are equal. How much that is shows in
 * the table itself, since most functions do not change: the median of the squared differences is compared
 * with what independent samples would give (genomic control, Devlin and Roeder 1999). One function that
 * grows makes the shares of all others shrink alike; so the differences are taken from the rows' median
 * ratio (Anders and Huber 2010 scale counts of genes so). A median of few rows says little and is
 * drawn towards 1, as by PRIOR_ROWS rows of independent samples. The factor is at least 1, and at most 9, so
 * that two profiles that have nothing in common still differ.
 *
 * Many rows. At 95 % one of 20 rows would be called changed by chance. Benjamini and Hochberg's correction
 * (1995) keeps the expected part of false calls among all calls below 5 %, and where nothing changed it
 * makes any call at all in at most 5 % of comparisons. Rows of fewer than MIN_COUNT samples, which could not
 * be significant, are not counted as tests; the choice does not look at the difference (Bourgon et al.
 * 2010). */
#include "profile/diff_stats.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "profile/weight.h"

#define MIN_COUNT          8  /* of both sides together */
#define MIN_BULK_COUNT     30 /* on each side, to tell the overdispersion from */
#define MIN_BULK_ROWS      4
#define PRIOR_ROWS         8.0
#define MAX_OVERDISPERSION 9.0
#define MEDIAN_CHI2        0.4549364 /* of the chi-squared distribution with 1 degree of freedom */

static double row_z(const struct stat_row *row, const struct stat_sides *sides)
{
        double x = row->count[0], y = row->count[1], m = sides->exposure[0], n = sides->exposure[1];
        double share = sides->share ? (x + y) / (m + n) : 0, sign = 1;

        if (share > 0.5) {
                x = fmax(0, m - x);
                y = fmax(0, n - y);
                share = 1 - share;
                sign = -1;
        }
        double ratio = n / m;
        double z = 2 * (sqrt(y + 0.375) - sqrt(ratio) * sqrt(x + 0.375)) / sqrt(1 + ratio);
        return sign * z / sqrt(1 - share);
}

static int compare_doubles(const void *a, const void *b)
{
        double x = *(const double *)a, y = *(const double *)b;

        return x < y ? -1 : x > y;
}

static double median(double *v, uint32_t n)
{
        qsort(v, n, sizeof(*v), compare_doubles);
        return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static int is_bulk(const struct stat_row *row)
{
        return row->count[0] >= MIN_BULK_COUNT && row->count[1] >= MIN_BULK_COUNT;
}

static double log_ratio(const struct stat_row *row, const struct stat_sides *sides)
{
        return log(row->count[1] / sides->exposure[1] * sides->exposure[0] / row->count[0]);
}

double stat_overdispersion(const struct stat_row *row, uint32_t n, const struct stat_sides *sides)
{
        _cleanup_free_ double *v = malloc(((size_t)n + 1) * sizeof(*v));
        uint32_t k = 0;

        if (!v)
                return 1;
        for (uint32_t i = 0; i < n; i++)
                if (is_bulk(&row[i]))
                        v[k++] = log_ratio(&row[i], sides);
        if (k < MIN_BULK_ROWS)
                return 1;
        double centre = median(v, k);
        k = 0;
        for (uint32_t i = 0; i < n; i++) {
                if (!is_bulk(&row[i]))
                        continue;
                double share = sides->share ? (row[i].count[0] + row[i].count[1]) /
                                                               (sides->exposure[0] + sides->exposure[1])
                                            : 0;
                double variance = (1 / row[i].count[0] + 1 / row[i].count[1]) * fmax(1 - share, 0.01);
                double d = log_ratio(&row[i], sides) - centre;
                v[k++] = d * d / variance;
        }
        double factor = (PRIOR_ROWS + k * median(v, k) / MEDIAN_CHI2) / (PRIOR_ROWS + k);
        return fmin(fmax(factor, 1), MAX_OVERDISPERSION);
}

struct ranked {
        double p;
        uint32_t row;
};

static int compare_ranked(const void *a, const void *b)
{
        return compare_doubles(&((const struct ranked *)a)->p, &((const struct ranked *)b)->p);
}

int stat_test(struct stat_row *row, uint32_t n, const struct stat_sides *sides, double overdispersion)
{
        _cleanup_free_ struct ranked *ranked = malloc(((size_t)n + 1) * sizeof(*ranked));
        uint32_t k = 0;

        if (!ranked)
                return -ENOMEM;
        for (uint32_t i = 0; i < n; i++) {
                row[i].p = 1;
                if (row[i].count[0] + row[i].count[1] < MIN_COUNT || sides->exposure[0] <= 0 ||
                    sides->exposure[1] <= 0)
                        continue;
                double z = row_z(&row[i], sides) / sqrt(overdispersion);
                ranked[k++] = (struct ranked){.p = erfc(fabs(z) / M_SQRT2), .row = i};
        }
        if (k)
                qsort(ranked, k, sizeof(*ranked), compare_ranked);
        double least = 1; /* p_(i) k / i, made monotonous from the largest down */
        for (uint32_t i = k; i-- > 0;) {
                least = fmin(least, ranked[i].p * k / (i + 1));
                row[ranked[i].row].p = least;
        }
        return 0;
}

void stat_share_interval(const double share[2], const double n[2], double *ret_low, double *ret_high)
{
        double low[2], high[2], d = share[1] - share[0];

        for (int i = 0; i < 2; i++)
                weight_interval(share[i], n[i], WEIGHT_Z95, &low[i], &high[i]);
        /* R. G. Newcombe, "Interval estimation for the difference between independent proportions", 1998,
         * method 10. */
        *ret_low = d - hypot(share[1] - low[1], high[0] - share[0]);
        *ret_high = d + hypot(high[1] - share[1], share[0] - low[0]);
}
