#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <elf.h>

#include "base/cleanup.h"
#include "symbolizer/cfi.h"
#include "tests/symbolizer/cfi_image.h"
#include "tests/symbolizer/cfi_oracle.h"

#define T IMAGE_TEXT

#define BYTES(...) (const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__})

/* def_cfa rsp+8, rip at CFA-8; as every compiler's for x86-64. */
static const struct image_cie plain_cie = {
                .augmentation = "",
                .code_align = 1,
                .data_align = -8,
                .return_register = 16,
                .program = (const uint8_t[]){0x0c, 7, 8, 0x90, 1},
                .program_size = 5,
};
/* def_cfa sp+0 */
static const struct image_cie arm_cie = {
                .augmentation = "",
                .code_align = 4,
                .data_align = -8,
                .return_register = 30,
                .program = (const uint8_t[]){0x0c, 31, 0},
                .program_size = 3,
};

struct table {
        struct buf file;
        struct elf_image *image;
        struct cfi_table *t;
};

static int build(struct table *x, const struct image_options *o, const struct image_section *s, size_t n)
{
        *x = (struct table){0};
        image_make(&x->file, o, s, n);
        assert_int_equal(elf_image_from_memory(x->file.data, x->file.len, 1 << 20, &x->image), 0);
        return cfi_build(x->image, NULL, &x->t);
}

static int build_eh(struct table *x, const struct buf *eh)
{
        return build(x, &(struct image_options){0},
                     &(struct image_section){.name = ".eh_frame", .data = eh->data, .size = eh->len}, 1);
}

static void done(struct table *x)
{
        cfi_table_free(x->t);
        elf_image_free(x->image);
        buf_free(&x->file);
}

/* What a consumer of tables relies on. */
static void check_form(const struct cfi_table *t)
{
        assert_int_equal(t->page_start[0], 0);
        assert_int_equal(t->page_start[t->n_pages], t->n_rows);
        for (uint32_t p = 0; p < t->n_pages; p++) {
                assert_true(t->page_start[p] < t->page_start[p + 1]);
                assert_int_equal(UNWIND_ROW_OFFSET(t->row[t->page_start[p]]), 0);
                for (uint32_t i = t->page_start[p]; i < t->page_start[p + 1]; i++) {
                        assert_true(UNWIND_ROW_RULE(t->row[i]) < UNWIND_RULE_FIRST + t->n_rules);
                        if (i > t->page_start[p])
                                assert_true(UNWIND_ROW_OFFSET(t->row[i]) > UNWIND_ROW_OFFSET(t->row[i - 1]));
                }
        }
        for (uint32_t i = 0; i < t->n_rules; i++) {
                assert_in_range(UNWIND_RULE_KIND(&t->rule[i]), UNWIND_SP, UNWIND_RA_IN);
                assert_in_range(UNWIND_RULE_FP(&t->rule[i]), UNWIND_FP_SAME, UNWIND_FP_UNDEFINED);
        }
}

static struct unwind_rule rule_at(const struct table *x, uint64_t address)
{
        uint32_t id = cfi_table_find(x->t, address);

        if (id < UNWIND_RULE_FIRST)
                return (struct unwind_rule){.kind_fp = (uint8_t)id};
        return x->t->rule[id - UNWIND_RULE_FIRST];
}

static void assert_rule(const struct table *x, uint64_t address, enum unwind_kind kind, int32_t cfa_offset,
                        int8_t aux, enum unwind_fp fp, int16_t fp_offset)
{
        struct unwind_rule r = rule_at(x, address);

        if (UNWIND_RULE_KIND(&r) != kind)
                fail_msg("kind %d at %lx", UNWIND_RULE_KIND(&r), (unsigned long)address);
        assert_int_equal(r.cfa_offset, cfa_offset);
        assert_int_equal(r.aux, aux);
        assert_int_equal(UNWIND_RULE_FP(&r), fp);
        assert_int_equal(r.fp_offset, fp_offset);
}

static void assert_kind(const struct table *x, uint64_t address, enum unwind_kind kind)
{
        assert_rule(x, address, kind, 0, 0, UNWIND_FP_SAME, 0);
}

