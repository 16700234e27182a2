/* The ledger of a profile: comments "key: value" that say how it was taken and what is missing. Numbers are
 * totals of the stretch, so that they add up when profiles are merged; all else is text. */
#ifndef DAEMON_LEDGER_H
#define DAEMON_LEDGER_H

#include "daemon/counters.h"
#include "profile/profile.h"

/* What does not change while profd runs. */
struct ledger_host {
        char host[256], kernel[128], boot_id[40];
};
void ledger_host(struct ledger_host *ret);

/* Adds the ledger of the time between two looks at the counters. */
int ledger_add(struct profile *p, const struct ledger_host *host, const struct sampler *sampler,
               const struct budget *budget, uint32_t lowest, const struct counters *before,
               const struct counters *now);

#endif
