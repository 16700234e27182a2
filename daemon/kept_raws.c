#include "daemon/kept_raws.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

enum slot_state { SLOT_FREE = 0, SLOT_WAITING, SLOT_DONE };

struct kept_raws {
        char *memory;
        uint8_t state[KEPT_RAWS];        /* enum slot_state */
        uint32_t small_hint, large_hint; /* no free one of its kind is before it */
};

static char *slot_at(const char *memory, uint32_t i)
{
        const size_t small = sizeof(struct kept_raw) + KEPT_SMALL_STACK;

        if (i < KEPT_SMALL)
                return (char *)memory + i * small;
        return (char *)memory + KEPT_SMALL * small +
               (i - KEPT_SMALL) * (sizeof(struct kept_raw) + KEPT_LARGE_STACK);
}

static uint32_t stack_room(uint32_t i)
{
        return i < KEPT_SMALL ? KEPT_SMALL_STACK : KEPT_LARGE_STACK;
}

/* Bytes of stack, checked: more than any slot has when they make no sense. */
static uint64_t stack_bytes(const struct abi_raw *raw)
{
        return (uint64_t)raw->leaf_len + raw->root_len;
}

int kept_raws_new(struct kept_raws **ret, void *memory)
{
        struct kept_raws *k = calloc(1, sizeof(*k));

        if (!k)
                return -ENOMEM;
        k->memory = memory;
        k->large_hint = KEPT_SMALL;
        *ret = k;
        return 0;
}

struct kept_raws *kept_raws_free(struct kept_raws *k)
{
        free(k);
        return NULL;
}

static uint32_t free_slot(struct kept_raws *k, uint32_t *hint, uint32_t end)
{
        while (*hint < end && k->state[*hint] != SLOT_FREE)
                ++*hint;
        return *hint;
}

struct kept_raw *kept_raws_add(struct kept_raws *k, const struct abi_raw *raw, const uint64_t *kernel,
                               uint32_t n_kernel)
{
        uint32_t at = KEPT_SMALL;

        if (!k || n_kernel > ABI_MAX_KERNEL_FRAMES + 1 || stack_bytes(raw) > KEPT_LARGE_STACK)
                return NULL;
        if (stack_bytes(raw) <= KEPT_SMALL_STACK)
                at = free_slot(k, &k->small_hint, KEPT_SMALL);
        if (at == KEPT_SMALL)
                at = free_slot(k, &k->large_hint, KEPT_RAWS);
        if (at == KEPT_RAWS)
                return NULL;
        struct kept_raw *to = (struct kept_raw *)slot_at(k->memory, at);
        k->state[at] = SLOT_WAITING;
        to->slot = at;
        to->n_kernel = n_kernel;
        if (n_kernel)
                memcpy(to->kernel, kernel, n_kernel * sizeof(*kernel));
        memcpy(&to->raw, raw, sizeof(*raw) + stack_bytes(raw));
        __atomic_store_n(&to->used, 1, __ATOMIC_RELEASE);
        return to;
}

void kept_raws_done(struct kept_raws *k, struct kept_raw *raw)
{
        k->state[raw->slot] = SLOT_DONE;
}

void kept_raws_flush(struct kept_raws *k)
{
        if (!k)
                return;
        for (uint32_t i = KEPT_RAWS; i-- > 0;)
                if (k->state[i] == SLOT_DONE) {
                        k->state[i] = SLOT_FREE;
                        uint32_t *hint = i < KEPT_SMALL ? &k->small_hint : &k->large_hint;
                        *hint = MIN_OF(*hint, i);
                        __atomic_store_n(&((struct kept_raw *)slot_at(k->memory, i))->used, 0,
                                         __ATOMIC_RELEASE);
                }
}

void kept_raws_read(const void *memory, size_t size, sampler_raw_fn fn, void *ctx)
{
        if (size != KEPT_RAWS_BYTES)
                return;
        for (uint32_t i = 0; i < KEPT_RAWS; i++) {
                const struct kept_raw *k = (const struct kept_raw *)slot_at(memory, i);
                if (k->used && k->n_kernel <= ABI_MAX_KERNEL_FRAMES + 1 &&
                    stack_bytes(&k->raw) <= stack_room(i))
                        fn(ctx, &k->raw, k->kernel, k->n_kernel);
        }
}
