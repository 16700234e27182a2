/* Abbreviation tables. There are as many as units in what GCC writes, and units are asked for in any order,
 * so of each table only the place of each abbreviation is kept, four bytes a code. Names read abbreviations
 * from there; walks, which meet the same ones again and again, decode those that they meet, into memory that
 * the next unit reuses. */
#include "base/hash.h"
#include "symbolizer/dwarf_form.h"

/* Codes are dense in practice, so they index arrays. An abbreviation takes five bytes at least. */
#define ABBREV_MIN_BYTES 5

struct dwarf_abbrev_places {
        uint64_t offset;
        uint64_t n;
        uint32_t place[]; /* by code: offset of the tag from `offset`; 0: no such code */
};

int dwarf_grow(struct dwarf_budget *b, void **array, uint64_t *cap, uint64_t n, uint64_t size)
{
        uint64_t new_cap = n < 32 ? 64 : n + n / 2 + 1;
        uint64_t old_bytes = *cap * size, bytes;
        void *p;

        if (n < *cap)
                return 0;
        if (__builtin_mul_overflow(new_cap, size, &bytes) || bytes - old_bytes > b->max_memory - b->memory)
                return -E2BIG;
        p = realloc(*array, bytes);
        if (!p)
                return -ENOMEM;
        memset((char *)p + old_bytes, 0, bytes - old_bytes);
        b->memory += bytes - old_bytes;
        *array = p;
        *cap = new_cap;
        return 0;
}

/* The next abbreviation of a table: its code, with `ret` on its attributes. False at the end, or on damage
 * (then the cursor is bad). */
static bool next_abbrev(struct dwarf_cursor *c, uint64_t *ret_code, struct dwarf_spec *ret)
{
        uint64_t code = cursor_uleb(c), tag;

        if (c->bad || code == 0)
                return false;
        tag = cursor_uleb(c);
        *ret_code = code;
        ret->tag = tag > UINT16_MAX ? UINT16_MAX : (uint16_t)tag;
        ret->has_children = cursor_u8(c) == DW_CHILDREN_yes;
        ret->c = *c;
        return !c->bad;
}

static void skip_attrs(struct dwarf_spec *s)
{
        uint16_t attr, form;
        int64_t implicit;

        while (dwarf_spec_next(s, &attr, &form, &implicit))
                ;
}

/* Two passes: the highest code, then the places. The file may be written to meanwhile, so the second trusts
 * nothing of the first. */
static int places_read(struct dwarf_file *f, uint64_t offset, struct dwarf_abbrev_places **ret)
{
        struct dwarf_cursor start = dwarf_cursor_at(f->abbrev, offset), c = start;
        uint64_t max_code = cursor_left(&c) / ABBREV_MIN_BYTES + 1, n = 0, code;
        struct dwarf_abbrev_places *p;
        struct dwarf_spec spec;

        while (next_abbrev(&c, &code, &spec)) {
                if (code > max_code)
                        return -EBADMSG;
                if (!dwarf_work(f->budget, 1))
                        return -E2BIG;
                n = code >= n ? code + 1 : n;
                skip_attrs(&spec);
                c = spec.c;
        }
        if (c.bad || (uint64_t)(c.p - start.p) > UINT32_MAX)
                return -EBADMSG;

        p = dwarf_alloc(f->budget, 1, sizeof(*p) + n * sizeof(p->place[0]));
        if (!p)
                return -errno;
        p->offset = offset;
        p->n = n;
        c = start;
        for (;;) {
                const uint8_t *here = c.p;

                if (!next_abbrev(&c, &code, &spec) || code >= n)
                        break;
                p->place[code] = (uint32_t)(here - start.p) + 1;
                skip_attrs(&spec);
                c = spec.c;
        }
        *ret = p;
        return 0;
}

static bool places_equal(const void *ctx, uint32_t id, const void *key)
{
        const struct dwarf_file *f = ctx;
        return f->abbrevs[id]->offset == *(const uint64_t *)key;
}

static uint64_t places_hash(const void *ctx, uint32_t id)
{
        const struct dwarf_file *f = ctx;
        return hash_u64(f->abbrevs[id]->offset, 0);
}

/* The unit's places, shared by all units that use one table (LTO, clang, dwz). */
static int places_get(struct dwarf_unit *u)
{
        struct dwarf_file *f = u->file;
        uint64_t hash = hash_u64(u->abbrev_offset, 0);
        uint32_t id = idtable_find(&f->abbrev_ids, hash, places_equal, f, &u->abbrev_offset);
        struct dwarf_abbrev_places *p = NULL;
        int r;

        if (id != IDTABLE_NONE) {
                u->abbrevs = f->abbrevs[id];
                return 0;
        }
        r = DWARF_GROW(f->budget, f->abbrevs, f->cap_abbrevs, f->n_abbrevs);
        if (r < 0)
                return r;
        r = places_read(f, u->abbrev_offset, &p);
        if (r < 0)
                return r;
        id = (uint32_t)f->n_abbrevs;
        f->abbrevs[f->n_abbrevs++] = p;
        u->abbrevs = p;
        return idtable_add(&f->abbrev_ids, hash, id, places_hash, f);
}

/* -- decoded -- */

