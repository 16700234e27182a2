/* DWARF made by hand, byte by byte from the standard: what compilers write rarely, and what only somebody
 * hostile writes. What compilers write is compared with other readers by dwarf_corpus.py. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>
#include <dwarf.h>

#include "symbolizer/dwarf_index.h"
#include "tests/symbolizer/cfi_image.h"

#define TEXT IMAGE_TEXT

/* -- writing -- */

static void u8(struct buf *b, uint8_t v)
{
        buf_add(b, &v, sizeof(v));
}

static void u16(struct buf *b, uint16_t v)
{
        buf_add(b, &v, sizeof(v));
}

static void u32(struct buf *b, uint32_t v)
{
        buf_add(b, &v, sizeof(v));
}

static void u64(struct buf *b, uint64_t v)
{
        buf_add(b, &v, sizeof(v));
}

static void uleb(struct buf *b, uint64_t v)
{
        do {
                u8(b, (uint8_t)((v & 0x7f) | (v > 0x7f ? 0x80 : 0)));
                v >>= 7;
        } while (v);
}

static void str(struct buf *b, const char *s)
{
        buf_add(b, s, strlen(s) + 1);
}

/* Sets a length field written as zero at `at` to what follows it. */
static void set_length(struct buf *b, size_t at)
{
        uint32_t n = (uint32_t)(b->len - at - 4);

        memcpy(b->data + at, &n, sizeof(n));
}

struct program {
        struct buf info, abbrev, line, ranges;
};

static void abbrev(struct program *p, uint64_t code, uint64_t tag, int children, ...)
{
        va_list ap;

        uleb(&p->abbrev, code);
        uleb(&p->abbrev, tag);
        u8(&p->abbrev, (uint8_t)children);
        va_start(ap, children);
        for (;;) {
                int attr = va_arg(ap, int), form = attr ? va_arg(ap, int) : 0;

                uleb(&p->abbrev, (uint64_t)attr);
                uleb(&p->abbrev, (uint64_t)form);
                if (!attr)
                        break;
        }
        va_end(ap);
}

enum { UNIT = 1, FUNCTION, INLINED, BLOCK, RANGED, NAMED, FUNCTION_AT };

static void common_abbrevs(struct program *p)
{
        abbrev(p, UNIT, DW_TAG_compile_unit, true, DW_AT_language, DW_FORM_data1, DW_AT_low_pc, DW_FORM_addr,
               DW_AT_high_pc, DW_FORM_data4, DW_AT_stmt_list, DW_FORM_sec_offset, 0);
        abbrev(p, FUNCTION, DW_TAG_subprogram, true, DW_AT_name, DW_FORM_string, DW_AT_low_pc, DW_FORM_addr,
               DW_AT_high_pc, DW_FORM_data4, 0);
        abbrev(p, INLINED, DW_TAG_inlined_subroutine, true, DW_AT_abstract_origin, DW_FORM_ref4,
               DW_AT_low_pc, DW_FORM_addr, DW_AT_high_pc, DW_FORM_data4, DW_AT_call_line, DW_FORM_data2, 0);
        abbrev(p, BLOCK, DW_TAG_lexical_block, true, 0);
        abbrev(p, RANGED, DW_TAG_subprogram, false, DW_AT_ranges, DW_FORM_sec_offset, 0);
        abbrev(p, NAMED, DW_TAG_subprogram, false, DW_AT_name, DW_FORM_string, DW_AT_decl_line,
               DW_FORM_data2, 0);
        abbrev(p, FUNCTION_AT, DW_TAG_subprogram, false, DW_AT_abstract_origin, DW_FORM_ref4, DW_AT_low_pc,
               DW_FORM_addr, DW_AT_high_pc, DW_FORM_data4, 0);
        u8(&p->abbrev, 0);
}

/* A DWARF 4 unit over [TEXT, TEXT + size); its length is set by end_unit(). */
static size_t begin_unit(struct program *p, uint32_t abbrev_offset, uint32_t size)
{
        size_t at = p->info.len;

        u32(&p->info, 0);
        u16(&p->info, 4);
        u32(&p->info, abbrev_offset);
        u8(&p->info, 8);
        uleb(&p->info, UNIT);
        u8(&p->info, DW_LANG_C99);
        u64(&p->info, TEXT);
        u32(&p->info, size);
        u32(&p->info, 0);
        return at;
}

static void end_unit(struct program *p, size_t unit)
{
        u8(&p->info, 0);
        set_length(&p->info, unit);
}

static void function(struct program *p, const char *name, uint64_t lo, uint32_t size)
{
        uleb(&p->info, FUNCTION);
        str(&p->info, name);
        u64(&p->info, lo);
        u32(&p->info, size);
}

