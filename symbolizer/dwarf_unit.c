#include "symbolizer/dwarf_code.h"
#include "symbolizer/dwarf_form.h"
#include "symbolizer/dwarf_scopes.h"

#define UNIT_LENGTH_64       0xffffffffu
#define UNIT_LENGTH_RESERVED 0xfffffff0u

int dwarf_file_open(struct dwarf_file *f, struct elf_image *e, bool split, struct dwarf_budget *budget)
{
        const struct {
                const char *name, *split_name; /* split_name NULL: never in a split file */
                struct span *span;
        } want[] = {
                        {".debug_info", ".debug_info.dwo", &f->info},
                        {".debug_abbrev", ".debug_abbrev.dwo", &f->abbrev},
                        {".debug_str", ".debug_str.dwo", &f->str},
                        {".debug_str_offsets", ".debug_str_offsets.dwo", &f->str_offsets},
                        {".debug_rnglists", ".debug_rnglists.dwo", &f->rnglists},
                        {".debug_line_str", NULL, &f->line_str},
                        {".debug_addr", NULL, &f->addr},
                        {".debug_ranges", NULL, &f->ranges},
                        {".debug_line", NULL, &f->line},
        };

        *f = (struct dwarf_file){.budget = budget, .split = split};
        for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
                const char *name = split ? want[i].split_name : want[i].name;
                struct elf_section s;
                int r = name ? elf_image_section(e, name, &s) : -ENOENT;

                if (r == -E2BIG || r == -ENOMEM)
                        return r;
                if (r >= 0)
                        *want[i].span = s.bytes;
        }
        return f->info.size && f->abbrev.size ? 0 : -ENODATA;
}

void dwarf_file_close(struct dwarf_file *f)
{
        if (!f->budget)
                return;
        for (uint64_t i = 0; i < f->n_units; i++) {
                dwarf_code_free(f->unit[i].code, f->budget);
                dwarf_scopes_free(f->unit[i].scopes, f->budget);
        }
        dwarf_abbrev_places_free(f);
        dwarf_release(f->budget, f->unit, f->cap_units, sizeof(*f->unit));
        *f = (struct dwarf_file){0};
}

/* -- attribute values -- */

static const char *string_at(struct span s, uint64_t offset)
{
        struct dwarf_cursor c = dwarf_cursor_at(s, offset);
        return cursor_string(&c);
}

/* Element `index` of a table of equal-sized entries that begins at `base`. */
static bool table_entry(struct span s, uint64_t base, uint64_t index, unsigned size, uint64_t *ret)
{
        struct dwarf_cursor c = dwarf_cursor_at(s, base);

        if (c.bad || index >= cursor_left(&c) / size)
                return false;
        c.p += index * size;
        *ret = cursor_uint(&c, size);
        return true;
}

const char *dwarf_value_string(const struct dwarf_unit *u, struct dwarf_value v)
{
        const struct dwarf_file *f = u->file;
        uint64_t offset;

        switch (v.form) {
        case DW_FORM_string:
                return string_at(f->info, v.u);
        case DW_FORM_strp:
                return string_at(f->str, v.u);
        case DW_FORM_line_strp:
                return string_at(f->line_str, v.u);
        case DW_FORM_strp_sup:
        case DW_FORM_GNU_strp_alt:
                return f->alt ? string_at(f->alt->str, v.u) : NULL;
        case DW_FORM_strx:
        case DW_FORM_strx1:
        case DW_FORM_strx2:
        case DW_FORM_strx3:
        case DW_FORM_strx4:
        case DW_FORM_GNU_str_index:
                if (!table_entry(f->str_offsets, u->str_offsets_base, v.u, u->offset_size, &offset))
                        return NULL;
                return string_at(f->str, offset);
        default:
                return NULL;
        }
}

bool dwarf_value_address(const struct dwarf_unit *u, struct dwarf_value v, uint64_t *ret)
{
        if (v.form == DW_FORM_addr) {
                *ret = v.u;
                return true;
        }
        return dwarf_form_is_address(v.form) &&
               table_entry(u->file->addr, u->addr_base, v.u, u->address_size, ret);
}

