/* Range lists: .debug_ranges (DWARF 3 and 4) and .debug_rnglists (DWARF 5, section 2.17.3). */
#include "symbolizer/dwarf_form.h"

#define RANGES_BASE_SELECTION(size) ((size) == 8 ? UINT64_MAX : UINT32_MAX)

struct sink {
        dwarf_range_fn fn;
        void *ctx;
        struct dwarf_budget *budget;
};

static int give(const struct sink *sink, uint64_t lo, uint64_t hi)
{
        if (!dwarf_work(sink->budget, 1))
                return -E2BIG;
        return lo < hi ? sink->fn(sink->ctx, lo, hi) : 0;
}

static int ranges_v4(const struct dwarf_unit *u, uint64_t offset, const struct sink *sink)
{
        struct dwarf_cursor c = dwarf_cursor_at(u->file->ranges, offset);
        uint64_t base = u->low_pc;
        unsigned size = u->address_size;

        for (;;) {
                uint64_t lo = cursor_uint(&c, size), hi = cursor_uint(&c, size);
                int r;

                if (c.bad || (lo == 0 && hi == 0))
                        return 0;
                if (lo == RANGES_BASE_SELECTION(size)) {
                        base = hi;
                        continue;
                }
                r = give(sink, base + lo, base + hi);
                if (r < 0)
                        return r;
        }
}

static bool indexed_address(const struct dwarf_unit *u, struct dwarf_cursor *c, uint64_t *ret)
{
        struct dwarf_value v = {.form = DW_FORM_addrx, .u = cursor_uleb(c)};
        return dwarf_value_address(u, v, ret);
}

static int ranges_v5(const struct dwarf_unit *u, uint64_t offset, const struct sink *sink)
{
        struct dwarf_cursor c = dwarf_cursor_at(u->file->rnglists, offset);
        uint64_t base = u->low_pc, lo = 0, hi = 0;
        unsigned size = u->address_size;

        while (!c.bad) {
                uint8_t kind = cursor_u8(&c);
                bool known = true;
                int r;

                switch (kind) {
                case DW_RLE_end_of_list:
                        return 0;
                case DW_RLE_base_addressx:
                        if (!indexed_address(u, &c, &base))
                                return 0;
                        continue;
                case DW_RLE_base_address:
                        base = cursor_uint(&c, size);
                        continue;
                case DW_RLE_startx_endx:
                        known = indexed_address(u, &c, &lo);
                        known = indexed_address(u, &c, &hi) && known;
                        break;
                case DW_RLE_startx_length:
                        known = indexed_address(u, &c, &lo);
                        hi = lo + cursor_uleb(&c);
                        break;
                case DW_RLE_offset_pair:
                        lo = base + cursor_uleb(&c);
                        hi = base + cursor_uleb(&c);
                        break;
                case DW_RLE_start_end:
                        lo = cursor_uint(&c, size);
                        hi = cursor_uint(&c, size);
                        break;
                case DW_RLE_start_length:
                        lo = cursor_uint(&c, size);
                        hi = lo + cursor_uleb(&c);
                        break;
                default:
                        return 0;
                }
                if (c.bad)
                        return 0;
                r = known ? give(sink, lo, hi) : give(sink, 0, 0);
                if (r < 0)
                        return r;
        }
        return 0;
}

static bool list_offset(const struct dwarf_unit *u, struct dwarf_value v, uint64_t *ret)
{
        struct dwarf_cursor c;

        switch (v.form) {
        case DW_FORM_rnglistx:
                c = dwarf_cursor_at(u->file->rnglists, u->rnglists_base);
                if (c.bad || v.u >= cursor_left(&c) / u->offset_size)
                        return false;
                c.p += v.u * u->offset_size;
                *ret = u->rnglists_base + cursor_uint(&c, u->offset_size);
                return true;
        case DW_FORM_sec_offset:
        case DW_FORM_data4:
        case DW_FORM_data8:
                *ret = v.u + (u->file->split && u->version < 5 ? u->ranges_base : 0);
                return true;
        default:
                return false;
        }
}

int dwarf_extent_ranges(const struct dwarf_unit *u, const struct dwarf_extent *x, dwarf_range_fn fn,
                        void *ctx)
{
        struct sink sink = {fn, ctx, u->file->budget};
        uint64_t lo, hi, offset;

        if (x->ranges.form) {
                if (!list_offset(u, x->ranges, &offset))
                        return 0;
                return u->version < 5 ? ranges_v4(u, offset, &sink) : ranges_v5(u, offset, &sink);
        }
        if (!x->high.form || !dwarf_value_address(u, x->low, &lo))
                return 0;
        if (!dwarf_form_is_address(x->high.form))
                hi = lo + x->high.u;
        else if (!dwarf_value_address(u, x->high, &hi))
                return 0;
        return give(&sink, lo, hi);
}
