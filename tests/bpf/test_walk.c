/* The walk in the kernel against the user-space twin on made-up worlds: sane ones, whose chain is known, and
 * hostile ones, where every register, rule and stack word is random. Both architectures, on either. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/bpf/walk_fixture.h"

#define STACK_SIZE (256 * 1024)
#define CODE       0x555500000000ull /* where the made-up code is; nothing is mapped there */
#define OBJECT     7
#define BIAS       (CODE - 0x10000) /* ELF addresses start at 0x10000 */

static struct walk_fixture fixture[2]; /* x86-64, aarch64 */
static uint64_t *stack;
static uint64_t rng = 88172645463325252ull;

static uint64_t rnd(uint64_t n)
{
        rng ^= rng << 13;
        rng ^= rng >> 7;
        rng ^= rng << 17;
        return rng % n;
}

static int setup(void **state)
{
        char *p = mmap(NULL, STACK_SIZE + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        if (p == MAP_FAILED || mprotect(p + 4096, STACK_SIZE, PROT_READ | PROT_WRITE) < 0)
                return -1;
        stack = (uint64_t *)(p + 4096); /* with a hole at either end */
        memset(stack, 0, STACK_SIZE);
        for (int i = 0; i < 2; i++) {
                int r = walk_fixture_new(&fixture[i], i);
                if (r < 0) {
                        fprintf(stderr, "cannot load the probe: %s\n", strerror(-r));
                        return -1;
                }
        }
        return 0;
}

static int teardown(void **state)
{
        walk_fixture_free(&fixture[0]);
        walk_fixture_free(&fixture[1]);
        return 0;
}

/* One mapping of n pages whose table has one rule for all of it. */
static void one_rule(struct walk_fixture *f, struct unwind_rule rule, uint32_t pages)
{
        memset(f->probe, 0, sizeof(*f->probe));
        f->mappings[0] = (struct abi_mapping){CODE, CODE + pages * 4096ull, BIAS, 0, pages, 0x10, OBJECT, 0};
        f->probe->n_mappings = 1;
        f->rules[4] = rule;
        f->shard[0][0] = UNWIND_ROW(0, 4);
        f->shard[0][1] = UNWIND_ROW(0, UNWIND_STOP);
        f->shard[0][2] = UNWIND_ROW(0, UNWIND_SIGNAL);
        for (uint32_t i = 0; i < pages; i++)
                f->pages[i] = ABI_PAGE(0, 0, 1);
        f->probe->registers.ip = CODE + 0x123;
        f->probe->registers.sp = (uintptr_t)stack;
}

static void compare(struct walk_fixture *f, struct walk_result *ret)
{
        static struct walk_result twin;
        static uint32_t version;

        f->probe->version = ++version; /* the world may have changed */
        walk_twin(f, &twin);
        for (int i = 0; i < 2; i++) { /* the second time with what was remembered of the first */
                assert_int_equal(walk_kernel(f, ret), 0);
                if (twin.n != ret->n || twin.walk != ret->walk || twin.hash != ret->hash ||
                    twin.defer != ret->defer)
                        fprintf(stderr, "kernel: %u frames, end %u, defer %d; twin: %u, %u, %d; time %d\n",
                                ret->n, ret->walk, ret->defer, twin.n, twin.walk, twin.defer, i);
                assert_int_equal(ret->n, twin.n);
                assert_int_equal(ret->walked, twin.walked);
                assert_int_equal(ret->walk, twin.walk);
                assert_int_equal(ret->defer, twin.defer);
                assert_memory_equal(ret->frame, twin.frame, ret->n * sizeof(uint64_t));
                assert_true(ret->hash == twin.hash);
        }
}

static uint64_t elf_frame(uint64_t address, bool caller)
{
        return ABI_FRAME(OBJECT, address - BIAS - caller);
}

static void test_x86_chain(void **state)
{
        struct walk_fixture *f = &fixture[0];
        struct walk_result r;

        /* CFA = sp + 24: two words of locals, then the return address */
        one_rule(f, (struct unwind_rule){UNWIND_SP, 0, 0, 24}, 2);
        f->pages[1] = ABI_PAGE(0, 1, 1); /* second page: outermost */
        stack[2] = CODE + 0x200;
        stack[5] = CODE + 0x300;
        stack[8] = CODE + 0x1010;
        compare(f, &r);
        assert_int_equal(r.walk, ABI_WALK_COMPLETE);
        assert_int_equal(r.n, 4);
        assert_true(r.frame[0] == elf_frame(CODE + 0x123, false));
        assert_true(r.frame[1] == elf_frame(CODE + 0x200, true));
        assert_true(r.frame[2] == elf_frame(CODE + 0x300, true));
        assert_true(r.frame[3] == elf_frame(CODE + 0x1010, true));
}

/* The return address of a call that ends a page belongs to that page, not to the next. */
static void test_call_at_page_end(void **state)
{
        struct walk_fixture *f = &fixture[0];
        struct walk_result r;

        one_rule(f, (struct unwind_rule){UNWIND_SP, 0, 0, 8}, 2);
        f->pages[0] = ABI_PAGE(0, 1, 1);
        f->probe->registers.ip = CODE + 0x1001;
        stack[0] = CODE + 0x1000;
        compare(f, &r);
        assert_int_equal(r.walk, ABI_WALK_COMPLETE);
        assert_int_equal(r.n, 2);
        assert_true(r.frame[1] == elf_frame(CODE + 0x1000, true));
}

/* _dl_runtime_resolve: CFA from rbx, which the frames below it saved or left alone. */
static void test_x86_rbx(void **state)
{
        struct walk_fixture *f = &fixture[0];
        struct walk_result r;

        one_rule(f, (struct unwind_rule){UNWIND_SP, -2, 0, 16}, 3); /* saves rbx at CFA - 16 */
        f->rules[5] = (struct unwind_rule){UNWIND_BX, 0, 0, 16};
        f->shard[0][3] = UNWIND_ROW(0, 5);
        f->pages[1] = ABI_PAGE(0, 3, 1);
        f->pages[2] = ABI_PAGE(0, 1, 1);
        f->probe->registers.reg[3] = 0xdead;
        stack[0] = (uintptr_t)&stack[10]; /* the caller's rbx */
        stack[1] = CODE + 0x1100;
        stack[11] = CODE + 0x2100;
        compare(f, &r);
        assert_int_equal(r.walk, ABI_WALK_COMPLETE);
        assert_int_equal(r.n, 3);
        assert_true(r.frame[2] == elf_frame(CODE + 0x2100, true));

        f->rules[4].aux = UNWIND_AUX_LOST;
        compare(f, &r);
        assert_int_equal(r.walk, ABI_WALK_UNSUPPORTED);
        assert_int_equal(r.n, 2);
}

/* Through a signal frame on another stack, lower in memory, to the interrupted instruction. */
static void test_x86_signal(void **state)
{
        struct walk_fixture *f = &fixture[0];
        struct walk_result r;
        uint64_t *uc = stack + 1000;

        one_rule(f, (struct unwind_rule){UNWIND_SP, 0, 0, 8}, 3);
        f->pages[1] = ABI_PAGE(0, 2, 1); /* the trampoline */
        f->pages[2] = ABI_PAGE(0, 1, 1);
        f->probe->registers.sp = (uintptr_t)(uc - 1);
        uc[-1] = CODE + 0x1001;
        uc[5 + 10] = 0x4242;                  /* rbp */
        uc[5 + 15] = (uintptr_t)(stack + 50); /* rsp */
        uc[5 + 16] = CODE + 0x800;            /* rip */
        stack[50] = CODE + 0x2000 + 1;
        compare(f, &r);
        assert_int_equal(r.walk, ABI_WALK_COMPLETE);
        assert_int_equal(r.n, 4);
        assert_true(r.frame[2] == elf_frame(CODE + 0x800, false)); /* not a return address */
        assert_true(r.frame[3] == elf_frame(CODE + 0x2001, true));
}

static void recursion(struct walk_fixture *f, uint32_t depth)
{
        one_rule(f, (struct unwind_rule){UNWIND_SP, 0, 0, 16}, 2);
        f->pages[1] = ABI_PAGE(0, 1, 1);
        for (uint32_t i = 0; i < depth; i++) {
                stack[2 * i] = 0;
                stack[2 * i + 1] = CODE + 0x100 + i % 5 * 16;
        }
        stack[2 * depth - 1] = CODE + 0x1001;
}

static void test_depth(void **state)
{
        struct walk_fixture *f = &fixture[0];
        struct walk_result r;
        uint64_t hash;

        recursion(f, ABI_MAX_FRAMES - 1);
        compare(f, &r);
        assert_int_equal(r.walk, ABI_WALK_COMPLETE);
        assert_int_equal(r.n, ABI_MAX_FRAMES);

        recursion(f, ABI_MAX_FRAMES);
        compare(f, &r);
        assert_int_equal(r.walk, ABI_WALK_FOLDED);
        assert_int_equal(r.walked, ABI_MAX_FRAMES + 1);
        assert_int_equal(r.n, ABI_MAX_FRAMES);
        assert_true(r.frame[0] == elf_frame(CODE + 0x123, false));
        assert_true(r.frame[ABI_MAX_FRAMES / 2] == ABI_FRAME_FOLDED);
        assert_true(r.frame[ABI_MAX_FRAMES - 1] == elf_frame(CODE + 0x1001, true));

        /* recursions that differ only in the folded part are one stack */
        recursion(f, 1000);
        compare(f, &r);
        assert_int_equal(r.walk, ABI_WALK_FOLDED);
        hash = r.hash;
        recursion(f, 1500);
        compare(f, &r);
        assert_int_equal(r.walk, ABI_WALK_FOLDED);
        assert_true(r.hash == hash);

        recursion(f, 5000);
        compare(f, &r);
        assert_int_equal(r.walk, ABI_WALK_DEPTH);
        assert_int_equal(r.n, ABI_MAX_FRAMES);
}

/* A stack that leads back to itself, one that goes down, one that ends in a hole. */
static void test_bad_stacks(void **state)
{
        struct walk_fixture *f = &fixture[0];
        struct walk_result r;

        one_rule(f, (struct unwind_rule){UNWIND_FP | UNWIND_FP_AT_CFA << 4, 0, -2, 16}, 1);
        f->probe->registers.fp = (uintptr_t)&stack[4];
        stack[4] = (uintptr_t)&stack[4];
        stack[5] = CODE + 0x100;
        compare(f, &r);
        assert_int_equal(r.walk, ABI_WALK_BAD_STACK);
        assert_int_equal(r.n, 2);

        stack[4] = (uintptr_t)&stack[2];
        compare(f, &r);
        assert_int_equal(r.walk, ABI_WALK_BAD_STACK);

        stack[4] = (uintptr_t)stack + STACK_SIZE - 8;
        compare(f, &r);
        assert_int_equal(r.walk, ABI_WALK_UNREADABLE);
        assert_int_equal(r.n, 2);
}

static void test_not_loaded(void **state)
{
        struct walk_fixture *f = &fixture[0];
        struct walk_result r;

        one_rule(f, (struct unwind_rule){UNWIND_SP, 0, 0, 8}, 2);
        f->pages[1] = 0;
        stack[0] = CODE + 0x1800;
        compare(f, &r);
        assert_int_equal(r.walk, ABI_WALK_PAGE_MISSING);
        assert_true(r.defer);

        f->mappings[0].n_pages = 0;
        f->mappings[0].flags = ABI_MAPPING_DEFER;
        compare(f, &r);
        assert_int_equal(r.walk, ABI_WALK_NO_TABLE);
        assert_true(r.defer);

        /* outside every mapping: deferred once, not when the list is known to be whole */
        f->probe->registers.ip = 0x1000;
        compare(f, &r);
        assert_int_equal(r.walk, ABI_WALK_NO_MAPPING);
        assert_true(r.defer);
        assert_true(r.frame[0] == ABI_FRAME(0, 0x1000));
        f->probe->settled = 1;
        compare(f, &r);
        assert_false(r.defer);
}

static void test_arm64_chain(void **state)
{
        struct walk_fixture *f = &fixture[1];
        struct walk_result r;
        uint64_t signature = 0x5a00ull << 48;

        /* leaf without a frame: lr; then frames with fp and lr pushed, return addresses signed */
        one_rule(f, (struct unwind_rule){UNWIND_SP, 0, 0, 0}, 3);
        f->rules[5] = (struct unwind_rule){UNWIND_SP | UNWIND_FP_AT_CFA << 4, UNWIND_AUX_BESIDE_FP, -4, 32};
        f->shard[0][3] = UNWIND_ROW(0, 5);
        f->pages[1] = ABI_PAGE(0, 3, 1);
        f->pages[2] = ABI_PAGE(0, 1, 1);
        f->probe->registers.lr = (CODE + 0x1100) | signature;
        stack[0] = (uintptr_t)&stack[4];
        stack[1] = (CODE + 0x1204) | signature;
        stack[4] = 1;
        stack[5] = (CODE + 0x2008) | signature;
        compare(f, &r);
        assert_int_equal(r.walk, ABI_WALK_COMPLETE);
        assert_int_equal(r.n, 4);
        assert_true(r.frame[1] == elf_frame(CODE + 0x1100, true));
        assert_true(r.frame[2] == elf_frame(CODE + 0x1204, true));
        assert_true(r.frame[3] == elf_frame(CODE + 0x2008, true));
}

static void test_x86_plt_and_deref(void **state)
{
        struct walk_fixture *f = &fixture[0];
        struct walk_result r;

        /* a PLT stub of 16 bytes that pushes at its 11th: CFA = sp + 8, then sp + 16 */
        one_rule(f, (struct unwind_rule){UNWIND_PLT, 11, 0, 0}, 2);
        f->pages[1] = ABI_PAGE(0, 1, 1);
        stack[0] = CODE + 0x1004;
        stack[1] = CODE + 0x1008;
        f->probe->registers.ip = CODE + 0x20a;
        compare(f, &r);
        assert_true(r.frame[1] == elf_frame(CODE + 0x1004, true));
        f->probe->registers.ip = CODE + 0x20b;
        compare(f, &r);
        assert_true(r.frame[1] == elf_frame(CODE + 0x1008, true));

        /* a realigned frame: the CFA was saved below the frame pointer */
        one_rule(f, (struct unwind_rule){UNWIND_DEREF_FP, 0, 0, -8}, 2);
        f->pages[1] = ABI_PAGE(0, 1, 1);
        f->probe->registers.fp = (uintptr_t)&stack[4];
        stack[3] = (uintptr_t)&stack[20];
        stack[19] = CODE + 0x1002;
        compare(f, &r);
        assert_int_equal(r.walk, ABI_WALK_COMPLETE);
        assert_true(r.n == 2 && r.frame[1] == elf_frame(CODE + 0x1002, true));

        /* hand-written assembly that keeps the CFA in r11, which only holds in the innermost frames */
        one_rule(f, (struct unwind_rule){UNWIND_REG, 11, 0, 8}, 2);
        f->pages[1] = ABI_PAGE(0, 1, 1);
        f->probe->registers.reg[11] = (uintptr_t)&stack[30];
        stack[30] = CODE + 0x1002;
        compare(f, &r);
        assert_true(r.n == 2 && r.frame[1] == elf_frame(CODE + 0x1002, true));

        /* the caller's sp is kept above an array of r9 words; further out nobody knows r9 */
        one_rule(f, (struct unwind_rule){UNWIND_DEREF_AT, 9, 0, 8}, 2);
        f->pages[1] = ABI_PAGE(0, 1, 1);
        f->probe->registers.reg[9] = 6;
        stack[7] = (uintptr_t)&stack[40];
        stack[40] = CODE + 0x1002;
        compare(f, &r);
        assert_true(r.n == 2 && r.frame[1] == elf_frame(CODE + 0x1002, true));
        stack[40] = CODE + 0x200;
        compare(f, &r);
        assert_int_equal(r.walk, ABI_WALK_UNSUPPORTED);
        assert_int_equal(r.n, 2);
}

/* The C library's vfork: the return address is in a register, which is known of the innermost frame only. */
static void test_x86_return_address_in_a_register(void **state)
{
        struct walk_fixture *f = &fixture[0];
        struct walk_result r;

        one_rule(f, (struct unwind_rule){UNWIND_RA_IN, 5, 0, 0}, 3);
        f->rules[5] = (struct unwind_rule){UNWIND_SP, 0, 0, 16};
        f->shard[0][3] = UNWIND_ROW(0, 5);
        f->pages[1] = ABI_PAGE(0, 3, 1);
        f->pages[2] = ABI_PAGE(0, 1, 1);
        f->probe->registers.reg[5] = CODE + 0x1100;
        stack[1] = CODE + 0x2100;
        compare(f, &r);
        assert_int_equal(r.walk, ABI_WALK_COMPLETE);
        assert_int_equal(r.n, 3);
        assert_true(r.frame[1] == elf_frame(CODE + 0x1100, true));
        assert_true(r.frame[2] == elf_frame(CODE + 0x2100, true));

        stack[1] = CODE + 0x100;
        compare(f, &r);
        assert_int_equal(r.walk, ABI_WALK_UNSUPPORTED);
        assert_int_equal(r.n, 3);
}

/* A large frame that saves lr but leaves the frame pointer alone. */
static void test_arm64_large_frame(void **state)
{
        struct walk_fixture *f = &fixture[1];
        struct walk_result r;

        one_rule(f, (struct unwind_rule){UNWIND_SP, UNWIND_AUX_BESIDE_FP, -149, 1184}, 2);
        f->pages[1] = ABI_PAGE(0, 1, 1);
        stack[0] = CODE + 0x1004;
        f->probe->registers.fp = 0x42;
        compare(f, &r);
        assert_int_equal(r.walk, ABI_WALK_COMPLETE);
        assert_true(r.n == 2 && r.frame[1] == elf_frame(CODE + 0x1004, true));
}

/* One mapping without a table, of code that keeps frame pointers. */
static void by_frame_pointer(struct walk_fixture *f, uint16_t flags)
{
        one_rule(f, (struct unwind_rule){0}, 1);
        f->mappings[0].n_pages = 0;
        f->mappings[0].flags = flags;
        f->probe->registers.fp = (uintptr_t)&stack[4];
        stack[4] = (uintptr_t)&stack[10];
        stack[5] = CODE + 0x100;
        stack[10] = 0;
        stack[11] = CODE + 0x200;
}

static void test_frame_pointers(void **state)
{
        struct walk_result r;

        for (int arch = 0; arch < 2; arch++) {
                struct walk_fixture *f = &fixture[arch];

                by_frame_pointer(f, ABI_MAPPING_FP);
                compare(f, &r);
                assert_int_equal(r.walk, ABI_WALK_COMPLETE); /* the outermost frame pointer is 0 */
                assert_int_equal(r.n, 3);
                assert_true(r.frame[1] == elf_frame(CODE + 0x100, true));
                assert_true(r.frame[2] == elf_frame(CODE + 0x200, true));

                /* into no code at all: the chain ends where it does not say so */
                by_frame_pointer(f, ABI_MAPPING_FP);
                stack[11] = 0x7000;
                stack[10] = (uintptr_t)&stack[20];
                compare(f, &r);
                assert_int_equal(r.walk, ABI_WALK_FP_END);
                assert_int_equal(r.n, 2);
                assert_true(r.defer); /* or into code that was made after the list */
                f->probe->settled = 1;
                compare(f, &r);
                assert_int_equal(r.walk, ABI_WALK_FP_END);
                assert_false(r.defer);

                /* a stack switch: in Go the end, elsewhere a broken chain */
                by_frame_pointer(f, ABI_MAPPING_FP);
                stack[4] = 0x1000;
                compare(f, &r);
                assert_int_equal(r.walk, ABI_WALK_FP_END);
                by_frame_pointer(f, ABI_MAPPING_FP | ABI_MAPPING_GO);
                stack[4] = 0x1000;
                compare(f, &r);
                assert_int_equal(r.walk, ABI_WALK_COMPLETE);
                assert_int_equal(r.n, 2);

                /* no table and a frame pointer that is none: said so, and nothing invented */
                by_frame_pointer(f, 0);
                f->probe->registers.fp = 12345;
                compare(f, &r);
                assert_int_equal(r.walk, ABI_WALK_NO_TABLE);
                assert_int_equal(r.n, 1);
        }
}

/* A JIT's leaf at its first or last instruction, where its frame is not there: code that is really in
 * memory. */
static void test_bare_leaf(void **state)
{
        struct walk_fixture *f = &fixture[0];
        struct walk_result r;
        uint8_t *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        static const struct {
                uint8_t bytes[8];
                int at; /* word of the stack with the return address */
        } cases[] = {
                        {{0x55, 0x48, 0x89, 0xe5}, 0},       /* push %rbp */
                        {{0xf3, 0x0f, 0x1e, 0xfa, 0x55}, 0}, /* endbr64; push %rbp */
                        {{0x48, 0x89, 0xe5, 0x90}, 1},       /* mov %rsp, %rbp */
                        {{0xc3}, 0},                         /* ret */
        };

        assert_true(code != MAP_FAILED);
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                uint64_t start = (uintptr_t)code;

                by_frame_pointer(f, ABI_MAPPING_FP);
                f->mappings[0] = (struct abi_mapping){
                                .start = start, .end = start + 4096, .flags = ABI_MAPPING_FP};
                memcpy(code + 64, cases[i].bytes, 8);
                f->probe->registers.ip = start + 64;
                stack[0] = stack[1] = 0x1111;
                stack[cases[i].at] = start + 0x500;
                stack[5] = start + 0x600;
                stack[11] = start + 0x700;
                compare(f, &r);
                assert_int_equal(r.n, 4);
                assert_true(r.frame[1] == ABI_FRAME(0, start + 0x500 - 1)); /* else it would be missing */
                assert_true(r.frame[2] == ABI_FRAME(0, start + 0x600 - 1));
        }
        munmap(code, 4096);
}