bool dwarf_value_reference(struct dwarf_unit *u, struct dwarf_value v, struct dwarf_unit **ret_unit,
                           uint64_t *ret_offset)
{
        struct dwarf_file *f = u->file;
        struct dwarf_unit *target = u;
        uint64_t offset = v.u;

        switch (v.form) {
        case DW_FORM_ref1:
        case DW_FORM_ref2:
        case DW_FORM_ref4:
        case DW_FORM_ref8:
        case DW_FORM_ref_udata:
                if (offset >= u->end - u->offset)
                        return false;
                offset += u->offset;
                break;
        case DW_FORM_ref_addr:
                if (offset < u->offset || offset >= u->end)
                        target = dwarf_file_unit_at(f, offset);
                break;
        case DW_FORM_ref_sup4:
        case DW_FORM_ref_sup8:
        case DW_FORM_GNU_ref_alt:
                target = f->alt ? dwarf_file_unit_at(f->alt, offset) : NULL;
                break;
        default:
                return false;
        }
        if (!target)
                return false;
        *ret_unit = target;
        *ret_offset = offset;
        return true;
}

/* -- units -- */

/* The header at an offset. False: no further unit can be found. `ret->version` 0: one to leave out. */
static bool read_header(struct dwarf_file *f, uint64_t offset, struct dwarf_unit *ret)
{
        struct dwarf_cursor c = dwarf_cursor_at(f->info, offset);
        struct dwarf_unit u = {.file = f,
                               .offset = offset,
                               .offset_size = 4,
                               .type = DW_UT_compile,
                               .stmt_list = UINT64_MAX};
        uint64_t length = cursor_u32(&c);
        const uint8_t *start;
        uint16_t version;

        if (length == UNIT_LENGTH_64) {
                u.offset_size = 8;
                length = cursor_uint(&c, 8);
        } else if (length >= UNIT_LENGTH_RESERVED) {
                return false;
        }
        if (c.bad || length > cursor_left(&c))
                return false;
        c.end = c.p + length;
        u.end = (uint64_t)(c.end - f->info.data);
        start = f->info.data + offset;

        version = cursor_u16(&c);
        u.version = version <= 5 ? (uint8_t)version : 0;
        if (version >= 5) {
                u.type = cursor_u8(&c);
                u.address_size = cursor_u8(&c);
                u.abbrev_offset = cursor_uint(&c, u.offset_size);
                if (u.type == DW_UT_skeleton || u.type == DW_UT_split_compile) {
                        u.dwo_id = cursor_uint(&c, 8);
                        u.has_dwo_id = true;
                }
        } else {
                u.abbrev_offset = cursor_uint(&c, u.offset_size);
                u.address_size = cursor_u8(&c);
        }
        u.header_size = (uint8_t)(c.p - start);

        /* References within a unit are kept in 32 bits. */
        if (c.bad || u.version < 2 || (u.address_size != 4 && u.address_size != 8) ||
            u.end - u.offset > UINT32_MAX || u.type == DW_UT_type || u.type == DW_UT_split_type)
                u.version = 0;
        *ret = u;
        return true;
}

/* Where the tables of a unit that names no base begin: behind the header of their section. */
static void set_default_bases(struct dwarf_unit *u)
{
        if (u->version >= 5) {
                u->str_offsets_base = u->offset_size == 8 ? 16 : 8;
                u->rnglists_base = u->offset_size == 8 ? 20 : 12;
                u->addr_base = u->offset_size == 8 ? 16 : 8;
        }
}