/* push rbp; push rbx; sub ...; then back, with remember and restore around an early return. */
static void test_rows_follow_the_instructions(void **state)
{
        _cleanup_buf_ struct buf eh = {0};
        uint64_t cie = image_cie(&eh, 1, &plain_cie);
        struct table x;

        image_fde(&eh, 1, cie, T + 0x10, 0x40, "",
                  BYTES(0x41, 0x0e, 16, 0x86, 2,         /* +1: cfa 16, rbp at -16 */
                        0x41, 0x0e, 24, 0x83, 3,         /* +2: cfa 24, rbx at -24 */
                        0x44, 0x0a, 0x0e, 8, 0xc6, 0xc3, /* +6: remember; cfa 8, rbp and rbx restored */
                        0x42, 0x0b,                      /* +8: restore */
                        0x02, 0x10, 0x0d, 6));           /* +0x18: cfa by rbp */
        assert_int_equal(build_eh(&x, &eh), 0);
        check_form(x.t);
        assert_kind(&x, T + 0xf, UNWIND_NONE);
        assert_rule(&x, T + 0x10, UNWIND_SP, 8, 0, UNWIND_FP_SAME, 0);
        assert_rule(&x, T + 0x11, UNWIND_SP, 16, 0, UNWIND_FP_AT_CFA, -2);
        assert_rule(&x, T + 0x12, UNWIND_SP, 24, -3, UNWIND_FP_AT_CFA, -2);
        assert_rule(&x, T + 0x15, UNWIND_SP, 24, -3, UNWIND_FP_AT_CFA, -2);
        assert_rule(&x, T + 0x16, UNWIND_SP, 8, 0, UNWIND_FP_SAME, 0);
        assert_rule(&x, T + 0x18, UNWIND_SP, 24, -3, UNWIND_FP_AT_CFA, -2);
        assert_rule(&x, T + 0x28, UNWIND_FP, 24, -3, UNWIND_FP_AT_CFA, -2);
        assert_rule(&x, T + 0x4f, UNWIND_FP, 24, -3, UNWIND_FP_AT_CFA, -2);
        assert_kind(&x, T + 0x50, UNWIND_NONE);
        assert_int_equal(x.t->bad_fdes, 0);
        done(&x);
}

static void test_expressions_that_rules_can_say(void **state)
{
        static const struct {
                uint8_t program[16];
                size_t n;
                struct unwind_rule rule;
        } known[] = {
                        /* def_cfa_expression: breg7 40; deref; plus_uconst 8 (the stack switches of
                           OpenSSL's code) */
                        {{0x0f, 5, 0x77, 40, 0x06, 0x23, 8}, 7, {UNWIND_DEREF_SP, 1, 0, 40}},
                        /* breg6 -8; deref, with rbp at *(rbp): a realigned stack of GCC's */
                        {{0x10, 6, 2, 0x76, 0, 0x0f, 3, 0x76, 0x78, 0x06},
                         10,
                         {UNWIND_DEREF_FP | UNWIND_FP_AT_FP << 4, 0, 0, -8}},
                        /* breg7 8; breg16 0; lit15; and; lit11; ge; lit3; shl; plus: a lazy PLT */
                        {{0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22},
                         13,
                         {UNWIND_PLT, 11, 0, 8}},
                        /* breg3 16, and rbx at CFA-32: ld.so's lazy binding */
                        {{0x83, 4, 0x0f, 2, 0x73, 16}, 6, {UNWIND_BX, -4, 0, 16}},
                        /* breg7 8; breg9 0; lit8; mul; plus; deref; plus_uconst 8: OpenSSL's bn_mul_mont;
                           by another factor it is not known */
                        {{0x0f, 10, 0x77, 8, 0x79, 0, 0x38, 0x1e, 0x22, 0x06, 0x23, 8},
                         12,
                         {UNWIND_DEREF_AT, 9, 0, 8}},
                        {{0x0f, 10, 0x77, 8, 0x79, 0, 0x34, 0x1e, 0x22, 0x06, 0x23, 8},
                         12,
                         {UNWIND_UNSUPPORTED, 0, 0, 0}},
                        /* def_cfa r10+0 */
                        {{0x0c, 10, 0}, 3, {UNWIND_REG, 10, 0, 0}},
                        /* rbp undefined; rbx in another register */
                        {{0x07, 6, 0x09, 3, 12},
                         5,
                         {UNWIND_SP | UNWIND_FP_UNDEFINED << 4, UNWIND_AUX_LOST, 0, 8}},
                        /* rbp at rsp+0 where the CFA is rsp+16 */
                        {{0x0e, 16, 0x10, 6, 2, 0x77, 0}, 7, {UNWIND_SP | UNWIND_FP_AT_CFA << 4, 0, -2, 16}},
                        /* rip undefined: the outermost frame */
                        {{0x07, 16}, 2, {UNWIND_STOP, 0, 0, 0}},
                        /* rip in rdi, where it was popped to (vfork of the C library); in xmm0; with rbp
                           elsewhere, too */
                        {{0x0e, 0, 0x09, 16, 5}, 5, {UNWIND_RA_IN, 5, 0, 0}},
                        {{0x09, 16, 17}, 3, {UNWIND_UNSUPPORTED, 0, 0, 0}},
                        {{0x09, 16, 5, 0x86, 2}, 5, {UNWIND_UNSUPPORTED, 0, 0, 0}},
                        /* rip elsewhere; a CFA of three operands */
                        {{0x90, 2}, 2, {UNWIND_UNSUPPORTED, 0, 0, 0}},
                        {{0x0f, 5, 0x77, 8, 0x70, 0, 0x22}, 7, {UNWIND_UNSUPPORTED, 0, 0, 0}},
        };

        for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
                _cleanup_buf_ struct buf eh = {0};
                uint64_t cie = image_cie(&eh, 1, &plain_cie);
                const struct unwind_rule *r = &known[i].rule;
                struct table x;

                image_fde(&eh, 1, cie, T, 0x40, "", known[i].program, known[i].n);
                assert_int_equal(build_eh(&x, &eh), 0);
                check_form(x.t);
                assert_rule(&x, T + 5, UNWIND_RULE_KIND(r), r->cfa_offset, r->aux, UNWIND_RULE_FP(r),
                            r->fp_offset);
                done(&x);
        }
}

