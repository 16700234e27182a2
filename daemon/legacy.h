/* What we leave to the profd that comes after us: the kernel half's maps and events, what object ids stand
 * for, and the deferred samples in our hands. What it makes of them is in daemon/takeover.h. */
#ifndef DAEMON_LEGACY_H
#define DAEMON_LEGACY_H

#include "daemon/keep.h"
#include "daemon/kept_state.h"
#include "daemon/sampler.h"
#include "daemon/tracker.h"

struct legacy;

/* Begins to keep, before anything is sampled; parts borrowed. Where nothing can be kept (why was said)
 * samples are taken all the same, and a restart loses some. -ENOMEM. */
int legacy_new(struct legacy **ret, struct keep *keep, struct sampler *sampler, struct tracker *tracker);
struct legacy *legacy_free(struct legacy *l); /* what is kept stays */

/* NULL: nothing outlives us. */
struct kept_head *legacy_head(const struct legacy *l);

#endif
