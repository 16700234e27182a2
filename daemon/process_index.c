#include "daemon/process_index.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/hash.h"
#include "daemon/process_table.h"

#define FIRST_BUCKETS 1024u

static void ring_remove(struct process_ring *r)
{
        r->prev->next = r->next;
        r->next->prev = r->prev;
}

static void ring_append(struct process_ring *ring, struct process_ring *r)
{
        r->next = ring;
        r->prev = ring->prev;
        r->prev->next = r;
        ring->prev = r;
}

static struct process_entry **bucket_of(const struct process_index *x, uint32_t pid)
{
        return &x->bucket[hash_u64(pid, 0) & (x->n_buckets - 1)];
}

int process_index_init(struct process_index *x)
{
        *x = (struct process_index){.n_buckets = FIRST_BUCKETS};
        x->live.next = x->live.prev = &x->live;
        x->exited.next = x->exited.prev = &x->exited;
        x->bucket = calloc(x->n_buckets, sizeof(struct process_entry *));
        return x->bucket ? 0 : -ENOMEM;
}

void process_index_done(struct process_index *x)
{
        free(x->bucket);
        x->bucket = NULL;
}

/* Chains grow long where there is no memory for more buckets. */
static void grow(struct process_index *x)
{
        struct process_entry **old = x->bucket;
        uint32_t n = x->n_buckets;
        struct process_entry **bigger = calloc(n * 2, sizeof(struct process_entry *));

        if (!bigger)
                return;
        x->bucket = bigger;
        x->n_buckets = n * 2;
        for (uint32_t i = 0; i < n; i++)
                for (struct process_entry *p = old[i], *next; p; p = next) {
                        struct process_entry **at = bucket_of(x, p->process.pid);
                        next = p->next_in_bucket;
                        p->next_in_bucket = *at;
                        *at = p;
                }
        free(old);
}

void process_index_add(struct process_index *x, struct process_entry *p)
{
        struct process_entry **at = bucket_of(x, p->process.pid), *old;

        while ((old = *at) && old->process.pid != p->process.pid)
                at = &old->next_in_bucket;
        if (old) {
                p->next_in_bucket = old->next_in_bucket;
                old->next_in_bucket = NULL;
                p->older = old;
        }
        *at = p;
        ring_append(&x->live, &p->ring);
        if (++x->n > x->n_buckets)
                grow(x);
}

void process_index_exited(struct process_index *x, struct process_entry *p)
{
        ring_remove(&p->ring);
        ring_append(&x->exited, &p->ring);
}

void process_index_remove(struct process_index *x, struct process_entry *p)
{
        struct process_entry **at = bucket_of(x, p->process.pid), *newest;

        while ((newest = *at)->process.pid != p->process.pid)
                at = &newest->next_in_bucket;
        if (newest == p) {
                *at = p->older ? p->older : p->next_in_bucket;
                if (p->older)
                        p->older->next_in_bucket = p->next_in_bucket;
        } else {
                while (newest->older != p)
                        newest = newest->older;
                newest->older = p->older;
        }
        ring_remove(&p->ring);
        x->n--;
}

struct process_entry *process_index_find(const struct process_index *x, uint32_t pid)
{
        struct process_entry *p = *bucket_of(x, pid);

        while (p && p->process.pid != pid)
                p = p->next_in_bucket;
        return p;
}

struct process_entry *process_index_next(const struct process_ring *ring, const struct process_entry *p)
{
        struct process_ring *next = p ? p->ring.next : ring->next;

        if (next == ring)
                return NULL;
        return (struct process_entry *)((char *)next - offsetof(struct process_entry, ring));
}

uint64_t process_index_memory(const struct process_index *x)
{
        return x->n_buckets * sizeof(struct process_entry *);
}
