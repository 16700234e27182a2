/* The sections, units, abbreviations and attribute values of one DWARF file.
 *
 * Sources: DWARF 5 (chapter 7) and DWARF 2 to 4 for what changed since; the GNU extensions for split units
 * (before DWARF 5) and for dwz's alternate files. Nothing here keeps more than the units and, for units
 * whose DIEs are named, the places of their abbreviations. */
#ifndef SYMBOLIZER_DWARF_UNIT_H
#define SYMBOLIZER_DWARF_UNIT_H

#include <dwarf.h>

#include "base/idtable.h"
#include "symbolizer/dwarf_budget.h"
#include "symbolizer/dwarf_cursor.h"

struct dwarf_abbrev_places;
struct dwarf_code;
struct dwarf_scopes;

/* A set of sections that belong together: an object, an alternate file, or one split unit's part of a .dwo
 * or package. Spans that are not there are empty. */
struct dwarf_file {
        struct dwarf_budget *budget;
        bool split;
        struct span info, abbrev, str, line_str, str_offsets, addr, ranges, rnglists, line;
        struct dwarf_file *alt;  /* not owned */
        struct dwarf_unit *unit; /* ascending by offset; type units are left out */
        uint64_t n_units, cap_units;
        struct dwarf_abbrev_places **abbrevs; /* those read so far */
        uint64_t n_abbrevs, cap_abbrevs;
        struct idtable abbrev_ids; /* by offset */
        uint32_t serial;           /* tells the files of one index apart */
};

struct dwarf_unit {
        struct dwarf_file *file;
        struct dwarf_abbrev_places *abbrevs; /* NULL until the first DIE is asked for */
        struct dwarf_code *code;             /* NULL until walked */
        struct dwarf_scopes *scopes;         /* NULL until a name needed its place */
        struct dwarf_unit *split;            /* of a skeleton, once walked: holds the DIEs; NULL */
        const char *comp_dir, *dwo_name;     /* into sections; NULL */
        uint64_t offset, end;                /* header to end, in .debug_info */
        uint64_t abbrev_offset;
        uint64_t low_pc;    /* base of its range lists */
        uint64_t stmt_list; /* UINT64_MAX: no line table */
        uint64_t str_offsets_base, addr_base, rnglists_base;
        uint64_t ranges_base; /* of split units before DWARF 5, in the object's .debug_ranges */
        uint64_t dwo_id;
        uint8_t header_size, version, address_size, offset_size;
        uint8_t type; /* DW_UT_... ; compile units before DWARF 5 are DW_UT_compile */
        bool is_partial, walked, has_dwo_id;
        uint16_t language;
};

/* An attribute's value as it stands in the DIE: an integer, an offset, an index, or for DW_FORM_string the
 * offset in .debug_info. */
struct dwarf_value {
        uint16_t form; /* 0: not there */
        uint64_t u;
};

/* The attributes of the unit DIE that say where its code is. */
struct dwarf_extent {
        struct dwarf_value low, high, ranges;
};

struct dwarf_interval {
        uint64_t lo, hi; /* [lo, hi) */
        uint32_t id, depth;
};

/* -- files -- */

/* Finds the sections of an image; the units are not looked at yet. -ENODATA: has no DWARF; -E2BIG. */
int dwarf_file_open(struct dwarf_file *f, struct elf_image *e, bool split, struct dwarf_budget *budget);
void dwarf_file_close(struct dwarf_file *f);

typedef int (*dwarf_extent_fn)(void *ctx, struct dwarf_unit *u, uint32_t index,
                               const struct dwarf_extent *x);

/* Reads every unit's header and unit DIE. Damage ends the list; what was read stays. `fn` may be NULL.
 * -ENOMEM, -E2BIG, or what `fn` returned. */
int dwarf_file_read_units(struct dwarf_file *f, dwarf_extent_fn fn, void *ctx);

/* The unit that holds an offset of .debug_info; NULL. */
struct dwarf_unit *dwarf_file_unit_at(struct dwarf_file *f, uint64_t offset);

/* -- abbreviations -- */

/* One abbreviation's attribute specifications, read from where they stand. */
struct dwarf_spec {
        struct dwarf_cursor c;
        uint16_t tag;
        bool has_children;
};

