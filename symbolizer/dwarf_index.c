/* The idea: where a unit's code is stands in its unit DIE, so opening reads one DIE a unit and no more. The
 * unit that covers an address is walked when the first of its addresses is asked for, and flattened, so that
 * every further address costs three binary searches. Names cost nothing until asked for, and are resolved
 * once for all places where a function was inlined. */
#include "symbolizer/dwarf_index.h"

#include <elf.h>

#include "symbolizer/dwarf_code.h"
#include "symbolizer/dwarf_names.h"
#include "symbolizer/dwarf_split.h"

#define DEFAULT_MAX_MEMORY (512ull << 20)
#define DEFAULT_MAX_DIES   200000000ull
#define MAX_PATH_LENGTH    4096

/* How many units are read before the pages of the file that they were read from are given back. */
#define UNITS_BETWEEN_DROPS 32

enum { SERIAL_MAIN, SERIAL_ALT };

struct dwarf_index {
        struct dwarf_budget budget;
        struct elf_image *image; /* the object; not owned */
        uint32_t n_read;         /* units since its pages were last given back */
        struct dwarf_file main, alt;
        struct dwarf_split *split;
        struct dwarf_names *names;
        struct dwarf_walker walker;
        struct dwarf_text text;
        struct dwarf_interval *extent; /* [lo, hi) of unit `id` */
        uint64_t n_extents, cap_extents;
        struct dwarf_edge *edge; /* the same, disjoint; ids are unit numbers + 1 */
        uint64_t n_edges, cap_edges;
        uint32_t *rangeless; /* units that do not say where all of their code is, not walked yet */
        uint64_t n_rangeless, cap_rangeless;
};

/* What is at an address. */
struct place {
        struct dwarf_unit *unit;
        struct dwarf_code *code;
        struct dwarf_part *part; /* of the code, that knows the address */
        uint32_t node;           /* in it */
        uint32_t row;            /* UINT32_MAX: no line information */
};

/* -- opening -- */

static int add_text(struct dwarf_index *d, uint64_t lo, uint64_t size)
{
        int r;

        if (size == 0 || lo + size < lo)
                return 0;
        r = DWARF_GROW(&d->budget, d->text.range, d->text.cap, d->text.n);
        if (r < 0)
                return r;
        d->text.range[d->text.n++] = (struct dwarf_interval){.lo = lo, .hi = lo + size};
        return 0;
}

static int compare_ranges(const void *a, const void *b)
{
        const struct dwarf_interval *x = a, *y = b;
        return x->lo < y->lo ? -1 : x->lo > y->lo;
}

static void merge_text(struct dwarf_text *t)
{
        uint64_t n = 0;

        if (t->n > 1)
                qsort(t->range, t->n, sizeof(*t->range), compare_ranges);
        for (uint64_t i = 0; i < t->n; i++) {
                if (n && t->range[i].lo <= t->range[n - 1].hi)
                        t->range[n - 1].hi = MAX_OF(t->range[n - 1].hi, t->range[i].hi);
                else
                        t->range[n++] = t->range[i];
        }
        t->n = n;
}

/* Executable sections; segments where there are no sections. */
static int find_text(struct dwarf_index *d, struct elf_image *e)
{
        uint32_t n = elf_image_n_sections(e);
        int r;

        for (uint32_t i = 0; i < n; i++) {
                struct elf_section s;
                const char *name;

                if (elf_image_section_header(e, i, &s, &name) < 0)
                        continue;
                if ((s.flags & (SHF_ALLOC | SHF_EXECINSTR)) != (SHF_ALLOC | SHF_EXECINSTR))
                        continue;
                r = add_text(d, s.address, s.size);
                if (r < 0)
                        return r;
        }
        for (uint32_t i = 0; d->text.n == 0 && i < elf_image_n_segments(e); i++) {
                const struct elf_segment *s = elf_image_segment(e, i);

                if (s->type != PT_LOAD || !(s->flags & PF_X))
                        continue;
                r = add_text(d, s->vaddr, s->memsz);
                if (r < 0)
                        return r;
        }
        merge_text(&d->text);
        return 0;
}

