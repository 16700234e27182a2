#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/buf.h"
#include "profile/profile.h"
#include "profile/selection.h"
#include "tests/profile/sample_profile.h"

static void test_equal_samples_are_one(void **state)
{
        _cleanup_profile_ struct profile *p = test_new_profile();

        test_add(p, "app", 7, "main;work", 3);
        test_add(p, "app", 7, "main;work", 4);
        test_add(p, "app", 8, "main;work", 1);
        test_add(p, "app", 7, "main;rest", 1);
        assert_int_equal(p->n_samples, 3);
        assert_int_equal(p->n_stacks, 2);
        assert_int_equal(p->n_label_sets, 2);
        assert_int_equal(test_value(p, "app", 7, "main;work", "samples"), 7);
        assert_int_equal(test_value(p, "app", 7, "main;work", "cpu"), 70000000);
}

static void test_strings_are_made_valid_utf8(void **state)
{
        static const struct {
                const char *in, *out;
        } cases[] = {
                        {"plain", "plain"},
                        {"\xc3\xa9t\xc3\xa9", "\xc3\xa9t\xc3\xa9"},
                        {"a\xff"
                         "b",
                         "a\xef\xbf\xbd"
                         "b"},
                        {"cut\xe2\x82", "cut\xef\xbf\xbd\xef\xbf\xbd"},
                        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, /* a surrogate */
        };
        _cleanup_profile_ struct profile *p = test_new_profile();

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                int64_t id = profile_string(p, cases[i].in);
                assert_true(id >= 0);
                assert_string_equal(p->string[id], cases[i].out);
        }
        assert_int_equal(profile_string_n(p, "", 0), 0);
        assert_int_equal(profile_string_n(p, "plain\0x", 7), profile_string(p, "plain"));
}

static void test_a_late_type_is_zero_before(void **state)
{
        _cleanup_profile_ struct profile *p = test_new_profile();

        test_add(p, "app", 7, "main;a", 3);
        test_add(p, "app", 7, "main;b", 5);
        assert_int_equal(profile_type(p, "cache-misses", "count"), 2);
        assert_int_equal(test_value(p, "app", 7, "main;a", "cpu"), 30000000);
        assert_int_equal(test_value(p, "app", 7, "main;b", "samples"), 5);
        assert_int_equal(test_total(p, "cache-misses"), 0);
}

static void test_sums_stay_in_range(void **state)
{
        _cleanup_profile_ struct profile *p = test_new_profile();
        int64_t big[] = {INT64_MAX, INT64_MIN};

        assert_int_equal(profile_sample(p, NULL, 0, NULL, 0, big), 0);
        assert_int_equal(profile_sample(p, NULL, 0, NULL, 0, big), 0);
        assert_int_equal(profile_values(p, 0)[0], INT64_MAX);
        assert_int_equal(profile_values(p, 0)[1], INT64_MIN);
}

static void test_limits(void **state)
{
        _cleanup_profile_ struct profile *p = test_new_profile();
        uint32_t locations[PROFILE_MAX_FRAMES + 1] = {0};
        struct profile_label labels[PROFILE_MAX_LABELS + 1] = {0};
        int64_t values[] = {1, 1};

        assert_int_equal(profile_sample(p, locations, PROFILE_MAX_FRAMES + 1, NULL, 0, values), -E2BIG);
        assert_int_equal(profile_sample(p, NULL, 0, labels, PROFILE_MAX_LABELS + 1, values), -E2BIG);
        for (int i = 0; i < PROFILE_MAX_COMMENTS; i++)
                assert_int_equal(profile_comment(p, "x"), 0);
        assert_int_equal(profile_comment(p, "x"), -E2BIG);
        for (int i = 2; i < PROFILE_MAX_TYPES; i++)
                assert_int_equal(profile_type(p, (char[]){(char)('a' + i), 0}, "count"), i);
        assert_int_equal(profile_type(p, "one more", "count"), -E2BIG);
}

static void test_merge_adds_each_sample(void **state)
{
        _cleanup_profile_ struct profile *a = test_new_profile(), *b = test_new_profile(), *m = NULL;
        int64_t misses[] = {0, 0, 11};

        a->time_ns = 1000;
        a->duration_ns = 60;
        b->time_ns = 1060;
        b->duration_ns = 60;
        test_add(a, "app", 7, "main;work", 3);
        test_add(a, "app", 7, "main;[k]sys_read", 2);
        test_add(b, "db", 9, "main;outer+inner", 1);
        test_add(b, "app", 7, "main;work", 4);
        assert_int_equal(profile_type(b, "cache-misses", "count"), 2);
        assert_int_equal(profile_sample(b, NULL, 0, NULL, 0, misses), 0);

        assert_int_equal(profile_new(&m), 0);
        assert_int_equal(profile_merge(m, a), 0);
        assert_int_equal(profile_merge(m, b), 0);
        assert_int_equal(m->n_samples, 4);
        assert_int_equal(test_value(m, "app", 7, "main;work", "samples"), 7);
        assert_int_equal(test_value(m, "app", 7, "main;[k]sys_read", "cpu"), 20000000);
        assert_int_equal(test_value(m, "db", 9, "main;outer+inner", "samples"), 1);
        assert_int_equal(test_total(m, "cache-misses"), 11);
        assert_int_equal(test_total(m, "samples"), 10);
        assert_int_equal(m->time_ns, 1000);
        assert_int_equal(m->duration_ns, 120);
        assert_int_equal(m->period, a->period);
}

