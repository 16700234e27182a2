#include "symbolizer/dwarf_scopes.h"
#include "symbolizer/dwarf_form.h"

#define MAX_DEPTH 512 /* of DIEs; what is deeper is in the scope at this depth */
#define NO_SCOPE  UINT32_MAX

struct scope {
        uint32_t die, end; /* offsets from the unit; `end` is behind its last child */
        uint32_t parent;
};

struct dwarf_scopes {
        struct scope *scope; /* ascending by `die` */
        uint64_t n, cap;
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

static void skip_die(struct dwarf_cursor *c, const struct dwarf_unit *u, const struct dwarf_abbrev_set *s,
                     const struct dwarf_abbrev *a)
{
        if (a->size >= 0) {
                cursor_skip(c, (uint64_t)a->size);
                return;
        }
        for (uint32_t i = 0; i < a->n; i++)
                dwarf_read_form(c, u, s->attr[a->first + i].form, 0);
}

/* Most functions hold no scope and are no parent that a name needs: they are forgotten at their end. */
struct open_die {
        uint32_t scope; /* the innermost one */
        bool begins;    /* it begins with this DIE */
        bool is_function, holds;
};

static int walk(struct dwarf_unit *u, const struct dwarf_abbrev_set *set, struct dwarf_scopes *s,
                struct open_die *open)
{
        struct span bytes = {u->file->info.data, u->end};
        struct dwarf_cursor c = dwarf_cursor_at(bytes, u->offset + u->header_size);
        const uint8_t *unit = u->file->info.data + u->offset;
        uint32_t depth = 0;

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
                if (c.bad || code >= set->n || set->abbrev[code].tag == 0)
                        break;
                if (!dwarf_work(u->file->budget, 1))
                        return -E2BIG;
                a = &set->abbrev[code];
                skip_die(&c, u, set, a);
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
                        int r = DWARF_GROW(u->file->budget, s->scope, s->cap, s->n);

                        if (r < 0)
                                return r;
                        o->begins = true;
                        o->is_function = a->tag == DW_TAG_subprogram;
                        o->scope = (uint32_t)s->n;
                        s->scope[s->n++] = (struct scope){die, UINT32_MAX, in->scope};
                }
        }
        return 0;
}

static int build(struct dwarf_unit *u, struct dwarf_abbrev_set *abbrevs, struct dwarf_scopes **ret)
{
        struct dwarf_budget *budget = u->file->budget;
        struct dwarf_scopes *s = dwarf_alloc(budget, 1, sizeof(*s));
        struct open_die open[MAX_DEPTH];
        int r;

        if (!s)
                return -errno;
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

int dwarf_scopes_of(struct dwarf_unit *u, uint64_t offset, struct dwarf_abbrev_set *abbrevs, uint64_t *ret,
                    uint32_t max, uint32_t *ret_n)
{
        const struct dwarf_scopes *s;
        uint64_t lo = 0, hi;
        uint32_t n = 0, die = (uint32_t)(offset - u->offset), at;

        if (!u->scopes) {
                int r = build(u, abbrevs, &u->scopes);
                if (r < 0)
                        return r;
        }
        s = u->scopes;
        hi = s->n;
        while (lo <
               hi) { /* the last scope that begins before the DIE: it, or one around it, holds the DIE */
                uint64_t mid = (lo + hi) / 2;
                if (s->scope[mid].die < die)
                        lo = mid + 1;
                else
                        hi = mid;
        }
        at = lo ? (uint32_t)(lo - 1) : NO_SCOPE;
        while (at != NO_SCOPE && n < max) {
                if (die < s->scope[at].end)
                        ret[n++] = u->offset + s->scope[at].die;
                at = s->scope[at].parent;
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