static void inlined(struct program *p, uint32_t origin, uint64_t lo, uint32_t size, uint16_t line)
{
        uleb(&p->info, INLINED);
        u32(&p->info, origin);
        u64(&p->info, lo);
        u32(&p->info, size);
        u16(&p->info, line);
}

/* -- reading -- */

struct opened {
        struct buf file;
        struct elf_image *image;
        struct dwarf_index *index;
        int error;
};

static void open_program(struct opened *o, struct program *p, uint64_t max_memory, uint64_t max_dies)
{
        struct image_section section[] = {
                        {.name = ".debug_info", .data = p->info.data, .size = p->info.len},
                        {.name = ".debug_abbrev", .data = p->abbrev.data, .size = p->abbrev.len},
                        {.name = ".debug_line", .data = p->line.data, .size = p->line.len},
                        {.name = ".debug_ranges", .data = p->ranges.data, .size = p->ranges.len},
        };

        *o = (struct opened){0};
        image_make(&o->file, &(struct image_options){0}, section, ARRAY_SIZE(section));
        assert_int_equal(buf_error(&o->file), 0);
        assert_int_equal(elf_image_from_memory(o->file.data, o->file.len, 0, &o->image), 0);
        o->error = dwarf_index_new(&o->index, &(struct dwarf_sources){.main = o->image,
                                                                      .max_memory = max_memory,
                                                                      .max_dies = max_dies});
        buf_free(&p->info);
        buf_free(&p->abbrev);
        buf_free(&p->line);
        buf_free(&p->ranges);
}

static void close_program(struct opened *o)
{
        dwarf_index_free(o->index);
        elf_image_free(o->image);
        buf_free(&o->file);
}

static void assert_stats(struct opened *o, uint64_t max_memory, uint64_t max_work)
{
        struct dwarf_stats s;

        dwarf_index_stats(o->index, &s);
        assert_true(s.memory <= max_memory);
        /* What is being done when the limit is hit is finished: up to one batch of DIEs. */
        assert_true(s.work <= max_work + 1024);
}

/* -- line programs -- */

/* A version 2 header: instructions of 4 bytes, line_base -3, line_range 12, opcode_base 10; one file. */
static size_t begin_lines(struct buf *b)
{
        static const uint8_t lengths[9] = {0, 1, 1, 1, 1, 0, 0, 0, 1};
        size_t at = b->len, header;

        u32(b, 0);
        u16(b, 2);
        header = b->len;
        u32(b, 0);
        u8(b, 4);
        u8(b, 1);
        u8(b, (uint8_t)-3);
        u8(b, 12);
        u8(b, 10);
        buf_add(b, lengths, sizeof(lengths));
        str(b, "/src");
        u8(b, 0);
        str(b, "one.c");
        uleb(b, 1);
        uleb(b, 0);
        uleb(b, 0);
        str(b, "/other/two.c");
        uleb(b, 0);
        uleb(b, 0);
        uleb(b, 0);
        u8(b, 0);
        set_length(b, header);
        return at;
}

static void set_address(struct buf *b, uint64_t a)
{
        u8(b, 0);
        uleb(b, 9);
        u8(b, DW_LNE_set_address);
        u64(b, a);
}

static void end_sequence(struct buf *b)
{
        u8(b, 0);
        uleb(b, 1);
        u8(b, DW_LNE_end_sequence);
}

static uint8_t special(int line, unsigned instructions)
{
        return (uint8_t)(line + 3 + 12 * (int)instructions + 10);
}

static void assert_line(struct opened *o, uint64_t address, const char *file, uint32_t line)
{
        struct dwarf_frame f;
        int n = dwarf_index_find(o->index, address, &f, 1);

        if (!file) {
                assert_int_equal(n, 0);
                return;
        }
        assert_int_equal(n, 1);
        assert_string_equal(f.file, file);
        assert_int_equal(f.line, line);
        assert_null(f.name);
}