int dwarf_abbrev_set_load(struct dwarf_abbrev_set *s, struct dwarf_unit *u)
{
        if (!u->abbrevs) {
                int r = places_get(u);

                if (r < 0)
                        return r;
        }
        s->unit = u;
        if (s->places == u->abbrevs && s->address_size == u->address_size &&
            s->offset_size == u->offset_size && s->version == u->version)
                return 0;
        if (++s->round == 0) { /* old marks would count again */
                for (uint64_t i = 0; i < s->n; i++)
                        s->abbrev[i].round = 0;
                s->round = 1;
        }
        s->n_attrs = 0;
        s->places = u->abbrevs;
        s->address_size = u->address_size;
        s->offset_size = u->offset_size;
        s->version = u->version;
        return 0;
}

void dwarf_abbrev_set_clear(struct dwarf_abbrev_set *s, struct dwarf_budget *budget)
{
        dwarf_release(budget, s->abbrev, s->cap, sizeof(*s->abbrev));
        dwarf_release(budget, s->attr, s->cap_attrs, sizeof(*s->attr));
        *s = (struct dwarf_abbrev_set){0};
}

static int read_attrs(struct dwarf_abbrev_set *s, struct dwarf_abbrev *a, struct dwarf_spec *spec)
{
        const struct dwarf_unit *u = s->unit;
        struct dwarf_budget *budget = u->file->budget;
        uint16_t attr, form;
        int64_t implicit;

        while (dwarf_spec_next(spec, &attr, &form, &implicit)) {
                int size = dwarf_form_size(form, u->version, u->address_size, u->offset_size);
                int r = DWARF_GROW(budget, s->attr, s->cap_attrs, s->n_attrs);

                if (r < 0)
                        return r;
                if (s->n_attrs >= UINT32_MAX)
                        return -E2BIG;
                s->attr[s->n_attrs++] = (struct dwarf_abbrev_attr){attr, form, implicit};
                a->n++;
                if (attr == DW_AT_sibling)
                        a->has_sibling = true;
                if (attr == DW_AT_low_pc || attr == DW_AT_ranges)
                        a->has_code = true;
                if (size < 0 || a->size > INT16_MAX)
                        a->size = -1;
                else if (a->size >= 0)
                        a->size += size;
        }
        return dwarf_work(budget, 1 + a->n / 4) ? 0 : -E2BIG;
}

static bool spec_at(const struct dwarf_unit *u, uint64_t code, struct dwarf_spec *ret)
{
        struct dwarf_cursor place;

        if (code >= u->abbrevs->n || u->abbrevs->place[code] == 0)
                return false;
        place = dwarf_cursor_at(u->file->abbrev, u->abbrev_offset + u->abbrevs->place[code] - 1);
        return next_abbrev(&place, &code, ret);
}

int dwarf_abbrev_read(struct dwarf_abbrev_set *s, uint64_t code, const struct dwarf_abbrev **ret)
{
        struct dwarf_spec spec;
        struct dwarf_abbrev *a;
        int r;

        if (!spec_at(s->unit, code, &spec))
                return -EBADMSG;
        while (s->n <= code) {
                r = DWARF_GROW(s->unit->file->budget, s->abbrev, s->cap, s->n);
                if (r < 0)
                        return r;
                s->abbrev[s->n++].round = 0;
        }
        a = &s->abbrev[code];
        *a = (struct dwarf_abbrev){
                        .tag = spec.tag, .has_children = spec.has_children, .first = (uint32_t)s->n_attrs};
        r = read_attrs(s, a, &spec);
        if (r < 0)
                return r;
        a->round = s->round;
        *ret = a;
        return 0;
}

int dwarf_die_open(struct dwarf_unit *u, uint64_t offset, struct dwarf_spec *ret_spec,
                   struct dwarf_cursor *ret)
{
        struct span bytes = {u->file->info.data, u->end};
        struct dwarf_cursor c = dwarf_cursor_at(bytes, offset);
        uint64_t code;
        int r;

        if (offset < u->offset + u->header_size)
                return -EBADMSG;
        if (!u->abbrevs) {
                r = places_get(u);
                if (r < 0)
                        return r;
        }
        code = cursor_uleb(&c);
        if (c.bad || code == 0 || !spec_at(u, code, ret_spec))
                return -EBADMSG;
        *ret = c;
        return 0;
}

/* For the unit DIE alone: looks its code up without reading the rest of the table. */
int dwarf_abbrev_seek(struct dwarf_unit *u, uint64_t code, struct dwarf_spec *ret)
{
        struct dwarf_cursor c = dwarf_cursor_at(u->file->abbrev, u->abbrev_offset);
        struct dwarf_spec spec;
        uint64_t found;

        while (next_abbrev(&c, &found, &spec)) {
                if (found == code) {
                        *ret = spec;
                        return 0;
                }
                if (!dwarf_work(u->file->budget, 1))
                        return -E2BIG;
                skip_attrs(&spec);
                c = spec.c;
        }
        return -EBADMSG;
}

void dwarf_abbrev_places_free(struct dwarf_file *f)
{
        for (uint64_t i = 0; i < f->n_abbrevs; i++) {
                struct dwarf_abbrev_places *p = f->abbrevs[i];
                dwarf_release(f->budget, p, 1, sizeof(*p) + p->n * sizeof(p->place[0]));
        }
        dwarf_release(f->budget, f->abbrevs, f->cap_abbrevs, sizeof(struct dwarf_abbrev_places *));
        f->abbrevs = NULL;
        f->n_abbrevs = f->cap_abbrevs = 0;
        idtable_free(&f->abbrev_ids);
}
