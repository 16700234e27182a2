#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "profile/diff.h"
#include "profile/diff_stats.h"
#include "tests/profile/sample_profile.h"
#include "tests/profile/synthetic.h"

static const struct diff_row *find_row(const struct diff *d, const char *name)
{
        for (uint32_t i = 0; i < d->n; i++)
                if (!strcmp(d->row[i].name, name))
                        return &d->row[i];
        fail_msg("no row %s", name);
        return NULL;
}

static void test_shares_rates_and_order(void **state)
{
        _cleanup_profile_ struct profile *a = test_new_profile(), *b = test_new_profile();
        _cleanup_diff_ struct diff *d = NULL;

        a->duration_ns = 100000000000;
        b->duration_ns = 200000000000;
        test_add(a, "app", 7, "main;steady", 5000);
        test_add(a, "app", 7, "main;grows", 3000);
        test_add(a, "app", 7, "main;shrinks", 2000);
        test_add(b, "app", 8, "main;steady", 5000);
        test_add(b, "app", 8, "main;grows", 4000);
        test_add(b, "app", 8, "main;shrinks", 1000);
        assert_int_equal(diff_new(&d, a, b, &(struct diff_options){.by = DIFF_FUNCTION}), 0);
        const struct diff_row *grows = find_row(d, "grows"), *steady = find_row(d, "steady");
        assert_true(fabs(grows->side[0].share - 0.3) < 1e-9 && fabs(grows->side[1].share - 0.4) < 1e-9);
        assert_true(fabs(grows->side[0].rate - 0.3) < 1e-9); /* 30 s of CPU in 100 s */
        assert_true(fabs(grows->side[1].rate - 0.2) < 1e-9);
        assert_true(grows->changed && find_row(d, "shrinks")->changed && !steady->changed);
        assert_int_equal(d->n_changed, 2);
        assert_true(d->row[0].changed && d->row[1].changed);
        assert_true(grows->share_low > 0 && grows->share_low < 0.1 && grows->share_high > 0.1);
        assert_true(steady->share_low < 0 && steady->share_high > 0);
        assert_string_equal(steady->object, "app");
        assert_false(steady->rebuilt);
}

/* Newcombe 1998, table II: 56/70 and 48/80, method 10: 0.0524 to 0.3339. */
static void test_interval_of_a_difference(void **state)
{
        double low, high;

        stat_share_interval((double[]){48.0 / 80, 56.0 / 70}, (double[]){80, 70}, &low, &high);
        assert_true(fabs(low - 0.0524) < 5e-5);
        assert_true(fabs(high - 0.3339) < 5e-5);
}

static void test_by_process_object_and_stack(void **state)
{
        _cleanup_profile_ struct profile *a = test_new_profile(), *b = test_new_profile();
        _cleanup_diff_ struct diff *process = NULL, *object = NULL, *stack = NULL, *none = NULL;

        test_add(a, "app", 7, "main;x", 100);
        test_add(a, "db", 8, "main;[k]read", 100);
        test_add(b, "app", 7, "main;x", 1000);
        test_add(b, "db", 8, "main;[k]read", 100);
        assert_int_equal(diff_new(&process, a, b, &(struct diff_options){.by = DIFF_PROCESS}), 0);
        assert_int_equal(process->n, 2);
        assert_true(find_row(process, "app")->changed);
        assert_int_equal(diff_new(&object, a, b, &(struct diff_options){.by = DIFF_OBJECT}), 0);
        assert_int_equal(find_row(object, "[kernel.kallsyms]")->side[0].value, 1000000000);
        assert_int_equal(diff_new(&stack, a, b, &(struct diff_options){.by = DIFF_STACK, .type = "samples"}),
                         0);
        assert_int_equal(find_row(stack, "main;x")->side[1].value, 1000);
        assert_int_equal(diff_new(&none, a, b, &(struct diff_options){.type = "cache-misses"}), -ENOENT);
}

/* Runs of one synthetic host: in how many of them anything is called changed. Nothing has changed, so each
 * comparison has a false call with a probability of at most 0.05: more than 12 of 60 have one with less than
 * 1 in 10,000. */
static void test_equal_runs_do_not_differ(void **state)
{
        _cleanup_synthetic_ struct synthetic *s = NULL;
        unsigned with_false_calls = 0, rounds = 60;
        uint64_t calls = 0, rows = 0;

        assert_int_equal(synthetic_new(&s, &(struct synthetic_options){.seed = 5,
                                                                       .n_programs = 2,
                                                                       .n_processes = 4,
                                                                       .n_functions = 60}),
                         0);
        for (unsigned i = 0; i < rounds; i++) {
                _cleanup_profile_ struct profile *a = NULL, *b = NULL;
                _cleanup_diff_ struct diff *d = NULL;
                assert_int_equal(synthetic_profile(s, 2 * i, 3000, 1, 60000000000, &a), 0);
                assert_int_equal(synthetic_profile(s, 2 * i + 1, 4000, 1, 60000000000, &b), 0);
                assert_int_equal(diff_new(&d, a, b, &(struct diff_options){.by = DIFF_FUNCTION}), 0);
                with_false_calls += d->n_changed > 0;
                calls += d->n_changed;
                rows += d->n;
        }
        printf("%u of %u comparisons call something changed, %u of %u rows\n", with_false_calls, rounds,
               (unsigned)calls, (unsigned)rows);
        assert_true(with_false_calls <= 12);
}