static void test_line_program(void **state)
{
        struct program p = {0};
        struct opened o;
        size_t unit, lines;

        common_abbrevs(&p);
        unit = begin_unit(&p, 0, 0x1000);
        end_unit(&p, unit);
        lines = begin_lines(&p.line);
        /* The later code first: sequences stand in any order. */
        set_address(&p.line, TEXT + 0x200);
        u8(&p.line, DW_LNS_set_file);
        uleb(&p.line, 2);
        u8(&p.line, DW_LNS_advance_line);
        uleb(&p.line, 49); /* one byte, and positive: the same as a signed one */
        u8(&p.line, DW_LNS_copy);
        u8(&p.line, special(5, 2));       /* + 8 bytes, line 55 */
        u8(&p.line, DW_LNS_const_add_pc); /* (255 - 10) / 12 = 20 instructions: + 80 bytes */
        u8(&p.line, special(-3, 0));      /* line 52 */
        u8(&p.line, DW_LNS_advance_pc);
        uleb(&p.line, 3); /* + 12 bytes */
        end_sequence(&p.line);
        /* What the linker dropped. */
        set_address(&p.line, 0);
        u8(&p.line, DW_LNS_copy);
        u8(&p.line, special(1, 200 / 12));
        end_sequence(&p.line);
        set_address(&p.line, TEXT);
        u8(&p.line, DW_LNS_copy);             /* file 1, line 1 */
        u8(&p.line, DW_LNS_fixed_advance_pc); /* not times 4 */
        u16(&p.line, 6);
        u8(&p.line, special(3, 0)); /* line 4 */
        u8(&p.line, DW_LNS_advance_pc);
        uleb(&p.line, 1);
        u8(&p.line, DW_LNS_advance_line);
        u8(&p.line, 0x7c); /* -4: line 0 */
        u8(&p.line, DW_LNS_copy);
        u8(&p.line, DW_LNS_advance_pc);
        uleb(&p.line, 1);
        end_sequence(&p.line);
        set_length(&p.line, lines);
        open_program(&o, &p, 0, 0);
        assert_int_equal(o.error, 0);

        assert_line(&o, TEXT - 1, NULL, 0);
        assert_line(&o, TEXT, "/src/one.c", 1);
        assert_line(&o, TEXT + 5, "/src/one.c", 1);
        assert_line(&o, TEXT + 6, "/src/one.c", 4);
        assert_line(&o, TEXT + 9, "/src/one.c", 4);
        assert_line(&o, TEXT + 10, "/src/one.c", 0);
        assert_line(&o, TEXT + 13, "/src/one.c", 0);
        assert_line(&o, TEXT + 14, NULL, 0);
        assert_line(&o, TEXT + 0x1ff, NULL, 0);
        assert_line(&o, TEXT + 0x200, "/other/two.c", 50);
        assert_line(&o, TEXT + 0x207, "/other/two.c", 50);
        assert_line(&o, TEXT + 0x208, "/other/two.c", 55);
        assert_line(&o, TEXT + 0x208 + 79, "/other/two.c", 55);
        assert_line(&o, TEXT + 0x208 + 80, "/other/two.c", 52);
        assert_line(&o, TEXT + 0x208 + 91, "/other/two.c", 52);
        assert_line(&o, TEXT + 0x208 + 92, NULL, 0);
        close_program(&o);
}

/* -- chains -- */

static void test_chain(void **state)
{
        struct program p = {0};
        struct dwarf_frame f[4];
        struct opened o;
        uint32_t origin;
        size_t unit;

        common_abbrevs(&p);
        unit = begin_unit(&p, 0, 0x1000);
        origin = (uint32_t)(p.info.len - unit);
        uleb(&p.info, NAMED);
        str(&p.info, "callee");
        u16(&p.info, 7);
        function(&p, "caller", TEXT + 0x100, 0x100);
        uleb(&p.info, BLOCK);
        inlined(&p, origin, TEXT + 0x120, 0x20, 12);
        /* Reaches beyond what it is inlined into: cut there. */
        inlined(&p, origin, TEXT + 0x130, 0x80, 13);
        u32(&p.info, 0); /* ends both, the block and the function */
        uleb(&p.info, FUNCTION_AT);
        u32(&p.info, origin);
        u64(&p.info, 0); /* dropped by the linker */
        u32(&p.info, 0x200);
        end_unit(&p, unit);
        open_program(&o, &p, 0, 0);
        assert_int_equal(o.error, 0);

        assert_int_equal(dwarf_index_find(o.index, TEXT + 0xff, f, 4), 0);
        assert_int_equal(dwarf_index_find(o.index, TEXT + 0x100, f, 4), 1);
        assert_string_equal(f[0].name, "caller");
        assert_false(f[0].inlined);
        assert_int_equal(dwarf_index_find(o.index, TEXT + 0x12f, f, 4), 2);
        assert_string_equal(f[0].name, "callee");
        assert_int_equal(f[0].function_line, 7);
        assert_true(f[0].inlined);
        assert_string_equal(f[1].name, "caller");
        assert_int_equal(f[1].line, 12);
        assert_int_equal(dwarf_index_find(o.index, TEXT + 0x13f, f, 4), 3);
        assert_int_equal(f[1].line, 13);
        assert_int_equal(f[2].line, 12);
        assert_int_equal(dwarf_index_find(o.index, TEXT + 0x140, f, 4), 1);
        assert_int_equal(dwarf_index_find(o.index, TEXT + 0x200, f, 4), 0);
        close_program(&o);
}

