#include "symbolizer/dwarf_scopes.h"
#include "symbolizer/dwarf_form.h"

#define MAX_DEPTH 512 /* of DIEs; what is deeper is in the scope at this depth */
#define NO_SCOPE  UINT32_MAX

struct scope {
        uint32_t die, end; /* offsets from the unit; `end` is behind its last child */
        uint32_t parent;
        bool skipped; /* a function whose body was passed over */
};

struct dwarf_scopes {
        struct scope *scope; /* ascending by `die` */
        uint64_t n, cap;
        bool is_whole; /* none was passed over */
};

static bool is_scope(uint16_t tag)
{
        switch (tag) {
        case DW_TAG_namespace:
        case DW_TAG_module:
        case DW_TAG_class_type:
        case DW_TAG_structure_type:
        case DW_TAG_union_type:
        case DW_TAG_enumeration_type:
        case DW_TAG_interface_type:
        case DW_TAG_subprogram:
                return true;
        default:
                return false;
        }
}

/* Passes over a DIE's attributes. Returns the value of DW_AT_sibling when it is one of the unit's, else 0.
 */
static uint64_t skip_die(struct dwarf_cursor *c, const struct dwarf_unit *u,
                         const struct dwarf_abbrev_set *s, const struct dwarf_abbrev *a, bool want_sibling)
{
        uint64_t sibling = 0;

        if (a->size >= 0 && !want_sibling) {
                cursor_skip(c, (uint64_t)a->size);
                return 0;
        }
        for (uint32_t i = 0; i < a->n; i++) {
                const struct dwarf_abbrev_attr *attr = &s->attr[a->first + i];
                struct dwarf_value v = dwarf_read_form(c, u, attr->form, attr->implicit);

                if (want_sibling && attr->attr == DW_AT_sibling && v.form != DW_FORM_ref_addr)
                        sibling = v.u;
        }
        return sibling;
}

static int add_scope(struct dwarf_scopes *s, struct dwarf_budget *budget, struct scope scope, uint32_t *ret)
{
        int r = DWARF_GROW(budget, s->scope, s->cap, s->n);

        if (r < 0)
                return r;
        *ret = (uint32_t)s->n;
        s->scope[s->n++] = scope;
        return 0;
}

/* Of a function's code, where few names are looked for, and most of a unit's bytes are. */
static bool is_body(const struct dwarf_abbrev *a)
{
        return a->tag == DW_TAG_subprogram && a->has_children && a->has_code && a->has_sibling;
}

/* Most functions hold no scope and are no parent that a name needs: they are forgotten at their end. */
struct open_die {
        uint32_t scope; /* the innermost one */
        bool begins;    /* it begins with this DIE */
        bool is_function, holds;
};

static int walk(struct dwarf_unit *u, struct dwarf_abbrev_set *set, struct dwarf_scopes *s,
                struct open_die *open)
{
        struct span bytes = {u->file->info.data, u->end};
        struct dwarf_cursor c = dwarf_cursor_at(bytes, u->offset + u->header_size);
        const uint8_t *unit = u->file->info.data + u->offset;
        uint32_t depth = 0, scope;
        uint64_t sibling;
        int r;