static void test_observed_time_leaves_gaps_out(void **state)
{
        _cleanup_profile_ struct profile *a = test_new_profile(), *b = test_new_profile(), *m = NULL;

        a->time_ns = 1000;
        a->duration_ns = 60;
        b->time_ns = 5000;
        b->duration_ns = 60;
        assert_int_equal(profile_new(&m), 0);
        assert_int_equal(profile_merge(m, b), 0);
        assert_int_equal(profile_observed_ns(m), 60);
        assert_int_equal(profile_merge(m, a), 0);
        assert_int_equal(m->time_ns, 1000);
        assert_int_equal(m->duration_ns, 4060);
        assert_int_equal(profile_observed_ns(m), 120);
        assert_int_equal(profile_merge(a, m), 0);
        assert_int_equal(profile_observed_ns(a), 180);
}

static void test_ledgers_are_combined(void **state)
{
        _cleanup_profile_ struct profile *a = test_new_profile(), *b = test_new_profile();

        assert_int_equal(profile_comment(a, "lost, map full: 3"), 0);
        assert_int_equal(profile_comment(a, "host: x"), 0);
        assert_int_equal(profile_comment(a, "rate asked: 99 Hz"), 0);
        assert_int_equal(profile_comment(a, "a free text"), 0);
        assert_int_equal(profile_comment(a, "boot_end_ns: 9000"), 0); /* a moment: not to be added */
        assert_int_equal(profile_comment(b, "lost, map full: 4"), 0);
        assert_int_equal(profile_comment(b, "lost, no memory: 1"), 0);
        assert_int_equal(profile_comment(b, "host: y"), 0);
        assert_int_equal(profile_comment(b, "rate asked: 99 Hz"), 0);
        assert_int_equal(profile_comment(b, "a free text"), 0);
        assert_int_equal(profile_comment(b, "boot_end_ns: 8000"), 0);
        assert_int_equal(profile_merge(a, b), 0);

        static const char *const want[] = {"lost, map full: 7", "host: x",           "rate asked: 99 Hz",
                                           "a free text",       "boot_end_ns: 9000", "lost, no memory: 1",
                                           "host: y",           "observed_ns: 0"};
        assert_int_equal(a->n_comments, ARRAY_SIZE(want));
        for (size_t i = 0; i < ARRAY_SIZE(want); i++)
                assert_string_equal(a->string[a->comment[i]], want[i]);
        assert_string_equal(profile_ledger(a, "host"), "y");
        assert_int_equal(profile_ledger_count(a, "lost, map full", -1), 7);
        assert_int_equal(profile_ledger_count(a, "lost", -1), -1);
        assert_null(profile_ledger(a, "hos"));
}

static void test_texts_of_a_ledger_do_not_grow_without_end(void **state)
{
        _cleanup_profile_ struct profile *a = test_new_profile();

        for (int i = 0; i < 100; i++) {
                _cleanup_profile_ struct profile *b = test_new_profile();
                char line[32];
                snprintf(line, sizeof(line), "rate: %d Hz", i);
                assert_int_equal(profile_comment(b, line), 0);
                assert_int_equal(profile_merge(a, b), 0);
        }
        assert_string_equal(profile_ledger(a, "rate"), "(more)");
        assert_true(a->n_comments <= PROFILE_MAX_TEXTS + 2);
}

static struct profile *select_from(const struct profile *p, const char *name, const char *value)
{
        struct selection s = selection_any();
        struct profile *ret;

        assert_int_equal(selection_set(&s, name, value), 0);
        assert_int_equal(selection_apply(&s, p, &ret), 0);
        return ret;
}

static void test_selection_by_process_and_side(void **state)
{
        _cleanup_profile_ struct profile *p = test_new_profile(), *pid = NULL, *comm = NULL, *kernel = NULL,
                                         *user = NULL;

        test_add(p, "app", 7, "main;work", 3);
        test_add(p, "app", 7, "main;read;[k]sys_read;[k]copy", 2);
        test_add(p, "db", 9, "main;read", 10);
        pid = select_from(p, "pid", "7");
        assert_int_equal(test_total(pid, "samples"), 5);
        comm = select_from(p, "comm", "db");
        assert_int_equal(test_total(comm, "samples"), 10);
        assert_int_equal(test_value(comm, "db", 9, "main;read", "cpu"), 100000000);
        kernel = select_from(p, "side", "kernel");
        assert_int_equal(kernel->n_samples, 1);
        assert_int_equal(test_value(kernel, "app", 7, "[k]sys_read;[k]copy", "samples"), 2);
        user = select_from(p, "side", "user");
        assert_int_equal(test_value(user, "app", 7, "main;read", "samples"), 2);
        assert_int_equal(test_total(user, "samples"), 15);
}