static void test_deep_nest(void **state)
{
        enum { DEPTH = 200 };
        struct program p = {0};
        struct dwarf_frame f[16];
        struct opened o;
        uint32_t origin;
        size_t unit;
        int n;

        common_abbrevs(&p);
        unit = begin_unit(&p, 0, 0x1000);
        origin = (uint32_t)(p.info.len - unit);
        uleb(&p.info, NAMED);
        str(&p.info, "again");
        u16(&p.info, 3);
        function(&p, "bottom", TEXT, 0x1000);
        for (uint16_t i = 0; i < DEPTH; i++)
                inlined(&p, origin, TEXT, 0x1000, i);
        for (int i = 0; i <= DEPTH; i++)
                u8(&p.info, 0);
        end_unit(&p, unit);
        open_program(&o, &p, 0, 0);
        assert_int_equal(o.error, 0);

        n = dwarf_index_find(o.index, TEXT, f, ARRAY_SIZE(f));
        assert_int_equal(n, ARRAY_SIZE(f));
        assert_string_equal(f[0].name, "again");
        assert_int_equal(f[1].line, DEPTH - 1);
        /* The middle is lost: the function itself never is. */
        assert_string_equal(f[n - 1].name, "bottom");
        assert_int_equal(f[n - 1].line, 0);
        assert_false(f[n - 1].inlined);
        close_program(&o);
}

static void test_blocks_without_end(void **state)
{
        struct program p = {0};
        struct dwarf_frame f[4];
        struct opened o;
        size_t unit;

        common_abbrevs(&p);
        unit = begin_unit(&p, 0, 0x1000);
        function(&p, "bottom", TEXT, 0x800);
        for (int i = 0; i < 1000000; i++)
                uleb(&p.info, BLOCK);
        function(&p, "too deep to be seen", TEXT + 0x800, 0x10);
        set_length(&p.info, unit);
        open_program(&o, &p, 0, 0);
        assert_int_equal(o.error, 0);
        assert_int_equal(dwarf_index_find(o.index, TEXT, f, 4), 1);
        assert_string_equal(f[0].name, "bottom");
        assert_int_equal(dwarf_index_find(o.index, TEXT + 0x800, f, 4), 0);
        close_program(&o);
}

static void test_origin_of_itself(void **state)
{
        struct program p = {0};
        struct dwarf_frame f[4];
        struct opened o;
        size_t unit;

        common_abbrevs(&p);
        unit = begin_unit(&p, 0, 0x1000);
        uint32_t self = (uint32_t)(p.info.len - unit);
        uleb(&p.info, FUNCTION_AT);
        u32(&p.info, self);
        u64(&p.info, TEXT);
        u32(&p.info, 0x10);
        end_unit(&p, unit);
        open_program(&o, &p, 0, 0);
        assert_int_equal(o.error, 0);
        assert_int_equal(dwarf_index_find(o.index, TEXT, f, 4), 1);
        assert_null(f[0].name);
        close_program(&o);
}

/* -- bombs -- */

#define MEMORY (16u << 20)
#define WORK   5000000u

/* Twenty thousand functions that share one list of twenty thousand ranges: 400 million from 420 kB. */
static void test_shared_range_list(void **state)
{
        struct program p = {0};
        struct dwarf_frame f[4];
        struct opened o;
        size_t unit;
        int r;

        common_abbrevs(&p);
        unit = begin_unit(&p, 0, 0x1000);
        for (int i = 0; i < 20000; i++) {
                uleb(&p.info, RANGED);
                u32(&p.info, 0);
        }
        end_unit(&p, unit);
        for (uint64_t i = 0; i < 20000; i++) {
                u64(&p.ranges, i % 0x1000);
                u64(&p.ranges, i % 0x1000 + 1);
        }
        open_program(&o, &p, MEMORY, WORK);
        assert_int_equal(o.error, 0);
        r = dwarf_index_find(o.index, TEXT, f, 4);
        assert_true(r >= 0 || r == -E2BIG);
        assert_stats(&o, MEMORY, WORK);
        close_program(&o);
}

