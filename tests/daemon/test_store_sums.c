/* The sums that the store keeps beside its windows: they never change what a query answers, whatever
 * happened to them, and they do answer. The oracle are the windows themselves, in a copy of the directory
 * without sums. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/log.h"
#include "daemon/store.h"
#include "profile/limit.h"
#include "profile/pprof.h"
#include "store_help.h"

#define HOURS  8
#define DAY    1796083200ull /* 2026-12-01T00:00:00Z: buckets of six hours begin here */
#define LATER  (DAY + (HOURS + 1) * 3600)
#define BUDGET UINT64_MAX

struct fixture {
        char dir[64];
        struct store *store;
};

static void open_store(struct fixture *f)
{
        const struct store_config c = help_config(f->dir);

        assert_int_equal(store_open(&f->store, &c), 0);
}

static void close_store(struct fixture *f)
{
        f->store = store_free(f->store);
}

static void shell(const char *format, const char *dir)
{
        char command[512];

        snprintf(command, sizeof(command), format, dir, dir, dir);
        assert_int_equal(system(command), 0);
}

/* A window that differs from others in stacks, processes and values; every third pid is new. */
static void put(struct fixture *f, uint64_t minute, unsigned *seed)
{
        _cleanup_profile_ struct profile *p = help_profile(
                        DAY + minute * 60, 60, 2 + (uint32_t)rand_r(seed) % 20, (uint32_t)rand_r(seed));
        int64_t pid = profile_string(p, "pid"), thread = profile_string(p, "thread_id"),
                comm = profile_string(p, "comm"), job = profile_string(p, "job");

        for (uint32_t i = 0; i < 8; i++) {
                const struct profile_label labels[] = {
                                {.key = (uint32_t)pid,
                                 .num = 100 + (i % 3 ? (int64_t)i : rand_r(seed) % 1000)},
                                {.key = (uint32_t)thread, .num = rand_r(seed) % 50},
                                {.key = (uint32_t)comm, .str = (uint32_t)job},
                };
                const int64_t values[] = {1 + rand_r(seed) % 9, 7};
                assert_int_equal(profile_sample_at(p, p->sample[(uint32_t)rand_r(seed) % p->n_samples].stack,
                                                   (uint32_t)profile_label_set(p, labels, 3), values),
                                 0);
        }
        assert_int_equal(store_put(f->store, p), 0);
}

static void put_hours(struct fixture *f, unsigned seed)
{
        for (uint64_t i = 0; i < HOURS * 60; i++)
                if (i < 130 || i > 140) /* a gap */
                        put(f, i, &seed);
}

static char template_dir[64];

/* The windows are written once. */
static int make_template(void **state)
{
        struct fixture f = {0};

        help_directory(template_dir);
        strcpy(f.dir, template_dir);
        open_store(&f);
        put_hours(&f, 4711);
        close_store(&f);
        return 0;
}

static int remove_template(void **state)
{
        help_remove(template_dir);
        return 0;
}

static int setup(void **state)
{
        struct fixture *f = calloc(1, sizeof(*f));
        char command[256];

        help_directory(f->dir);
        snprintf(command, sizeof(command), "cp -a %s/. %s/", template_dir, f->dir);
        assert_int_equal(system(command), 0);
        open_store(f);
        *state = f;
        return 0;
}

static int teardown(void **state)
{
        struct fixture *f = *state;

        close_store(f);
        help_remove(f->dir);
        free(f);
        return 0;
}

static char *ask(struct store *s, uint64_t since, uint64_t until, const struct selection *sel,
                 char **ret_ledger)
{
        _cleanup_profile_ struct profile *p = NULL;
        struct buf b = {0};

        assert_int_equal(store_query(s, since * SEC, until * SEC, sel, false, &p), 0);
        if (ret_ledger) {
                buf_addf(&b, "lost %lld from %lld for %lld observed %lld",
                         (long long)profile_ledger_count(p, "lost.counts_full", -1), (long long)p->time_ns,
                         (long long)p->duration_ns, (long long)profile_observed_ns(p));
                *ret_ledger = buf_take(&b);
        }
        return help_dump(p);
}

/* The same ranges and selections of the store as it is, and of its windows alone. */
static void expect_equal(struct fixture *f, unsigned seed)
{
        char bare[80];
        struct store *windows;

        snprintf(bare, sizeof(bare), "%s-bare", f->dir);
        shell("rm -rf %s-bare; cp -a %s %s-bare", f->dir);
        shell("rm -rf %s-bare/summaries", f->dir);
        const struct store_config c = help_config(bare);
        assert_int_equal(store_open(&windows, &c), 0);
        for (int i = 0; i < 12; i++) {
                uint64_t since = DAY + (i ? (uint64_t)rand_r(&seed) % (HOURS * 3600) : 0),
                         until = since + 1 + (i ? (uint64_t)rand_r(&seed) % (HOURS * 3600) : HOURS * 3600);
                struct selection sel = selection_any();
                if (i % 4 == 1)
                        sel.comm = "job";
                if (i % 4 == 2)
                        sel.event = "cpu";
                if (i % 4 == 3)
                        sel.unit = "open";
                _cleanup_free_ char *got_ledger = NULL, *want_ledger = NULL;
                _cleanup_free_ char *got = ask(f->store, since, until, &sel, &got_ledger);
                _cleanup_free_ char *want = ask(windows, since, until, &sel, &want_ledger);
                assert_string_equal(got, want);
                assert_string_equal(got_ledger, want_ledger);
                assert_null(strstr(got, "pid="));
        }
        store_free(windows);
        help_remove(bare);
}

