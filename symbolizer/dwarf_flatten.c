/* Intervals that nest and overlap, as functions and what is inlined into them, made disjoint: sorted by
 * where they begin, then swept over with a stack of those that are open. */
#include "base/cleanup.h"
#include "symbolizer/dwarf_code.h"

int dwarf_add_interval(struct dwarf_walker *w, struct dwarf_budget *budget, const struct dwarf_text *text,
                       struct dwarf_interval i)
{
        int64_t range = dwarf_text_find(text, i.lo);
        int r;

        if (range < 0)
                return 0;
        if (i.hi > text->range[range].hi)
                i.hi = text->range[range].hi;
        r = DWARF_GROW(budget, w->interval, w->cap_intervals, w->n_intervals);
        if (r < 0)
                return r;
        w->interval[w->n_intervals++] = i;
        return 0;
}

static inline bool is_before(const struct dwarf_interval *x, const struct dwarf_interval *y)
{
        if (x->lo != y->lo)
                return x->lo < y->lo;
        if (x->depth != y->depth)
                return x->depth < y->depth;
        if (x->hi != y->hi)
                return x->hi > y->hi;
        return x->id < y->id;
}

static uint64_t run_end(const struct dwarf_interval *v, uint64_t n, uint64_t from)
{
        while (++from < n && !is_before(&v[from], &v[from - 1]))
                ;
        return MIN_OF(from, n);
}

/* Merges the runs [a, b) and [b, end) of `from` into the same place of `to`. */
static void merge_runs(const struct dwarf_interval *from, struct dwarf_interval *to, uint64_t a, uint64_t b,
                       uint64_t end)
{
        uint64_t i = a, j = b;

        for (uint64_t k = a; k < end; k++)
                to[k] = j == end || (i < b && !is_before(&from[j], &from[i])) ? from[i++] : from[j++];
}

/* A merge sort that begins from the runs there are: DIEs stand nearly in the order of their code. */
static int sort_intervals(struct dwarf_walker *w, struct dwarf_budget *budget)
{
        uint64_t n = w->n_intervals;

        while (run_end(w->interval, n, 0) < n) {
                struct dwarf_interval *sorted;

                while (w->cap_merged < n) {
                        int r = dwarf_grow(budget, (void **)&w->merged, &w->cap_merged,
                                           MAX_OF(w->cap_merged, n - 1), sizeof(*w->merged));
                        if (r < 0)
                                return r;
                }
                for (uint64_t a = 0, b, end; a < n; a = end) {
                        b = run_end(w->interval, n, a);
                        end = b < n ? run_end(w->interval, n, b) : n;
                        merge_runs(w->interval, w->merged, a, b, end);
                }
                sorted = w->merged;
                w->merged = w->interval;
                w->interval = sorted;

                uint64_t cap = w->cap_merged;

                w->cap_merged = w->cap_intervals;
                w->cap_intervals = cap;
        }
        return 0;
}

static int add_edge(struct dwarf_walker *w, struct dwarf_budget *budget, uint64_t start, uint32_t id)
{
        int r;

        if (w->n_edges && w->edge[w->n_edges - 1].start == start) {
                w->edge[w->n_edges - 1].id = id;
                return 0;
        }
        if (w->n_edges && w->edge[w->n_edges - 1].id == id)
                return 0;
        r = DWARF_GROW(budget, w->edge, w->cap_edges, w->n_edges);
        if (r < 0)
                return r;
        w->edge[w->n_edges++] = (struct dwarf_edge){start, id};
        return 0;
}

/* Leaves the intervals that end at or before `end`. */
static int close_until(struct dwarf_walker *w, struct dwarf_budget *budget, uint64_t *n_open, uint64_t end)
{
        while (*n_open && w->open[*n_open - 1].hi <= end) {
                uint64_t at = w->open[*n_open - 1].hi;
                int r;

                while (*n_open && w->open[*n_open - 1].hi <= at)
                        --*n_open;
                r = add_edge(w, budget, at, *n_open ? w->open[*n_open - 1].id : 0);
                if (r < 0)
                        return r;
        }
        return 0;
}

int dwarf_flatten(struct dwarf_walker *w, struct dwarf_budget *budget)
{
        uint64_t n_open = 0;
        int r;

        w->n_edges = 0;
        r = sort_intervals(w, budget);
        if (r < 0)
                return r;
        for (uint64_t i = 0; i < w->n_intervals; i++) {
                struct dwarf_interval v = w->interval[i];

                r = close_until(w, budget, &n_open, v.lo);
                if (r < 0)
                        return r;
                /* What is inlined cannot reach beyond what it is inlined into. */
                if (n_open && v.hi > w->open[n_open - 1].hi && v.depth > w->open[n_open - 1].depth)
                        v.hi = w->open[n_open - 1].hi;
                r = DWARF_GROW(budget, w->open, w->cap_open, n_open);
                if (r < 0)
                        return r;
                w->open[n_open++] = (struct dwarf_open){v.hi, v.id, v.depth};
                r = add_edge(w, budget, v.lo, v.id);
                if (r < 0)
                        return r;
        }
        return close_until(w, budget, &n_open, UINT64_MAX);
}
