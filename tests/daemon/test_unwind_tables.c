/* Tables in real BPF maps, compared with the worker's table that they were loaded from. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "daemon/unwind_tables.h"
#include "tests/daemon/bpf_maps.h"

#define N_PAGES 8192

struct world {
        struct unwind_maps maps;
        struct unwind_tables *tables;
};

static struct world w;

static int setup_with(uint64_t bytes)
{
        int r = bpf_maps_new(&w.maps, 8, N_PAGES);
        if (r < 0) {
                printf("cannot make BPF maps here: %s\n", strerror(-r));
                return r;
        }
        return unwind_tables_new(&w.tables, &w.maps, bytes);
}

static int setup(void **state)
{
        return setup_with(8 << 20);
}

static int setup_low(void **state)
{
        return setup_with(1 << 20);
}

static int teardown(void **state)
{
        unwind_tables_free(w.tables);
        bpf_maps_free(&w.maps);
        return 0;
}

/* A random table: n_pages pages from first_page on, up to max_rows rows each. */
static struct sym_table make_table(uint32_t first_page, uint32_t n_pages, uint32_t max_rows,
                                   uint32_t n_rules)
{
        uint32_t *start = calloc(n_pages + 1, sizeof(*start));
        uint32_t *row = calloc((size_t)n_pages * max_rows, sizeof(*row)), n = 0;
        struct unwind_rule *rule = calloc(n_rules, sizeof(*rule));

        for (uint32_t i = 0; i < n_rules; i++)
                rule[i] = (struct unwind_rule){.kind_fp = UNWIND_SP, .cfa_offset = rand() % 100000 * 8};
        for (uint32_t p = 0; p < n_pages; p++) {
                uint32_t rows = 1 + (uint32_t)rand() % max_rows, offset = 0;
                start[p] = n;
                for (uint32_t i = 0; i < rows && offset < 4096; i++) {
                        row[n++] = UNWIND_ROW(offset, (uint32_t)rand() % (n_rules + UNWIND_RULE_FIRST));
                        offset += 1 + (uint32_t)rand() % (2 * 4096 / max_rows);
                }
        }
        start[n_pages] = n;
        return (struct sym_table){first_page, n_pages, n, n_rules, start, row, rule};
}

static void free_table(struct sym_table *t)
{
        free((void *)(uintptr_t)t->page_start);
        free((void *)(uintptr_t)t->row);
        free((void *)(uintptr_t)t->rule);
}

/* The rule at an address, found the plain way. */
static struct unwind_rule expected(const struct sym_table *t, uint64_t address)
{
        struct unwind_rule none = {.kind_fp = UNWIND_NONE};
        uint32_t page = (uint32_t)(address >> 12), best = UINT32_MAX;

        if (page < t->first_page || page >= t->first_page + t->n_pages)
                return none;
        for (uint32_t i = t->page_start[page - t->first_page]; i < t->page_start[page - t->first_page + 1];
             i++)
                if (UNWIND_ROW_OFFSET(t->row[i]) <= (address & 4095))
                        best = UNWIND_ROW_RULE(t->row[i]);
        if (best < UNWIND_RULE_FIRST)
                return (struct unwind_rule){.kind_fp = (uint8_t)best};
        return t->rule[best - UNWIND_RULE_FIRST];
}

static struct unwind_index *index_of(uint64_t vaddr, uint64_t size)
{
        struct sym_segment segment = {.vaddr = vaddr, .filesz = size, .memsz = size};
        struct unwind_index *x;

        assert_int_equal(unwind_index_new(w.tables, &segment, 1, size, &x), 0);
        return x;
}

/* Random addresses agree; returns how many of them are not loaded. */
static uint32_t compare(const struct unwind_index *x, const struct sym_table *t, uint32_t n)
{
        uint32_t absent = 0;

        for (uint32_t i = 0; i < n; i++) {
                uint64_t address = ((uint64_t)t->first_page << 12) +
                                   (uint64_t)rand() % ((uint64_t)t->n_pages << 12);
                struct unwind_rule got, want = expected(t, address);
                int r = unwind_index_rule(w.tables, x, address, &got);
                if (r == -EAGAIN) {
                        absent++;
                        continue;
                }
                assert_int_equal(r, 0);
                assert_memory_equal(&got, &want, sizeof(got));
        }
        return absent;
}

