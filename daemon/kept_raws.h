/* Deferred samples while they are in the daemon's hands, in memory that is kept (daemon/keep.h): they wait
 * for tables where the next daemon finds them. */
#ifndef DAEMON_KEPT_RAWS_H
#define DAEMON_KEPT_RAWS_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/sampler.h"

struct kept_raw {
        uint32_t used; /* set last; cleared when its row is in a journal */
        uint32_t slot, n_kernel, pad;
        uint64_t kernel[ABI_MAX_KERNEL_FRAMES + 1];
        struct abi_raw raw; /* its stack behind it */
};

/* Places for about as many as may wait at all: most have less stack than one record holds. */
#define KEPT_SMALL       192u
#define KEPT_SMALL_STACK (16u << 10)
#define KEPT_LARGE       24u
#define KEPT_LARGE_STACK (uint32_t)(ABI_RAW_LEAF + ABI_RAW_ROOT)
#define KEPT_RAWS        (KEPT_SMALL + KEPT_LARGE)
#define KEPT_RAWS_BYTES                                              \
        (KEPT_SMALL * (sizeof(struct kept_raw) + KEPT_SMALL_STACK) + \
         KEPT_LARGE * (sizeof(struct kept_raw) + KEPT_LARGE_STACK))

/* The writer's side, over borrowed memory of KEPT_RAWS_BYTES; all take NULL: nothing is kept. */
struct kept_raws;

int kept_raws_new(struct kept_raws **ret, void *memory);
struct kept_raws *kept_raws_free(struct kept_raws *k);

/* A copy of a sample; NULL: no room, or it makes no sense. */
struct kept_raw *kept_raws_add(struct kept_raws *k, const struct abi_raw *raw, const uint64_t *kernel,
                               uint32_t n_kernel);
/* Its row is made, and is in a journal when kept_raws_flush() is called; the memory is good until then. */
void kept_raws_done(struct kept_raws *k, struct kept_raw *raw);
void kept_raws_flush(struct kept_raws *k);

/* Hands over those that another daemon had. */
void kept_raws_read(const void *memory, size_t size, sampler_raw_fn fn, void *ctx);

#endif