/* A unit is read once, and but for names its bytes are not looked at again. */
static void count_read(struct dwarf_index *d)
{
        if (++d->n_read < UNITS_BETWEEN_DROPS)
                return;
        elf_image_drop_pages(d->image);
        d->n_read = 0;
}

struct extent_ctx {
        struct dwarf_index *d;
        uint32_t unit;
};

static int add_extent(void *ctx, uint64_t lo, uint64_t hi)
{
        struct extent_ctx *x = ctx;
        struct dwarf_index *d = x->d;
        int r;

        if (dwarf_text_find(&d->text, lo) < 0)
                return 0;
        r = DWARF_GROW(&d->budget, d->extent, d->cap_extents, d->n_extents);
        if (r < 0)
                return r;
        d->extent[d->n_extents++] = (struct dwarf_interval){.lo = lo, .hi = hi, .id = x->unit + 1};
        return 0;
}

static int on_unit(void *ctx, struct dwarf_unit *u, uint32_t number, const struct dwarf_extent *x)
{
        struct dwarf_index *d = ctx;
        struct extent_ctx e = {d, number};
        int r;

        count_read(d);
        if (u->is_partial)
                return 0;
        if (!dwarf_extent_is_empty(x)) {
                r = dwarf_extent_ranges(u, x, add_extent, &e);
                /* DWARF 2 has no range lists: what GCC says of a unit is its .text, without the sections of
                 * inline functions and of cold parts. */
                if (r < 0 || u->version > 2)
                        return r;
        }
        r = DWARF_GROW(&d->budget, d->rangeless, d->cap_rangeless, d->n_rangeless);
        if (r < 0)
                return r;
        d->rangeless[d->n_rangeless++] = number;
        return 0;
}

/* Units may claim the same code; the table of edges has one answer for each address. */
static int flatten_extents(struct dwarf_index *d)
{
        struct dwarf_walker *w = &d->walker;
        int r;

        w->n_intervals = 0;
        for (uint64_t i = 0; i < d->n_extents; i++) {
                r = dwarf_add_interval(w, &d->budget, &d->text, d->extent[i]);
                if (r < 0)
                        return r;
        }
        r = dwarf_flatten(w, &d->budget);
        for (uint64_t i = 0; r == 0 && i < w->n_edges; i++) {
                r = DWARF_GROW(&d->budget, d->edge, d->cap_edges, i);
                if (r == 0)
                        d->edge[i] = w->edge[i];
        }
        d->n_edges = r == 0 ? w->n_edges : 0;
        return r;
}

static int open_index(struct dwarf_index *d, const struct dwarf_sources *sources)
{
        int r;

        d->image = sources->main;
        d->budget.max_memory = sources->max_memory ? sources->max_memory : DEFAULT_MAX_MEMORY;
        d->budget.max_work = sources->max_dies ? sources->max_dies : DEFAULT_MAX_DIES;
        r = dwarf_file_open(&d->main, sources->main, false, &d->budget);
        if (r < 0)
                return r;
        d->main.serial = SERIAL_MAIN;
        if (sources->alt) {
                r = dwarf_file_open(&d->alt, sources->alt, false, &d->budget);
                if (r == 0)
                        r = dwarf_file_read_units(&d->alt, NULL, NULL);
                if (r < 0 && r != -ENODATA)
                        return r;
                d->alt.serial = SERIAL_ALT;
                d->main.alt = &d->alt;
        }
        r = dwarf_split_new(&d->split, sources, &d->budget);
        if (r < 0)
                return r;
        r = dwarf_names_new(&d->names, &d->budget, &d->walker.abbrevs);
        if (r < 0)
                return r;
        r = find_text(d, sources->main);
        if (r < 0)
                return r;
        r = dwarf_file_read_units(&d->main, on_unit, d);
        if (r < 0)
                return r;
        return flatten_extents(d);
}

int dwarf_index_new(struct dwarf_index **ret, const struct dwarf_sources *sources)
{
        struct dwarf_index *d;
        int r;

        /* Before it is linked an object's DWARF means nothing. */
        if (elf_image_type(sources->main) == ET_REL)
                return -ENODATA;
        d = calloc(1, sizeof(*d));
        if (!d)
                return -ENOMEM;
        r = open_index(d, sources);
        if (r < 0) {
                dwarf_index_free(d);
                return r;
        }
        *ret = d;
        return 0;
}

