#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/io.h"
#include "profile/pprof.h"
#include "tests/profile/sample_profile.h"
#include "tests/profile/synthetic.h"

static struct profile *make_profile(bool backwards)
{
        static const struct {
                const char *comm;
                int64_t pid;
                const char *stack;
                int64_t samples;
        } rows[] = {
                        {"app", 7, "main;work", 30},
                        {"app", 7, "main;work;outer+inner", 12},
                        {"db", 9, "main;read;[k]sys_read", 5},
                        {"db", 9, "[k]swapper", 1},
        };
        struct profile *p = test_new_profile();

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                size_t k = backwards ? ARRAY_SIZE(rows) - 1 - i : i;
                test_add(p, rows[k].comm, rows[k].pid, rows[k].stack, rows[k].samples);
        }
        assert_int_equal(profile_comment(p, "host: x"), 0);
        p->time_ns = 1764554400000000000;
        p->duration_ns = 60000000000;
        return p;
}

static void test_round_trip(void **state)
{
        _cleanup_profile_ struct profile *p = make_profile(false), *back = NULL;
        _cleanup_buf_ struct buf bytes = {0};
        const char *error = NULL;

        assert_int_equal(pprof_write(p, true, &bytes), 0);
        assert_int_equal(pprof_read(bytes.data, bytes.len, 0, &back, &error), 0);
        assert_int_equal(back->n_samples, 4);
        assert_int_equal(back->n_types, 2);
        assert_int_equal(test_value(back, "app", 7, "main;work", "samples"), 30);
        assert_int_equal(test_value(back, "app", 7, "main;work;outer+inner", "cpu"), 120000000);
        assert_int_equal(test_value(back, "db", 9, "main;read;[k]sys_read", "samples"), 5);
        assert_int_equal(test_value(back, "db", 9, "[k]swapper", "samples"), 1);
        assert_int_equal(back->time_ns, 1764554400000000000);
        assert_int_equal(back->duration_ns, 60000000000);
        assert_int_equal(back->period, 10000000);
        assert_string_equal(back->string[back->period_type.type], "cpu");
        assert_string_equal(profile_ledger(back, "host"), "x");
        for (uint32_t i = 1; i < back->n_mappings; i++)
                if (back->mapping[i].file && back->string[back->mapping[i].file][0] == '/') {
                        assert_string_equal(back->string[back->mapping[i].build_id], "00aa11bb");
                        assert_true(back->mapping[i].has_functions);
                        assert_int_equal(back->mapping[i].limit, 0x200000);
                }
}

static void test_equal_profiles_are_equal_files(void **state)
{
        _cleanup_profile_ struct profile *p = make_profile(false), *q = make_profile(true), *back = NULL;
        _cleanup_buf_ struct buf a = {0}, b = {0}, c = {0};

        assert_int_equal(pprof_write(p, true, &a), 0);
        assert_int_equal(pprof_write(q, true, &b), 0);
        assert_int_equal(a.len, b.len);
        assert_memory_equal(a.data, b.data, a.len);
        assert_int_equal(pprof_read(a.data, a.len, 0, &back, NULL), 0);
        assert_int_equal(pprof_write(back, true, &c), 0);
        assert_int_equal(a.len, c.len);
        assert_memory_equal(a.data, c.data, a.len);
}

static void test_a_file_is_written_whole_or_not(void **state)
{
        char dir[] = "/tmp/test_pprof.XXXXXX", path[64], missing[64];
        _cleanup_profile_ struct profile *p = make_profile(false), *back = NULL;

        assert_non_null(mkdtemp(dir));
        snprintf(path, sizeof(path), "%s/a.pb.gz", dir);
        snprintf(missing, sizeof(missing), "%s/no/a.pb.gz", dir);
        assert_int_equal(pprof_write_file(p, path), 0);
        assert_int_equal(pprof_write_file(p, path), 0);
        assert_int_equal(pprof_write_file(p, missing), -ENOENT);
        assert_int_equal(pprof_read_file(path, &back, NULL), 0);
        assert_int_equal(test_total(back, "samples"), 48);
        unlink(path);
        assert_int_equal(rmdir(dir), 0); /* nothing else is there */
}

/* A profile by hand, from the format's description: one sample with the value 5 in location 99 of function
 * "f", ids not dense, fields not packed, string table first, an unknown field in between. */
