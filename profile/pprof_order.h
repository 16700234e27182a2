/* The order in which a profile is written: a numbering that depends on what the profile says and not on how
 * it was built, so that equal profiles are equal files, and one that compresses well. */
#ifndef PROFILE_PPROF_ORDER_H
#define PROFILE_PPROF_ORDER_H

#include "profile/profile.h"

/* One kind of thing: what is not used is left out. */
struct pprof_numbering {
        uint32_t *number; /* of the model's id; 0 for what is not used */
        uint32_t *at;     /* the model's id of a number */
        uint32_t n;       /* numbers are 0..n - 1 of strings, 1..n of all others */
};

struct pprof_order {
        struct pprof_numbering string, mapping, function, location;
        uint32_t *sample; /* the model's samples in order, n_samples of them */
};

int pprof_order_make(struct pprof_order *o, const struct profile *p);
void pprof_order_done(struct pprof_order *o);

#endif