static void test_what_is_loaded_is_what_the_worker_said(void **state)
{
        struct unwind_rule rule;

        srand(3);
        for (uint32_t round = 0; round < 20; round++) {
                struct sym_table t = make_table(16 + round, 1 + (uint32_t)rand() % 200,
                                                1 + (uint32_t)rand() % 90, 1 + (uint32_t)rand() % 60);
                /* The text reaches further than the table, on both sides. */
                struct unwind_index *x = index_of((uint64_t)(t.first_page - 5) << 12,
                                                  (uint64_t)(t.n_pages + 70) << 12);
                assert_int_equal(compare(x, &t, 10), 10);
                assert_int_equal(unwind_index_load(w.tables, x, &t), 1);
                assert_int_equal(compare(x, &t, 2000), 0);
                assert_int_equal(unwind_index_rule(w.tables, x, (uint64_t)(t.first_page - 1) << 12, &rule),
                                 0);
                assert_int_equal(UNWIND_RULE_KIND(&rule), UNWIND_NONE);
                assert_int_equal(unwind_index_rule(w.tables, x, (uint64_t)(t.first_page + t.n_pages) << 12,
                                                   &rule),
                                 0);
                assert_int_equal(UNWIND_RULE_KIND(&rule), UNWIND_NONE);
                assert_int_equal(unwind_index_rule(w.tables, x, 0, &rule), -ENOENT);
                if (round % 2)
                        unwind_index_free(w.tables, x);
                unwind_tables_tick(w.tables);
                free_table(&t);
        }
}

static void test_the_kernel_finds_the_same_entries(void **state)
{
        struct sym_table t = make_table(100, 30, 50, 10);
        struct unwind_index *x = index_of(100 << 12, 30 << 12);
        struct unwind_place place;

        assert_int_equal(unwind_index_load(w.tables, x, &t), 1);
        assert_true(unwind_index_place(x, (100 << 12) + 77, &place));
        assert_int_equal(place.first_page, 100);
        assert_int_equal(place.n_pages, 30);
        for (uint32_t p = 0; p < 30; p++) {
                uint64_t entry = w.maps.pages[place.page + p];
                assert_true(entry >> 63);
                assert_int_equal(ABI_PAGE_ROWS(entry), t.page_start[p + 1] - t.page_start[p]);
        }
        assert_false(unwind_index_place(x, 99 << 12, &place));
        free_table(&t);
}

static void test_an_object_without_unwind_information(void **state)
{
        struct unwind_index *x = index_of(0x1000, 0x5000);
        struct unwind_rule rule;

        assert_int_equal(unwind_index_rule(w.tables, x, 0x1234, &rule), -EAGAIN);
        unwind_index_fill(w.tables, x, UNWIND_NONE);
        assert_int_equal(unwind_index_rule(w.tables, x, 0x1234, &rule), 0);
        assert_int_equal(UNWIND_RULE_KIND(&rule), UNWIND_NONE);
        unwind_index_unfill(w.tables, x);
        assert_int_equal(unwind_index_rule(w.tables, x, 0x1234, &rule), -EAGAIN);
}

/* ELF headers are a stranger's: what they claim costs no more than the file can hold. */
static void test_segments_that_claim_too_much(void **state)
{
        struct sym_segment huge[SYM_MAX_SEGMENTS];
        struct unwind_index *x;

        for (uint32_t i = 0; i < SYM_MAX_SEGMENTS; i++)
                huge[i] = (struct sym_segment){
                                .vaddr = (uint64_t)i << 40, .memsz = 1ull << 39, .filesz = 1ull << 39};
        assert_int_equal(unwind_index_new(w.tables, huge, SYM_MAX_SEGMENTS, 1ull << 62, &x), -ENOSPC);
        /* Together no more than a quarter of the index. */
        assert_int_equal(unwind_index_new(w.tables, huge, SYM_MAX_SEGMENTS, N_PAGES / 16 * 4096ull, &x),
                         -ENOSPC);
        huge[0].vaddr = UINT64_MAX - 10;
        huge[1].vaddr = (1ull << 48) - 4096;
        huge[2].memsz = 0;
        assert_int_equal(unwind_index_new(w.tables, huge, 3, 1 << 20, &x), 0);
        unwind_index_free(w.tables, x);
        unwind_tables_tick(w.tables);
        unwind_tables_tick(w.tables);
        /* What failed took nothing. */
        struct unwind_tables_stats s;
        unwind_tables_stats(w.tables, &s);
        assert_int_equal(s.pages, 0);
}

static void test_a_row_that_names_no_rule_of_the_table(void **state)
{
        uint32_t start[] = {0, 1}, row[] = {UNWIND_ROW(0, 500)};
        struct unwind_rule rule = {.kind_fp = UNWIND_SP, .cfa_offset = 8};
        struct sym_table t = {.first_page = 1, .n_pages = 1, .n_rows = 1, .n_rules = 1, start, row, &rule};
        struct unwind_index *x = index_of(0x1000, 0x1000);

        assert_int_equal(unwind_index_load(w.tables, x, &t), 1);
        assert_int_equal(unwind_index_rule(w.tables, x, 0x1000, &rule), 0);
        assert_int_equal(UNWIND_RULE_KIND(&rule), UNWIND_UNSUPPORTED);
}