/* A cold part begins with what its function has saved and has put back: the assembler makes that a CIE. */
static void test_cie_that_restores(void **state)
{
        static const uint8_t program[] = {0x0c, 7,    8, 0x90, 1, 0x0c, 6,    16,   0x83,
                                          7,    0x86, 2, 0x0c, 7, 8,    0xc3, 0x06, 6};
        _cleanup_buf_ struct buf eh = {0};
        struct image_cie cie = plain_cie;
        struct table x;

        cie.program = program;
        cie.program_size = sizeof(program);
        image_fde(&eh, 1, image_cie(&eh, 1, &cie), T, 0x20, "", NULL, 0);
        assert_int_equal(build_eh(&x, &eh), 0);
        assert_rule(&x, T, UNWIND_SP, 8, 0, UNWIND_FP_SAME, 0);
        done(&x);
}

static void test_signal_frames(void **state)
{
        _cleanup_buf_ struct buf eh = {0};
        struct image_cie cie = plain_cie;
        struct table x;

        cie.augmentation = "zRS";
        cie.augmentation_data = "\0"; /* DW_EH_PE_absptr */
        cie.augmentation_size = 1;
        image_fde(&eh, 1, image_cie(&eh, 1, &cie), T + 0x100, 10, "z", NULL, 0);
        assert_int_equal(build_eh(&x, &eh), 0);
        assert_kind(&x, T + 0x100, UNWIND_SIGNAL);
        assert_kind(&x, T + 0x109, UNWIND_SIGNAL);
        assert_kind(&x, T + 0x10a, UNWIND_NONE);
        done(&x);
}

