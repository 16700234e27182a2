/* Deferred samples in several records, of two CPUs mixed: each comes out whole, once, with its own bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/cleanup.h"
#include "daemon/sampler_impl.h"

#define SP   0x7ffc00000000ull
#define ROOT (SP + 0x100000)

static union {
        struct abi_raw raw;
        uint8_t bytes[sizeof(struct abi_raw) + ABI_RAW_PART];
} record;

/* What is at an address of a stack, told by the address and whose it is. */
static uint8_t byte_at(uint64_t address, uint32_t cpu)
{
        return (uint8_t)(address * 7 + (address >> 8) * 13 + cpu);
}

static void fill(uint32_t cpu, uint64_t time, uint32_t more, uint64_t leaf, uint32_t leaf_len, uint64_t root,
                 uint32_t root_len)
{
        record.raw = (struct abi_raw){.cpu = cpu,
                                      .time_ns = time,
                                      .more = more,
                                      .leaf = leaf,
                                      .root = root,
                                      .leaf_len = leaf_len,
                                      .root_len = root_len};
        for (uint32_t i = 0; i < leaf_len; i++)
                record.raw.stack[i] = byte_at(leaf + i, cpu);
        for (uint32_t i = 0; i < root_len; i++)
                record.raw.stack[leaf_len + i] = byte_at(root + i, cpu);
}

static void check(const struct abi_raw *raw, uint32_t cpu, uint32_t leaf_len, uint32_t root_len)
{
        assert_non_null(raw);
        assert_int_equal(raw->cpu, cpu);
        assert_int_equal(raw->leaf_len, leaf_len);
        assert_int_equal(raw->root_len, root_len);
        assert_true(raw->leaf == SP);
        for (uint32_t i = 0; i < leaf_len; i++)
                assert_int_equal(raw->stack[i], byte_at(SP + i, cpu));
        for (uint32_t i = 0; i < root_len; i++)
                assert_int_equal(raw->stack[leaf_len + i], byte_at(ROOT + i, cpu));
}

static void test_one_record(void **state)
{
        struct raw_parts p;

        assert_int_equal(raw_parts_init(&p, 1), 0);
        fill(0, 1, 0, SP, 100, ROOT, 0);
        assert_ptr_equal(raw_parts_add(&p, &record.raw), &record.raw);
        fill(5, 1, 0, SP, 100, ROOT, 0); /* no such CPU */
        assert_null(raw_parts_add(&p, &record.raw));
        raw_parts_done(&p);
}

/* Pieces as large as they may be, both cut at places that fit nothing, the CPUs in turn. */
static void test_many_records(void **state)
{
        const uint32_t step[] = {ABI_RAW_PART, 12 * 1024 + 8};
        uint32_t leaf[2] = {0}, root[2] = {0}, cpus = 2, whole = 0;
        struct raw_parts p;

        assert_int_equal(raw_parts_init(&p, cpus), 0);
        for (int i = 0; i < 100 && whole < cpus; i++) {
                uint32_t c = (uint32_t)i % cpus;
                uint32_t l = MIN_OF(step[c], ABI_RAW_LEAF - leaf[c]);
                uint32_t r = MIN_OF(step[c] - l, ABI_RAW_ROOT - root[c]);
                const struct abi_raw *raw;
                bool more = root[c] + r < ABI_RAW_ROOT;

                if (!l && !r)
                        continue;
                fill(c, 10 + c, more, SP + leaf[c], l, ROOT + root[c], r);
                leaf[c] += l;
                root[c] += r;
                raw = raw_parts_add(&p, &record.raw);
                if (more) {
                        assert_null(raw);
                        continue;
                }
                check(raw, c, ABI_RAW_LEAF, ABI_RAW_ROOT);
                whole++;
        }
        assert_int_equal(whole, cpus);
        raw_parts_done(&p);
}

/* A sample whose last record found no room is no part of the next one. */
static void test_never_ended(void **state)
{
        struct raw_parts p;

        assert_int_equal(raw_parts_init(&p, 1), 0);
        fill(0, 1, 1, SP + 4096, 1000, ROOT, 0);
        assert_null(raw_parts_add(&p, &record.raw));
        fill(0, 2, 0, SP, 200, ROOT, 0);
        check(raw_parts_add(&p, &record.raw), 0, 200, 0);
        fill(0, 3, 1, SP + 4096, 1000, ROOT, 0);
        assert_null(raw_parts_add(&p, &record.raw));
        fill(0, 4, 1, SP, 1000, ROOT, 0);
        assert_null(raw_parts_add(&p, &record.raw));
        fill(0, 4, 0, SP + 1000, 24, ROOT, 8);
        check(raw_parts_add(&p, &record.raw), 0, 1024, 8);
        raw_parts_done(&p);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                        cmocka_unit_test(test_one_record),
                        cmocka_unit_test(test_many_records),
                        cmocka_unit_test(test_never_ended),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