static void test_under_the_ceiling_the_coldest_goes(void **state)
{
        enum { OBJECTS = 12 };
        struct sym_table t[OBJECTS];
        struct unwind_index *x[OBJECTS];
        struct unwind_tables_stats s;

        srand(5);
        for (int i = 0; i < OBJECTS; i++) {
                t[i] = make_table(10, 500, 120, 40); /* some 30,000 rows */
                x[i] = index_of(10 << 12, 500 << 12);
                for (uint64_t a = 10; a < 510; a += 8)
                        assert_true(unwind_index_want(w.tables, x[i], a << 12));
                if (unwind_index_load(w.tables, x[i], &t[i]) <= 0)
                        fail();
                unwind_index_touch(w.tables, x[0]); /* always in use */
                unwind_tables_tick(w.tables);
                unwind_tables_stats(w.tables, &s);
                assert_true(s.rows <= ABI_SHARD_ROWS);
                /* Whatever is there is right, though rows were reused. */
                for (int k = 0; k <= i; k++)
                        compare(x[k], &t[k], 300);
        }
        assert_true(s.evictions > 0);
        assert_int_equal(s.shards, 1);
        assert_int_equal(compare(x[0], &t[0], 1000), 0); /* the one in use stayed whole */
        assert_int_equal(compare(x[OBJECTS - 1], &t[OBJECTS - 1], 1000) < 1000, 1);
        uint32_t absent = compare(x[1], &t[1], 1000);
        assert_true(absent > 0); /* the one not seen for longest did not */

        /* It comes back where it is wanted. */
        unwind_tables_tick(w.tables);
        unwind_tables_tick(w.tables);
        for (uint64_t a = 10; a < 510; a += UNWIND_CHUNK_PAGES)
                unwind_index_want(w.tables, x[1], a << 12);
        assert_int_equal(unwind_index_load(w.tables, x[1], &t[1]), 1);
        assert_int_equal(compare(x[1], &t[1], 1000), 0);
        for (int i = 0; i < OBJECTS; i++) {
                compare(x[i], &t[i], 300);
                unwind_index_free(w.tables, x[i]);
                free_table(&t[i]);
        }
        unwind_tables_tick(w.tables);
        unwind_tables_tick(w.tables);
        unwind_tables_stats(w.tables, &s);
        assert_int_equal(s.tables, 0);
        assert_int_equal(s.pages, 0);
        assert_int_equal(s.rows, 256); /* the shared pages of one row */
}

static void test_an_object_larger_than_the_ceiling(void **state)
{
        struct sym_table t = make_table(0, 2000, 400, 40); /* twice what fits */
        struct unwind_index *x = index_of(0, 2000 << 12);
        struct unwind_tables_stats s;

        for (uint32_t page = 0; page < 2000; page += 100) {
                uint64_t address = (uint64_t)page << 12;
                struct unwind_rule got, want = expected(&t, address);
                if (unwind_index_want(w.tables, x, address))
                        assert_int_equal(unwind_index_load(w.tables, x, &t), 1);
                assert_int_equal(unwind_index_rule(w.tables, x, address, &got), 0);
                assert_memory_equal(&got, &want, sizeof(got));
                compare(x, &t, 1000);
                unwind_tables_tick(w.tables);
        }
        unwind_tables_stats(w.tables, &s);
        assert_int_equal(s.shards, 1);
        assert_true(s.evictions > 0);
        free_table(&t);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                        cmocka_unit_test_setup_teardown(test_what_is_loaded_is_what_the_worker_said, setup,
                                                        teardown),
                        cmocka_unit_test_setup_teardown(test_the_kernel_finds_the_same_entries, setup,
                                                        teardown),
                        cmocka_unit_test_setup_teardown(test_an_object_without_unwind_information, setup,
                                                        teardown),
                        cmocka_unit_test_setup_teardown(test_segments_that_claim_too_much, setup, teardown),
                        cmocka_unit_test_setup_teardown(test_a_row_that_names_no_rule_of_the_table, setup,
                                                        teardown),
                        cmocka_unit_test_setup_teardown(test_under_the_ceiling_the_coldest_goes, setup_low,
                                                        teardown),
                        cmocka_unit_test_setup_teardown(test_an_object_larger_than_the_ceiling, setup_low,
                                                        teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
