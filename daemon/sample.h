/* What leaves the drain: one row of counts with its stacks, on the way to a profile. */
#ifndef DAEMON_SAMPLE_H
#define DAEMON_SAMPLE_H

#include <stdint.h>

#include "bpf/abi.h"

/* Valid during the call that hands it over. */
struct sample_row {
        const struct abi_key *key;
        uint64_t samples;
        uint64_t weight;        /* see abi_count */
        const uint64_t *kernel; /* addresses, leaf first; as perf gives them (callers: return addresses) */
        uint32_t n_kernel;
        const uint64_t *user; /* ABI_FRAME()s, leaf first */
        uint32_t n_user;
        uint32_t window; /* of a deferred sample: the one it was taken in, see tracker_window(); else 0 */
};

/* Takes one row. A negative result ends the drain and is passed up. */
typedef int (*sample_row_fn)(void *ctx, const struct sample_row *row);

#endif
