#include "symbolizer/dwarf_code.h"
#include "symbolizer/dwarf_form.h"

/* Deeper DIEs are passed over without being looked at; compilers stay below 100. */
#define MAX_DIE_DEPTH 2048

#define ROW_NO_FILE UINT16_MAX

struct dwarf_level { /* what the children of a DIE are in */
        uint32_t node;
        uint32_t depth; /* of functions and inlined calls */
        bool in_function;
};

/* -- the walk -- */

struct code_die {
        struct dwarf_extent extent;
        uint64_t call_file, call_line, sibling;
        bool is_declaration;
};

struct walk {
        struct dwarf_walker *w;
        struct dwarf_unit *u;
        const struct dwarf_text *text;
        struct dwarf_budget *budget;
        struct dwarf_cursor c;
        uint64_t max_intervals;
        uint32_t node, depth; /* of the intervals being added */
        bool in_full;
        bool has_skipped;
};

static void read_code_die(struct walk *k, const struct dwarf_abbrev *a, struct code_die *ret)
{
        *ret = (struct code_die){0};
        for (uint32_t i = 0; i < a->n; i++) {
                const struct dwarf_abbrev_attr *s = &k->w->abbrevs.attr[a->first + i];
                struct dwarf_value v = dwarf_read_form(&k->c, k->u, s->form, s->implicit);

                switch (s->attr) {
                case DW_AT_low_pc:
                        ret->extent.low = v;
                        break;
                case DW_AT_high_pc:
                        ret->extent.high = v;
                        break;
                case DW_AT_ranges:
                        ret->extent.ranges = v;
                        break;
                case DW_AT_call_file:
                        ret->call_file = v.u;
                        break;
                case DW_AT_call_line:
                        ret->call_line = v.u;
                        break;
                case DW_AT_sibling:
                        ret->sibling = v.form == DW_FORM_ref_addr ? v.u - k->u->offset : v.u;
                        break;
                case DW_AT_declaration:
                        ret->is_declaration = v.u != 0;
                        break;
                }
        }
}

/* Jumps to a DIE's sibling; false when the attribute does not point forward within the unit. */
static bool skip_to(struct walk *k, uint64_t sibling)
{
        const uint8_t *unit = k->u->file->info.data + k->u->offset;

        if (sibling >= k->u->end - k->u->offset || unit + sibling <= k->c.p)
                return false;
        k->c.p = unit + sibling;
        return true;
}

static int on_range(void *ctx, uint64_t lo, uint64_t hi)
{
        struct walk *k = ctx;

        if (k->w->n_intervals >= k->max_intervals)
                return -EBADMSG;
        return dwarf_add_interval(k->w, k->budget, k->text,
                                  (struct dwarf_interval){lo, hi, k->node, k->depth});
}

static int push_node(struct walk *k, uint64_t die, uint16_t tag, const struct code_die *d,
                     const struct dwarf_level *l)
{
        struct dwarf_walker *w = k->w;
        int r = DWARF_GROW(k->budget, w->node, w->cap_nodes, w->n_nodes);

        if (r < 0)
                return r;
        k->node = (uint32_t)w->n_nodes;
        k->depth = l->depth + 1;
        w->node[w->n_nodes++] = (struct dwarf_node){
                        .die = (uint32_t)die,
                        .parent = tag == DW_TAG_inlined_subroutine ? l->node : 0,
                        .call_line = d->call_line > UINT32_MAX ? 0 : (uint32_t)d->call_line,
                        .call_file = d->call_file >= ROW_NO_FILE ? ROW_NO_FILE : (uint16_t)d->call_file,
        };
        return 0;
}

/* Makes a node of a function or inlined call, k->node and k->depth its own. One without code is left out,
 * but for inlined calls with children: GCC gives some no range, or (DWARF 2, which has no range lists) an
 * empty one, while there is code of what is inlined into them. */
static int add_node(struct walk *k, uint64_t die, const struct dwarf_abbrev *a, const struct code_die *d,
                    const struct dwarf_level *l)
{
        struct dwarf_walker *w = k->w;
        uint64_t before = w->n_intervals;
        int r = push_node(k, die, a->tag, d, l);

        if (r < 0)
                return r;
        r = dwarf_extent_ranges(k->u, &d->extent, on_range, k);
        if (r < 0)
                return r;
        if (w->n_intervals == before &&
            !(a->tag == DW_TAG_inlined_subroutine && a->has_children && l->node)) {
                w->n_nodes--;
                k->node = l->node;
                k->depth = l->depth;
        }
        return 0;
}