static inline bool dwarf_spec_next(struct dwarf_spec *s, uint16_t *ret_attr, uint16_t *ret_form,
                                   int64_t *ret_implicit)
{
        uint64_t attr = cursor_uleb(&s->c), form = cursor_uleb(&s->c);

        *ret_implicit = form == DW_FORM_implicit_const ? cursor_sleb(&s->c) : 0;
        if (s->c.bad || (attr == 0 && form == 0))
                return false;
        *ret_attr = attr > UINT16_MAX ? UINT16_MAX : (uint16_t)attr;
        *ret_form = form > UINT16_MAX ? UINT16_MAX : (uint16_t)form;
        return true;
}

/* The abbreviations of a unit that a walk over its DIEs meets, each decoded when it is met first; reused
 * from unit to unit. */
struct dwarf_abbrev_attr {
        uint16_t attr, form;
        int64_t implicit;
};

struct dwarf_abbrev {
        uint32_t round; /* decoded in this round of the set; else the rest is of another table */
        uint16_t tag;
        bool has_children;
        bool has_sibling;
        bool has_code; /* says where its code is */
        int32_t size;  /* of all attributes; -1: depends on the DIE */
        uint32_t first, n;
};

struct dwarf_abbrev_set {
        const struct dwarf_unit *unit; /* only valid during a walk */
        const struct dwarf_abbrev_places *places;
        uint8_t address_size, offset_size, version; /* what the sizes were computed for */
        uint32_t round;                             /* of decoding one table; not 0 */
        struct dwarf_abbrev *abbrev;                /* by code */
        uint64_t n, cap;
        struct dwarf_abbrev_attr *attr;
        uint64_t n_attrs, cap_attrs;
};

/* Makes the set one of the unit's table. -EBADMSG, -ENOMEM, -E2BIG. */
int dwarf_abbrev_set_load(struct dwarf_abbrev_set *s, struct dwarf_unit *u);
void dwarf_abbrev_set_clear(struct dwarf_abbrev_set *s, struct dwarf_budget *budget);

/* Decodes one: -EBADMSG: there is none with this code; -ENOMEM, -E2BIG. */
int dwarf_abbrev_read(struct dwarf_abbrev_set *s, uint64_t code, const struct dwarf_abbrev **ret);

/* Valid until the next call. */
static inline int dwarf_abbrev_get(struct dwarf_abbrev_set *s, uint64_t code,
                                   const struct dwarf_abbrev **ret)
{
        if (code >= s->n || s->abbrev[code].round != s->round)
                return dwarf_abbrev_read(s, code, ret);
        *ret = &s->abbrev[code];
        return 0;
}

/* Positions `ret_spec` on the abbreviation of the DIE at this offset of .debug_info, and `ret` on its
 * attributes. -EBADMSG, -ENOMEM, -E2BIG. */
int dwarf_die_open(struct dwarf_unit *u, uint64_t offset, struct dwarf_spec *ret_spec,
                   struct dwarf_cursor *ret);

/* For the unit DIE alone: looks its code up without reading the rest of the table. */
int dwarf_abbrev_seek(struct dwarf_unit *u, uint64_t code, struct dwarf_spec *ret);

void dwarf_abbrev_places_free(struct dwarf_file *f);

/* -- attribute values -- */

/* The unit as far as reading forms depends on it. */
const char *dwarf_value_string(const struct dwarf_unit *u, struct dwarf_value v);
bool dwarf_value_address(const struct dwarf_unit *u, struct dwarf_value v, uint64_t *ret);
/* The DIE a reference points to. False for type signatures and whatever points nowhere. */
bool dwarf_value_reference(struct dwarf_unit *u, struct dwarf_value v, struct dwarf_unit **ret_unit,
                           uint64_t *ret_offset);
static inline bool dwarf_form_is_address(uint16_t form)
{
        return form == DW_FORM_addr || form == DW_FORM_addrx || form == DW_FORM_GNU_addr_index ||
               (form >= DW_FORM_addrx1 && form <= DW_FORM_addrx4);
}

/* -- range lists -- */

typedef int (*dwarf_range_fn)(void *ctx, uint64_t lo, uint64_t hi);

/* Calls fn for each [lo, hi) that the three attributes give, in the order of the list. Damage ends a list
 * early. What fn returned when that was negative, or -E2BIG. */
int dwarf_extent_ranges(const struct dwarf_unit *u, const struct dwarf_extent *x, dwarf_range_fn fn,
                        void *ctx);

static inline bool dwarf_extent_is_empty(const struct dwarf_extent *x)
{
        return !x->ranges.form && !(x->low.form && x->high.form);
}

#endif
