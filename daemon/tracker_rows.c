#include "daemon/tracker_rows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/idtable.h"

#define MAX_FRAME_BYTES (16u << 20)

struct row {
        struct abi_key key;
        uint64_t samples, weight;
        uint64_t hash;
        uint32_t kernel, user; /* places in `frames`, in units of frames */
        uint32_t n_kernel, n_user, window;
};

struct tracker_rows {
        struct row *row;
        uint32_t n, cap;
        struct buf frames;
        struct idtable index;
};

int tracker_rows_new(struct tracker_rows **ret)
{
        struct tracker_rows *r = calloc(1, sizeof(*r));

        if (!r)
                return -ENOMEM;
        r->frames.limit = MAX_FRAME_BYTES;
        *ret = r;
        return 0;
}

struct tracker_rows *tracker_rows_free(struct tracker_rows *r)
{
        if (r) {
                free(r->row);
                buf_free(&r->frames);
                idtable_free(&r->index);
                free(r);
        }
        return NULL;
}

static const uint64_t *frames_at(const struct tracker_rows *r, uint32_t at)
{
        return (const uint64_t *)(const void *)r->frames.data + at;
}

static bool row_equal(const void *ctx, uint32_t id, const void *key)
{
        const struct tracker_rows *r = ctx;
        const struct row *a = &r->row[id];
        const struct sample_row *b = key;

        return memcmp(&a->key, b->key, sizeof(a->key)) == 0 && a->window == b->window &&
               a->n_kernel == b->n_kernel && a->n_user == b->n_user &&
               memcmp(frames_at(r, a->user), b->user, a->n_user * sizeof(uint64_t)) == 0 &&
               (!a->n_kernel ||
                memcmp(frames_at(r, a->kernel), b->kernel, a->n_kernel * sizeof(uint64_t)) == 0);
}

static uint64_t row_hash(const void *ctx, uint32_t id)
{
        return ((const struct tracker_rows *)ctx)->row[id].hash;
}

static uint32_t add_frames(struct tracker_rows *r, const uint64_t *frame, uint32_t n)
{
        uint32_t at = (uint32_t)(r->frames.len / sizeof(*frame));

        if (n)
                buf_add(&r->frames, frame, n * sizeof(*frame));
        return at;
}

static int add_row(struct tracker_rows *r, const struct sample_row *from, uint64_t hash)
{
        if (r->n == r->cap) {
                uint32_t cap = r->cap ? r->cap * 2 : 64;
                struct row *bigger = reallocarray(r->row, cap, sizeof(*bigger));
                if (!bigger)
                        return -ENOMEM;
                r->row = bigger;
                r->cap = cap;
        }
        size_t len = r->frames.len;
        struct row *row = &r->row[r->n];
        *row = (struct row){
                        .key = *from->key,
                        .samples = from->samples,
                        .weight = from->weight,
                        .hash = hash,
                        .kernel = add_frames(r, from->kernel, from->n_kernel),
                        .user = add_frames(r, from->user, from->n_user),
                        .n_kernel = from->n_kernel,
                        .n_user = from->n_user,
                        .window = from->window,
        };
        int e = buf_error(&r->frames);
        if (e == 0)
                e = idtable_add(&r->index, hash, r->n, row_hash, r);
        if (e < 0) {
                r->frames.len = len;
                r->frames.error = 0;
                return e == -E2BIG ? -ENOSPC : e;
        }
        r->n++;
        return 0;
}

int tracker_rows_add(struct tracker_rows *r, const struct sample_row *row)
{
        uint64_t hash = hash_u64(hash_bytes(row->key, sizeof(*row->key)),
                                 hash_bytes(row->user, row->n_user * sizeof(*row->user)));
        uint32_t id = idtable_find(&r->index, hash, row_equal, r, row);

        if (id == IDTABLE_NONE)
                return add_row(r, row, hash);
        r->row[id].samples += row->samples;
        r->row[id].weight += row->weight;
        return 0;
}

int tracker_rows_drain(struct tracker_rows *r, sample_row_fn fn, void *ctx)
{
        int result = 0;

        for (uint32_t i = 0; i < r->n && result >= 0; i++) {
                const struct row *row = &r->row[i];
                struct sample_row out = {
                                .key = &row->key,
                                .samples = row->samples,
                                .weight = row->weight,
                                .kernel = frames_at(r, row->kernel),
                                .n_kernel = row->n_kernel,
                                .user = frames_at(r, row->user),
                                .n_user = row->n_user,
                                .window = row->window,
                };
                result = fn(ctx, &out);
        }
        r->n = 0;
        buf_clear(&r->frames);
        idtable_clear(&r->index);
        return result;
}

uint64_t tracker_rows_memory(const struct tracker_rows *r)
{
        return sizeof(*r) + r->cap * sizeof(*r->row) + r->frames.cap;
}
