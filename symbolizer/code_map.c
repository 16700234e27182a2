/* The entries are flattened into disjoint segments by a sweep over their ends, with a heap of those that are
 * open, the newest on top. As a runtime appends a few at a time, the newest are looked through one by one
 * and only many of them are worth a sweep. */
#include "symbolizer/code_map.h"

#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"

#define MAX_UNSORTED 512

void code_map_free(struct code_map *m)
{
        free(m->entry);
        free(m->segment);
        *m = (struct code_map){};
}

int code_map_add(struct code_map *m, const struct code_entry *e)
{
        if (m->n == CODE_MAP_MAX)
                return -E2BIG;
        if (m->n == m->cap) {
                uint32_t cap = m->cap ? 2 * m->cap : 1024;
                struct code_entry *p = reallocarray(m->entry, cap, sizeof(*p));

                if (!p)
                        return -ENOMEM;
                m->entry = p;
                m->cap = cap;
        }
        m->entry[m->n++] = *e;
        return 0;
}

struct heap {
        uint32_t *item, n;
};

static void heap_push(struct heap *h, uint32_t v)
{
        uint32_t i = h->n++;

        for (; i > 0 && h->item[(i - 1) / 2] < v; i = (i - 1) / 2)
                h->item[i] = h->item[(i - 1) / 2];
        h->item[i] = v;
}

static void heap_pop(struct heap *h)
{
        uint32_t v = h->item[--h->n], i = 0, child;

        for (; (child = 2 * i + 1) < h->n; i = child) {
                if (child + 1 < h->n && h->item[child + 1] > h->item[child])
                        child++;
                if (h->item[child] <= v)
                        break;
                h->item[i] = h->item[child];
        }
        h->item[i] = v;
}

struct start {
        uint64_t at;
        uint32_t entry;
};

static int compare_starts(const void *a, const void *b)
{
        const struct start *x = a, *y = b;

        return x->at != y->at ? (x->at < y->at ? -1 : 1) : (x->entry > y->entry) - (x->entry < y->entry);
}

static void emit(struct code_map *m, uint64_t start, uint64_t end, uint32_t entry)
{
        struct code_segment *last = m->n_segments > 0 ? &m->segment[m->n_segments - 1] : NULL;

        if (last && last->entry == entry && last->end == start)
                last->end = end;
        else if (start < end)
                m->segment[m->n_segments++] = (struct code_segment){start, end, entry};
}

/* From `at` on the newest open entry holds, until it ends or the next one starts. */
static void sweep_to(struct code_map *m, struct heap *h, uint64_t at, uint64_t limit)
{
        while (h->n > 0 && at < limit) {
                uint32_t top = h->item[0];
                uint64_t end = MIN_OF(m->entry[top].end, limit);

                if (m->entry[top].end <= at) {
                        heap_pop(h);
                        continue;
                }
                emit(m, at, end, top);
                at = end;
        }
}

int code_map_settle(struct code_map *m)
{
        _cleanup_free_ struct start *start = NULL;
        _cleanup_free_ uint32_t *items = NULL;
        struct code_segment *segments;
        struct heap h;

        if (m->n - m->n_sorted <= MAX_UNSORTED)
                return 0;
        start = malloc(m->n * sizeof(*start));
        items = malloc(m->n * sizeof(*items));
        segments = malloc((2 * (size_t)m->n + 1) * sizeof(*segments)); /* one more per start and per end */
        if (!start || !items || !segments) {
                free(segments);
                return -ENOMEM;
        }
        for (uint32_t i = 0; i < m->n; i++)
                start[i] = (struct start){m->entry[i].start, i};
        qsort(start, m->n, sizeof(*start), compare_starts);
        free(m->segment);
        m->segment = segments;
        m->n_segments = 0;
        h = (struct heap){.item = items};
        for (uint32_t i = 0; i < m->n; i++) {
                heap_push(&h, start[i].entry);
                sweep_to(m, &h, start[i].at, i + 1 < m->n ? start[i + 1].at : UINT64_MAX);
        }
        m->n_sorted = m->n;
        segments = realloc(m->segment, ((size_t)m->n_segments + 1) * sizeof(*segments));
        if (segments)
                m->segment = segments;
        return 0;
}

const struct code_entry *code_map_find(const struct code_map *m, uint64_t address)
{
        uint32_t low = 0, high = m->n_segments;

        for (uint32_t i = m->n; i-- > m->n_sorted;)
                if (address >= m->entry[i].start && address < m->entry[i].end)
                        return &m->entry[i];
        while (low < high) {
                uint32_t middle = low + (high - low) / 2;

                if (m->segment[middle].start <= address)
                        low = middle + 1;
                else
                        high = middle;
        }
        if (low == 0 || address >= m->segment[low - 1].end)
                return NULL;
        return &m->entry[m->segment[low - 1].entry];
}