/* Counts that vary four times as much as samples would, as of CPUs sampled in step: without the factor
 * nearly every comparison would have false calls. */
static void test_overdispersed_counts_do_not_differ(void **state)
{
        unsigned false_calls = 0, rounds = 100;

        srand48(7);
        for (unsigned i = 0; i < rounds; i++) {
                struct stat_row row[60];
                struct stat_sides sides = {.share = 1};
                for (int k = 0; k < 60; k++)
                        for (int side = 0; side < 2; side++) {
                                double mean = 50 + 10 * k, sum = 0;
                                for (int u = 0; u < 12; u++) /* a normal deviate, of twelve uniform ones */
                                        sum += drand48();
                                row[k].count[side] = fmax(0, mean + 2 * sqrt(mean) * (sum - 6));
                                sides.exposure[side] += row[k].count[side];
                        }
                assert_int_equal(stat_test(row, 60, &sides, stat_overdispersion(row, 60, &sides)), 0);
                for (int k = 0; k < 60; k++)
                        false_calls += row[k].p < 0.05;
        }
        printf("%u of %u rows called changed\n", false_calls, rounds * 60);
        assert_true(false_calls <= rounds * 60 / 100); /* without the factor it is one of three */
}

/* One of eight functions takes 10 % longer: it is found, and first. */
static void test_a_slower_function_is_first(void **state)
{
        unsigned found = 0, rounds = 50;

        srand48(11);
        for (unsigned i = 0; i < rounds; i++) {
                _cleanup_profile_ struct profile *a = test_new_profile(), *b = test_new_profile();
                _cleanup_diff_ struct diff *d = NULL;
                for (int side = 0; side < 2; side++) {
                        double edge[8], sum = 0;
                        int64_t count[8] = {0};
                        for (int f = 0; f < 8; f++)
                                edge[f] = sum += (f == 3 ? 20 * (side ? 1.1 : 1) : 5 + 2.0 * f);
                        for (int n = 0; n < 60000; n++) {
                                double x = drand48() * sum;
                                int f = 0;
                                while (x >= edge[f])
                                        f++;
                                count[f]++;
                        }
                        for (int f = 0; f < 8; f++) {
                                char stack[] = "main;fn_0";
                                stack[8] = (char)('0' + f);
                                test_add(side ? b : a, "app", 7, stack, count[f]);
                        }
                }
                assert_int_equal(diff_new(&d, a, b, &(struct diff_options){.by = DIFF_FUNCTION}), 0);
                found += d->n_changed && !strcmp(d->row[0].name, "fn_3");
        }
        assert_int_equal(found, rounds); /* the change is 9 standard errors */
}

static void test_versions_are_matched(void **state)
{
        _cleanup_profile_ struct profile *a = test_new_profile(), *b = test_new_profile();
        _cleanup_diff_ struct diff *d = NULL;
        static const char *const paths[] = {"/srv/releases/1/bin/app", "/srv/releases/2/bin/app"},
                                 *const ids[] = {"aa", "bb"};

        for (int side = 0; side < 2; side++) {
                struct profile *p = side ? b : a;
                struct profile_mapping m = {.file = (uint32_t)profile_string(p, paths[side]),
                                            .build_id = (uint32_t)profile_string(p, ids[side])};
                struct profile_function f = {.name = (uint32_t)profile_string(p, "handle")};
                struct profile_line line = {.function = (uint32_t)profile_function(p, &f)};
                uint32_t location = (uint32_t)profile_location(p, (uint32_t)profile_mapping(p, &m),
                                                               0x10u + (unsigned)side, &line, 1);
                int64_t values[] = {50, 50};
                assert_int_equal(profile_sample(p, &location, 1, NULL, 0, values), 0);
        }
        assert_int_equal(diff_new(&d, a, b, &(struct diff_options){.by = DIFF_FUNCTION}), 0);
        assert_int_equal(d->n, 1);
        assert_true(d->row[0].rebuilt);
        assert_int_equal(d->row[0].side[0].value, 50);
        assert_int_equal(d->row[0].side[1].value, 50);
        assert_true(isnan(d->row[0].side[0].rate));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                        cmocka_unit_test(test_shares_rates_and_order),
                        cmocka_unit_test(test_interval_of_a_difference),
                        cmocka_unit_test(test_by_process_object_and_stack),
                        cmocka_unit_test(test_equal_runs_do_not_differ),
                        cmocka_unit_test(test_overdispersed_counts_do_not_differ),
                        cmocka_unit_test(test_a_slower_function_is_first),
                        cmocka_unit_test(test_versions_are_matched),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
