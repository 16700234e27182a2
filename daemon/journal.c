#include "daemon/journal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "base/idtable.h"

#define JOURNAL_MAGIC 0x314c4e4a66727063ull

enum record_type { RECORD_STACK = 1, RECORD_ROW = 2 };

struct record {
        uint32_t type, n; /* n: frames of a stack */
};
struct stack_record {
        struct record head;
        uint64_t hash;
        uint64_t frame[];
};
struct row_record {
        struct record head;
        struct abi_key key;
        struct abi_count count;
};

struct journal {
        struct keep *keep;
        char what[32];
        char *memory;
        size_t size;
        struct idtable stacks, rows; /* ids are offsets of records, in words */
};

struct journal_head *journal_head(struct journal *j)
{
        return (struct journal_head *)j->memory;
}

int journal_new(struct journal **ret, struct keep *keep, uint32_t number, size_t bytes)
{
        struct journal *j = calloc(1, sizeof(*j));
        void *memory;

        if (!j)
                return -ENOMEM;
        j->keep = keep;
        j->size = bytes;
        snprintf(j->what, sizeof(j->what), "window-%u", number);
        int r = keep_memory(keep, j->what, bytes, &memory);
        if (r < 0) {
                free(j);
                return r;
        }
        j->memory = memory;
        journal_head(j)->magic = JOURNAL_MAGIC;
        *ret = j;
        return 0;
}

struct journal *journal_leave(struct journal *j)
{
        if (!j)
                return NULL;
        munmap(j->memory, j->size);
        idtable_free(&j->stacks);
        idtable_free(&j->rows);
        free(j);
        return NULL;
}

struct journal *journal_free(struct journal *j)
{
        if (j)
                keep_drop(j->keep, j->what);
        return journal_leave(j);
}

/* -- writing -- */

static char *record_at(const struct journal *j, uint32_t id)
{
        return j->memory + sizeof(struct journal_head) + (size_t)id * 8;
}

static bool stack_equal(const void *ctx, uint32_t id, const void *key)
{
        return ((struct stack_record *)record_at(ctx, id))->hash == *(const uint64_t *)key;
}

static uint64_t stack_hash(const void *ctx, uint32_t id)
{
        return hash_u64(((struct stack_record *)record_at(ctx, id))->hash, 0);
}

static bool row_equal(const void *ctx, uint32_t id, const void *key)
{
        return !memcmp(&((struct row_record *)record_at(ctx, id))->key, key, sizeof(struct abi_key));
}

static uint64_t row_hash(const void *ctx, uint32_t id)
{
        return hash_bytes(&((struct row_record *)record_at(ctx, id))->key, sizeof(struct abi_key));
}

/* Room behind the last record; NULL: there is none. */
static void *room(struct journal *j, size_t bytes)
{
        struct journal_head *h = journal_head(j);

        return sizeof(*h) + h->used + bytes <= j->size ? record_at(j, (uint32_t)(h->used / 8)) : NULL;
}

/* From here on it counts, also when we are killed. */
static void commit(struct journal *j, size_t bytes)
{
        __atomic_fetch_add(&journal_head(j)->used, bytes, __ATOMIC_RELEASE);
}

static bool put_stack(struct journal *j, uint64_t hash, const uint64_t *frame, uint32_t n)
{
        size_t bytes = sizeof(struct stack_record) + n * sizeof(*frame);

        if (!hash || idtable_find(&j->stacks, hash_u64(hash, 0), stack_equal, j, &hash) != IDTABLE_NONE)
                return true;
        struct stack_record *s = room(j, bytes);
        if (!s)
                return false;
        *s = (struct stack_record){.head = {RECORD_STACK, n}, .hash = hash};
        memcpy(s->frame, frame, n * sizeof(*frame));
        uint32_t id = (uint32_t)(journal_head(j)->used / 8);
        commit(j, bytes);
        return idtable_add(&j->stacks, hash_u64(hash, 0), id, stack_hash, j) == 0;
}

static bool put_row(struct journal *j, const struct sample_row *row)
{
        uint64_t hash = hash_bytes(row->key, sizeof(*row->key));
        uint32_t id = idtable_find(&j->rows, hash, row_equal, j, row->key);

        if (id != IDTABLE_NONE) {
                struct row_record *r = (struct row_record *)record_at(j, id);
                r->count.weight += row->weight;
                r->count.samples += row->samples;
                return true;
        }
        struct row_record *r = room(j, sizeof(*r));
        if (!r)
                return false;
        id = (uint32_t)(journal_head(j)->used / 8);
        if (idtable_add(&j->rows, hash, id, row_hash, j) < 0)
                return false;
        *r = (struct row_record){.head = {RECORD_ROW, 0},
                                 .key = *row->key,
                                 .count = {.samples = row->samples, .weight = row->weight}};
        commit(j, sizeof(*r));
        return true;
}

void journal_stack(struct journal *j, uint64_t hash, const uint64_t *frame, uint32_t n)
{
        (void)put_stack(j, hash, frame, n); /* without it its rows find no room either, or have no frames */
}

void journal_add(struct journal *j, const struct sample_row *row)
{
        if (!put_stack(j, row->key->kernel_stack, row->kernel, row->n_kernel) ||
            !put_stack(j, row->key->user_stack, row->user, row->n_user) || !put_row(j, row))
                journal_head(j)->skipped += row->samples;
}

/* -- reading -- */

bool journal_is_one(const void *memory, size_t size)
{
        const struct journal_head *h = memory;

        return size >= sizeof(*h) && h->magic == JOURNAL_MAGIC && h->used <= size - sizeof(*h);
}

void journal_read(const void *memory, size_t size, const struct journal_reader *reader)
{
        const char *at = (const char *)memory + sizeof(struct journal_head);
        uint64_t left;

        if (!journal_is_one(memory, size))
                return;
        left = __atomic_load_n(&((const struct journal_head *)memory)->used, __ATOMIC_ACQUIRE);
        while (left >= sizeof(struct record)) {
                const struct record *r = (const void *)at;
                uint64_t bytes;

                if (r->type == RECORD_STACK) {
                        bytes = sizeof(struct stack_record) + (uint64_t)r->n * 8;
                        if (bytes > left || r->n > ABI_MAX_FRAMES + 1)
                                return;
                        const struct stack_record *s = (const void *)at;
                        if (reader->stack)
                                reader->stack(reader->ctx, s->hash, s->frame, r->n);
                } else if (r->type == RECORD_ROW) {
                        bytes = sizeof(struct row_record);
                        if (bytes > left)
                                return;
                        const struct row_record *row = (const void *)at;
                        if (reader->row)
                                reader->row(reader->ctx, &row->key, &row->count);
                } else
                        return;
                at += bytes;
                left -= bytes;
        }
}
