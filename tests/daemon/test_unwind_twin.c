/* The walk of a deferred sample, on records and mappings that a test makes up: code that keeps frame
 * pointers, so that the stack alone says who called. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "daemon/object_entry.h"
#include "daemon/unwind_twin.h"
#include "tests/daemon/symclient_fake.h"

#define JIT    0x7f0000000000ull
#define PROBES 0x7fffffffe000ull
#define SP     0x7ffc00000800ull

static struct object_entry jit = {.state = OBJECT_CODE, .path = (char *)"[anon]"};
static struct object_entry probes = {.state = OBJECT_CODE, .path = (char *)"[uprobes]"};
static struct process_mapping mapping[] = {{JIT, JIT + 0x100000, 0, &jit},
                                           {PROBES, PROBES + 0x1000, 0, &probes}};
static struct process_maps maps = {.refs = 1, .n = 2, .mapping = mapping};

/* A record with two pieces of stack, and room for both. */
union record {
        struct abi_raw raw;
        uint64_t word[sizeof(struct abi_raw) / 8 + 64];
};

static void begin(union record *r, uint32_t leaf_words, uint32_t root_words, uint64_t root)
{
        memset(r, 0, sizeof(*r));
        r->raw.registers.ip = JIT + 0x100;
        r->raw.registers.sp = SP;
        r->raw.registers.fp = SP + 16;
        r->raw.leaf = SP - 16;
        r->raw.leaf_len = leaf_words * 8;
        r->raw.root = root;
        r->raw.root_len = root_words * 8;
}

static void walk(const union record *r, struct unwind_twin_result *ret)
{
        unwind_twin_walk(&r->raw, &maps, NULL, 1, ret);
        assert_null(ret->missing);
}

/* Where the word at an address is in a record's leaf piece. */
static uint64_t *at(union record *r, uint64_t address)
{
        return &r->word[(sizeof(r->raw) + address - r->raw.leaf) / 8];
}

static void test_two_pieces(void **state)
{
        const uint64_t root = SP + 600 * 1024;
        struct unwind_twin_result w;
        union record r;

        begin(&r, 8, 4, root);
        *at(&r, SP + 16) = root; /* over the huge frame */
        *at(&r, SP + 24) = JIT + 0x200;
        r.word[sizeof(r.raw) / 8 + 8] = 0;
        r.word[sizeof(r.raw) / 8 + 9] = JIT + 0x300;
        walk(&r, &w);
        assert_int_equal(w.walk, ABI_WALK_COMPLETE);
        assert_int_equal(w.n, 3);
        assert_true(w.frame[0] == ABI_FRAME(0, JIT + 0x100));
        assert_true(w.frame[1] == ABI_FRAME(0, JIT + 0x1ff));
        assert_true(w.frame[2] == ABI_FRAME(0, JIT + 0x2ff));

        /* between the pieces, and over the end of either, nothing is known */
        for (int i = 0; i < 3; i++) {
                const uint64_t bad[] = {SP + 600 * 1024 - 16, SP + 48 - 8, root + 24};

                *at(&r, SP + 16) = bad[i];
                walk(&r, &w);
                assert_int_equal(w.walk, ABI_WALK_UNREADABLE);
                assert_int_equal(w.n, 2);
        }
}

/* `push %rbp` has not run yet: the return address is on top of the stack. */
static void test_code(void **state)
{
        struct unwind_twin_result w;
        union record r;

        begin(&r, 8, 0, 0);
        r.raw.code = 0xe5894855; /* push %rbp; mov %rsp, %rbp */
        *at(&r, SP) = JIT + 0x200;
        *at(&r, SP + 16) = 0;
        *at(&r, SP + 24) = JIT + 0x300;
        walk(&r, &w);
        assert_int_equal(w.walk, ABI_WALK_COMPLETE);
        assert_int_equal(w.n, 3);
        assert_true(w.frame[1] == ABI_FRAME(0, JIT + 0x1ff));

        r.raw.code = 0; /* not known: the caller of the caller is what the frame pointer tells */
        walk(&r, &w);
        assert_int_equal(w.n, 2);
        assert_true(w.frame[1] == ABI_FRAME(0, JIT + 0x2ff));
}

/* Return addresses that probes put their trampoline into, one call in the other. */
static void test_return_probes(void **state)
{
        struct unwind_twin_result w;
        union record r;

        begin(&r, 10, 0, 0);
        *at(&r, SP + 16) = SP + 32;
        *at(&r, SP + 24) = PROBES;
        *at(&r, SP + 32) = 0;
        *at(&r, SP + 40) = PROBES;
        r.raw.returns[0] = JIT + 0x200;
        r.raw.returns[1] = JIT + 0x300;
        walk(&r, &w);
        assert_int_equal(w.walk, ABI_WALK_COMPLETE);
        assert_int_equal(w.n, 3);
        assert_true(w.frame[1] == ABI_FRAME(0, JIT + 0x1ff));
        assert_true(w.frame[2] == ABI_FRAME(0, JIT + 0x2ff));

        r.raw.returns[1] = 0;
        walk(&r, &w);
        assert_int_equal(w.walk, ABI_WALK_UNSUPPORTED);
}

/* An instruction that is stepped in a copy stands for the one that was probed. */
static void test_probed_instruction(void **state)
{
        struct unwind_twin_result w;
        union record r;

        begin(&r, 8, 0, 0);
        r.raw.registers.ip = PROBES + 0x80;
        r.raw.probed = JIT + 0x180;
        *at(&r, SP + 16) = 0;
        *at(&r, SP + 24) = JIT + 0x200;
        walk(&r, &w);
        assert_int_equal(w.walk, ABI_WALK_COMPLETE);
        assert_int_equal(w.n, 2);
        assert_true(w.frame[0] == ABI_FRAME(0, JIT + 0x180));
}

/* Code that was made after the list of mappings was read is not the end of a chain. */
static void test_unmapped(void **state)
{
        struct unwind_twin_result w;
        union record r;

        begin(&r, 8, 0, 0);
        *at(&r, SP + 16) = SP + 32;
        *at(&r, SP + 24) = JIT + 0x200000;
        walk(&r, &w);
        assert_int_equal(w.walk, ABI_WALK_FP_END);
        assert_true(w.unmapped);

        *at(&r, SP + 24) = JIT + 0x200;
        *at(&r, SP + 32) = 0;
        *at(&r, SP + 40) = JIT + 0x300;
        walk(&r, &w);
        assert_int_equal(w.walk, ABI_WALK_COMPLETE);
        assert_false(w.unmapped);
}

static struct symclient *symbols;

static void on_step(void *ctx) {}

static int setup(void **state)
{
        symbols = symclient_fake_new();
        assert_int_equal(object_table_new(&jit.table, symbols, NULL, on_step, NULL), 0);
        probes.table = jit.table;
        return 0;
}

static int teardown(void **state)
{
        object_table_free(jit.table);
        symclient_free(symbols);
        return 0;
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                        cmocka_unit_test(test_two_pieces),         cmocka_unit_test(test_code),
                        cmocka_unit_test(test_return_probes),      cmocka_unit_test(test_unmapped),
                        cmocka_unit_test(test_probed_instruction),
        };

#ifndef __x86_64__
        return 77; /* the records are made up for x86-64 */
#endif
        return cmocka_run_group_tests(tests, setup, teardown);
}