static void names(struct fixture *f, char **ret)
{
        struct buf b = {0};
        char path[80];

        snprintf(path, sizeof(path), "%s/summaries", f->dir);
        help_names(path, &b);
        *ret = buf_take(&b);
}

static void test_answers_are_those_of_the_windows(void **state)
{
        struct fixture *f = *state;

        expect_equal(f, 1); /* before there is any */
        assert_int_equal(store_maintain(f->store, LATER * SEC, BUDGET), 0);
        _cleanup_free_ char *made = NULL;
        names(f, &made);
        assert_non_null(strstr(made, "1-349.pb.gz")); /* six hours without the gap's eleven minutes */
        expect_equal(f, 2);
        /* An oracle that is none of the store's code: all labels, reduced. */
        _cleanup_profile_ struct profile *all = NULL, *sums = NULL, *reduced = NULL, *got = NULL;
        const char *const keys[] = {"comm", "user", "unit"};
        assert_int_equal(store_query(f->store, 0, INT64_MAX, NULL, true, &all), 0);
        assert_int_equal(profile_reduce_labels(all, keys, 3, false, &reduced), 0);
        _cleanup_free_ char *want = help_dump(reduced);
        assert_int_equal(store_query(f->store, 0, INT64_MAX, NULL, false, &sums), 0);
        assert_int_equal(profile_reduce_labels(sums, keys, 3, false, &got), 0);
        _cleanup_free_ char *dump = help_dump(got);
        assert_string_equal(dump, want);
}

/* What each sum says is taken from it, not from windows: one that is made to say something else shows. */
static void test_sums_do_answer(void **state)
{
        struct fixture *f = *state;
        _cleanup_free_ char *honest = NULL, *changed = NULL;

        assert_int_equal(store_maintain(f->store, LATER * SEC, BUDGET), 0);
        honest = ask(f->store, DAY, DAY + 6 * 3600, NULL, NULL);
        /* All windows of these hours become unreadable behind the store's back; their heads stay. */
        shell("for i in %s/*_600.pb.gz; do truncate -s $(( $(stat -c %%s $i) )) $i; "
              "dd if=/dev/zero of=$i bs=1 seek=$(( $(stat -c %%s $i) - 40 )) count=40 conv=notrunc "
              "status=none; done",
              f->dir);
        changed = ask(f->store, DAY, DAY + 6 * 3600, NULL, NULL);
        assert_string_equal(changed, honest);
}

static void test_missing_and_damaged_ones_are_made_again(void **state)
{
        struct fixture *f = *state;
        static const char *const harm[] = {
                        "rm -rf %s/summaries",
                        "rm %s/summaries/1-349.pb.gz",
                        "for i in %s/summaries/*; do : > $i; done",
                        "for i in %s/summaries/*; do truncate -s 300 $i; done",
                        /* right size, wrong contents */
                        "for i in %s/summaries/*; do dd if=/dev/urandom of=$i bs=1 count=200 "
                        "seek=$(( $(stat -c %%s $i) / 2 )) conv=notrunc status=none; done",
                        "for i in %s/summaries/*; do head -c $(stat -c %%s $i) /dev/zero > $i; done",
                        /* another's contents under its name */
                        "cp %s/summaries/1-349.pb.gz %s/x && for i in %s/summaries/*; do cp "
                        "${i%%/summaries*}/x $i; "
                        "done && rm ${i%%/summaries*}/x",
        };

        assert_int_equal(store_maintain(f->store, LATER * SEC, BUDGET), 0);
        _cleanup_free_ char *made = NULL;
        names(f, &made);
        for (size_t i = 0; i < ARRAY_SIZE(harm); i++) {
                for (int restart = 0; restart < 2; restart++) {
                        shell(harm[i], f->dir);
                        if (restart) {
                                close_store(f);
                                open_store(f);
                        }
                        expect_equal(f, (unsigned)i);
                        assert_int_equal(store_maintain(f->store, LATER * SEC, BUDGET), 0);
                        expect_equal(f, (unsigned)i);
                }
                _cleanup_free_ char *again = NULL;
                names(f, &again);
                assert_string_equal(again, made);
        }
}