/* Ten thousand units, the DIE of each described at the end of one large abbreviation table. */
static void test_shared_abbreviations(void **state)
{
        struct program p = {0};
        struct opened o;

        for (uint64_t i = 100; i < 100000; i++)
                abbrev(&p, i, DW_TAG_base_type, false, 0);
        common_abbrevs(&p);
        for (int i = 0; i < 10000; i++) {
                size_t unit = begin_unit(&p, 0, 0x1000);
                end_unit(&p, unit);
        }
        open_program(&o, &p, MEMORY, WORK);
        assert_int_equal(o.error, -E2BIG);
        close_program(&o);
}

/* A code far above the number of abbreviations must not size a table. */
static void test_sparse_code(void **state)
{
        struct program p = {0};
        struct dwarf_frame f[4];
        struct opened o;
        size_t unit;

        abbrev(&p, UINT32_MAX, DW_TAG_base_type, false, 0);
        common_abbrevs(&p);
        unit = begin_unit(&p, 0, 0x1000);
        function(&p, "f", TEXT, 0x10);
        u8(&p.info, 0);
        end_unit(&p, unit);
        open_program(&o, &p, MEMORY, WORK);
        assert_int_equal(o.error, 0);
        assert_int_equal(dwarf_index_find(o.index, TEXT, f, 4), 0);
        assert_stats(&o, MEMORY, WORK);
        close_program(&o);
}

/* A line program of one million rows that each unit of a thousand runs. */
static void test_shared_lines(void **state)
{
        struct program p = {0};
        struct dwarf_frame f[4];
        struct opened o;
        size_t lines;
        int r = 0;

        common_abbrevs(&p);
        for (int i = 0; i < 1000; i++) {
                size_t unit = begin_unit(&p, 0, 0x1000);
                uint64_t lo = TEXT + (uint64_t)i;
                memcpy(p.info.data + unit + 13, &lo, sizeof(lo));
                end_unit(&p, unit);
        }
        lines = begin_lines(&p.line);
        set_address(&p.line, TEXT);
        for (int i = 0; i < 1000000; i++) {
                u8(&p.line, special(i % 2 ? 1 : -1, 0));
                if (i % 1024 == 0) {
                        u8(&p.line, DW_LNS_fixed_advance_pc);
                        u16(&p.line, 1);
                }
        }
        end_sequence(&p.line);
        set_length(&p.line, lines);
        open_program(&o, &p, MEMORY, WORK);
        assert_int_equal(o.error, 0);
        for (uint64_t i = 0; i < 1000; i++)
                r = dwarf_index_find(o.index, TEXT + i, f, 4);
        assert_int_equal(r, -E2BIG);
        assert_stats(&o, MEMORY, WORK);
        close_program(&o);
}

/* -- links -- */

static const char *alt_link(const char *section, const void *data, size_t size, struct span *ret_id,
                            struct opened *o)
{
        *o = (struct opened){0};
        image_make(&o->file, &(struct image_options){0},
                   &(struct image_section){.name = section, .data = data, .size = size}, 1);
        assert_int_equal(elf_image_from_memory(o->file.data, o->file.len, 0, &o->image), 0);
        return dwarf_alt_link(o->image, ret_id);
}

static void test_alt_link(void **state)
{
        struct span id;
        struct opened o;

        assert_string_equal(alt_link(".gnu_debugaltlink", "a/b.debug\0\x12\x34\x56", 13, &id, &o),
                            "a/b.debug");
        assert_int_equal(id.size, 3);
        assert_memory_equal(id.data, "\x12\x34\x56", 3);
        close_program(&o);
        assert_string_equal(alt_link(".debug_sup", "\5\0\0sup\0\2\xab\xcd", 10, &id, &o), "sup");
        assert_int_equal(id.size, 2);
        assert_memory_equal(id.data, "\xab\xcd", 2);
        close_program(&o);
        assert_null(alt_link(".debug_sup", "\5\0\1sup\0\2\xab\xcd", 10, &id, &o)); /* is one itself */
        close_program(&o);
        assert_null(alt_link(".debug_sup", "\5\0\0sup\0\3\xab\xcd", 10, &id, &o));
        close_program(&o);
        assert_null(alt_link(".gnu_debugaltlink", "abc", 3, &id, &o));
        close_program(&o);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                        cmocka_unit_test(test_line_program),
                        cmocka_unit_test(test_chain),
                        cmocka_unit_test(test_deep_nest),
                        cmocka_unit_test(test_blocks_without_end),
                        cmocka_unit_test(test_origin_of_itself),
                        cmocka_unit_test(test_shared_range_list),
                        cmocka_unit_test(test_shared_abbreviations),
                        cmocka_unit_test(test_sparse_code),
                        cmocka_unit_test(test_shared_lines),
                        cmocka_unit_test(test_alt_link),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
