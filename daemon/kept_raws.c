#include "daemon/kept_raws.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

enum slot_state { SLOT_FREE = 0, SLOT_WAITING, SLOT_DONE };

struct kept_raws {
        struct kept_raw_memory *memory;
        uint8_t state[KEPT_RAWS]; /* enum slot_state */
        uint32_t hint;            /* no free one is before it */
};

int kept_raws_new(struct kept_raws **ret, struct kept_raw_memory *memory)
{
        struct kept_raws *k = calloc(1, sizeof(*k));

        if (!k)
                return -ENOMEM;
        k->memory = memory;
        *ret = k;
        return 0;
}

struct kept_raws *kept_raws_free(struct kept_raws *k)
{
        free(k);
        return NULL;
}

struct kept_raw *kept_raws_add(struct kept_raws *k, const struct abi_raw *raw, const uint64_t *kernel,
                               uint32_t n_kernel)
{
        if (!k || n_kernel > ABI_MAX_KERNEL_FRAMES + 1 || raw->len > ABI_RAW_STACK)
                return NULL;
        while (k->hint < KEPT_RAWS && k->state[k->hint] != SLOT_FREE)
                k->hint++;
        if (k->hint == KEPT_RAWS)
                return NULL;
        struct kept_raw *to = &k->memory->slot[k->hint];
        k->state[k->hint] = SLOT_WAITING;
        to->n_kernel = n_kernel;
        if (n_kernel)
                memcpy(to->kernel, kernel, n_kernel * sizeof(*kernel));
        memcpy(&to->raw, raw, sizeof(*raw));
        memcpy(to->stack, raw->stack, raw->len);
        __atomic_store_n(&to->used, 1, __ATOMIC_RELEASE);
        return to;
}

void kept_raws_done(struct kept_raws *k, struct kept_raw *raw)
{
        k->state[raw - k->memory->slot] = SLOT_DONE;
}

void kept_raws_flush(struct kept_raws *k)
{
        if (!k)
                return;
        for (uint32_t i = KEPT_RAWS; i-- > 0;)
                if (k->state[i] == SLOT_DONE) {
                        k->state[i] = SLOT_FREE;
                        k->hint = MIN_OF(k->hint, i);
                        __atomic_store_n(&k->memory->slot[i].used, 0, __ATOMIC_RELEASE);
                }
}

void kept_raws_read(const void *memory, size_t size, sampler_raw_fn fn, void *ctx)
{
        const struct kept_raw_memory *m = memory;

        if (size != sizeof(*m))
                return;
        for (uint32_t i = 0; i < KEPT_RAWS; i++) {
                const struct kept_raw *k = &m->slot[i];
                if (k->used && k->n_kernel <= ABI_MAX_KERNEL_FRAMES + 1 && k->raw.len <= ABI_RAW_STACK)
                        fn(ctx, &k->raw, k->kernel, k->n_kernel);
        }
}
