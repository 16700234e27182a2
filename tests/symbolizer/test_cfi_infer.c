#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>

#include "base/cleanup.h"
#include "symbolizer/cfi.h"
#include "symbolizer/cfi_infer.h"

#define BASE 0x1000

struct row {
        uint64_t address;
        struct unwind_rule rule;
};

struct rows {
        struct row row[32];
        uint32_t n;
};

static void take_row(void *ctx, uint64_t address, const struct unwind_rule *rule)
{
        struct rows *r = ctx;

        assert_true(r->n < ARRAY_SIZE(r->row));
        r->row[r->n++] = (struct row){address, *rule};
}

static void ignore_entry(void *ctx, uint64_t address) {}

static void infer(const uint8_t *code, size_t n, struct rows *ret)
{
        struct cfi_infer *x;

        ret->n = 0;
        assert_int_equal(cfi_infer_new(&x, BASE, (struct span){code, n}, ignore_entry, NULL), 0);
        assert_true(cfi_infer_entry(x, BASE));
        assert_false(cfi_infer_entry(x, BASE));
        assert_int_equal(cfi_infer_run(x), 0);
        cfi_infer_rows(x, take_row, ret);
        cfi_infer_free(x);
}

static void assert_row(const struct rows *r, uint32_t i, uint32_t offset, int kind, int32_t cfa, int bx,
                       int fp)
{
        assert_true(i < r->n);
        assert_int_equal(r->row[i].address, BASE + offset);
        assert_int_equal(UNWIND_RULE_KIND(&r->row[i].rule), kind);
        assert_int_equal(r->row[i].rule.cfa_offset, cfa);
        assert_int_equal(r->row[i].rule.aux, bx);
        assert_int_equal(r->row[i].rule.fp_offset, fp);
        assert_int_equal(UNWIND_RULE_FP(&r->row[i].rule), fp ? UNWIND_FP_AT_CFA : UNWIND_FP_SAME);
}

static void test_pushes_branches_and_returns(void **state)
{
        static const uint8_t code[] = {
                        0x55,                      /* 0 push %rbp */
                        0x53,                      /* 1 push %rbx */
                        0x48, 0x83, 0xec, 0x18,    /* 2 sub $24, %rsp */
                        0x85, 0xc0,                /* 6 test */
                        0x74, 0x07,                /* 8 je 0x11 */
                        0x48, 0x83, 0xc4, 0x18,    /* a add $24, %rsp */
                        0x5b,                      /* e pop %rbx */
                        0x5d,                      /* f pop %rbp */
                        0xc3,                      /* 10 ret */
                        0xe8, 0,    0x10, 0,    0, /* 11 call */
                        0xeb, 0xf2,                /* 16 jmp 0xa */
        };
        struct rows r;

        infer(code, sizeof(code), &r);
        assert_row(&r, 0, 0, UNWIND_SP, 8, 0, 0);
        assert_row(&r, 1, 1, UNWIND_SP, 16, 0, -2);
        assert_row(&r, 2, 2, UNWIND_SP, 24, -3, -2);
        assert_row(&r, 3, 6, UNWIND_SP, 48, -3, -2);
        assert_row(&r, 4, 0xe, UNWIND_SP, 24, -3, -2);
        assert_row(&r, 5, 0xf, UNWIND_SP, 16, 0, -2);
        assert_row(&r, 6, 0x10, UNWIND_SP, 8, 0, 0);
        assert_row(&r, 7, 0x11, UNWIND_SP, 48, -3, -2);
        assert_row(&r, 8, sizeof(code), UNWIND_NONE, 0, 0, 0);
        assert_int_equal(r.n, 9);
}

static void test_a_realigned_stack_is_counted_from_the_frame_pointer(void **state)
{
        static const uint8_t code[] = {
                        0x55,                   /* 0 push %rbp */
                        0x48, 0x89, 0xe5,       /* 1 mov %rsp, %rbp */
                        0x48, 0x83, 0xe4, 0xe0, /* 4 and $-32, %rsp */
                        0x90,                   /* 8 */
                        0xc9,                   /* 9 leave */
                        0xc3,                   /* a ret */
        };
        struct rows r;

        infer(code, sizeof(code), &r);
        assert_row(&r, 0, 0, UNWIND_SP, 8, 0, 0);
        assert_row(&r, 1, 1, UNWIND_SP, 16, 0, -2);
        assert_row(&r, 2, 8, UNWIND_FP, 16, 0, -2);
        assert_row(&r, 3, 0xa, UNWIND_SP, 8, 0, 0);
        assert_int_equal(r.n, 5);
}

static void test_what_contradicts_gets_no_rows(void **state)
{
        static const uint8_t unbalanced[] = {0x50, 0xc3};                         /* push; ret */
        static const uint8_t paths[] = {0x74, 0x01, 0x50, 0x90, 0x58, 0xc3};      /* meet with two stacks */
        static const uint8_t unsaved[] = {0x90, 0x48, 0x83, 0xec, 8, 0x5d, 0xc3}; /* rbp from nowhere */
        static const uint8_t lost[] = {0x48, 0x89, 0xc4, 0xc3};                   /* mov %rax, %rsp */
        static const uint8_t sigreturn[] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05, 0xc3};
        static const struct {
                const uint8_t *code;
                size_t n;
        } bad[] = {{unbalanced, sizeof(unbalanced)},
                   {sigreturn, sizeof(sigreturn)},
                   {paths, sizeof(paths)},
                   {unsaved, sizeof(unsaved)},
                   {lost, sizeof(lost)}};
        struct rows r;

        for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
                infer(bad[i].code, bad[i].n, &r);
                assert_int_equal(r.n, 0);
        }
}