static void test_arm64_return_addresses(void **state)
{
        _cleanup_buf_ struct buf eh = {0};
        uint64_t cie = image_cie(&eh, 1, &arm_cie);
        struct table x;

        image_fde(&eh, 1, cie, T, 0x40, "",
                  BYTES(0x41, 0x2d,                         /* +4: lr signed */
                        0x41, 0x0e, 32, 0x9d, 4, 0x9e, 3,   /* +8: cfa 32, x29 at -32, x30 at -24 */
                        0x41, 0x0d, 29,                     /* +12: cfa by x29 */
                        0x41, 0x0c, 31, 16, 0xdd, 0x9e, 1,  /* +16: x30 alone at -8 */
                        0x41, 0x0e, 0xa0, 9, 0x9e, 0x94, 1, /* +20: cfa 1184, x30 at -1184 */
                        /* +24: cfa 320000, x29 at -320000, x30 beside it: too far for a rule */
                        0x41, 0x0e, 0x80, 0xc4, 0x13, 0x9d, 0xc0, 0xb8, 2, 0x9e, 0xbf, 0xb8, 2, 0x41, 0x07,
                        30)); /* +28: outermost */
        assert_int_equal(build(&x, &(struct image_options){.machine = EM_AARCH64},
                               &(struct image_section){.name = ".eh_frame", .data = eh.data, .size = eh.len},
                               1),
                         0);
        check_form(x.t);
        assert_rule(&x, T + 4, UNWIND_SP, 0, 0, UNWIND_FP_SAME, 0);
        assert_rule(&x, T + 8, UNWIND_SP, 32, UNWIND_AUX_BESIDE_FP, UNWIND_FP_AT_CFA, -4);
        assert_rule(&x, T + 12, UNWIND_FP, 32, UNWIND_AUX_BESIDE_FP, UNWIND_FP_AT_CFA, -4);
        assert_rule(&x, T + 16, UNWIND_SP, 16, -1, UNWIND_FP_SAME, 0);
        assert_rule(&x, T + 20, UNWIND_SP, 1184, UNWIND_AUX_BESIDE_FP, UNWIND_FP_SAME, -149);
        assert_kind(&x, T + 24, UNWIND_UNSUPPORTED);
        assert_kind(&x, T + 28, UNWIND_STOP);
        done(&x);
}

static void test_pages_carry_their_first_row(void **state)
{
        _cleanup_buf_ struct buf eh = {0};
        uint64_t cie = image_cie(&eh, 1, &plain_cie);
        struct table x;

        /* Over two page boundaries without a change; a change exactly at one; the end at one. */
        image_fde(&eh, 1, cie, T + 0xff0, 0x2010, "", BYTES(0x41, 0x0e, 16, 0x03, 0x0f, 0x10, 0x0e, 24));
        assert_int_equal(build_eh(&x, &eh), 0);
        check_form(x.t);
        assert_int_equal(x.t->first_page, T >> UNWIND_PAGE_SHIFT);
        assert_int_equal(x.t->n_pages, 3);
        assert_rule(&x, T + 0xff0, UNWIND_SP, 8, 0, UNWIND_FP_SAME, 0);
        assert_rule(&x, T + 0x1000, UNWIND_SP, 16, 0, UNWIND_FP_SAME, 0);
        assert_rule(&x, T + 0x1fff, UNWIND_SP, 16, 0, UNWIND_FP_SAME, 0);
        assert_rule(&x, T + 0x2000, UNWIND_SP, 24, 0, UNWIND_FP_SAME, 0);
        assert_rule(&x, T + 0x2fff, UNWIND_SP, 24, 0, UNWIND_FP_SAME, 0);
        assert_kind(&x, T + 0x3000, UNWIND_NONE);
        done(&x);
}

static void test_overlaps_and_gaps(void **state)
{
        _cleanup_buf_ struct buf eh = {0};
        uint64_t cie = image_cie(&eh, 1, &plain_cie), start, end;
        struct table x;

        image_fde(&eh, 1, cie, T + 0x200, 0x20, "", BYTES(0x0e, 32)); /* not in order */
        image_fde(&eh, 1, cie, T + 0x100, 0x80, "", BYTES(0x0e, 16));
        image_fde(&eh, 1, cie, T + 0x140, 0x10, "", BYTES(0x0e, 24)); /* within the one before */
        image_fde(&eh, 1, cie, 0, 0x80, "", BYTES(0x0e, 40));         /* dropped by a linker */
        image_fde(&eh, 1, cie, T + 0x22f, 0x10, "", BYTES(0x0e, 48)); /* after 15 bytes of padding */
        assert_int_equal(build_eh(&x, &eh), 0);
        check_form(x.t);
        assert_rule(&x, T + 0x13f, UNWIND_SP, 16, 0, UNWIND_FP_SAME, 0);
        assert_rule(&x, T + 0x140, UNWIND_SP, 24, 0, UNWIND_FP_SAME, 0);
        assert_kind(&x, T + 0x150, UNWIND_NONE);
        assert_kind(&x, T + 0x180, UNWIND_NONE);
        assert_rule(&x, T + 0x200, UNWIND_SP, 32, 0, UNWIND_FP_SAME, 0);
        assert_rule(&x, T + 0x22f, UNWIND_SP, 48, 0, UNWIND_FP_SAME, 0);
        assert_true(cfi_function_bounds(x.t, T + 0x21f, &start, &end));
        assert_int_equal(start, T + 0x200);
        assert_int_equal(end, T + 0x220);
        assert_false(cfi_function_bounds(x.t, T + 0x220, &start, &end));
        assert_false(cfi_function_bounds(x.t, T + 0xff, &start, &end));
        assert_false(cfi_function_bounds(x.t, 0, &start, &end));
        done(&x);
}

