#include "daemon/process_record.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/buf.h"
#include "base/cleanup.h"

/* A ring holds at most 512 KiB; more than this in one batch means that nobody read for long. */
#define MAX_BATCH_BYTES (64u << 20)

struct entry {
        uint64_t time;
        uint32_t at, size;
};

struct record_batch {
        struct buf bytes;
        struct entry *entry;
        uint32_t n, cap;
};

/* Bodies as the kernel lays them out after the header; sample_id_all with PERF_SAMPLE_TIME puts eight bytes
 * of time at the end of each record. */
struct mmap2_body {
        uint32_t pid, tid;
        uint64_t addr, len, pgoff;
        uint32_t major, minor;
        uint64_t inode, generation;
        uint32_t prot, flags;
};

struct comm_body {
        uint32_t pid, tid;
};

struct task_body {
        uint32_t pid, ppid, tid, ptid;
        uint64_t time;
};

struct lost_body {
        uint64_t id, lost;
};

#define TRAILER sizeof(uint64_t)

static int parse_mmap2(const struct perf_event_header *h, const uint8_t *body, size_t n,
                       struct process_record *r)
{
        struct mmap2_body m;

        if (n <= sizeof(m))
                return 0;
        memcpy(&m, body, sizeof(m));
        const char *name = (const char *)body + sizeof(m);
        if (!memchr(name, 0, n - sizeof(m)) || m.len == 0 || m.addr + m.len < m.addr)
                return 0;
        if (!(m.prot & PROT_EXEC))
                return 0;
        r->type = RECORD_MMAP;
        r->pid = m.pid;
        r->tid = m.tid;
        r->start = m.addr;
        r->end = m.addr + m.len;
        r->offset = m.pgoff;
        if (!(h->misc & PERF_RECORD_MISC_MMAP_BUILD_ID)) {
                r->device = (uint64_t)m.major << 32 | m.minor;
                r->inode = m.inode;
                r->generation = m.generation;
        }
        r->name = name;
        return 1;
}

static int parse_comm(const struct perf_event_header *h, const uint8_t *body, size_t n,
                      struct process_record *r)
{
        struct comm_body c;

        if (n <= sizeof(c))
                return 0;
        memcpy(&c, body, sizeof(c));
        const char *name = (const char *)body + sizeof(c);
        if (!memchr(name, 0, n - sizeof(c)))
                return 0;
        r->type = h->misc & PERF_RECORD_MISC_COMM_EXEC ? RECORD_EXEC : RECORD_COMM;
        r->pid = c.pid;
        r->tid = c.tid;
        r->name = name;
        return 1;
}

int process_record_parse(const void *record, size_t n, struct process_record *ret)
{
        struct perf_event_header h;
        struct process_record r = {.name = ""};
        const uint8_t *body = (const uint8_t *)record + sizeof(h);

        if (n < sizeof(h) + TRAILER)
                return 0;
        memcpy(&h, record, sizeof(h));
        memcpy(&r.time, (const uint8_t *)record + n - TRAILER, TRAILER);
        n -= sizeof(h) + TRAILER;

        int known = 0;
        switch (h.type) {
        case PERF_RECORD_MMAP2:
                known = parse_mmap2(&h, body, n, &r);
                break;
        case PERF_RECORD_COMM:
                known = parse_comm(&h, body, n, &r);
                break;
        case PERF_RECORD_FORK:
        case PERF_RECORD_EXIT: {
                struct task_body t;
                if (n < sizeof(t))
                        return 0;
                memcpy(&t, body, sizeof(t));
                r.type = h.type == PERF_RECORD_FORK ? RECORD_FORK : RECORD_EXIT;
                r.pid = t.pid;
                r.ppid = t.ppid;
                r.tid = t.tid;
                known = 1;
                break;
        }
        case PERF_RECORD_LOST: {
                struct lost_body l;
                if (n < sizeof(l))
                        return 0;
                memcpy(&l, body, sizeof(l));
                r.type = RECORD_LOST;
                r.lost = l.lost;
                known = 1;
                break;
        }
        }
        if (known)
                *ret = r;
        return known;
}

