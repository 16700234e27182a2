#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "profile/table.h"
#include "profile/weight.h"
#include "tests/profile/sample_profile.h"

static const struct table_row *find_row(const struct table *t, const char *symbol, const char *comm)
{
        for (uint32_t i = 0; i < t->n; i++)
                if ((!symbol || (t->row[i].symbol && !strcmp(t->row[i].symbol, symbol))) &&
                    (!comm || (t->row[i].comm && !strcmp(t->row[i].comm, comm))))
                        return &t->row[i];
        return NULL;
}

static struct profile *make_profile(void)
{
        struct profile *p = test_new_profile();

        test_add(p, "app", 7, "main;fib;fib;fib", 10);
        test_add(p, "app", 7, "main;work;outer+inner", 20);
        test_add(p, "app", 8, "main;work", 30);
        test_add(p, "db", 9, "main;read;[k]sys_read", 40);
        return p;
}

static void test_functions_with_recursion_once(void **state)
{
        _cleanup_profile_ struct profile *p = make_profile();
        _cleanup_table_ struct table *t = NULL;
        static const struct {
                const char *symbol;
                int64_t self, total;
                bool inlined, kernel;
        } want[] = {
                        {"sys_read", 40, 40, false, true}, {"work", 30, 50, false, false},
                        {"inner", 20, 20, true, false},    {"fib", 10, 10, false, false},
                        {"main", 0, 100, false, false},    {"read", 0, 40, false, false},
                        {"outer", 0, 20, false, false},
        };

        assert_int_equal(table_new(&t, p, &(struct table_options){.keys = TABLE_SYMBOL}), 0);
        assert_int_equal(t->n, ARRAY_SIZE(want));
        assert_int_equal(t->total, 100);
        assert_int_equal(t->samples, 100);
        assert_true(fabs(t->effective - 100) < 1e-9);
        for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
                assert_string_equal(t->row[i].symbol, want[i].symbol); /* also the order */
                assert_int_equal(t->row[i].self, want[i].self);
                assert_int_equal(t->row[i].total, want[i].total);
                assert_int_equal(t->row[i].inlined, want[i].inlined);
                assert_int_equal(t->row[i].kernel, want[i].kernel);
        }
}

static void test_inlined_code_counts_for_its_caller(void **state)
{
        _cleanup_profile_ struct profile *p = make_profile();
        _cleanup_table_ struct table *t = NULL;

        assert_int_equal(table_new(&t, p, &(struct table_options){.keys = TABLE_SYMBOL, .no_inline = true}),
                         0);
        assert_null(find_row(t, "inner", NULL));
        assert_int_equal(find_row(t, "outer", NULL)->self, 20);
}

static void test_rows_by_process(void **state)
{
        _cleanup_profile_ struct profile *p = make_profile();
        _cleanup_table_ struct table *comms = NULL, *both = NULL, *pids = NULL;

        assert_int_equal(table_new(&comms, p, &(struct table_options){.keys = TABLE_COMM, .type = 1}), 0);
        assert_int_equal(comms->n, 2);
        assert_int_equal(find_row(comms, NULL, "app")->self, 600000000);
        assert_int_equal(find_row(comms, NULL, "app")->total, 600000000);
        assert_int_equal(find_row(comms, NULL, "app")->self_samples, 60);
        assert_int_equal(table_new(&both, p, &(struct table_options){.keys = TABLE_COMM | TABLE_SYMBOL}), 0);
        assert_int_equal(find_row(both, "main", "app")->total, 60);
        assert_int_equal(find_row(both, "main", "db")->total, 40);
        assert_int_equal(table_new(&pids, p, &(struct table_options){.keys = TABLE_PID}), 0);
        assert_int_equal(pids->n, 3);
        assert_int_equal(pids->row[0].pid, 9);
        assert_null(pids->row[0].symbol);
}

static void test_rows_by_object_and_line(void **state)
{
        _cleanup_profile_ struct profile *p = make_profile();
        _cleanup_table_ struct table *objects = NULL, *lines = NULL;

        assert_int_equal(table_new(&objects, p, &(struct table_options){.keys = TABLE_OBJECT}), 0);
        assert_int_equal(objects->n, 2);
        assert_string_equal(objects->row[0].object, "/usr/bin/app");
        assert_int_equal(objects->row[0].self, 60);
        assert_int_equal(objects->row[0].total, 100);
        assert_true(objects->row[1].kernel);
        assert_int_equal(table_new(&lines, p,
                                   &(struct table_options){.keys = TABLE_SYMBOL | TABLE_FILE | TABLE_LINE}),
                         0);
        assert_string_equal(find_row(lines, "work", NULL)->file, "main.c");
        assert_int_equal(find_row(lines, "work", NULL)->line, 10);
}