        open[0] = (struct open_die){.scope = NO_SCOPE};
        while (c.p < c.end) {
                uint32_t die = (uint32_t)(c.p - unit);
                uint64_t code = cursor_uleb(&c);
                struct open_die *in = &open[depth < MAX_DEPTH ? depth : MAX_DEPTH - 1], *o;
                const struct dwarf_abbrev *a;

                if (code == 0) {
                        if (depth < MAX_DEPTH && in->begins) {
                                s->scope[in->scope].end = (uint32_t)(c.p - unit);
                                if (in->is_function && !in->holds && in->scope == s->n - 1)
                                        s->n--;
                        }
                        if (depth <= 1)
                                break;
                        depth--;
                        if (depth < MAX_DEPTH - 1 && open[depth + 1].holds)
                                open[depth].holds = true;
                        continue;
                }
                if (c.bad)
                        break;
                r = dwarf_abbrev_get(set, code, &a);
                if (r < 0)
                        return r;
                if (!dwarf_work(u->file->budget, 1))
                        return -E2BIG;
                sibling = skip_die(&c, u, set, a, !s->is_whole && is_body(a));
                if (sibling && sibling < u->end - u->offset && unit + sibling > c.p) {
                        r = add_scope(s, u->file->budget,
                                      (struct scope){die, (uint32_t)sibling, in->scope, true}, &scope);
                        if (r < 0)
                                return r;
                        in->holds = true;
                        c.p = unit + sibling;
                        continue;
                }
                if (is_scope(a->tag))
                        in->holds = true;
                if (!a->has_children) {
                        if (depth == 0)
                                break;
                        continue;
                }
                if (++depth >= MAX_DEPTH)
                        continue;
                o = &open[depth];
                *o = (struct open_die){.scope = in->scope};
                if (is_scope(a->tag)) {
                        r = add_scope(s, u->file->budget, (struct scope){die, UINT32_MAX, in->scope, false},
                                      &o->scope);
                        if (r < 0)
                                return r;
                        o->begins = true;
                        o->is_function = a->tag == DW_TAG_subprogram;
                }
        }
        return 0;
}

static int build(struct dwarf_unit *u, struct dwarf_abbrev_set *abbrevs, bool whole,
                 struct dwarf_scopes **ret)
{
        struct dwarf_budget *budget = u->file->budget;
        struct dwarf_scopes *s = dwarf_alloc(budget, 1, sizeof(*s));
        struct open_die open[MAX_DEPTH];
        int r;

        if (!s)
                return -errno;
        s->is_whole = whole;
        r = dwarf_abbrev_set_load(abbrevs, u);
        if (r == 0)
                r = walk(u, abbrevs, s, open);
        if (r < 0 && r != -EBADMSG) {
                dwarf_scopes_free(s, budget);
                return r;
        }
        *ret = s;
        return 0;
}

/* The last scope that begins before the DIE: it, or one around it, holds the DIE. */
static uint32_t last_before(const struct dwarf_scopes *s, uint32_t die)
{
        uint64_t lo = 0, hi = s->n;

        while (lo < hi) {
                uint64_t mid = (lo + hi) / 2;

                if (s->scope[mid].die < die)
                        lo = mid + 1;
                else
                        hi = mid;
        }
        return lo ? (uint32_t)(lo - 1) : NO_SCOPE;
}

int dwarf_scopes_of(struct dwarf_unit *u, uint64_t offset, struct dwarf_abbrev_set *abbrevs, uint64_t *ret,
                    uint32_t max, uint32_t *ret_n)
{
        uint32_t n = 0, die = (uint32_t)(offset - u->offset), at;
        int r;

        if (!u->scopes) {
                r = build(u, abbrevs, false, &u->scopes);
                if (r < 0)
                        return r;
        }
        at = last_before(u->scopes, die);
        if (at != NO_SCOPE && u->scopes->scope[at].skipped && die < u->scopes->scope[at].end) {
                struct dwarf_scopes *whole;

                r = build(u, abbrevs, true, &whole);
                if (r < 0)
                        return r;
                dwarf_scopes_free(u->scopes, u->file->budget);
                u->scopes = whole;
                at = last_before(whole, die);
        }
        while (at != NO_SCOPE && n < max) {
                const struct scope *s = &u->scopes->scope[at];

                if (die < s->end)
                        ret[n++] = u->offset + s->die;
                at = s->parent;
        }
        *ret_n = n;
        return 0;
}

void dwarf_scopes_free(struct dwarf_scopes *s, struct dwarf_budget *budget)
{
        if (!s)
                return;
        dwarf_release(budget, s->scope, s->cap, sizeof(*s->scope));
        dwarf_release(budget, s, 1, sizeof(*s));
}