static void test_selection_by_event(void **state)
{
        _cleanup_profile_ struct profile *p = test_new_profile(), *misses = NULL, *none = NULL;
        static const char *const cpu[] = {"cycles", "cpu-cycles", "cpu-clock", "cpu", "samples"};
        struct selection s = selection_any();
        int64_t values[] = {0, 0, 11};

        assert_int_equal(profile_type(p, "cache-misses", "count"), 2);
        test_add(p, "app", 7, "main", 1);
        assert_int_equal(profile_sample(p, NULL, 0, NULL, 0, values), 0);
        for (size_t i = 0; i < ARRAY_SIZE(cpu); i++) {
                _cleanup_profile_ struct profile *time = select_from(p, "event", cpu[i]);
                assert_int_equal(time->n_types, 2);
                assert_int_equal(time->n_samples, 1);
        }
        misses = select_from(p, "event", "cache-misses");
        assert_int_equal(misses->n_types, 1);
        assert_int_equal(misses->n_samples, 1);
        assert_int_equal(profile_values(misses, 0)[0], 11);
        s.event = "page-faults";
        assert_int_equal(selection_apply(&s, p, &none), -ENOENT);
}

static void test_selection_by_labels(void **state)
{
        static const struct {
                const char *name, *value;
                bool matches;
        } cases[] = {
                        {"unit", "nginx.service", true}, {"unit", "nginx", true},
                        {"unit", "ngin", false},         {"container", "0123abcd", true},
                        {"container", "0124", false},    {"user", "www-data", true},
                        {"user", "www", false},          {"thread_name", "io", true},
                        {"thread_name", "ui", false},
        };
        _cleanup_profile_ struct profile *p = test_new_profile();
        static const char *const texts[][2] = {
                        {"unit", "nginx.service"},
                        {"container_id", "0123abcdef99"},
                        {"user", "www-data"},
                        {"thread_name", "io"},
        };
        struct profile_label labels[4];
        int64_t values[] = {1, 1};

        for (size_t i = 0; i < 4; i++)
                labels[i] = (struct profile_label){.key = (uint32_t)profile_string(p, texts[i][0]),
                                                   .str = (uint32_t)profile_string(p, texts[i][1])};
        assert_int_equal(profile_sample(p, NULL, 0, labels, 4, values), 0);
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                struct selection s = selection_any();
                assert_int_equal(selection_set(&s, cases[i].name, cases[i].value), 0);
                assert_int_equal(selection_matches(&s, p, &p->sample[0]), cases[i].matches);
        }
}

static void test_selection_as_a_query(void **state)
{
        struct selection s = selection_any();
        _cleanup_buf_ struct buf b = {0};

        assert_int_equal(selection_set(&s, "pid", "-1"), -EINVAL);
        assert_int_equal(selection_set(&s, "pid", "7x"), -EINVAL);
        assert_int_equal(selection_set(&s, "side", "both"), -EINVAL);
        assert_int_equal(selection_set(&s, "colour", "red"), -ENOENT);
        selection_query(&s, &b);
        assert_string_equal(buf_text(&b), "");
        assert_int_equal(selection_set(&s, "pid", "7"), 0);
        assert_int_equal(selection_set(&s, "comm", "a b&c=\xc3\xa9"), 0);
        assert_int_equal(selection_set(&s, "side", "kernel"), 0);
        selection_query(&s, &b);
        assert_string_equal(buf_text(&b), "pid=7&comm=a%20b%26c%3D%C3%A9&side=kernel");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                        cmocka_unit_test(test_equal_samples_are_one),
                        cmocka_unit_test(test_strings_are_made_valid_utf8),
                        cmocka_unit_test(test_a_late_type_is_zero_before),
                        cmocka_unit_test(test_sums_stay_in_range),
                        cmocka_unit_test(test_limits),
                        cmocka_unit_test(test_merge_adds_each_sample),
                        cmocka_unit_test(test_observed_time_leaves_gaps_out),
                        cmocka_unit_test(test_ledgers_are_combined),
                        cmocka_unit_test(test_texts_of_a_ledger_do_not_grow_without_end),
                        cmocka_unit_test(test_selection_by_process_and_side),
                        cmocka_unit_test(test_selection_by_event),
                        cmocka_unit_test(test_selection_by_labels),
                        cmocka_unit_test(test_selection_as_a_query),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
