#include "daemon/process_map.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "daemon/object_entry.h"

int process_maps_new(struct process_maps **ret, const struct process_map_ops *ops)
{
        struct process_maps *m = calloc(1, sizeof(*m));

        if (!m)
                return -ENOMEM;
        m->refs = 1;
        *ops->bytes += sizeof(*m);
        *ret = m;
        return 0;
}

struct process_maps *process_maps_ref(struct process_maps *m)
{
        if (m)
                m->refs++;
        return m;
}

static void withdraw(struct process_maps *m, const struct process_map_ops *ops)
{
        if (m->published_n)
                ops->withdrawn(ops->ctx, m->published_first, m->published_n);
        m->published_n = 0;
}

struct process_maps *process_maps_unref(struct process_maps *m, const struct process_map_ops *ops)
{
        if (!m || --m->refs > 0)
                return NULL;
        withdraw(m, ops);
        for (uint32_t i = 0; i < m->n; i++)
                ops->unmapped(m->mapping[i].object);
        *ops->bytes -= sizeof(*m) + m->cap * sizeof(*m->mapping);
        free(m->mapping);
        free(m);
        return NULL;
}

/* Index of the first mapping that ends above an address. */
static uint32_t first_above(const struct process_maps *m, uint64_t address)
{
        uint32_t low = 0, high = m->n;

        while (low < high) {
                uint32_t middle = low + (high - low) / 2;
                if (m->mapping[middle].end > address)
                        high = middle;
                else
                        low = middle + 1;
        }
        return low;
}

const struct process_mapping *process_maps_find(const struct process_maps *m, uint64_t address)
{
        uint32_t i = first_above(m, address);

        return i < m->n && m->mapping[i].start <= address ? &m->mapping[i] : NULL;
}

static int reserve(struct process_maps *m, uint32_t n, const struct process_map_ops *ops)
{
        if (n <= m->cap)
                return 0;
        uint32_t cap = MAX_OF(MAX_OF(m->cap * 2, 4), n);
        struct process_mapping *bigger = reallocarray(m->mapping, cap, sizeof(*bigger));
        if (!bigger)
                return -ENOMEM;
        *ops->bytes += (cap - m->cap) * sizeof(*bigger);
        m->mapping = bigger;
        m->cap = cap;
        return 0;
}

/* A list of our own, equal to the shared one. */
static int unshare(struct process_maps **maps, const struct process_map_ops *ops)
{
        struct process_maps *from = *maps, *m;

        if (from->refs == 1)
                return 0;
        int r = process_maps_new(&m, ops);
        if (r < 0)
                return r;
        r = reserve(m, from->n + 2, ops);
        if (r < 0) {
                process_maps_unref(m, ops);
                return r;
        }
        memcpy(m->mapping, from->mapping, from->n * sizeof(*m->mapping));
        m->n = from->n;
        for (uint32_t i = 0; i < m->n; i++)
                ops->mapped(m->mapping[i].object);
        process_maps_unref(from, ops);
        *maps = m;
        return 0;
}

static uint64_t offset_at(const struct process_mapping *m, uint64_t address)
{
        return object_entry_is_file(m->object) ? m->offset + (address - m->start) : 0;
}

/* The piece of `m` within [start, end). */
static struct process_mapping piece(const struct process_mapping *m, uint64_t start, uint64_t end)
{
        return (struct process_mapping){
                        .start = start, .end = end, .offset = offset_at(m, start), .object = m->object};
}

/* True when `old` holds all of `m`, with the same bytes at the same places. */
static bool says_so_already(const struct process_mapping *old, const struct process_mapping *m)
{
        return old->start <= m->start && old->end >= m->end && old->object == m->object &&
               offset_at(old, m->start) == offset_at(m, m->start);
}

/* JITs map region beside region: one mapping of anonymous memory is as good as many. */
static bool joins(const struct process_mapping *a, const struct process_mapping *b)
{
        return a->end == b->start && a->object == b->object && !object_entry_is_file(a->object);
}

static void replace(struct process_maps *m, uint32_t from, uint32_t to, const struct process_mapping *with,
                    uint32_t n, const struct process_map_ops *ops)
{
        for (uint32_t i = 0; i < n; i++)
                ops->mapped(with[i].object);
        for (uint32_t i = from; i < to; i++)
                ops->unmapped(m->mapping[i].object);
        memmove(m->mapping + from + n, m->mapping + to, (m->n - to) * sizeof(*m->mapping));
        memcpy(m->mapping + from, with, n * sizeof(*with));
        m->n = m->n - (to - from) + n;
}

int process_maps_add(struct process_maps **maps, const struct process_mapping *new,
                     const struct process_map_ops *ops)
{
        struct process_mapping with[3], middle = *new;
        struct process_maps *m = *maps;
        uint32_t n = 0, from = first_above(m, new->start), to = from;

        if (from < m->n && says_so_already(&m->mapping[from], new))
                return 0;
        if (from > 0 && joins(&m->mapping[from - 1], &middle))
                middle.start = m->mapping[--from].start;
        while (to < m->n && m->mapping[to].start < middle.end)
                to++;
        if (to < m->n && joins(&middle, &m->mapping[to]))
                middle.end = m->mapping[to++].end;
        if (m->n - (to - from) + 3 > PROCESS_MAX_MAPPINGS)
                return -ENOSPC;

        if (from < to && m->mapping[from].start < middle.start)
                with[n++] = piece(&m->mapping[from], m->mapping[from].start, middle.start);
        with[n++] = middle;
        if (from < to && m->mapping[to - 1].end > middle.end)
                with[n++] = piece(&m->mapping[to - 1], middle.end, m->mapping[to - 1].end);

        int r = unshare(maps, ops);
        if (r < 0)
                return r;
        m = *maps;
        r = reserve(m, m->n + 2, ops);
        if (r < 0)
                return r;
        withdraw(m, ops);
        replace(m, from, to, with, n, ops);
        return 1;
}