struct dwarf_index *dwarf_index_free(struct dwarf_index *d)
{
        if (!d)
                return NULL;
        dwarf_split_free(d->split);
        dwarf_names_free(d->names);
        dwarf_walker_clear(&d->walker, &d->budget);
        dwarf_file_close(&d->main);
        dwarf_file_close(&d->alt);
        free(d->text.range);
        free(d->extent);
        free(d->edge);
        free(d->rangeless);
        free(d);
        return NULL;
}

/* -- finding -- */

static struct dwarf_unit *dies_of(struct dwarf_unit *u)
{
        return u->split ? u->split : u;
}

static int walk_unit(struct dwarf_index *d, struct dwarf_unit *u, bool in_full)
{
        int r = 0;

        if (u->walked)
                return 0;
        u->walked = true;
        if (!dwarf_work_left(&d->budget))
                return -E2BIG;
        if (u->type == DW_UT_skeleton)
                r = dwarf_split_find(d->split, u, &u->split);
        if (r < 0)
                return r;
        r = dwarf_code_build(&d->walker, dies_of(u), u, &d->text, in_full, &u->code);
        count_read(d);
        return r;
}

/* Walks a unit again, now with all that is in the bodies of its functions. */
static int walk_in_full(struct dwarf_index *d, struct dwarf_unit *u)
{
        struct dwarf_code *code;
        int r = dwarf_code_build(&d->walker, dies_of(u), u, &d->text, true, &code);

        if (r < 0)
                return r;
        dwarf_code_free(u->code, &d->budget);
        u->code = code;
        count_read(d);
        return 0;
}

/* Claims for a unit what its functions and its lines cover. */
static int add_found_extents(struct extent_ctx *x, const struct dwarf_code *c)
{
        int r = 0;

        for (uint32_t i = 0; r == 0 && i + 1 < c->whole.n_segments; i++)
                if (c->whole.segment[i].node)
                        r = add_extent(x, c->base + c->whole.segment[i].start,
                                       c->base + c->whole.segment[i + 1].start);
        for (uint32_t i = 0, end; r == 0 && i < c->n_rows; i = end + 1) {
                for (end = i; end + 1 < c->n_rows && c->row_file[end] != UINT16_MAX;)
                        end++;
                if (end > i)
                        r = add_extent(x, c->base + c->row_start[i], c->base + c->row_start[end]);
        }
        return r;
}

/* Units that do not say where all of their code is are walked when an address is in none of the others. */
static int walk_rangeless(struct dwarf_index *d)
{
        while (d->n_rangeless) {
                struct extent_ctx x = {d, d->rangeless[--d->n_rangeless]};
                struct dwarf_unit *u = &d->main.unit[x.unit];
                int r = walk_unit(d, u, true);

                if (r == 0 && u->code)
                        r = add_found_extents(&x, u->code);
                if (r < 0)
                        return r;
        }
        return flatten_extents(d);
}

/* The last of n ascending numbers that is not above x, which the first is not: without a branch to guess. */
static uint32_t last_not_above(const uint32_t *a, uint32_t n, size_t stride, uint32_t x)
{
        uint32_t at = 0;

        while (n > 1) {
                uint32_t half = n / 2;
                at = a[(size_t)(at + half) * stride] <= x ? at + half : at;
                n -= half;
        }
        return at;
}

/* The unit that claims an address; NULL. */
static struct dwarf_unit *find_unit(const struct dwarf_index *d, uint64_t address)
{
        uint64_t lo = 0, hi = d->n_edges;

        while (lo < hi) {
                uint64_t mid = (lo + hi) / 2;
                if (d->edge[mid].start <= address)
                        lo = mid + 1;
                else
                        hi = mid;
        }
        return lo > 0 && d->edge[lo - 1].id ? &d->main.unit[d->edge[lo - 1].id - 1] : NULL;
}

/* The segment that holds an address; NULL. */
static const struct dwarf_segment *find_segment(const struct dwarf_part *p, uint32_t offset)
{
        if (!p->n_segments || offset < p->segment[0].start)
                return NULL;
        return &p->segment[last_not_above(&p->segment[0].start, p->n_segments, sizeof(p->segment[0]) / 4,
                                          offset)];
}

