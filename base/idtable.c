#include "base/idtable.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint32_t upper(uint64_t hash)
{
        return (uint32_t)(hash >> 32);
}

uint32_t idtable_find(const struct idtable *t, uint64_t hash, idtable_equal_fn equal, const void *ctx,
                      const void *key)
{
        if (!t->n)
                return IDTABLE_NONE;
        for (uint32_t i = (uint32_t)hash & t->mask;; i = (i + 1) & t->mask) {
                const struct idtable_slot *s = &t->slot[i];
                if (s->id == IDTABLE_NONE)
                        return IDTABLE_NONE;
                if (s->hash == upper(hash) && equal(ctx, s->id, key))
                        return s->id;
        }
}

static void put(struct idtable *t, uint64_t hash, uint32_t id)
{
        uint32_t i = (uint32_t)hash & t->mask;

        while (t->slot[i].id != IDTABLE_NONE)
                i = (i + 1) & t->mask;
        t->slot[i] = (struct idtable_slot){.hash = upper(hash), .id = id};
}

static int grow(struct idtable *t, idtable_hash_fn hash_of, const void *ctx)
{
        uint32_t old_slots = t->slot ? t->mask + 1 : 0, slots = old_slots ? old_slots * 2 : 16;

        if (slots > UINT32_MAX / 4)
                return -ENOMEM;
        struct idtable bigger = {.slot = malloc(slots * sizeof(*t->slot)), .n = t->n, .mask = slots - 1};
        if (!bigger.slot)
                return -ENOMEM;
        memset(bigger.slot, 0xff, slots * sizeof(*t->slot));
        for (uint32_t i = 0; i < old_slots; i++)
                if (t->slot[i].id != IDTABLE_NONE)
                        put(&bigger, hash_of(ctx, t->slot[i].id), t->slot[i].id);
        free(t->slot);
        *t = bigger;
        return 0;
}

int idtable_add(struct idtable *t, uint64_t hash, uint32_t id, idtable_hash_fn hash_of, const void *ctx)
{
        if (!t->slot || (uint64_t)(t->n + 1) * 4 > (uint64_t)(t->mask + 1) * 3) {
                int r = grow(t, hash_of, ctx);
                if (r < 0)
                        return r;
        }
        put(t, hash, id);
        t->n++;
        return 0;
}

void idtable_remove(struct idtable *t, uint64_t hash, uint32_t id, idtable_hash_fn hash_of, const void *ctx)
{
        uint32_t hole = (uint32_t)hash & t->mask;

        while (t->slot[hole].id != id)
                hole = (hole + 1) & t->mask;
        /* Shift back whatever was displaced over the hole (Knuth, 6.4, algorithm R). */
        for (uint32_t i = (hole + 1) & t->mask; t->slot[i].id != IDTABLE_NONE; i = (i + 1) & t->mask) {
                uint32_t home = (uint32_t)hash_of(ctx, t->slot[i].id) & t->mask;
                if (((i - home) & t->mask) >= ((i - hole) & t->mask)) {
                        t->slot[hole] = t->slot[i];
                        hole = i;
                }
        }
        t->slot[hole].id = IDTABLE_NONE;
        t->n--;
}

void idtable_clear(struct idtable *t)
{
        if (t->slot)
                memset(t->slot, 0xff, ((size_t)t->mask + 1) * sizeof(*t->slot));
        t->n = 0;
}

void idtable_free(struct idtable *t)
{
        free(t->slot);
        *t = (struct idtable){0};
}
