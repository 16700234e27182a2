/* The stacks of one epoch, by hash, until the rows that name them are drained. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/sampler_impl.h"

struct stack_entry {
        uint64_t hash;
        size_t first; /* in frames */
        uint32_t n;
};

static bool entry_equal(const void *ctx, uint32_t id, const void *key)
{
        const struct stack_store *st = ctx;
        return st->entry[id].hash == *(const uint64_t *)key;
}

static uint64_t entry_hash(const void *ctx, uint32_t id)
{
        const struct stack_store *st = ctx;
        return st->entry[id].hash;
}

/* Keeps a stack, unless it is there. -ENOSPC when more than `limit` frames would be kept. */
int stack_store_add(struct stack_store *st, uint64_t hash, const uint64_t *frame, uint32_t n, size_t limit)
{
        int r;

        if (idtable_find(&st->index, hash, entry_equal, st, &hash) != IDTABLE_NONE)
                return 0;
        if (st->n_frames + n > limit)
                return -ENOSPC;
        if (st->n == st->cap) {
                uint32_t cap = st->cap ? st->cap * 2 : 1024;
                struct stack_entry *p = realloc(st->entry, cap * sizeof(*p));
                if (!p)
                        return -ENOMEM;
                st->entry = p;
                st->cap = cap;
        }
        if (st->n_frames + n > st->cap_frames) {
                size_t cap = st->cap_frames ? st->cap_frames * 2 : 16 * 1024;
                uint64_t *p = realloc(st->frames, cap * sizeof(*p));
                if (!p)
                        return -ENOMEM;
                st->frames = p;
                st->cap_frames = cap;
        }
        st->entry[st->n] = (struct stack_entry){hash, st->n_frames, n};
        r = idtable_add(&st->index, hash, st->n, entry_hash, st);
        if (r < 0)
                return r;
        memcpy(st->frames + st->n_frames, frame, n * sizeof(uint64_t));
        st->n_frames += n;
        st->n++;
        return 0;
}

const uint64_t *stack_store_find(const struct stack_store *st, uint64_t hash, uint32_t *ret_n)
{
        uint32_t id = idtable_find(&st->index, hash, entry_equal, st, &hash);

        if (id == IDTABLE_NONE)
                return NULL;
        *ret_n = st->entry[id].n;
        return st->frames + st->entry[id].first;
}

/* Memory of an unusually large epoch is given back. */
void stack_store_clear(struct stack_store *st)
{
        if (st->cap_frames > 4 * (st->n_frames + 16 * 1024)) {
                stack_store_free(st);
                return;
        }
        idtable_clear(&st->index);
        st->n = 0;
        st->n_frames = 0;
}

void stack_store_free(struct stack_store *st)
{
        free(st->entry);
        free(st->frames);
        idtable_free(&st->index);
        *st = (struct stack_store){0};
}

bool sample_row_fill(struct sample_row *ret, const struct stack_store *st, const struct abi_row *r)
{
        struct sample_row row = {.key = &r->key, .samples = r->count.samples, .weight = r->count.weight};

        if (r->key.kernel_stack) {
                row.kernel = stack_store_find(st, r->key.kernel_stack, &row.n_kernel);
                if (!row.kernel)
                        return false;
        }
        if (r->key.user_stack) {
                row.user = stack_store_find(st, r->key.user_stack, &row.n_user);
                if (!row.user)
                        return false;
        }
        *ret = row;
        return true;
}

void sampler_each_stack(const struct sampler *s, sampler_stack_fn fn, void *ctx)
{
        for (int i = 0; i < 2; i++)
                for (uint32_t k = 0; k < s->store[i].n; k++) {
                        const struct stack_entry *e = &s->store[i].entry[k];
                        fn(ctx, e->hash, s->store[i].frames + e->first, e->n);
                }
}