/* A trampoline out of a signal handler that has no CFI: known by its instructions (musl, Go). */
static void test_bare_trampoline(void **state)
{
        struct walk_fixture *f = &fixture[0];
        struct walk_result r;
        static const uint8_t trampolines[][16] = {
                        {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05}, /* mov $15, %rax; syscall */
                        {0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05},             /* mov $15, %eax; syscall */
        };
        uint8_t *code = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        uint64_t *uc = stack + 1000, start = (uintptr_t)code;

        assert_true(code != MAP_FAILED);
        for (int i = 0; i < 2; i++) {
                one_rule(f, (struct unwind_rule){UNWIND_SP, 0, 0, 8}, 1);
                f->mappings[1] = f->mappings[0];
                /* made-up code below, the trampoline's page above or below it: sorted by start */
                f->mappings[start > CODE] =
                                (struct abi_mapping){start, start + 4096, start, 0, 0, 0, OBJECT + 1, 0};
                f->probe->n_mappings = 2;
                memcpy(code + 256, trampolines[i], 16);
                f->probe->registers.sp = (uintptr_t)(uc - 1);
                uc[-1] = start + 256;
                uc[5 + 10] = 0;
                uc[5 + 15] = (uintptr_t)(stack + 50);
                uc[5 + 16] = CODE + 0x800;
                stack[50] = 0; /* outermost */
                compare(f, &r);
                assert_int_equal(r.walk, ABI_WALK_COMPLETE);
                assert_int_equal(r.n, 3);
                assert_true(r.frame[1] == ABI_FRAME(OBJECT + 1, 255));
                assert_true(r.frame[2] == elf_frame(CODE + 0x800, false));
        }
        munmap(code, 8192);
}