/* Whether code begins between the functions there. Functions within functions (lambdas of GCC) are not found
 * before their parents' bodies are walked, and each begins with a row of the line table; padding has none.
 */
static bool may_be_skipped_code(const struct dwarf_code *c, const struct dwarf_segment *s, uint32_t row)
{
        return c->has_skipped && row != UINT32_MAX && (!s || c->row_start[row] >= s->start);
}

/* p->unit is known and walked. */
static int find_in_code(struct dwarf_index *d, uint64_t address, struct place *p)
{
        for (;;) {
                struct dwarf_code *c = p->code = p->unit->code;
                uint64_t from_base = address - c->base;
                uint32_t offset = (uint32_t)from_base;
                const struct dwarf_segment *s;
                int r;

                if (address < c->base || from_base > UINT32_MAX)
                        return 0;
                if (c->n_rows && c->row_start[0] <= offset) {
                        uint32_t i = last_not_above(c->row_start, c->n_rows, 1, offset);

                        if (c->row_file[i] != UINT16_MAX)
                                p->row = i;
                }
                p->part = &c->whole;
                s = find_segment(p->part, offset);
                p->node = s ? s->node : 0;
                if (p->node && c->whole.node[p->node].body_end) {
                        r = dwarf_code_body(&d->walker, dies_of(p->unit), &d->text, c, p->node, &p->part);
                        if (r < 0)
                                return r;
                        s = find_segment(p->part, offset);
                        p->node = s ? s->node : 0;
                }
                if (p->node || !may_be_skipped_code(c, s, p->row))
                        return 0;
                r = walk_in_full(d, p->unit);
                if (r < 0)
                        return r;
                p->row = UINT32_MAX;
        }
}

/* 1: something is there; 0: nothing. */
static int find_place(struct dwarf_index *d, uint64_t address, struct place *ret)
{
        struct place p = {.unit = find_unit(d, address), .row = UINT32_MAX};
        int r;

        if (!p.unit && d->n_rangeless) {
                r = walk_rangeless(d);
                if (r < 0)
                        return r;
                p.unit = find_unit(d, address);
        }
        if (!p.unit)
                return 0;
        if (!p.unit->walked) {
                r = walk_unit(d, p.unit, false);
                if (r < 0)
                        return r;
        }
        if (!p.unit->code)
                return 0;
        r = find_in_code(d, address, &p);
        if (r < 0)
                return r;
        *ret = p;
        return p.node || p.row != UINT32_MAX;
}

/* -- what is told -- */

static size_t add_part(char *text, size_t at, const char *part)
{
        size_t len = strnlen(part, MAX_PATH_LENGTH);

        if (at >= MAX_PATH_LENGTH || len >= MAX_PATH_LENGTH - at)
                return MAX_PATH_LENGTH;
        memcpy(text + at, part, len);
        return at + len;
}

/* Parts before an absolute one do not count. */
static size_t join_path(const struct dwarf_file_name *n, char text[MAX_PATH_LENGTH])
{
        const char *part[] = {n->comp_dir, n->dir, n->name};
        size_t first = 0, at = 0;

        for (size_t i = 0; i < ARRAY_SIZE(part); i++)
                if (part[i] && part[i][0] == '/')
                        first = i;
        for (size_t i = first; i < ARRAY_SIZE(part); i++) {
                if (!part[i] || !part[i][0])
                        continue;
                if (at > 0 && at < MAX_PATH_LENGTH && text[at - 1] != '/')
                        at = add_part(text, at, "/");
                at = add_part(text, at, part[i]);
        }
        return at;
}

