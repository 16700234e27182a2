#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <capstone/capstone.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>

#include "base/cleanup.h"
#include "symbolizer/elf_image.h"
#include "symbolizer/x86_insn.h"

#define MOST_BYTES (4u << 20) /* of a file */

static uint64_t wrong;

/* Code as a foreign disassembler reads it, one instruction after the other. */
static void compare_lengths(csh capstone, const char *file, const uint8_t *code, size_t size,
                            uint64_t address)
{
        cs_insn *insn = cs_malloc(capstone);

        size = MIN_OF(size, (size_t)MOST_BYTES);
        while (size) {
                const uint8_t *at = code;
                uint64_t here = address;
                struct x86_decoded ours;

                if (!cs_disasm_iter(capstone, &code, &size, &address, insn)) {
                        code++, address++, size--; /* data, or newer than the disassembler */
                        continue;
                }
                if (x86_decode(at, insn->size + size, here, &ours) && ours.length == insn->size)
                        continue;
                if (++wrong <= 20)
                        printf("%s %" PRIx64 ": %s %s, %u bytes (%02x %02x %02x %02x)\n", file, here,
                               insn->mnemonic, insn->op_str, insn->size, at[0], at[1], at[2], at[3]);
        }
        cs_free(insn, 1);
}

static void test_lengths_are_those_of_a_disassembler(void **state)
{
        static const char *const files[] = {"/proc/self/exe", "/lib/x86_64-linux-gnu/libc.so.6",
                                            "/lib/x86_64-linux-gnu/libm.so.6", "/lib/ld-musl-x86_64.so.1",
                                            "/usr/lib/x86_64-linux-gnu/libzstd.so.1"};
        csh capstone;

        assert_int_equal(cs_open(CS_ARCH_X86, CS_MODE_64, &capstone), CS_ERR_OK);
        for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
                _cleanup_close_ int fd = open(files[i], O_RDONLY | O_CLOEXEC);
                struct elf_image *image;
                struct elf_section text;

                if (fd < 0)
                        continue;
                assert_int_equal(elf_image_open(fd, 0, &image), 0);
                if (elf_image_machine(image) == EM_X86_64 && elf_image_section(image, ".text", &text) >= 0)
                        compare_lengths(capstone, files[i], text.bytes.data, text.bytes.size, text.address);
                elf_image_free(image);
        }
        cs_close(&capstone);
        assert_int_equal(wrong, 0);
}

static void test_effects_on_the_stack(void **state)
{
        static const struct {
                uint8_t code[8];
                uint8_t n, effect, reg;
                int32_t value;
                uint64_t target;
        } known[] = {
                        {{0x55}, 1, X86_PUSH, X86_R_FP, 0, 0},                          /* push %rbp */
                        {{0x41, 0x55}, 2, X86_PUSH, X86_R_OTHER, 0, 0},                 /* push %r13 */
                        {{0x5b}, 1, X86_POP, X86_R_BX, 0, 0},                           /* pop %rbx */
                        {{0x6a, 0x10}, 2, X86_PUSH, X86_R_OTHER, 0, 0},                 /* push $16 */
                        {{0xff, 0x75, 0x08}, 3, X86_PUSH, X86_R_OTHER, 0, 0},           /* push 8(%rbp) */
                        {{0x48, 0x83, 0xec, 0x18}, 4, X86_SP_ADD, X86_R_OTHER, -24, 0}, /* sub $24, %rsp */
                        {{0x48, 0x81, 0xc4, 0, 1, 0, 0}, 7, X86_SP_ADD, X86_R_OTHER, 256, 0}, /* add */
                        {{0x48, 0x83, 0xe4, 0xf0}, 4, X86_SP_LOST, X86_R_OTHER, 0, 0}, /* and $-16, %rsp */
                        {{0x48, 0x29, 0xc4}, 3, X86_SP_LOST, X86_R_OTHER, 0, 0},       /* sub %rax, %rsp */
                        {{0x48, 0x39, 0xc4}, 3, X86_NONE, X86_R_OTHER, 0, 0},          /* cmp %rax, %rsp */
                        {{0x49, 0x29, 0xc4}, 3, X86_NONE, X86_R_OTHER, 0, 0},          /* sub %rax, %r12 */
                        {{0x48, 0x89, 0xe5}, 3, X86_FP_FROM_SP, X86_R_OTHER, 0, 0},    /* mov %rsp, %rbp */
                        {{0x48, 0x89, 0xec}, 3, X86_SP_FROM_FP, X86_R_OTHER, 0, 0},    /* mov %rbp, %rsp */
                        {{0x48, 0x8d, 0x65, 0xd8}, 4, X86_SP_FROM_FP, X86_R_OTHER, -40, 0}, /* lea -40(%rbp),
                                                                                               %rsp */
                        {{0x48, 0x8d, 0x64, 0x24, 0x08}, 5, X86_SP_ADD, X86_R_OTHER, 8, 0}, /* lea 8(%rsp),
                                                                                                 %rsp */
                        {{0x48, 0x89, 0x5c, 0x24, 0xf0}, 5, X86_STORE, X86_R_BX, -16, 0},
                        {{0x48, 0x8b, 0x6c, 0x24, 0x10}, 5, X86_LOAD, X86_R_FP, 16, 0},
                        {{0x48, 0x8d, 0x05, 0x10, 0, 0, 0}, 7, X86_ADDRESS, X86_R_OTHER, 0, 0x1017},
                        {{0xe8, 0xfb, 0xff, 0xff, 0xff}, 5, X86_CALL, X86_R_OTHER, 0, 0x1000},
                        {{0xff, 0xd0}, 2, X86_CALL, X86_R_OTHER, 0, 0},                   /* call *%rax */
                        {{0xf2, 0xff, 0x25, 0, 0, 0, 0}, 7, X86_JUMP, X86_R_OTHER, 0, 0}, /* bnd jmp
                                                                                           *(%rip) */
                        {{0x74, 0xfe}, 2, X86_BRANCH, X86_R_OTHER, 0, 0x1000},
                        {{0x0f, 0x84, 0, 0, 0, 0}, 6, X86_BRANCH, X86_R_OTHER, 0, 0x1006},
                        {{0xf3, 0xc3}, 2, X86_RETURN, X86_R_OTHER, 0, 0},
                        {{0xc9}, 1, X86_LEAVE, X86_R_OTHER, 0, 0},
                        {{0x0f, 0x0b}, 2, X86_END, X86_R_OTHER, 0, 0},
                        {{0xf3, 0x0f, 0x1e, 0xfa}, 4, X86_NONE, X86_R_OTHER, 0, 0}, /* endbr64 */
                        {{0xc2, 8, 0}, 3, X86_STRANGE, X86_R_OTHER, 0, 0},
        };
        struct x86_decoded insn;

        for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
                assert_true(x86_decode(known[i].code, known[i].n, 0x1000, &insn));
                assert_int_equal(insn.length, known[i].n);
                assert_int_equal(insn.effect, known[i].effect);
                assert_int_equal(insn.reg, known[i].reg);
                assert_int_equal(insn.value, known[i].value);
                assert_int_equal(insn.target, known[i].target);
                for (uint8_t n = 0; n < known[i].n; n++)
                        if (x86_decode(known[i].code, n, 0x1000, &insn))
                                assert_true(insn.length <= n);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                        cmocka_unit_test(test_lengths_are_those_of_a_disassembler),
                        cmocka_unit_test(test_effects_on_the_stack),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
