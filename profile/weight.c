#include "profile/weight.h"

#include <math.h>
#include <string.h>

struct weight weight_of_type(const struct profile *p, uint32_t type)
{
        struct weight w = {.type = type, .count_type = -1};
        const char *name = type < p->n_types ? p->string[p->type[type].type] : "";

        if (!strcmp(name, "samples") || !strcmp(name, "cpu"))
                w.count_type = profile_find_type(p, "samples") >= 0 ? profile_find_type(p, "samples") : -1;
        return w;
}

double weight_effective(const struct weight_sums *sums)
{
        return sums->squares > 0 ? (double)sums->value * (double)sums->value / sums->squares : 0;
}

void weight_interval(double share, double n, double z, double *ret_low, double *ret_high)
{
        if (n <= 0) {
                *ret_low = 0;
                *ret_high = 1;
                return;
        }
        /* E. B. Wilson, "Probable Inference", 1927. Unlike p +- z sqrt(p (1 - p) / n) it stays in 0..1 and
         * has an extent at shares of 0 and 1. */
        double z2 = z * z, middle = share + z2 / (2 * n), scale = 1 + z2 / n;
        double extent = z * sqrt(share * (1 - share) / n + z2 / (4 * n * n));
        *ret_low = fmax(0, (middle - extent) / scale);
        *ret_high = fmin(1, (middle + extent) / scale);
}