/* musl's, which no call frame information describes; the byte before it belongs to it. */
static void test_a_handlers_return_is_a_signal_frame(void **state)
{
        static const uint8_t code[] = {
                        0x50, 0x58, 0xc3,                                           /* 0 push; pop; ret */
                        0x90, 0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05, 0xf4, 0, /* 3 */
        };
        struct rows r;

        infer(code, sizeof(code), &r);
        assert_row(&r, 0, 0, UNWIND_SP, 8, 0, 0);
        assert_row(&r, 1, 1, UNWIND_SP, 16, 0, 0);
        assert_row(&r, 2, 2, UNWIND_SP, 8, 0, 0);
        assert_row(&r, 3, 3, UNWIND_SIGNAL, 0, 0, 0);
        assert_row(&r, 4, 13, UNWIND_NONE, 0, 0, 0);
        assert_int_equal(r.n, 5);
}

/* A call that does not return is followed by whatever comes next: that is void, what is before it stays. */
static void test_calls_need_not_return(void **state)
{
        static const uint8_t code[] = {
                        0x50,                /* 0 push */
                        0xe8, 0, 0x10, 0, 0, /* 1 call */
                        0x58,                /* 6 pop */
                        0x58,                /* 7 pop */
                        0xc3,                /* 8 */
        };
        struct rows r;

        infer(code, sizeof(code), &r);
        assert_row(&r, 0, 0, UNWIND_SP, 8, 0, 0);
        assert_row(&r, 1, 1, UNWIND_SP, 16, 0, 0);
        assert_row(&r, 2, 6, UNWIND_NONE, 0, 0, 0);
        assert_int_equal(r.n, 3);
}

struct agreement {
        const struct cfi_table *table;
        const char *file;
        uint64_t rows, differ;
};

static void compare_row(void *ctx, uint64_t address, const struct unwind_rule *rule)
{
        struct agreement *a = ctx;
        uint32_t id = cfi_table_find(a->table, address);
        struct unwind_rule said;

        if (UNWIND_RULE_KIND(rule) == UNWIND_NONE || id < UNWIND_RULE_FIRST)
                return;
        said = a->table->rule[id - UNWIND_RULE_FIRST];
        a->rows++;
        /* By sp or by fp is the same CFA; which one compilers say differs. */
        if (UNWIND_RULE_KIND(&said) != UNWIND_RULE_KIND(rule))
                return;
        if (said.cfa_offset == rule->cfa_offset)
                return;
        if (++a->differ <= 20)
                printf("%s %" PRIx64 ": inferred %d, said %d\n", a->file, address, rule->cfa_offset,
                       said.cfa_offset);
}

/* Not a function's cold part, which has an FDE of its own. */
static bool begins_as_called(const struct cfi_table *t, uint64_t address)
{
        uint32_t id = cfi_table_find(t, address);
        const struct unwind_rule *r = id < UNWIND_RULE_FIRST ? NULL : &t->rule[id - UNWIND_RULE_FIRST];

        return r && UNWIND_RULE_KIND(r) == UNWIND_SP && r->cfa_offset == 8;
}

/* Compilers and people say how the stacks of these files' functions are: what is inferred is the same. */
static void test_inferred_is_what_compilers_say(void **state)
{
        static const char *const files[] = {"/proc/self/exe",
                                            "/lib/x86_64-linux-gnu/libc.so.6",
                                            "/lib/x86_64-linux-gnu/libm.so.6",
                                            "/bin/bash",
                                            "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
                                            "/usr/lib/x86_64-linux-gnu/libcrypto.so.3"};
        struct agreement a = {0};

        for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
                _cleanup_close_ int fd = open(files[i], O_RDONLY | O_CLOEXEC);
                struct elf_image *image;
                struct elf_section text;
                struct cfi_table *t;
                struct cfi_infer *x;
                struct span code;

                if (fd < 0)
                        continue;
                assert_int_equal(elf_image_open(fd, 0, &image), 0);
                if (elf_image_machine(image) != EM_X86_64 || elf_image_section(image, ".text", &text) < 0) {
                        elf_image_free(image);
                        continue;
                }
                assert_int_equal(cfi_build(image, NULL, &t), 0);
                code = (struct span){text.bytes.data, MIN_OF(text.bytes.size, (size_t)CFI_INFER_MAX)};
                assert_int_equal(cfi_infer_new(&x, text.address, code, ignore_entry, NULL), 0);
                for (uint32_t k = 0; k < t->n_functions; k++)
                        if (begins_as_called(t, t->function_base + t->function[k].start))
                                cfi_infer_entry(x, t->function_base + t->function[k].start);
                assert_int_equal(cfi_infer_run(x), 0);
                a.table = t;
                a.file = files[i];
                cfi_infer_rows(x, compare_row, &a);
                cfi_infer_free(x);
                cfi_table_free(t);
                elf_image_free(image);
        }
        printf("%" PRIu64 " rows inferred, %" PRIu64 " differ\n", a.rows, a.differ);
        if (a.rows)
                assert_true(a.differ <= a.rows / 10000);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                        cmocka_unit_test(test_pushes_branches_and_returns),
                        cmocka_unit_test(test_a_realigned_stack_is_counted_from_the_frame_pointer),
                        cmocka_unit_test(test_what_contradicts_gets_no_rows),
                        cmocka_unit_test(test_a_handlers_return_is_a_signal_frame),
                        cmocka_unit_test(test_calls_need_not_return),
                        cmocka_unit_test(test_inferred_is_what_compilers_say),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