static void test_debug_frame_fills_what_is_missing(void **state)
{
        _cleanup_buf_ struct buf eh = {0}, debug = {0}, other = {0};
        uint64_t cie = image_cie(&eh, 1, &plain_cie);
        struct elf_image *image;
        struct table x;

        image_fde(&eh, 1, cie, T + 0x100, 0x20, "", BYTES(0x0e, 16));
        cie = image_cie(&debug, 0, &plain_cie);
        image_fde(&debug, 0, cie, T + 0x110, 0x20, "", BYTES(0x0e, 24)); /* overlaps: .eh_frame holds */
        image_fde(&debug, 0, cie, T + 0x80, 0x20, "", BYTES(0x0e, 32));
        assert_int_equal(build(&x, &(struct image_options){0},
                               (struct image_section[]){
                                               {.name = ".eh_frame", .data = eh.data, .size = eh.len},
                                               {.name = ".debug_frame",
                                                .data = debug.data,
                                                .size = debug.len}},
                               2),
                         0);
        check_form(x.t);
        assert_rule(&x, T + 0x80, UNWIND_SP, 32, 0, UNWIND_FP_SAME, 0);
        assert_rule(&x, T + 0x11f, UNWIND_SP, 16, 0, UNWIND_FP_SAME, 0);
        assert_kind(&x, T + 0x120, UNWIND_NONE);
        done(&x);

        /* A stripped file, and its debug file. */
        assert_int_equal(build(&x, &(struct image_options){0}, NULL, 0), -ENODATA);
        image_make(&other, &(struct image_options){0},
                   &(struct image_section){.name = ".debug_frame", .data = debug.data, .size = debug.len},
                   1);
        assert_int_equal(elf_image_from_memory(other.data, other.len, 1 << 20, &image), 0);
        assert_int_equal(cfi_build(x.image, image, &x.t), 0);
        check_form(x.t);
        assert_rule(&x, T + 0x80, UNWIND_SP, 32, 0, UNWIND_FP_SAME, 0);
        assert_rule(&x, T + 0x110, UNWIND_SP, 24, 0, UNWIND_FP_SAME, 0);
        elf_image_free(image);
        done(&x);
}

static void test_no_section_headers(void **state)
{
        _cleanup_buf_ struct buf data = {0};
        uint64_t cie;
        struct table x;

        /* .eh_frame_hdr: version, udata4 for the pointer, no search table; then .eh_frame and what follows.
         */
        buf_add(&data, BYTES(1, 0x03, 0xff, 0xff, 0x10, 0x00, 0x50, 0x00, 0, 0, 0, 0, 0, 0, 0, 0));
        {
                _cleanup_buf_ struct buf eh = {0};

                cie = image_cie(&eh, 1, &plain_cie);
                image_fde(&eh, 1, cie, T + 0x100, 0x20, "", BYTES(0x0e, 16));
                buf_add(&data, eh.data, eh.len);
        }
        buf_add(&data, BYTES(0, 0, 0, 0, 0x77, 0x77, 0x77, 0x77));
        assert_int_equal(build(&x, &(struct image_options){.no_sections = 1, .eh_frame_hdr = IMAGE_DATA},
                               &(struct image_section){.name = "", .data = data.data, .size = data.len}, 1),
                         0);
        assert_rule(&x, T + 0x100, UNWIND_SP, 16, 0, UNWIND_FP_SAME, 0);
        assert_int_equal(x.t->bad_fdes, 0);
        done(&x);
}