/* Path of a file of the unit's line table; NULL in *ret: it has no such file. */
static int find_path(struct dwarf_index *d, struct dwarf_unit *u, uint32_t number, const char **ret)
{
        struct dwarf_code *c = u->code;
        struct dwarf_file_name name;
        char text[MAX_PATH_LENGTH];
        size_t len;

        *ret = NULL;
        if (c->path && number < c->n_files && c->path[number]) {
                *ret = c->path[number];
                return 0;
        }
        if (!dwarf_line_file(u, number, &name))
                return 0;
        len = join_path(&name, text);
        if (len == 0 || len >= MAX_PATH_LENGTH)
                return 0;
        if (number >= c->n_files) {
                uint32_t n = number + number / 2 + 8;
                const char **grown = dwarf_alloc(&d->budget, n, sizeof(*grown));

                if (!grown)
                        return -errno;
                if (c->path)
                        memcpy(grown, c->path, c->n_files * sizeof(*grown));
                dwarf_release(&d->budget, c->path, c->n_files, sizeof(*c->path));
                c->path = grown;
                c->n_files = n;
        }
        c->path[number] = dwarf_names_intern(d->names, text, len);
        *ret = c->path[number];
        return *ret ? 0 : -errno;
}

static int fill_frame(struct dwarf_index *d, const struct place *p, struct dwarf_node *node,
                      struct dwarf_frame *f)
{
        struct dwarf_unit *u = dies_of(p->unit);
        const struct dwarf_function *fn;

        if (!node->function) {
                int r = dwarf_names_function(d->names, u, u->offset + node->die, &node->function);
                if (r < 0)
                        return r;
        }
        fn = dwarf_names_get(d->names, node->function);
        f->name = fn->name;
        f->short_name = fn->short_name;
        f->function_line = fn->line;
        f->language = fn->language;
        f->inlined = node->parent != 0;
        return 0;
}

/* Chains deeper than `max` lose what is between the innermost frames and the function itself. */
static int fill(struct dwarf_index *d, const struct place *p, struct dwarf_frame *ret, uint32_t max)
{
        struct dwarf_code *c = p->code;
        uint32_t file = UINT16_MAX, line = 0, n = 0;
        int r;

        if (p->row != UINT32_MAX) {
                file = c->row_file[p->row];
                line = c->row_line[p->row];
        }
        for (uint32_t i = p->node, parent; n == 0 || i; i = parent) {
                struct dwarf_node *node = &p->part->node[i];

                parent = node->parent;
                if (n < max && (n + 1 < max || !parent)) {
                        struct dwarf_frame *f = &ret[n++];

                        *f = (struct dwarf_frame){.line = line, .language = p->unit->language};
                        r = i ? fill_frame(d, p, node, f) : 0;
                        if (r == 0 && file != UINT16_MAX)
                                r = find_path(d, p->unit, file, &f->file);
                        if (r < 0)
                                return r;
                }
                if (n >= max)
                        break;
                file = node->call_file;
                line = node->call_line;
        }
        return (int)n;
}

int dwarf_index_find(struct dwarf_index *d, uint64_t address, struct dwarf_frame *ret, uint32_t max)
{
        struct place p;
        int r = find_place(d, address, &p);

        return r <= 0 || max == 0 ? r : fill(d, &p, ret, max);
}

void dwarf_index_stats(const struct dwarf_index *d, struct dwarf_stats *ret)
{
        *ret = (struct dwarf_stats){
                        .memory = d->budget.memory, .work = d->budget.work, .units = d->main.n_units};
        for (uint64_t i = 0; i < d->main.n_units; i++)
                ret->walked += d->main.unit[i].walked;
}

/* -- links to other files -- */

const char *dwarf_alt_link(struct elf_image *e, struct span *ret_build_id)
{
        struct elf_section s;
        struct dwarf_cursor c;
        const char *name;
        uint64_t n;

        if (elf_image_section(e, ".gnu_debugaltlink", &s) >= 0) {
                c = dwarf_cursor_at(s.bytes, 0);
                name = cursor_string(&c);
                if (!name || !*name)
                        return NULL;
                *ret_build_id = (struct span){c.p, cursor_left(&c)};
                return name;
        }
        /* DWARF 5, section 7.3.6: version, whether this is the supplementary file itself, name, checksum. */
        if (elf_image_section(e, ".debug_sup", &s) < 0)
                return NULL;
        c = dwarf_cursor_at(s.bytes, 0);
        if (cursor_u16(&c) != 5 || cursor_u8(&c) != 0)
                return NULL;
        name = cursor_string(&c);
        n = cursor_uleb(&c);
        if (c.bad || !*name || n > cursor_left(&c))
                return NULL;
        *ret_build_id = (struct span){c.p, n};
        return name;
}