/* Passes over a DIE that is no function. True: its children come next. Types are jumped over where the DIE
 * says where it ends, but not within functions: GCC puts the bodies of lambdas there. */
static bool pass_over(struct walk *k, const struct dwarf_abbrev *a, bool in_function)
{
        bool jump = a->has_children && a->has_sibling && !in_function && a->tag != DW_TAG_namespace &&
                    a->tag != DW_TAG_module && a->tag != DW_TAG_lexical_block;

        if (!jump && a->size >= 0) {
                cursor_skip(&k->c, (uint64_t)a->size);
                return a->has_children;
        }
        for (uint32_t i = 0; i < a->n; i++) {
                const struct dwarf_abbrev_attr *s = &k->w->abbrevs.attr[a->first + i];
                struct dwarf_value v = dwarf_read_form(&k->c, k->u, s->form, s->implicit);

                if (jump && s->attr == DW_AT_sibling && v.form != DW_FORM_ref_addr && skip_to(k, v.u))
                        return false;
        }
        return a->has_children;
}

/* Passes over the body of a function that was read, where that is wanted and its end is known. */
static bool pass_over_body(struct walk *k, const struct code_die *d)
{
        if (k->in_full || !d->sibling || !skip_to(k, d->sibling))
                return false;
        if (k->node)
                k->w->node[k->node].body_end = (uint32_t)d->sibling;
        k->has_skipped = true;
        return true;
}

/* From the cursor to its end, the first DIE at this level: 0 for a unit's own. */
static int walk_dies(struct walk *k, uint32_t level)
{
        struct dwarf_walker *w = k->w;
        const uint8_t *unit = k->u->file->info.data + k->u->offset;
        uint64_t n_dies = 0;
        int r;

        w->level[level] = (struct dwarf_level){0};
        while (k->c.p < k->c.end) {
                const uint8_t *die = k->c.p;
                uint64_t code = cursor_uleb(&k->c);
                const struct dwarf_abbrev *a;
                struct dwarf_level *l;
                struct code_die d;
                bool descend;

                if (code == 0) {
                        if (level <= 1)
                                break;
                        level--;
                        continue;
                }
                if (k->c.bad)
                        break;
                r = dwarf_abbrev_get(&w->abbrevs, code, &a);
                if (r < 0)
                        return r;
                if ((++n_dies & 63) == 0 && !dwarf_work(k->budget, 64))
                        return -E2BIG;

                l = level < MAX_DIE_DEPTH ? &w->level[level] : NULL;
                k->node = l ? l->node : 0;
                k->depth = l ? l->depth : 0;
                if (!l || level == 0 ||
                    (a->tag != DW_TAG_subprogram && a->tag != DW_TAG_inlined_subroutine)) {
                        descend = pass_over(k, a, level == 0 || !l || l->in_function);
                        if (l && descend && level + 1 < MAX_DIE_DEPTH)
                                w->level[level + 1] = *l;
                } else {
                        read_code_die(k, a, &d);
                        if (k->c.bad)
                                break;
                        descend = a->has_children;
                        if (a->tag == DW_TAG_inlined_subroutine || !dwarf_extent_is_empty(&d.extent)) {
                                r = add_node(k, (uint64_t)(die - unit), a, &d, l);
                                if (r < 0)
                                        return r;
                                if (descend && !l->in_function && pass_over_body(k, &d))
                                        descend = false;
                        } else if (d.is_declaration && descend && d.sibling && skip_to(k, d.sibling)) {
                                descend = false;
                        }
                        if (descend && level + 1 < MAX_DIE_DEPTH)
                                w->level[level + 1] = (struct dwarf_level){k->node, k->depth, true};
                }
                if (k->c.bad)
                        break;
                if (descend)
                        level++;
                else if (level == 0)
                        break;
        }
        return 0;
}

/* -- the result -- */