static void test_code_known_by_its_bytes(void **state)
{
        static const uint8_t init[] = {0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x83, 0xec, 0x08, 0xe8,
                                       0,    0,    0,    0,    0x48, 0x83, 0xc4, 0x08, 0xc3};
        static const uint8_t start[0x200] = {
                        [0x1f0] = 0x48, 0x89, 0xe7, 0xe8, 0x08, 0, 0, 0, 0xf4}; /* calls the FDE's */
        static const uint8_t fini[] = {0x48, 0x83, 0xec, 0x08, 0x48, 0x83, 0xc4, 0x08, 0xc3};
        static const uint8_t plt[48] = {0xff, 0x35, 0,    0,    0, 0, 0xff, 0x25, 0,    0, 0, 0, 0x0f, 0x1f,
                                        0x40, 0,    0xff, 0x25, 0, 0, 0,    0,    0x68, 0, 0, 0, 0,    0xe9};
        _cleanup_buf_ struct buf eh = {0};
        uint64_t cie = image_cie(&eh, 1, &plain_cie);
        struct image_section sections[] = {
                        {.name = ".init",
                         .address = T + 0x1000,
                         .data = init,
                         .size = sizeof(init),
                         .flags = SHF_EXECINSTR},
                        {.name = ".fini",
                         .address = T + 0x1080,
                         .data = fini,
                         .size = sizeof(fini),
                         .flags = SHF_EXECINSTR},
                        {.name = ".plt",
                         .address = T + 0x1100,
                         .data = plt,
                         .size = sizeof(plt),
                         .flags = SHF_EXECINSTR},
                        {.name = ".eh_frame"},
        };
        struct table x;

        image_fde(&eh, 1, cie, T + 0x200, 0x20, "", BYTES(0x0e, 16));
        sections[3].data = eh.data;
        sections[3].size = eh.len;
        assert_int_equal(build(&x,
                               &(struct image_options){.entry = T + 0x1f0,
                                                       .text = start,
                                                       .text_size = sizeof(start)},
                               sections, 4),
                         0);
        check_form(x.t);
        assert_kind(&x, T + 0x100, UNWIND_NONE);
        assert_kind(&x, T + 0x1f0, UNWIND_STOP);
        assert_kind(&x, T + 0x1f8, UNWIND_STOP);
        assert_kind(&x, T + 0x1f9, UNWIND_STOP); /* padding */
        assert_rule(&x, T + 0x200, UNWIND_SP, 16, 0, UNWIND_FP_SAME, 0);
        assert_rule(&x, T + 0x1004, UNWIND_SP, 8, 0, UNWIND_FP_SAME, 0);
        assert_rule(&x, T + 0x1008, UNWIND_SP, 16, 0, UNWIND_FP_SAME, 0);
        assert_rule(&x, T + 0x1011, UNWIND_SP, 8, 0, UNWIND_FP_SAME, 0);
        assert_rule(&x, T + 0x1084, UNWIND_SP, 16, 0, UNWIND_FP_SAME, 0);
        assert_rule(&x, T + 0x1088, UNWIND_SP, 8, 0, UNWIND_FP_SAME, 0);
        assert_rule(&x, T + 0x1100, UNWIND_SP, 16, 0, UNWIND_FP_SAME, 0);
        assert_rule(&x, T + 0x1106, UNWIND_SP, 24, 0, UNWIND_FP_SAME, 0);
        assert_rule(&x, T + 0x1110, UNWIND_PLT, 8, 11, UNWIND_FP_SAME, 0);
        assert_rule(&x, T + 0x112f, UNWIND_PLT, 8, 11, UNWIND_FP_SAME, 0);
        done(&x);
}