int record_batch_new(struct record_batch **ret)
{
        struct record_batch *b = calloc(1, sizeof(*b));

        if (!b)
                return -ENOMEM;
        b->bytes.limit = MAX_BATCH_BYTES;
        *ret = b;
        return 0;
}

struct record_batch *record_batch_free(struct record_batch *b)
{
        if (b) {
                buf_free(&b->bytes);
                free(b->entry);
                free(b);
        }
        return NULL;
}

static int add_entry(struct record_batch *b, uint32_t at, uint32_t size)
{
        if (b->n == b->cap) {
                uint32_t cap = b->cap ? b->cap * 2 : 256;
                struct entry *bigger = reallocarray(b->entry, cap, sizeof(*bigger));
                if (!bigger)
                        return -ENOMEM;
                b->entry = bigger;
                b->cap = cap;
        }
        struct entry *e = &b->entry[b->n];
        e->at = at;
        e->size = size;
        memcpy(&e->time, b->bytes.data + at + size - TRAILER, TRAILER);
        b->n++;
        return 0;
}

int record_batch_add(struct record_batch *b, const void *part1, size_t n1, const void *part2, size_t n2)
{
        size_t at = b->bytes.len, n = n1 + n2;

        if (n > MAX_BATCH_BYTES - at)
                return -EMSGSIZE;
        char *to = buf_reserve(&b->bytes, n);
        if (!to) {
                b->bytes.error = 0;
                return -ENOMEM;
        }
        memcpy(to, part1, n1);
        if (n2)
                memcpy(to + n1, part2, n2);
        buf_commit(&b->bytes, n);

        for (size_t end = at + n; end - at >= sizeof(struct perf_event_header) + TRAILER;) {
                struct perf_event_header h;
                memcpy(&h, b->bytes.data + at, sizeof(h));
                if (h.size < sizeof(h) + TRAILER || h.size > end - at)
                        break;
                int r = add_entry(b, (uint32_t)at, h.size);
                if (r < 0)
                        return r;
                at += h.size;
        }
        return 0;
}

/* By time, then by place: what one ring holds in order stays in order. */
static int compare(const void *a, const void *b)
{
        const struct entry *x = a, *y = b;

        if (x->time != y->time)
                return x->time < y->time ? -1 : 1;
        return x->at < y->at ? -1 : x->at > y->at;
}

/* Moves what was not handed over to the front. */
static void keep_rest(struct record_batch *b, uint32_t done)
{
        _cleanup_buf_ struct buf rest = {.limit = MAX_BATCH_BYTES};
        uint32_t n = 0;

        for (uint32_t i = done; i < b->n; i++) {
                struct entry e = b->entry[i];
                size_t at = rest.len;
                buf_add(&rest, b->bytes.data + e.at, e.size);
                if (buf_error(&rest) < 0)
                        break; /* out of memory: the caller's next rescan repairs it */
                e.at = (uint32_t)at;
                b->entry[n++] = e;
        }
        b->n = n;
        struct buf old = b->bytes;
        b->bytes = rest;
        b->bytes.error = 0;
        rest = old;
}

uint32_t record_batch_run(struct record_batch *b, uint64_t until, process_record_fn fn, void *ctx)
{
        uint32_t i = 0;

        if (b->n > 1)
                qsort(b->entry, b->n, sizeof(*b->entry), compare);
        for (; i < b->n && b->entry[i].time <= until; i++) {
                struct process_record r;
                if (process_record_parse(b->bytes.data + b->entry[i].at, b->entry[i].size, &r))
                        fn(ctx, &r);
        }
        if (i == b->n) {
                b->n = 0;
                buf_clear(&b->bytes);
        } else if (i) {
                keep_rest(b, i);
        }
        return i;
}
