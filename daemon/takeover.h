/* Takes up what the profd before us left: its kernel half went on sampling, its journals hold what it had
 * drained but not stored. See daemon/keep.h for how they get here. */
#ifndef DAEMON_TAKEOVER_H
#define DAEMON_TAKEOVER_H

#include "daemon/keep.h"
#include "daemon/kept_state.h"
#include "daemon/recorder.h"
#include "daemon/store.h"

struct takeover_parts { /* borrowed */
        struct keep *keep;
        struct sampler *sampler; /* that samples already */
        struct tracker *tracker;
        struct recorder *recorder;
        struct store *store;
        struct kept_head *own; /* NULL: we keep nothing ourselves */
};

/* Ends the sampling of all kernel halves but ours, and reads what they hold into our window. What cannot be
 * read is counted as lost, and said. */
int takeover_run(const struct takeover_parts *parts);

#endif