static void test_damage_is_contained(void **state)
{
        _cleanup_buf_ struct buf eh = {0};
        uint64_t cie = image_cie(&eh, 1, &plain_cie);
        struct image_cie bad = plain_cie;
        struct table x;

        image_fde(&eh, 1, cie, T + 0x100, 0x40, "", BYTES(0x0e, 16, 0x50, 0x3f)); /* unknown opcode at +16 */
        image_fde(&eh, 1, cie, T + 0x200, 0x40, "", BYTES(0x0e, 24));
        image_fde(&eh, 1, cie, T + 0x300, 0x40, "", BYTES(0x0b));         /* nothing to restore */
        image_fde(&eh, 1, cie + 4, T + 0x400, 0x40, "", BYTES(0x0e, 32)); /* no CIE there */
        bad.program = "\x3f\x3f\x3f";
        bad.program_size = 3;
        image_fde(&eh, 1, image_cie(&eh, 1, &bad), T + 0x500, 0x40, "", BYTES(0x0e, 32));
        image_fde(&eh, 1, cie, T + 0x2fff, UINT64_MAX, "", BYTES(0x0e, 40)); /* longer than the text */
        image_fde(&eh, 1, cie, UINT64_MAX - 4, 0x40, "", BYTES(0x0e, 40));
        buf_add(&eh, "\xff\xff\xff\x7f\0\0\0\0", 8); /* longer than the section */
        assert_int_equal(build_eh(&x, &eh), 0);
        check_form(x.t);
        assert_rule(&x, T + 0x10f, UNWIND_SP, 16, 0, UNWIND_FP_SAME, 0);
        assert_kind(&x, T + 0x110, UNWIND_UNSUPPORTED);
        assert_kind(&x, T + 0x13f, UNWIND_UNSUPPORTED);
        assert_rule(&x, T + 0x200, UNWIND_SP, 24, 0, UNWIND_FP_SAME, 0);
        assert_kind(&x, T + 0x300, UNWIND_UNSUPPORTED);
        assert_kind(&x, T + 0x400, UNWIND_NONE);
        assert_kind(&x, T + 0x500, UNWIND_NONE);
        assert_rule(&x, T + 0x2fff, UNWIND_SP, 40, 0, UNWIND_FP_SAME, 0);
        assert_int_equal(x.t->n_pages, 3);
        assert_int_equal(x.t->bad_fdes, 6);
        done(&x);
}

/* A CIE may come after the FDEs that use it; the work stays linear when all do. */
static void test_cies_behind_their_fdes(void **state)
{
        _cleanup_buf_ struct buf eh = {0};
        uint32_t back;
        struct table x;

        for (uint32_t i = 0; i < 1000; i++)
                image_fde(&eh, 1, 0, T + i * 8, 8, "", BYTES(0x0e, 16));
        for (uint32_t i = 0; i < 1000; i++) {
                uint32_t at = i * (uint32_t)(eh.len / 1000) + 4;

                assert_int_equal(eh.len % 1000, 0);
                back = at - (uint32_t)eh.len; /* points forward: the distance is negative */
                memcpy(eh.data + at, &back, sizeof(back));
        }
        image_cie(&eh, 1, &plain_cie);
        assert_int_equal(build_eh(&x, &eh), 0);
        assert_rule(&x, T, UNWIND_SP, 16, 0, UNWIND_FP_SAME, 0);
        assert_rule(&x, T + 999 * 8, UNWIND_SP, 16, 0, UNWIND_FP_SAME, 0);
        assert_int_equal(x.t->n_functions, 1000);
        assert_int_equal(x.t->bad_fdes, 0);
        done(&x);
}

static void test_rows_are_those_of_libdw(void **state)
{
        /* What is not on a machine is left out; this program and its C library are on each. */
        static const char *const files[] = {
                        "/proc/self/exe",
                        "/lib64/ld-linux-x86-64.so.2",
                        "/lib/x86_64-linux-gnu/libc.so.6",
                        "/lib/ld-linux-aarch64.so.1",
                        "/lib/aarch64-linux-gnu/libc.so.6",
                        "/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
                        "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
                        "/usr/lib/x86_64-linux-gnu/libLLVM-14.so.1",
                        "/bin/bash",
        };
        uint32_t compared = 0;

        for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
                struct cfi_oracle_result r;
                int k = cfi_oracle_compare(files[i], 20000, 4, &r);

                if (k == -ENOENT)
                        continue;
                assert_int_equal(k, 0);
                assert_int_equal(r.differ, 0);
                assert_int_equal(r.refused, 0);
                assert_true(r.rows > 100);
                check_form(r.table);
                cfi_table_free(r.table);
                compared++;
        }
        assert_true(compared >= 3);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                        cmocka_unit_test(test_rows_follow_the_instructions),
                        cmocka_unit_test(test_expressions_that_rules_can_say),
                        cmocka_unit_test(test_cie_that_restores),
                        cmocka_unit_test(test_signal_frames),
                        cmocka_unit_test(test_arm64_return_addresses),
                        cmocka_unit_test(test_pages_carry_their_first_row),
                        cmocka_unit_test(test_overlaps_and_gaps),
                        cmocka_unit_test(test_debug_frame_fills_what_is_missing),
                        cmocka_unit_test(test_no_section_headers),
                        cmocka_unit_test(test_code_known_by_its_bytes),
                        cmocka_unit_test(test_damage_is_contained),
                        cmocka_unit_test(test_cies_behind_their_fdes),
                        cmocka_unit_test(test_rows_are_those_of_libdw),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
