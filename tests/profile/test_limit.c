#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/buf.h"
#include "profile/limit.h"
#include "profile/pprof.h"
#include "tests/profile/sample_profile.h"
#include "tests/profile/synthetic.h"

static void test_the_smallest_are_folded(void **state)
{
        _cleanup_profile_ struct profile *p = test_new_profile(), *small = NULL, *whole = NULL;

        test_add(p, "app", 7, "main;a", 5);
        test_add(p, "app", 7, "main;b", 1);
        test_add(p, "app", 7, "main;c", 4);
        test_add(p, "app", 7, "main;d", 2);
        assert_int_equal(profile_limit(p, 3, 0, &small), 0);
        assert_int_equal(small->n_samples, 3);
        assert_int_equal(test_value(small, "app", 7, "main;a", "samples"), 5);
        assert_int_equal(test_value(small, "app", 7, "main;c", "cpu"), 40000000);
        assert_int_equal(test_total(small, "samples"), 12);
        assert_int_equal(test_total(small, "cpu"), 120000000);
        const struct profile_sample *rest = &small->sample[2];
        assert_int_equal(rest->n_locations, 1);
        assert_int_equal(profile_values(small, 2)[0], 3);
        const struct profile_location *l = &small->location[small->sample_location[rest->first_location]];
        assert_string_equal(small->string[small->function[small->line[l->first_line].function].name],
                            PROFILE_REMAINDER);
        assert_int_equal(profile_ledger_count(small, "folded.stacks", -1), 2);
        assert_int_equal(profile_ledger_count(small, "folded.samples", -1), 3);

        assert_int_equal(profile_limit(p, 4, 0, &whole), 0);
        assert_int_equal(whole->n_samples, 4);
        assert_null(profile_ledger(whole, "folded.stacks"));
}

static void test_bytes_are_kept_to(void **state)
{
        static const uint64_t limits[] = {1 << 20, 200000, 30000, 3000};
        _cleanup_synthetic_ struct synthetic *s = NULL;
        _cleanup_profile_ struct profile *p = NULL;
        uint64_t before = UINT64_MAX;

        assert_int_equal(synthetic_new(&s, &(struct synthetic_options){.seed = 3,
                                                                       .n_programs = 4,
                                                                       .n_processes = 8,
                                                                       .n_functions = 300}),
                         0);
        assert_int_equal(synthetic_profile(s, 0, 5000, 1, 60000000000, &p), 0);
        for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
                _cleanup_profile_ struct profile *small = NULL;
                _cleanup_buf_ struct buf b = {0};
                assert_int_equal(profile_limit(p, 0, limits[i], &small), 0);
                assert_int_equal(pprof_write(small, false, &b), 0);
                assert_true(b.len <= limits[i]);
                assert_true(b.len < before);
                assert_int_equal(test_total(small, "samples"), 5000);
                before = b.len;
        }
}

static void test_labels_not_asked_for_are_dropped(void **state)
{
        _cleanup_profile_ struct profile *p = test_new_profile(), *q = NULL, *none = NULL;
        static const char *const keys[] = {"unit", "comm"};

        test_add(p, "app", 7, "main;a", 5);
        test_add(p, "db", 7, "main;a", 1);
        test_add(p, "app", 8, "main;a", 2);
        assert_int_equal(profile_keep_labels(p, keys, 2, &q), 0);
        assert_int_equal(q->n_samples, 3);
        assert_int_equal(test_value(q, "app", 8, "main;a", "samples"), 2);
        assert_int_equal(profile_keep_labels(p, NULL, 0, &none), 0);
        assert_int_equal(none->n_samples, 2); /* by pid, a number */
        assert_int_equal(profile_values(none, 0)[0], 6);
        assert_null(profile_find_label(none, &none->sample[0], "comm"));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                        cmocka_unit_test(test_the_smallest_are_folded),
                        cmocka_unit_test(test_bytes_are_kept_to),
                        cmocka_unit_test(test_labels_not_asked_for_are_dropped),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