static void test_callers_and_callees(void **state)
{
        _cleanup_profile_ struct profile *p = make_profile();
        _cleanup_table_ struct table *callers = NULL, *callees = NULL;
        struct table_options o = {.keys = TABLE_SYMBOL};

        assert_int_equal(table_edges(&callers, p, &o, TABLE_CALLERS, "fib", NULL), 0);
        assert_int_equal(callers->n, 2);
        assert_int_equal(find_row(callers, "main", NULL)->total, 10);
        assert_int_equal(find_row(callers, "fib", NULL)->total, 10);
        assert_int_equal(table_edges(&callees, p, &o, TABLE_CALLEES, "main", "/usr/bin/app"), 0);
        assert_int_equal(callees->n, 3);
        assert_int_equal(find_row(callees, "work", NULL)->total, 50);
        assert_int_equal(find_row(callees, "read", NULL)->total, 40);
        assert_int_equal(find_row(callees, "fib", NULL)->total, 10);
}

static void test_code_without_a_name(void **state)
{
        _cleanup_profile_ struct profile *p = test_new_profile();
        _cleanup_table_ struct table *t = NULL;
        int64_t values[] = {5, 0}, none[] = {2, 0};
        int64_t mapping = profile_mapping(
                        p, &(struct profile_mapping){
                                           .file = (uint32_t)profile_string(p, "/usr/lib/libz.so.1")});
        uint32_t location = (uint32_t)profile_location(p, (uint32_t)mapping, 0xabc, NULL, 0);

        assert_int_equal(profile_sample(p, &location, 1, NULL, 0, values), 0);
        assert_int_equal(profile_sample(p, NULL, 0, NULL, 0, none), 0);
        assert_int_equal(table_new(&t, p, &(struct table_options){.keys = TABLE_SYMBOL | TABLE_OBJECT}), 0);
        assert_int_equal(t->n, 2);
        assert_string_equal(t->row[0].symbol, "libz.so.1+0xabc");
        assert_string_equal(t->row[0].object, "/usr/lib/libz.so.1");
        assert_string_equal(t->row[1].symbol, "[no stack]");
        assert_int_equal(t->row[1].self, 2);
}

/* Wilson's formula, computed in Python. */
static void test_intervals(void **state)
{
        static const struct {
                double x, n, low, high;
        } cases[] = {
                        {10, 100, 0.0552291368, 0.17436566221},
                        {0, 50, 0, 0.0713476003},
                        {250, 1000, 0.2241530988, 0.2777602805},
        };

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                double low, high;
                weight_interval(cases[i].x / cases[i].n, cases[i].n, WEIGHT_Z95, &low, &high);
                assert_true(fabs(low - cases[i].low) < 1e-9);
                assert_true(fabs(high - cases[i].high) < 1e-9);
        }
}

/* 90 samples of weight 1 and 10 of weight 10: (190)^2 / (90 + 1000). */
static void test_unequal_weights_say_less(void **state)
{
        _cleanup_profile_ struct profile *p = test_new_profile();
        _cleanup_table_ struct table *t = NULL;
        int64_t light[] = {90, 90}, heavy[] = {10, 100};
        uint32_t location = (uint32_t)profile_location(p, 0, 1, NULL, 0);

        assert_int_equal(profile_sample(p, &location, 1, NULL, 0, light), 0);
        assert_int_equal(profile_sample(p, NULL, 0, NULL, 0, heavy), 0);
        assert_int_equal(table_new(&t, p, &(struct table_options){.keys = TABLE_SYMBOL, .type = 1}), 0);
        assert_true(fabs(t->effective - 190.0 * 190 / 1090) < 1e-9);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                        cmocka_unit_test(test_functions_with_recursion_once),
                        cmocka_unit_test(test_inlined_code_counts_for_its_caller),
                        cmocka_unit_test(test_rows_by_process),
                        cmocka_unit_test(test_rows_by_object_and_line),
                        cmocka_unit_test(test_callers_and_callees),
                        cmocka_unit_test(test_code_without_a_name),
                        cmocka_unit_test(test_intervals),
                        cmocka_unit_test(test_unequal_weights_say_less),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