static const unsigned char by_hand[] = {
                0x32, 0x00,                               /* string_table "" */
                0x32, 0x01, 'f',                          /* 1 */
                0x32, 0x01, 't',                          /* 2 */
                0xa2, 0x06, 0x02, 'z',  'z',              /* field 100, not known */
                0x0a, 0x04, 0x08, 0x02, 0x10, 0x02,       /* sample_type { t t } */
                0x12, 0x05, 0x08, 0xe7, 0x07, 0x10, 0x05, /* sample { location_id 999, value 5 } */
                0x22, 0x0b, 0x08, 0xe7, 0x07, 0x18, 0x10, /* location { id 999, address 16, */
                0x22, 0x04, 0x08, 0x07, 0x10, 0x2a,       /*   line { function_id 7, line 42 } } */
                0x2a, 0x04, 0x08, 0x07, 0x10, 0x01,       /* function { id 7, name f } */
};

static void test_reads_what_others_may_write(void **state)
{
        _cleanup_profile_ struct profile *p = NULL;
        const char *error = NULL;

        assert_int_equal(pprof_read(by_hand, sizeof(by_hand), 0, &p, &error), 0);
        assert_int_equal(p->n_samples, 1);
        assert_int_equal(profile_values(p, 0)[0], 5);
        const struct profile_location *l = &p->location[p->sample_location[0]];
        assert_int_equal(l->address, 16);
        assert_int_equal(l->mapping, 0);
        assert_int_equal(p->line[l->first_line].line, 42);
        assert_string_equal(p->string[p->function[p->line[l->first_line].function].name], "f");
}

/* One sample in three spellings, the values 1, 2 and 4 of which are to be added up: locations packed, not
 * packed, and with label and value between them; then one that differs in the label's number alone, its
 * value 8. */
static const unsigned char spellings[] = {
                0x32, 0x00,                         /* string_table "" */
                0x32, 0x01, 't',                    /* 1 */
                0x0a, 0x04, 0x08, 0x01, 0x10, 0x01, /* sample_type { t t } */
                0x12, 0x0c, 0x0a, 0x02, 0x01, 0x01, 0x10, 0x01, 0x1a, 0x04, 0x08, 0x01, 0x18,
                0x07, 0x12, 0x0c, 0x08, 0x01, 0x08, 0x01, 0x10, 0x02, 0x1a, 0x04, 0x08, 0x01,
                0x18, 0x07, 0x12, 0x0c, 0x08, 0x01, 0x10, 0x04, 0x1a, 0x04, 0x08, 0x01, 0x18,
                0x07, 0x08, 0x01, 0x12, 0x0c, 0x0a, 0x02, 0x01, 0x01, 0x10, 0x08, 0x1a, 0x04,
                0x08, 0x01, 0x18, 0x08, 0x22, 0x04, 0x08, 0x01, 0x18, 0x10, /* location { id 1, address 16 }
                                                                             */
};

static void test_equal_samples_however_written_are_one(void **state)
{
        _cleanup_profile_ struct profile *p = NULL;
        const char *error = NULL;

        assert_int_equal(pprof_read(spellings, sizeof(spellings), 0, &p, &error), 0);
        assert_int_equal(p->n_samples, 2);
        assert_int_equal(p->sample[0].n_locations, 2);
        assert_int_equal(profile_values(p, 0)[0], 7);
        assert_int_equal(profile_values(p, 1)[0], 8);
        assert_int_equal(profile_find_label(p, &p->sample[0], "t")->num, 7);
        assert_int_equal(profile_find_label(p, &p->sample[1], "t")->num, 8);
}

static void test_says_what_is_wrong(void **state)
{
        struct profile *p = NULL;
        unsigned char bytes[sizeof(by_hand)];
        const char *error = NULL;

        for (size_t n = 0; n < sizeof(by_hand); n++) { /* cut short anywhere */
                error = NULL;
                int r = pprof_read(by_hand, n, 0, &p, &error);
                if (r == 0)
                        p = profile_free(p);
                else
                        assert_non_null(error);
        }
        memcpy(bytes, by_hand, sizeof(bytes));
        bytes[1] = 1;
        assert_int_equal(pprof_read(bytes, sizeof(bytes), 0, &p, &error), -EBADMSG);
        memcpy(bytes, by_hand, sizeof(bytes));
        bytes[sizeof(by_hand) - 1] = 3; /* the function's name */
        assert_int_equal(pprof_read(bytes, sizeof(bytes), 0, &p, &error), -EBADMSG);
        assert_string_equal(error, "a string index is past the end of the string table");
        bytes[sizeof(by_hand) - 1] = 1;
        bytes[sizeof(by_hand) - 3] = 6; /* its id */
        assert_int_equal(pprof_read(bytes, sizeof(bytes), 0, &p, &error), -EBADMSG);
        assert_string_equal(error, "a line names a function that is not there");
        bytes[sizeof(by_hand) - 3] = 0;
        assert_int_equal(pprof_read(bytes, sizeof(bytes), 0, &p, &error), -EBADMSG);
        assert_string_equal(error, "a mapping, function or location has no id, or the id 0");
}