/* Bases stand behind the attributes that need them, so values are gathered first. */
static int read_unit_die(struct dwarf_unit *u, struct dwarf_extent *ret)
{
        struct span bytes = {u->file->info.data, u->end};
        struct dwarf_cursor c = dwarf_cursor_at(bytes, u->offset + u->header_size);
        struct dwarf_value comp_dir = {0}, dwo_name = {0}, v;
        struct dwarf_extent x = {0};
        struct dwarf_spec spec;
        uint16_t attr, form;
        int64_t implicit;
        uint64_t code = cursor_uleb(&c);
        int r;

        set_default_bases(u);
        if (c.bad || code == 0)
                return -EBADMSG;
        r = dwarf_abbrev_seek(u, code, &spec);
        if (r < 0)
                return r;
        u->is_partial = spec.tag == DW_TAG_partial_unit;
        if (spec.tag == DW_TAG_type_unit)
                return -EBADMSG;

        while (!c.bad && dwarf_spec_next(&spec, &attr, &form, &implicit)) {
                v = dwarf_read_form(&c, u, form, implicit);
                switch (attr) {
                case DW_AT_low_pc:
                        x.low = v;
                        break;
                case DW_AT_high_pc:
                        x.high = v;
                        break;
                case DW_AT_ranges:
                        x.ranges = v;
                        break;
                case DW_AT_stmt_list:
                        u->stmt_list = v.u;
                        break;
                case DW_AT_comp_dir:
                        comp_dir = v;
                        break;
                case DW_AT_dwo_name:
                case DW_AT_GNU_dwo_name:
                        dwo_name = v;
                        break;
                case DW_AT_GNU_dwo_id:
                        u->dwo_id = v.u;
                        u->has_dwo_id = true;
                        break;
                case DW_AT_language:
                        u->language = (uint16_t)v.u;
                        break;
                case DW_AT_str_offsets_base:
                        u->str_offsets_base = v.u;
                        break;
                case DW_AT_addr_base:
                case DW_AT_GNU_addr_base:
                        u->addr_base = v.u;
                        break;
                case DW_AT_rnglists_base:
                        u->rnglists_base = v.u;
                        break;
                case DW_AT_GNU_ranges_base:
                        u->ranges_base = v.u;
                        break;
                }
        }
        if (c.bad)
                return -EBADMSG;

        u->comp_dir = dwarf_value_string(u, comp_dir);
        u->dwo_name = dwarf_value_string(u, dwo_name);
        if (u->dwo_name && u->has_dwo_id && !u->file->split)
                u->type = DW_UT_skeleton;
        if (!dwarf_value_address(u, x.low, &u->low_pc))
                u->low_pc = 0;
        *ret = x;
        return 0;
}

int dwarf_file_read_units(struct dwarf_file *f, dwarf_extent_fn fn, void *ctx)
{
        uint64_t offset = 0;

        while (offset < f->info.size) {
                struct dwarf_extent x;
                struct dwarf_unit u;
                int r;

                if (!read_header(f, offset, &u))
                        break;
                offset = u.end;
                if (!dwarf_work(f->budget, 1))
                        return -E2BIG;
                if (u.version == 0)
                        continue;
                r = read_unit_die(&u, &x);
                if (r == -EBADMSG)
                        continue;
                if (r < 0)
                        return r;

                r = DWARF_GROW(f->budget, f->unit, f->cap_units, f->n_units);
                if (r < 0)
                        return r;
                if (f->n_units >= UINT32_MAX)
                        return -E2BIG;
                f->unit[f->n_units] = u;
                if (fn) {
                        r = fn(ctx, &f->unit[f->n_units], (uint32_t)f->n_units, &x);
                        if (r < 0)
                                return r;
                }
                f->n_units++;
        }
        return 0;
}

struct dwarf_unit *dwarf_file_unit_at(struct dwarf_file *f, uint64_t offset)
{
        uint64_t lo = 0, hi = f->n_units;

        while (lo < hi) {
                uint64_t mid = (lo + hi) / 2;
                if (f->unit[mid].offset <= offset)
                        lo = mid + 1;
                else
                        hi = mid;
        }
        if (lo == 0 || offset >= f->unit[lo - 1].end)
                return NULL;
        return &f->unit[lo - 1];
}