static void test_vsyscall(void **state)
{
        struct walk_fixture *f = &fixture[0];
        struct walk_result r;

        one_rule(f, (struct unwind_rule){UNWIND_SP, 0, 0, 8}, 2);
        f->pages[1] = ABI_PAGE(0, 1, 1);
        f->probe->registers.ip = 0xffffffffff600400ull; /* time() */
        stack[0] = CODE + 0x1800;
        compare(f, &r);
        assert_int_equal(r.walk, ABI_WALK_COMPLETE);
        assert_int_equal(r.n, 2);
        assert_true(r.frame[0] == ABI_FRAME(0, 0xffffffffff600400ull));
}

static uint64_t random_word(uint32_t n_mappings)
{
        switch (rnd(24)) {
        case 0:
                return 0;
        case 1:
                return rnd(UINT64_MAX);
        case 2:
                return rnd(4096);
        case 3:
        case 4:
                return (uintptr_t)stack + rnd(STACK_SIZE / 8) * 8;
        default:
                return CODE + rnd(n_mappings) * 0x10000 + rnd(0x3000);
        }
}

/* Any mapping list, rules and rows that a loaded table could hold, any registers, any stack. */
static void random_world(struct walk_fixture *f)
{
        uint32_t n = 1 + (uint32_t)rnd(20), first = (uint32_t)rnd(FIXTURE_MAPPINGS - n),
                 rows = 1 + (uint32_t)rnd(60);

        memset(f->probe, 0, sizeof(*f->probe));
        f->probe->first = first;
        f->probe->n_mappings = n;
        f->probe->settled = (uint32_t)rnd(2);
        for (uint32_t i = 0; i < n; i++) {
                uint64_t start = CODE + i * 0x10000ull, pages = 1 + rnd(8);
                f->mappings[first + i] = (struct abi_mapping){start,
                                                              start + 0x1000 + rnd(12) * 0x1000,
                                                              start - 0x4000,
                                                              i * 8,
                                                              (uint32_t)pages,
                                                              (uint32_t)(4 + rnd(2)),
                                                              (uint16_t)rnd(3),
                                                              (uint16_t)(rnd(4) ? 0 : rnd(16))};
        }
        for (uint32_t i = 4; i < 40; i++) {
                uint32_t kind = rnd(8) ? 4 + (uint32_t)rnd(3) : (uint32_t)rnd(16);
                f->rules[i] = (struct unwind_rule){
                                (uint8_t)(kind | rnd(4) << 4), (int8_t)(rnd(2) ? rnd(8) - 8 : rnd(256)),
                                (int16_t)(rnd(40) - 30), (int32_t)(rnd(8) ? rnd(20) * 8 : rnd(UINT32_MAX))};
        }
        for (uint32_t i = 0; i < rows; i++)
                f->shard[1][500 + i] = UNWIND_ROW(i * 4096 / rows, rnd(16) ? 4 + rnd(36) : rnd(4));
        for (uint32_t i = 0; i < n * 8; i++) {
                uint32_t some = 1 + (uint32_t)rnd(rows);
                f->pages[i] = rnd(16) ? ABI_PAGE(1, 500, some) : 0;
        }
        for (uint32_t i = 0; i < 4096; i++)
                stack[i] = random_word(n);
        f->probe->registers.ip = rnd(10) ? CODE + rnd(n) * 0x10000 + rnd(0x2000) : random_word(n);
        f->probe->registers.sp = rnd(10) ? (uintptr_t)stack + rnd(1000) * 8 : random_word(n);
        f->probe->registers.fp = rnd(3) ? f->probe->registers.sp + rnd(30) * 8 : random_word(n);
        f->probe->registers.lr = random_word(n);
        for (int i = 0; i < 16; i++)
                f->probe->registers.reg[i] = random_word(n);
}