static void test_sizes_are_bounded(void **state)
{
        _cleanup_profile_ struct profile *p = make_profile(false);
        struct profile *back = NULL;
        _cleanup_buf_ struct buf plain = {0}, gz = {0};
        const char *error = NULL;

        assert_int_equal(pprof_write(p, false, &plain), 0);
        assert_int_equal(pprof_write(p, true, &gz), 0);
        assert_int_equal(pprof_read(gz.data, gz.len, plain.len - 1, &back, &error), -EFBIG);
        assert_int_equal(pprof_read(plain.data, plain.len, plain.len - 1, &back, &error), -EFBIG);
        assert_int_equal(pprof_read(gz.data, gz.len - 1, 0, &back, &error), -EBADMSG);
        assert_string_equal(error, "its gzip data is damaged or cut short");
        assert_int_equal(pprof_read(gz.data, gz.len, plain.len, &back, &error), 0);
        profile_free(back);
        assert_int_equal(pprof_read("", 0, 0, &back, &error), -EBADMSG);
}

/* What repeats is not read again; nor may it be mixed up. Samples of location 1, each value another, with
 * their locations and labels laid out in every way that the format allows. */
static const unsigned char repeats[] = {
                0x32, 0x00, 0x32, 0x01, 't',  0x32, 0x01, 'k',  0x32, 0x01, 'v', /* strings "", t, k, v */
                0x0a, 0x04, 0x08, 0x01, 0x10, 0x01,                              /* sample_type */
                0x22, 0x04, 0x08, 0x01, 0x18, 0x10,                              /* location 1, address 16 */
                0x22, 0x04, 0x08, 0x02, 0x18, 0x20,                              /* location 2, address 32 */
                0x12, 0x06, 0x0a, 0x01, 0x01, 0x12, 0x01, 0x01,                  /* [1] = 1 */
                0x12, 0x06, 0x0a, 0x01, 0x01, 0x12, 0x01, 0x02, /* [1] = 2: the same bytes */
                0x12, 0x09, 0x0a, 0x01, 0x01, 0x0a, 0x01, 0x02, 0x12, 0x01, 0x04, /* [1] [2] = 4: in two
                                                                                     fields */
                0x12, 0x06, 0x0a, 0x01, 0x01, 0x12, 0x01, 0x08,                   /* [1] = 8 */
                0x12, 0x08, 0x0a, 0x01, 0x01, 0x08, 0x02, 0x12, 0x01, 0x10, /* [1] 2 = 16: packed and not */
                0x12, 0x0c, 0x1a, 0x04, 0x08, 0x02, 0x10, 0x03, 0x0a, 0x01, 0x01, 0x12,
                0x01, 0x20, /* label k=v before = 32 */
                0x12, 0x0c, 0x0a, 0x01, 0x01, 0x12, 0x01, 0x40, 0x1a, 0x04, 0x08, 0x02,
                0x10, 0x03, /* and behind = 64 */
                0x12, 0x0c, 0x1a, 0x04, 0x08, 0x02, 0x10, 0x03, 0x0a, 0x01, 0x02, 0x12,
                0x01, 0x01, /* k=v before [2] = 1 */
};

static void test_repeated_bytes_are_not_mixed_up(void **state)
{
        static const struct {
                uint32_t n_locations, n_labels;
                uint64_t leaf;
                int64_t value;
        } want[] = {{1, 0, 16, 11}, {2, 0, 16, 20}, {1, 1, 16, 96}, {1, 1, 32, 1}};
        _cleanup_profile_ struct profile *p = NULL;
        const char *error = "";
        unsigned char bytes[sizeof(repeats)];

        memcpy(bytes, repeats, sizeof(bytes));
        assert_int_equal(pprof_read(bytes, sizeof(bytes), 0, &p, &error), 0);
        assert_int_equal(p->n_samples, ARRAY_SIZE(want));
        for (uint32_t i = 0; i < ARRAY_SIZE(want); i++) {
                assert_int_equal(p->sample[i].n_locations, want[i].n_locations);
                assert_int_equal(p->sample[i].n_labels, want[i].n_labels);
                assert_int_equal(p->location[p->sample_location[p->sample[i].first_location]].address,
                                 want[i].leaf);
                assert_int_equal(profile_values(p, i)[0], want[i].value);
        }
}