static int copy_segments(struct dwarf_walker *w, struct dwarf_budget *budget, uint64_t base,
                         struct dwarf_part *p)
{
        uint64_t first = 0;
        uint32_t n = 0;

        while (first < w->n_edges && w->edge[first].start < base)
                first++;
        while (n < w->n_edges - first && n < UINT32_MAX && w->edge[first + n].start - base <= UINT32_MAX)
                n++;
        p->segment = dwarf_alloc(budget, n, sizeof(*p->segment));
        if (!p->segment)
                return -errno;
        p->n_segments = n;
        for (uint32_t i = 0; i < n; i++)
                p->segment[i] = (struct dwarf_segment){(uint32_t)(w->edge[first + i].start - base),
                                                       w->edge[first + i].id};
        return 0;
}

#define ROW_BYTES (sizeof(uint32_t) + sizeof(uint32_t) + sizeof(uint16_t))

static int copy_rows(struct dwarf_line_scratch *s, struct dwarf_budget *budget, struct dwarf_code *c)
{
        uint32_t n = 0;

        while (n < s->n_out && n < UINT32_MAX && s->out[n].address - c->base <= UINT32_MAX)
                n++;
        c->row_start = dwarf_alloc(budget, n, ROW_BYTES);
        if (!c->row_start)
                return -errno;
        c->n_rows = n;
        c->row_line = c->row_start + n;
        c->row_file = (uint16_t *)(c->row_line + n);
        for (uint32_t i = 0; i < n; i++) {
                c->row_start[i] = (uint32_t)(s->out[i].address - c->base);
                c->row_line[i] = s->out[i].line;
                c->row_file[i] = s->out[i].file < ROW_NO_FILE ? (uint16_t)s->out[i].file : ROW_NO_FILE;
        }
        return 0;
}

static int copy_nodes(struct dwarf_walker *w, struct dwarf_budget *budget, struct dwarf_part *p)
{
        p->node = dwarf_alloc(budget, w->n_nodes, sizeof(*p->node));
        if (!p->node)
                return -errno;
        memcpy(p->node, w->node, w->n_nodes * sizeof(*p->node));
        p->n_nodes = (uint32_t)w->n_nodes;
        return 0;
}

static void clear_part(struct dwarf_part *p, struct dwarf_budget *budget)
{
        dwarf_release(budget, p->node, p->n_nodes, sizeof(*p->node));
        dwarf_release(budget, p->segment, p->n_segments, sizeof(*p->segment));
}

/* Real range lists stand once in the file, and a DIE with one range takes some bytes: a unit with more
 * ranges than this makes them out of nothing. */
static uint64_t interval_limit(const struct dwarf_unit *u)
{
        const struct dwarf_file *f = u->file;
        return 64 + (u->end - u->offset) / 2 + f->ranges.size / 4 + f->rnglists.size / 2;
}

/* Walks from k->c on; the edges are in the walker then. */
static int walk_and_flatten(struct walk *k, uint32_t level)
{
        struct dwarf_walker *w = k->w;
        int r;

        if (!w->level) {
                w->level = dwarf_alloc(k->budget, MAX_DIE_DEPTH, sizeof(*w->level));
                if (!w->level)
                        return -errno;
        }
        w->n_intervals = 0;
        w->n_nodes = 0;
        r = DWARF_GROW(k->budget, w->node, w->cap_nodes, 0);
        if (r < 0)
                return r;
        w->node[w->n_nodes++] = (struct dwarf_node){0};

        r = dwarf_abbrev_set_load(&w->abbrevs, k->u);
        if (r == 0)
                r = walk_dies(k, level);
        if (r < 0 && r != -EBADMSG)
                return r;
        return dwarf_flatten(w, k->budget);
}

static struct walk walk_at(struct dwarf_walker *w, struct dwarf_unit *dies, const struct dwarf_text *text,
                           uint64_t from, uint64_t end)
{
        struct span bytes = {dies->file->info.data, end};

        return (struct walk){.w = w,
                             .u = dies,
                             .text = text,
                             .budget = dies->file->budget,
                             .c = dwarf_cursor_at(bytes, from),
                             .max_intervals = interval_limit(dies)};
}

