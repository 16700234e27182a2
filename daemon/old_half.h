/* The kernel half of another profd, which went on sampling into its maps when its daemon ended: its
 * counters, and what it holds that was not drained. Reading changes nothing, so it can be done again. */
#ifndef DAEMON_OLD_HALF_H
#define DAEMON_OLD_HALF_H

#include <stdint.h>

#include "daemon/sample.h"
#include "daemon/sampler.h"

struct old_half;

/* Borrowed descriptors of its maps. */
struct old_half_maps {
        int cpus, counts, stacks, raws;
};

/* -EBADF: these are no such maps. Samples must have stopped coming, and all programs have ended. */
int old_half_open(struct old_half **ret, const struct old_half_maps *maps);
struct old_half *old_half_free(struct old_half *h);

/* Its sums, by enum abi_stat. */
void old_half_stats(const struct old_half *h, uint64_t stat[ABI_STAT_MAX]);

/* A stack that its daemon had taken out of the ring already. */
int old_half_stack(struct old_half *h, uint64_t hash, const uint64_t *frame, uint32_t n);
const uint64_t *old_half_find(const struct old_half *h, uint64_t hash, uint32_t *ret_n);

/* Hands over what it holds, but for what `progress` (daemon/kept_state.h) says was drained. Rows without
 * their stacks are left out. */
int old_half_read(struct old_half *h, uint64_t progress, sample_row_fn row, sampler_raw_fn raw, void *ctx);

/* Samples that a half of any version took, by what all have in common. 0 when that cannot be told. */
uint64_t old_half_taken(int cpus_fd);

#endif
