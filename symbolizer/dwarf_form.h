/* Reading one attribute value, inlined into the loops that read millions of them.
 *
 * Forms: DWARF 5, section 7.5.6; DW_FORM_GNU_* of the GNU extensions. */
#ifndef SYMBOLIZER_DWARF_FORM_H
#define SYMBOLIZER_DWARF_FORM_H

#include "symbolizer/dwarf_unit.h"

#ifndef DW_FORM_GNU_strp_alt
#define DW_FORM_GNU_strp_alt 0x1f21
#endif

/* The size of a form that always takes the same; -1 for others. */
static inline int dwarf_form_size(uint16_t form, uint8_t version, uint8_t address_size, uint8_t offset_size)
{
        switch (form) {
        case DW_FORM_flag_present:
        case DW_FORM_implicit_const:
                return 0;
        case DW_FORM_data1:
        case DW_FORM_flag:
        case DW_FORM_ref1:
        case DW_FORM_strx1:
        case DW_FORM_addrx1:
                return 1;
        case DW_FORM_data2:
        case DW_FORM_ref2:
        case DW_FORM_strx2:
        case DW_FORM_addrx2:
                return 2;
        case DW_FORM_strx3:
        case DW_FORM_addrx3:
                return 3;
        case DW_FORM_data4:
        case DW_FORM_ref4:
        case DW_FORM_ref_sup4:
        case DW_FORM_strx4:
        case DW_FORM_addrx4:
                return 4;
        case DW_FORM_data8:
        case DW_FORM_ref8:
        case DW_FORM_ref_sig8:
        case DW_FORM_ref_sup8:
                return 8;
        case DW_FORM_data16:
                return 16;
        case DW_FORM_addr:
                return address_size;
        case DW_FORM_ref_addr: /* DWARF 2 gave it the size of an address */
                return version <= 2 ? address_size : offset_size;
        case DW_FORM_strp:
        case DW_FORM_line_strp:
        case DW_FORM_strp_sup:
        case DW_FORM_sec_offset:
        case DW_FORM_GNU_ref_alt:
        case DW_FORM_GNU_strp_alt:
                return offset_size;
        default:
                return -1;
        }
}

static inline struct dwarf_value dwarf_read_form(struct dwarf_cursor *c, const struct dwarf_unit *u,
                                                 uint16_t form, int64_t implicit)
{
        struct dwarf_value v = {.form = form};

        if (form == DW_FORM_indirect) {
                uint64_t actual = cursor_uleb(c);
                /* A constant that stands in the abbreviation cannot be named from a DIE. */
                if (actual == DW_FORM_indirect || actual == DW_FORM_implicit_const || actual > UINT16_MAX) {
                        cursor_fail(c);
                        return v;
                }
                v.form = form = (uint16_t)actual;
        }

        switch (form) {
        case DW_FORM_data1:
        case DW_FORM_flag:
        case DW_FORM_ref1:
        case DW_FORM_strx1:
        case DW_FORM_addrx1:
                v.u = cursor_u8(c);
                return v;
        case DW_FORM_data2:
        case DW_FORM_ref2:
        case DW_FORM_strx2:
        case DW_FORM_addrx2:
                v.u = cursor_uint(c, 2);
                return v;
        case DW_FORM_strx3:
        case DW_FORM_addrx3:
                v.u = cursor_uint(c, 3);
                return v;
        case DW_FORM_data4:
        case DW_FORM_ref4:
        case DW_FORM_ref_sup4:
        case DW_FORM_strx4:
        case DW_FORM_addrx4:
                v.u = cursor_uint(c, 4);
                return v;
        case DW_FORM_data8:
        case DW_FORM_ref8:
        case DW_FORM_ref_sig8:
        case DW_FORM_ref_sup8:
                v.u = cursor_uint(c, 8);
                return v;
        case DW_FORM_udata:
        case DW_FORM_ref_udata:
        case DW_FORM_strx:
        case DW_FORM_addrx:
        case DW_FORM_rnglistx:
        case DW_FORM_loclistx:
        case DW_FORM_GNU_addr_index:
        case DW_FORM_GNU_str_index:
                v.u = cursor_uleb(c);
                return v;
        case DW_FORM_sdata:
                v.u = (uint64_t)cursor_sleb(c);
                return v;
        case DW_FORM_flag_present:
                v.u = 1;
                return v;
        case DW_FORM_implicit_const:
                v.u = (uint64_t)implicit;
                return v;
        case DW_FORM_string: {
                const char *s = cursor_string(c);
                v.u = s ? (uint64_t)((const uint8_t *)s - u->file->info.data) : 0;
                return v;
        }
        case DW_FORM_data16:
                cursor_skip(c, 16);
                return v;
        case DW_FORM_block:
        case DW_FORM_exprloc:
                cursor_skip(c, cursor_uleb(c));
                return v;
        case DW_FORM_block1:
                cursor_skip(c, cursor_u8(c));
                return v;
        case DW_FORM_block2:
                cursor_skip(c, cursor_u16(c));
                return v;
        case DW_FORM_block4:
                cursor_skip(c, cursor_u32(c));
                return v;
        default: {
                int size = dwarf_form_size(form, u->version, u->address_size, u->offset_size);
                if (size <= 0)
                        cursor_fail(c);
                else
                        v.u = cursor_uint(c, (unsigned)size);
                return v;
        }
        }
}

#endif