static int build(struct dwarf_walker *w, struct dwarf_unit *dies, const struct dwarf_unit *lines,
                 const struct dwarf_text *text, bool in_full, struct dwarf_code *c)
{
        struct walk k = walk_at(w, dies, text, dies->offset + dies->header_size, dies->end);
        int r;

        k.in_full = in_full;
        r = walk_and_flatten(&k, 0);
        if (r < 0)
                return r;
        r = dwarf_line_rows(lines, text, &w->lines);
        if (r < 0)
                return r;

        c->has_skipped = k.has_skipped;
        c->base = UINT64_MAX;
        if (w->n_edges)
                c->base = w->edge[0].start;
        if (w->lines.n_out && w->lines.out[0].address < c->base)
                c->base = w->lines.out[0].address;
        r = copy_segments(w, k.budget, c->base, &c->whole);
        if (r == 0)
                r = copy_rows(&w->lines, k.budget, c);
        if (r == 0)
                r = copy_nodes(w, k.budget, &c->whole);
        return r;
}

int dwarf_code_build(struct dwarf_walker *w, struct dwarf_unit *dies, const struct dwarf_unit *lines,
                     const struct dwarf_text *text, bool in_full, struct dwarf_code **ret)
{
        struct dwarf_budget *budget = dies->file->budget;
        struct dwarf_code *c = dwarf_alloc(budget, 1, sizeof(*c));
        int r;

        if (!c)
                return -errno;
        r = build(w, dies, lines, text, in_full, c);
        if (r < 0) {
                dwarf_code_free(c, budget);
                return r;
        }
        *ret = c;
        return 0;
}

int dwarf_code_body(struct dwarf_walker *w, struct dwarf_unit *dies, const struct dwarf_text *text,
                    struct dwarf_code *c, uint32_t node, struct dwarf_part **ret)
{
        struct dwarf_budget *budget = dies->file->budget;
        const struct dwarf_node *function = &c->whole.node[node];
        struct walk k = walk_at(w, dies, text, dies->offset + function->die,
                                dies->offset + function->body_end);
        struct dwarf_part *p;
        int r;

        if (!c->body) {
                c->body = dwarf_alloc(budget, c->whole.n_nodes, sizeof(struct dwarf_part *));
                if (!c->body)
                        return -errno;
        }
        if (c->body[node]) {
                *ret = c->body[node];
                return 0;
        }
        k.in_full = true;
        r = walk_and_flatten(&k, 1);
        if (r < 0)
                return r;
        p = dwarf_alloc(budget, 1, sizeof(*p));
        if (!p)
                return -errno;
        c->body[node] = p;
        r = copy_segments(w, budget, c->base, p);
        if (r == 0)
                r = copy_nodes(w, budget, p);
        if (r < 0)
                return r;
        *ret = p;
        return 0;
}

void dwarf_code_free(struct dwarf_code *c, struct dwarf_budget *budget)
{
        if (!c)
                return;
        for (uint32_t i = 0; c->body && i < c->whole.n_nodes; i++) {
                if (!c->body[i])
                        continue;
                clear_part(c->body[i], budget);
                dwarf_release(budget, c->body[i], 1, sizeof(*c->body[i]));
        }
        dwarf_release(budget, c->body, c->whole.n_nodes, sizeof(struct dwarf_part *));
        clear_part(&c->whole, budget);
        dwarf_release(budget, c->row_start, c->n_rows, ROW_BYTES);
        dwarf_release(budget, c->path, c->n_files, sizeof(*c->path));
        dwarf_release(budget, c, 1, sizeof(*c));
}

void dwarf_walker_clear(struct dwarf_walker *w, struct dwarf_budget *budget)
{
        dwarf_abbrev_set_clear(&w->abbrevs, budget);
        dwarf_line_scratch_clear(&w->lines, budget);
        dwarf_release(budget, w->node, w->cap_nodes, sizeof(*w->node));
        dwarf_release(budget, w->interval, w->cap_intervals, sizeof(*w->interval));
        dwarf_release(budget, w->merged, w->cap_merged, sizeof(*w->merged));
        dwarf_release(budget, w->edge, w->cap_edges, sizeof(*w->edge));
        dwarf_release(budget, w->open, w->cap_open, sizeof(*w->open));
        dwarf_release(budget, w->level, MAX_DIE_DEPTH, sizeof(*w->level));
        *w = (struct dwarf_walker){0};
}