static void test_merging_files_is_merging_profiles(void **state)
{
        _cleanup_synthetic_ struct synthetic *s = NULL;
        _cleanup_profile_ struct profile *sum = NULL, *merged = NULL;
        _cleanup_buf_ struct buf a = {0}, b = {0};
        const char *error;

        assert_int_equal(synthetic_new(&s, &(struct synthetic_options){.seed = 9,
                                                                       .n_programs = 3,
                                                                       .n_processes = 6,
                                                                       .n_functions = 200}),
                         0);
        assert_int_equal(profile_new(&sum), 0);
        assert_int_equal(profile_new(&merged), 0);
        for (uint64_t i = 0; i < 3; i++) {
                _cleanup_profile_ struct profile *p = NULL;
                _cleanup_buf_ struct buf file = {0};
                assert_int_equal(synthetic_profile(s, i, 2000, (int64_t)i * 60, 60, &p), 0);
                if (i == 1)
                        assert_int_equal(profile_type(p, "cache-misses", "count"), 2);
                assert_int_equal(pprof_write(p, true, &file), 0);
                assert_int_equal(profile_merge(sum, p), 0);
                assert_int_equal(pprof_merge(file.data, file.len, 0, NULL, merged, &error), 0);
        }
        assert_int_equal(test_total(merged, "samples"), 6000);
        assert_int_equal(profile_ledger_count(merged, "samples.taken", 0), 6000);
        assert_int_equal(profile_observed_ns(merged), 180);
        assert_int_equal(pprof_write(sum, false, &a), 0);
        assert_int_equal(pprof_write(merged, false, &b), 0);
        assert_int_equal(a.len, b.len);
        assert_memory_equal(a.data, b.data, a.len);
}

/* What the reader chooses is what choosing afterwards gives. */
static void test_choices(void **state)
{
        static const struct {
                const char *name, *value;
        } wanted[] = {{"comm", "NAME"}, {"pid", "NUMBER"}, {"comm", "of nobody"}};
        _cleanup_synthetic_ struct synthetic *s = NULL;
        _cleanup_profile_ struct profile *p = NULL;
        _cleanup_buf_ struct buf file = {0};

        assert_int_equal(synthetic_new(&s, &(struct synthetic_options){.seed = 7,
                                                                       .n_programs = 4,
                                                                       .n_processes = 9,
                                                                       .n_functions = 100}),
                         0);
        assert_int_equal(synthetic_profile(s, 1, 3000, 1000000000000, 60000000000, &p), 0);
        assert_int_equal(pprof_write(p, true, &file), 0);
        const struct profile_label *comm = profile_find_label(p, &p->sample[0], "comm"),
                                   *pid = profile_find_label(p, &p->sample[0], "pid");
        char number[32];
        snprintf(number, sizeof(number), "%lld", (long long)pid->num);
        for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
                _cleanup_profile_ struct profile *got = NULL, *want = NULL;
                _cleanup_buf_ struct buf a = {0}, b = {0};
                struct selection sel = selection_any();
                const char *value = i == 0 ? p->string[comm->str] : i == 1 ? number : wanted[i].value;
                assert_int_equal(selection_set(&sel, wanted[i].name, value), 0);
                const struct pprof_choice choice = {.selection = &sel};
                assert_int_equal(profile_new(&got), 0);
                assert_int_equal(pprof_merge(file.data, file.len, 0, &choice, got, NULL), 0);
                assert_int_equal(selection_apply(&sel, p, &want), 0);
                assert_int_equal(got->n_samples, want->n_samples);
                assert_true((i == 2) == (got->n_samples == 0));
                assert_true(got->n_samples < p->n_samples);
                assert_int_equal(pprof_write(got, false, &a), 0);
                assert_int_equal(pprof_write(want, false, &b), 0);
                assert_int_equal(a.len, b.len);
                assert_memory_equal(a.data, b.data, a.len);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                        cmocka_unit_test(test_round_trip),
                        cmocka_unit_test(test_equal_profiles_are_equal_files),
                        cmocka_unit_test(test_a_file_is_written_whole_or_not),
                        cmocka_unit_test(test_reads_what_others_may_write),
                        cmocka_unit_test(test_equal_samples_however_written_are_one),
                        cmocka_unit_test(test_says_what_is_wrong),
                        cmocka_unit_test(test_repeated_bytes_are_not_mixed_up),
                        cmocka_unit_test(test_merging_files_is_merging_profiles),
                        cmocka_unit_test(test_sizes_are_bounded),
                        cmocka_unit_test(test_choices),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