/* Sums go by numbers: merging their windows changes nothing, deleting one does. */
static void test_sums_of_windows_that_are_merged_or_go(void **state)
{
        struct fixture *f = *state;

        assert_int_equal(store_maintain(f->store, LATER * SEC, BUDGET), 0);
        _cleanup_free_ char *before = ask(f->store, 0, LATER, NULL, NULL);
        assert_int_equal(store_maintain(f->store, (DAY + 36 * 3600) * SEC, BUDGET),
                         0); /* all are hours now */
        _cleanup_free_ char *after = ask(f->store, 0, LATER, NULL, NULL);
        assert_string_equal(after, before);
        expect_equal(f, 5);
        shell("rm %s/20261201T010000Z_3600.pb.gz", f->dir);
        expect_equal(f, 6);
        store_maintain(f->store, (DAY + 36 * 3600) * SEC, BUDGET);
        expect_equal(f, 7);
        _cleanup_free_ char *left = NULL;
        names(f, &left);
        assert_true(strncmp(left, "1-349", 5) != 0); /* they are sorted */
        /* Those of an hour go when they are old and there is one of six. */
        store_maintain(f->store, (DAY + 72 * 3600) * SEC, BUDGET);
        expect_equal(f, 8);
        shell("rm %s/*_3600.pb.gz %s/*.pb.gz 2>/dev/null; true", f->dir);
        store_maintain(f->store, (DAY + 72 * 3600) * SEC, BUDGET);
        _cleanup_free_ char *none = NULL;
        names(f, &none);
        assert_string_equal(none ? none : "", "");
}

/* Numbers begin anew in a directory that was emptied but for its sums. */
static void test_sums_of_other_windows_do_not_count(void **state)
{
        struct fixture *f = *state;

        assert_int_equal(store_maintain(f->store, LATER * SEC, BUDGET), 0);
        close_store(f);
        shell("rm %s/*.pb.gz", f->dir);
        open_store(f);
        put_hours(f, 1234);
        expect_equal(f, 9);
        assert_int_equal(store_maintain(f->store, LATER * SEC, BUDGET), 0);
        expect_equal(f, 10);
}

static void test_they_count_as_size(void **state)
{
        struct fixture *f = *state;
        struct store_stats before, after;

        assert_int_equal(store_maintain(f->store, LATER * SEC, BUDGET), 0);
        store_stats(f->store, &before);
        shell("rm -rf %s/summaries", f->dir);
        close_store(f);
        open_store(f);
        store_stats(f->store, &after);
        assert_true(after.size < before.size);
        assert_int_equal(after.windows, before.windows);
}

/* Three minutes from `first` on, each with half as many samples that differ by a label as an answer may
 * have. */
static void put_wide_windows(struct fixture *f, int first, const char *label)
{
        const int64_t one[] = {1, 10};

        for (int w = first; w < first + 3; w++) {
                _cleanup_profile_ struct profile *p = help_profile(DAY + 86400 + (uint64_t)w * 60, 60, 4, 1);
                uint32_t key = (uint32_t)profile_string(p, label);
                for (uint32_t i = 0; i < STORE_MAX_ROWS / 2; i++) {
                        const struct profile_label l = {.key = key, .num = w * 10000000 + i};
                        assert_int_equal(profile_sample_at(p, 0, (uint32_t)profile_label_set(p, &l, 1), one),
                                         0);
                }
                assert_int_equal(store_put(f->store, p), 0);
        }
}

/* More samples that differ than an answer may have: first the labels of processes go, said in the ledger. */
static void test_answers_are_bounded(void **state)
{
        struct fixture *f = *state;
        _cleanup_profile_ struct profile *got = NULL, *folded = NULL;

        put_wide_windows(f, 0, "pid");
        assert_int_equal(store_query(f->store, (DAY + 86400) * SEC, INT64_MAX, NULL, true, &got), 0);
        assert_non_null(profile_ledger(got, STORE_LEFT_OUT));
        assert_true(got->n_samples < 100);
        int64_t samples = help_sum(got, "samples");
        assert_true(samples > 3 * (int64_t)(STORE_MAX_ROWS / 2));
        /* The same with labels that stay: what is left is counted. */
        put_wide_windows(f, 3, "uid");
        assert_int_equal(store_query(f->store, (DAY + 86400) * SEC, INT64_MAX, NULL, true, &folded), 0);
        assert_true(folded->n_samples <= STORE_MAX_ROWS);
        assert_true(profile_ledger_count(folded, "folded.samples", 0) > 0);
        assert_true(help_sum(folded, "samples") > 6 * (int64_t)(STORE_MAX_ROWS / 2));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                        cmocka_unit_test_setup_teardown(test_answers_are_those_of_the_windows, setup,
                                                        teardown),
                        cmocka_unit_test_setup_teardown(test_sums_do_answer, setup, teardown),
                        cmocka_unit_test_setup_teardown(test_missing_and_damaged_ones_are_made_again, setup,
                                                        teardown),
                        cmocka_unit_test_setup_teardown(test_sums_of_windows_that_are_merged_or_go, setup,
                                                        teardown),
                        cmocka_unit_test_setup_teardown(test_sums_of_other_windows_do_not_count, setup,
                                                        teardown),
                        cmocka_unit_test_setup_teardown(test_they_count_as_size, setup, teardown),
                        cmocka_unit_test_setup_teardown(test_answers_are_bounded, setup, teardown),
        };

        return cmocka_run_group_tests(tests, make_template, remove_template);
}