static void test_random(void **state)
{
        static struct walk_result r;
        uint64_t ends[ABI_WALK_MAX] = {0}, frames = 0;

        for (int i = 0; i < 20000; i++) {
                struct walk_fixture *f = &fixture[i & 1];

                random_world(f);
                compare(f, &r);
                assert_in_range(r.walk, 1, ABI_WALK_MAX - 1);
                ends[r.walk]++;
                frames += r.n;
        }
        /* the worlds are not so hostile that nothing is walked */
        assert_true(frames > 25000);
        assert_true(ends[ABI_WALK_COMPLETE] && ends[ABI_WALK_NO_MAPPING] && ends[ABI_WALK_UNSUPPORTED] &&
                    ends[ABI_WALK_UNREADABLE] && ends[ABI_WALK_BAD_STACK] && ends[ABI_WALK_PAGE_MISSING]);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                        cmocka_unit_test(test_x86_chain),
                        cmocka_unit_test(test_call_at_page_end),
                        cmocka_unit_test(test_x86_rbx),
                        cmocka_unit_test(test_x86_signal),
                        cmocka_unit_test(test_depth),
                        cmocka_unit_test(test_bad_stacks),
                        cmocka_unit_test(test_not_loaded),
                        cmocka_unit_test(test_arm64_chain),
                        cmocka_unit_test(test_arm64_large_frame),
                        cmocka_unit_test(test_x86_return_address_in_a_register),
                        cmocka_unit_test(test_x86_plt_and_deref),
                        cmocka_unit_test(test_frame_pointers),
                        cmocka_unit_test(test_bare_leaf),
                        cmocka_unit_test(test_bare_trampoline),
                        cmocka_unit_test(test_vsyscall),
                        cmocka_unit_test(test_random),
        };

        return cmocka_run_group_tests(tests, setup, teardown);
}
