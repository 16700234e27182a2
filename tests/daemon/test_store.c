#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/log.h"
#include "daemon/store.h"
#include "daemon/store_facts.h"
#include "profile/pprof.h"
#include "store_help.h"

#define FOREVER INT64_MAX
#define BUDGET  UINT64_MAX

struct fixture {
        char dir[64];
        struct store_config config;
        struct store *store;
};

static int set_up(void **state)
{
        struct fixture *f = calloc(1, sizeof(*f));

        help_directory(f->dir);
        f->config = help_config(f->dir);
        *state = f;
        return store_open(&f->store, &f->config);
}

static int tear_down(void **state)
{
        struct fixture *f = *state;

        store_free(f->store);
        help_remove(f->dir);
        free(f);
        return 0;
}

static void reopen(struct fixture *f)
{
        store_free(f->store);
        assert_int_equal(store_open(&f->store, &f->config), 0);
}

static void put(struct fixture *f, uint64_t start_s, uint64_t seconds, uint32_t seed)
{
        _cleanup_profile_ struct profile *p = help_profile(start_s, seconds, 40, seed);

        assert_int_equal(store_put(f->store, p), 0);
}

static uint32_t count_windows(struct fixture *f)
{
        _cleanup_free_ struct store_window *w = NULL;
        uint32_t n;

        assert_int_equal(store_list(f->store, 0, FOREVER, &w, &n), 0);
        return n;
}

static char *dump_all(struct fixture *f)
{
        _cleanup_profile_ struct profile *p = NULL;

        int r = store_query(f->store, 0, FOREVER, NULL, true, &p);
        if (r == -ENODATA)
                return strdup("");
        assert_int_equal(r, 0);
        return help_dump(p);
}

static void assert_names(struct fixture *f, const char *names)
{
        _cleanup_buf_ struct buf b = {0};

        help_names(f->dir, &b);
        assert_string_equal(buf_text(&b), names);
}

/* -- names -- */

static void test_ids(void **state)
{
        char id[STORE_ID_SIZE];
        uint64_t start, seconds;

        assert_int_equal(store_id_format(T0, 60, id), 0);
        assert_string_equal(id, "20261201T021000Z_60");
        assert_int_equal(store_id_parse(id, &start, &seconds), 0);
        assert_int_equal(start, T0);
        assert_int_equal(seconds, 60);
        assert_int_equal(store_id_format(951782400, 1, id), 0); /* a leap day: date -u -d 2000-02-29 +%s */
        assert_string_equal(id, "20000229T000000Z_1");
        assert_int_equal(store_id_format(UINT64_MAX / 2, 1, id), -ERANGE);

        static const char *const wrong[] = {
                        "",
                        "20261201T021000Z",
                        "20261201T021000Z_",
                        "20261201T021000Z_0",
                        "20261201T021000Z_060",
                        "20261201T021000Z_60 ",
                        "20261301T021000Z_60",
                        "20260230T021000Z_60",
                        "20261201T021060Z_60",
                        "20261201t021000Z_60",
                        "20261201T021000Z_99999999999999999999",
                        "../../etc/passwd",
        };
        for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
                assert_int_equal(store_id_parse(wrong[i], &start, &seconds), -EINVAL);
        assert_int_equal(store_id_from_name("20261201T021000Z_60.pb.gz", id), 0);
        assert_int_equal(store_id_from_name("20261201T021000Z_60.pb", id), -EINVAL);
        assert_int_equal(store_id_from_name(".pb.gz", id), -EINVAL);
}

static void test_a_window_is_a_pprof_file_under_its_time(void **state)
{
        struct fixture *f = *state;
        _cleanup_profile_ struct profile *p = help_profile(T0, 60, 40, 1), *back = NULL;
        _cleanup_free_ char *before = help_dump(p), *after = NULL;
        _cleanup_free_ struct store_window *w = NULL;
        char path[128], command[256];
        uint32_t n;

        assert_int_equal(store_put(f->store, p), 0);
        assert_names(f, "20261201T021000Z_60.pb.gz ");
        snprintf(path, sizeof(path), "%s/20261201T021000Z_60.pb.gz", f->dir);
        assert_int_equal(pprof_read_file(path, &back, NULL), 0);
        after = help_dump(back);
        assert_string_equal(after, before);
        assert_string_equal(profile_ledger(back, "host"), "testhost");
        /* Another tool's opinion of the header and the checksum. */
        snprintf(command, sizeof(command), "gzip -t %s", path);
        assert_int_equal(system(command), 0);

        assert_int_equal(store_list(f->store, 0, FOREVER, &w, &n), 0);
        assert_int_equal(n, 1);
        assert_string_equal(w[0].id, "20261201T021000Z_60");
        assert_int_equal(w[0].start_ns, T0 * SEC);
        assert_int_equal(w[0].duration_ns, 60 * SEC);
        assert_int_equal(w[0].samples, help_sum(p, "samples"));
        assert_int_equal(w[0].lost, 2);
        struct stat st;
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(w[0].size, st.st_size);
}

static void test_facts_are_read_back_without_the_contents(void **state)
{
        struct fixture *f = *state;
        _cleanup_free_ struct store_window *a = NULL, *b = NULL;
        uint32_t n, m;

        put(f, T0, 60, 1);
        put(f, T0 + 60, 60, 2);
        assert_int_equal(store_list(f->store, 0, FOREVER, &a, &n), 0);
        reopen(f);
        assert_int_equal(store_list(f->store, 0, FOREVER, &b, &m), 0);
        assert_int_equal(n, 2);
        assert_int_equal(m, 2);
        assert_memory_equal(a, b, sizeof(*a) * 2);
}

/* -- clocks -- */

static void test_a_clock_set_back_never_takes_a_name_twice(void **state)
{
        struct fixture *f = *state;
        _cleanup_free_ struct store_window *w = NULL;
        uint32_t n;

        put(f, T0, 60, 1);
        put(f, T0 + 60, 60, 2);
        put(f, T0, 60, 3); /* set back by two minutes */
        put(f, T0, 60, 4);
        assert_names(f, "20261201T021000Z_60.pb.gz 20261201T021001Z_60.pb.gz 20261201T021002Z_60.pb.gz "
                        "20261201T021100Z_60.pb.gz ");
        /* A collector gets them in the order they were stored, whatever the clock said. */
        assert_int_equal(store_after(f->store, "20261201T021100Z_60", 10, &w, &n), 0);
        assert_int_equal(n, 2);
        assert_string_equal(w[0].id, "20261201T021001Z_60");
        assert_string_equal(w[1].id, "20261201T021002Z_60");
        assert_int_equal(w[0].start_ns, T0 * SEC); /* the time itself is not touched */
}

static void test_numbers_go_on_after_a_restart(void **state)
{
        struct fixture *f = *state;
        _cleanup_free_ struct store_window *w = NULL;
        uint32_t n;

        put(f, T0 + 600, 60, 1);
        reopen(f);
        put(f, T0, 60, 2); /* the clock was set back while profd was down */
        assert_int_equal(store_after(f->store, "20261201T022000Z_60", 10, &w, &n), 0);
        assert_int_equal(n, 1);
        assert_string_equal(w[0].id, "20261201T021000Z_60");
}

static void test_after_an_id_that_is_gone(void **state)
{
        struct fixture *f = *state;
        _cleanup_free_ struct store_window *w = NULL;
        uint32_t n;

        for (uint64_t i = 0; i < 5; i++)
                put(f, T0 + i * 60, 60, 1);
        reopen(f);
        char path[128];
        snprintf(path, sizeof(path), "%s/20261201T021200Z_60.pb.gz", f->dir);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(store_after(f->store, "20261201T021200Z_60", 10, &w, &n), 0);
        assert_int_equal(n, 2);
        assert_string_equal(w[0].id, "20261201T021300Z_60");
        free(TAKE_PTR(w));
        assert_int_equal(store_after(f->store, "not-an-id", 10, &w, &n), -EINVAL);
}

static void test_a_clock_far_ahead_deletes_nothing_by_age(void **state)
{
        struct fixture *f = *state;
        const uint64_t year = 365 * 86400;
        struct store_stats st;

        f->config.merge_ns[0] = f->config.merge_ns[1] = 0;
        reopen(f);
        for (uint64_t i = 0; i < 5; i++)
                put(f, T0 + i * 3600, 3600, 1);
        /* The clock jumps, before a window shows it and after. */
        assert_int_equal(store_maintain(f->store, (T0 + year) * SEC, BUDGET), 0);
        assert_int_equal(count_windows(f), 5);
        for (uint64_t i = 0; i < 23; i++)
                put(f, T0 + year + i * 3600, 3600, 2);
        assert_int_equal(store_maintain(f->store, (T0 + year + 23 * 3600) * SEC, BUDGET), 0);
        assert_int_equal(count_windows(f), 28);
        /* It stays for a day: so it is the time. */
        for (uint64_t i = 23; i < 26; i++)
                put(f, T0 + year + i * 3600, 3600, 2);
        assert_int_equal(store_maintain(f->store, (T0 + year + 26 * 3600) * SEC, BUDGET), 0);
        assert_int_equal(count_windows(f), 26);
        store_stats(f->store, &st);
        assert_int_equal(st.deleted, 5);
}

static void test_a_clock_that_was_ahead_and_is_set_right(void **state)
{
        struct fixture *f = *state;
        const uint64_t year = 365 * 86400;

        put(f, T0, 3600, 1);
        put(f, T0 + year, 60, 2);
        put(f, T0 + 3600, 3600, 3);
        assert_int_equal(store_maintain(f->store, (T0 + 7200) * SEC, BUDGET), 0);
        assert_int_equal(count_windows(f), 3);
}

/* -- retention -- */

static void test_old_windows_go(void **state)
{
        struct fixture *f = *state;

        f->config.max_age_ns = 86400 * SEC;
        f->config.merge_ns[0] = f->config.merge_ns[1] = 0;
        reopen(f);
        for (uint64_t i = 0; i < 30; i++)
                put(f, T0 + i * 3600, 3600, 1);
        /* 30 h are stored, now is the end of the last: those that ended more than 24 h before are 5. */
        assert_int_equal(store_maintain(f->store, (T0 + 30 * 3600) * SEC, BUDGET), 0);
        assert_int_equal(count_windows(f), 25);
}

static void test_the_first_stored_go_when_the_size_is_reached(void **state)
{
        struct fixture *f = *state;
        _cleanup_free_ struct store_window *w = NULL;
        uint32_t n;

        for (uint64_t i = 0; i < 10; i++)
                put(f, T0 + i * 60, 60, 1); /* equal contents, but for lengths of numbers in the comment */
        assert_int_equal(store_list(f->store, 0, FOREVER, &w, &n), 0);
        f->config.max_size = w[0].size * 4 + w[0].size / 2;
        store_configure(f->store, &f->config);
        assert_int_equal(store_maintain(f->store, (T0 + 600) * SEC, BUDGET), 0);
        free(TAKE_PTR(w));
        assert_int_equal(store_list(f->store, 0, FOREVER, &w, &n), 0);
        assert_int_equal(n, 4);
        assert_int_equal(w[0].start_ns, (T0 + 360) * SEC);
}

/* -- files that are not ours -- */

static void write_file(const struct fixture *f, const char *name, const void *data, size_t n)
{
        char path[128];

        snprintf(path, sizeof(path), "%s/%s", f->dir, name);
        _cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        assert_true(fd >= 0);
        assert_int_equal(write_all(fd, data, n), 0);
}

static void read_back(const struct fixture *f, const char *name, struct buf *b)
{
        char path[128];

        snprintf(path, sizeof(path), "%s/%s", f->dir, name);
        buf_clear(b);
        assert_int_equal(read_file(path, 1 << 20, b), 0);
}

static void test_damaged_and_foreign_files_are_left_alone(void **state)
{
        struct fixture *f = *state;
        _cleanup_buf_ struct buf whole = {0}, now = {0};
        struct store_stats st;

        put(f, T0, 60, 1);
        put(f, T0 + 60, 60, 2);
        _cleanup_free_ char *good = dump_all(f);
        read_back(f, "20261201T021000Z_60.pb.gz", &whole);
        write_file(f, "20261201T030000Z_60.pb.gz", whole.data, whole.len / 2); /* truncated */
        write_file(f, "20261201T031000Z_60.pb.gz", whole.data, whole.len);
        whole.data[whole.len / 2] ^= 0x55; /* damaged in the middle: seen only when read */
        write_file(f, "20261201T032000Z_60.pb.gz", whole.data, whole.len);
        whole.data[whole.len / 2] ^= 0x55;
        write_file(f, "20261201T033000Z_60.pb.gz", "hello", 5);
        write_file(f, "20261201T034000Z_60.pb.gz", "", 0);
        write_file(f, "notes.txt", "hello", 5);
        char path[128];
        snprintf(path, sizeof(path), "%s/20261201T031000Z_60.pb.gz", f->dir);
        assert_int_equal(unlink(path), 0);
        snprintf(path, sizeof(path), "%s/20261201T035000Z_60.pb.gz", f->dir);
        assert_int_equal(symlink("/etc/passwd", path), 0);

        for (int i = 0; i < 3; i++) {
                _cleanup_free_ char *again = dump_all(f);
                assert_string_equal(again, good);
                store_stats(f->store, &st);
                assert_int_equal(st.bad_files, 5); /* each is counted once */
        }
        assert_int_equal(store_maintain(f->store, (T0 + 86400 * 365 * 3) * SEC, BUDGET), 0);
        read_back(f, "20261201T033000Z_60.pb.gz", &now);
        assert_int_equal(now.len, 5);
        read_back(f, "20261201T030000Z_60.pb.gz", &now);
        assert_int_equal(now.len, whole.len / 2);
        assert_int_equal(store_open_window(f->store, "20261201T030000Z_60"), -ENOENT);
        assert_int_equal(store_open_window(f->store, "20261201T035000Z_60"), -ENOENT);
        assert_int_equal(store_open_window(f->store, "../../etc/passwd"), -ENOENT);
}

static void test_a_file_of_another_tool_is_read_and_never_removed(void **state)
{
        struct fixture *f = *state;
        _cleanup_profile_ struct profile *p = help_profile(T0, 60, 40, 9), *all = NULL;
        char path[128];

        snprintf(path, sizeof(path), "%s/20261201T021000Z_60.pb.gz", f->dir);
        assert_int_equal(pprof_write_file(p, path), 0); /* no comment of ours */
        put(f, T0 + 60, 60, 2);
        assert_int_equal(count_windows(f), 2);
        assert_int_equal(store_query(f->store, 0, (T0 + 60) * SEC, NULL, true, &all), 0);
        assert_int_equal(help_sum(all, "samples"), help_sum(p, "samples"));
        f->config.max_size = 1;
        store_configure(f->store, &f->config);
        assert_int_equal(store_maintain(f->store, (T0 + 86400 * 100) * SEC, BUDGET), 0);
        assert_int_equal(access(path, F_OK), 0);
}

static void test_leftovers_of_a_killed_writer_go(void **state)
{
        struct fixture *f = *state;

        put(f, T0, 60, 1);
        store_free(TAKE_PTR(f->store));
        write_file(f, ".put-7.tmp", "x", 1);
        write_file(f, ".merge-7.tmp", "x", 1);
        write_file(f, ".keep", "x", 1);
        assert_int_equal(store_open(&f->store, &f->config), 0);
        assert_names(f, ".keep 20261201T021000Z_60.pb.gz gaps.log ");
}

static void test_files_come_and_go_by_other_hands(void **state)
{
        struct fixture *f = *state;
        _cleanup_buf_ struct buf b = {0};
        char path[128];

        put(f, T0, 60, 1);
        assert_int_equal(count_windows(f), 1);
        read_back(f, "20261201T021000Z_60.pb.gz", &b);
        write_file(f, "20261201T040000Z_60.pb.gz", b.data, b.len);
        assert_int_equal(count_windows(f), 2);
        snprintf(path, sizeof(path), "%s/20261201T040000Z_60.pb.gz", f->dir);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(count_windows(f), 1);
        /* The directory itself: the next window makes it again. */
        store_free(TAKE_PTR(f->store));
        assert_int_equal(store_open(&f->store, &f->config), 0);
        help_remove(f->dir);
        assert_int_equal(count_windows(f), 0);
        put(f, T0 + 60, 60, 1);
        assert_int_equal(count_windows(f), 1);
}

static void test_one_writer_at_a_time(void **state)
{
        struct fixture *f = *state;
        _cleanup_(store_free_cleanup) struct store *other = NULL;
        _cleanup_profile_ struct profile *p = help_profile(T0, 60, 40, 9);
        struct store_window *w;
        uint32_t n;

        put(f, T0, 60, 1);
        assert_int_equal(store_open(&other, &f->config), 0);
        assert_int_equal(store_put(other, p), -EBUSY);
        assert_int_equal(store_list(other, 0, FOREVER, &w, &n), 0);
        assert_int_equal(n, 1);
        free(w);
        f->store = store_free(f->store);
        assert_int_equal(store_put(other, p), 0); /* the first is gone: go on */
}

/* -- merging -- */

static void put_minutes(struct fixture *f, uint64_t from, uint64_t n)
{
        for (uint64_t i = from; i < from + n; i++)
                put(f, T0 + i * 60, 60, (uint32_t)i);
}

static void test_merging_is_exact(void **state)
{
        struct fixture *f = *state;
        _cleanup_free_ struct store_window *w = NULL;
        uint64_t samples = 0, lost = 0;
        struct store_stats st;
        uint32_t n;

        put_minutes(f, 0, 180);
        _cleanup_free_ char *before = dump_all(f);
        assert_int_equal(store_maintain(f->store, (T0 + 180 * 60) * SEC, BUDGET), 0);
        _cleanup_free_ char *ten = dump_all(f);
        assert_string_equal(ten, before);
        /* Two hours stay; T0 is at a boundary of ten minutes. 60 windows became 6. */
        assert_int_equal(count_windows(f), 126);
        assert_int_equal(store_maintain(f->store, (T0 + 86400 * 2) * SEC, BUDGET), 0);
        _cleanup_free_ char *hours = dump_all(f);
        assert_string_equal(hours, before);
        /* 02:10 to 05:10: the hours 2, 3, 4 and a piece of 5. */
        assert_int_equal(store_list(f->store, 0, FOREVER, &w, &n), 0);
        assert_int_equal(n, 4);
        assert_string_equal(w[0].id, "20261201T021000Z_3000");
        assert_string_equal(w[1].id, "20261201T030000Z_3600");
        assert_string_equal(w[3].id, "20261201T050000Z_600");
        for (uint32_t i = 0; i < n; i++) {
                samples += w[i].samples;
                lost += w[i].lost;
        }
        _cleanup_profile_ struct profile *all = NULL;
        assert_int_equal(store_query(f->store, 0, FOREVER, NULL, true, &all), 0);
        assert_int_equal(samples, help_sum(all, "samples"));
        assert_int_equal(lost, 180 * 2);
        assert_int_equal(profile_ledger_count(all, "lost.counts_full", -1), 180 * 2);
        assert_int_equal(all->time_ns, T0 * SEC);
        assert_int_equal(all->duration_ns, 180 * 60 * SEC);
        reopen(f);
        _cleanup_free_ char *again = dump_all(f);
        assert_string_equal(again, before);
        store_stats(f->store, &st);
        assert_int_equal(st.windows, 4);
}

static void test_a_merge_never_spans_a_gap(void **state)
{
        struct fixture *f = *state;
        _cleanup_free_ struct store_gap *g = NULL;
        uint32_t n;

        put_minutes(f, 0, 3);
        put_minutes(f, 6, 4);
        assert_int_equal(store_maintain(f->store, (T0 + 86400 * 2) * SEC, BUDGET), 0);
        assert_names(f, "20261201T021000Z_180.pb.gz 20261201T021600Z_240.pb.gz ");
        assert_int_equal(store_gaps(f->store, 0, FOREVER, &g, &n), 0);
        assert_int_equal(n, 1);
        assert_int_equal(g[0].start_ns, (T0 + 180) * SEC);
        assert_int_equal(g[0].end_ns, (T0 + 360) * SEC);
}

static void test_a_collector_that_was_away_over_a_merge(void **state)
{
        struct fixture *f = *state;
        _cleanup_free_ struct store_window *w = NULL;
        uint32_t n;

        put_minutes(f, 0, 30);
        assert_int_equal(store_maintain(f->store, (T0 + 30 * 60 + 7200) * SEC, BUDGET), 0);
        assert_int_equal(count_windows(f), 3);
        /* It had the first 15 minutes: the window that holds the 11th to the 20th is marked. */
        assert_int_equal(store_after(f->store, "20261201T022400Z_60", 10, &w, &n), 0);
        assert_int_equal(n, 2);
        assert_string_equal(w[0].id, "20261201T022000Z_600");
        assert_true(w[0].overlaps);
        assert_string_equal(w[1].id, "20261201T023000Z_600");
        assert_false(w[1].overlaps);
        free(TAKE_PTR(w));
        assert_int_equal(store_after(f->store, "20261201T022000Z_600", 10, &w, &n), 0);
        assert_int_equal(n, 1);
}

static void test_a_damaged_merged_window_gives_way_to_its_sources(void **state)
{
        struct fixture *f = *state;
        _cleanup_buf_ struct buf b = {0};
        struct buf source[10] = {0};
        char name[64];

        put_minutes(f, 0, 10);
        _cleanup_free_ char *before = dump_all(f);
        for (unsigned i = 0; i < 10; i++) {
                snprintf(name, sizeof(name), "20261201T021%u00Z_60.pb.gz", i);
                read_back(f, name, &source[i]);
        }
        assert_int_equal(store_maintain(f->store, (T0 + 86400) * SEC, BUDGET), 0);
        assert_names(f, "20261201T021000Z_600.pb.gz ");
        /* As a kill between rename and unlink leaves it; then the disk rots. */
        for (unsigned i = 0; i < 10; i++) {
                snprintf(name, sizeof(name), "20261201T021%u00Z_60.pb.gz", i);
                write_file(f, name, source[i].data, source[i].len);
                buf_free(&source[i]);
        }
        _cleanup_free_ char *both = dump_all(f);
        assert_string_equal(both, before); /* counted once */
        read_back(f, "20261201T021000Z_600.pb.gz", &b);
        b.data[b.len - 20] ^= 0xff;
        write_file(f, "20261201T021000Z_600.pb.gz", b.data, b.len);
        reopen(f);
        _cleanup_free_ char *after = dump_all(f);
        assert_string_equal(after, before);
        assert_int_equal(store_maintain(f->store, (T0 + 86400) * SEC, BUDGET), 0);
        _cleanup_free_ char *kept = dump_all(f);
        assert_string_equal(kept, before);
}

struct race {
        struct fixture *f;
        atomic_bool stop;
        int64_t each;
        _Atomic uint64_t queries;
        atomic_bool failed;
};

/* Queries of the finished hours must give the same at any time. */
static void *query_thread(void *arg)
{
        struct race *race = arg;

        do {
                _cleanup_profile_ struct profile *p = NULL;
                int r = store_query(race->f->store, T0 * SEC, (T0 + 7200) * SEC, NULL, race->queries & 1,
                                    &p);
                if (r < 0 || help_sum(p, "samples") != race->each) {
                        race->failed = true;
                        return NULL;
                }
                race->queries++;
        } while (!atomic_load(&race->stop));
        return NULL;
}

static void test_queries_during_merges_are_exact(void **state)
{
        struct fixture *f = *state;
        struct race race = {.f = f};
        pthread_t thread[2];

        put_minutes(f, 0, 120);
        _cleanup_profile_ struct profile *p = NULL;
        assert_int_equal(store_query(f->store, 0, FOREVER, NULL, true, &p), 0);
        race.each = help_sum(p, "samples");
        for (int i = 0; i < 2; i++)
                assert_int_equal(pthread_create(&thread[i], NULL, query_thread, &race), 0);
        int r = 1;
        for (int step = 0; r == 1; step++) {
                r = store_maintain(f->store, (T0 + 86400 * 3) * SEC, 0); /* one merge at a time */
                put(f, T0 + 86400 * 3 + (uint64_t)step * 60, 60, 1);
        }
        assert_int_equal(r, 0);
        atomic_store(&race.stop, true);
        for (int i = 0; i < 2; i++)
                pthread_join(thread[i], NULL);
        assert_false(race.failed);
        assert_true(race.queries > 0);
        /* What a reader held back is removed at the next call. */
        assert_int_equal(store_maintain(f->store, (T0 + 86400 * 3) * SEC, BUDGET), 0);
        _cleanup_free_ struct store_window *w = NULL;
        uint32_t n;
        assert_int_equal(store_list(f->store, 0, (T0 + 7200) * SEC, &w, &n), 0);
        assert_int_equal(n, 3);
}

static void test_queries_select(void **state)
{
        struct fixture *f = *state;
        _cleanup_profile_ struct profile *p = NULL, *none = NULL;
        struct selection sel = selection_any();

        put_minutes(f, 0, 5);
        sel.comm = "opend";
        assert_int_equal(store_query(f->store, (T0 + 60) * SEC, (T0 + 120) * SEC, &sel, true, &p), 0);
        for (uint32_t i = 0; i < p->n_samples; i++)
                assert_string_equal(profile_str(p, profile_find_label(p, &p->sample[i], "comm")->str),
                                    "opend");
        assert_int_equal(p->time_ns, (T0 + 60) * SEC);
        assert_int_equal(p->duration_ns, 60 * SEC);
        assert_int_equal(store_query(f->store, (T0 + 6000) * SEC, FOREVER, &sel, true, &none), -ENODATA);
        sel.event = "no-such-event";
        assert_int_equal(store_query(f->store, T0 * SEC, FOREVER, &sel, true, &none), -ENOENT);
}

/* -- gaps -- */

static void put_booted(struct fixture *f, uint64_t start_s, const char *boot, uint64_t boot_end_s)
{
        _cleanup_profile_ struct profile *p = help_profile(start_s, 60, 4, 1);
        char line[80];

        snprintf(line, sizeof(line), "boot: %s", boot);
        assert_int_equal(profile_comment(p, line), 0);
        snprintf(line, sizeof(line), "boot_end_ns: %llu", (unsigned long long)(boot_end_s * SEC));
        assert_int_equal(profile_comment(p, line), 0);
        assert_int_equal(store_put(f->store, p), 0);
}

static void assert_gap(const struct store_gap *g, uint64_t start_s, uint64_t end_s, const char *reason)
{
        assert_int_equal(g->start_ns, start_s * SEC);
        assert_int_equal(g->end_ns, end_s * SEC);
        assert_string_equal(g->reason, reason);
}

static void test_gaps_have_reasons(void **state)
{
        struct fixture *f = *state;
        _cleanup_free_ struct store_gap *g = NULL;
        uint32_t n;

        put_booted(f, T0, "aaaa", 1060);
        put_booted(f, T0 + 60, "aaaa", 1120);
        put_booted(f, T0 + 1000, "bbbb", 100);  /* booted 40 s before its start: down */
        put_booted(f, T0 + 5000, "cccc", 2060); /* up for 2000 s before: down, then stopped */
        put_booted(f, T0 + 9060, "cccc", 2120); /* an hour later by the clock, none by the time since boot */
        put_booted(f, T0 + 9120 + 500, "cccc", 2120 + 60 + 500);
        assert_int_equal(store_gaps(f->store, 0, FOREVER, &g, &n), 0);
        assert_int_equal(n, 5);
        assert_gap(&g[0], T0 + 120, T0 + 1000, "host down");
        assert_gap(&g[1], T0 + 1060, T0 + 3000, "host down");
        assert_gap(&g[2], T0 + 3000, T0 + 5000, "stopped");
        assert_gap(&g[3], T0 + 5060, T0 + 9060, "clock set");
        assert_gap(&g[4], T0 + 9120, T0 + 9620, "killed");
        /* A range cuts them. */
        free(TAKE_PTR(g));
        assert_int_equal(store_gaps(f->store, (T0 + 500) * SEC, (T0 + 600) * SEC, &g, &n), 0);
        assert_int_equal(n, 1);
        assert_gap(&g[0], T0 + 500, T0 + 600, "host down");
}

static void test_an_orderly_stop_is_told_from_a_kill(void **state)
{
        struct fixture *f = *state;
        _cleanup_free_ struct store_gap *g = NULL;
        uint64_t now = now_realtime_ns() / SEC, up = now_boottime_ns() / SEC;
        uint32_t n;

        /* Ends now; the note of the stop bears the time of now. */
        put_booted(f, now - 60, "aaaa", up);
        reopen(f);
        put_booted(f, now + 100, "aaaa", up + 160);
        assert_int_equal(store_gaps(f->store, 0, FOREVER, &g, &n), 0);
        assert_int_equal(n, 1);
        assert_gap(&g[0], now, now + 100, "stopped");
}

static void test_a_torn_log_of_gaps_is_read_as_far_as_it_goes(void **state)
{
        struct fixture *f = *state;
        _cleanup_free_ struct store_gap *g = NULL;
        char log[256];
        uint32_t n;

        put_booted(f, T0, "aaaa", 1060);
        put_booted(f, T0 + 1000, "aaaa", 2060);
        snprintf(log, sizeof(log),
                 "garbage\n\n%llu %llu disk full\n%llu 99 no reas\n\xff\xfe\n%llu %llu disk fu",
                 (unsigned long long)((T0 + 60) * SEC), (unsigned long long)((T0 + 500) * SEC),
                 (unsigned long long)((T0 + 500) * SEC), (unsigned long long)((T0 + 600) * SEC),
                 (unsigned long long)((T0 + 700) * SEC));
        write_file(f, "gaps.log", log, strlen(log));
        assert_int_equal(store_gaps(f->store, 0, FOREVER, &g, &n), 0);
        assert_int_equal(n, 2);
        assert_gap(&g[0], T0 + 60, T0 + 500, "disk full");
        assert_gap(&g[1], T0 + 500, T0 + 1000, "killed");
}

int main(void)
{
#define STORE_TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
        const struct CMUnitTest tests[] = {
                        cmocka_unit_test(test_ids),
                        STORE_TEST(test_a_window_is_a_pprof_file_under_its_time),
                        STORE_TEST(test_facts_are_read_back_without_the_contents),
                        STORE_TEST(test_a_clock_set_back_never_takes_a_name_twice),
                        STORE_TEST(test_numbers_go_on_after_a_restart),
                        STORE_TEST(test_after_an_id_that_is_gone),
                        STORE_TEST(test_a_clock_far_ahead_deletes_nothing_by_age),
                        STORE_TEST(test_a_clock_that_was_ahead_and_is_set_right),
                        STORE_TEST(test_old_windows_go),
                        STORE_TEST(test_the_first_stored_go_when_the_size_is_reached),
                        STORE_TEST(test_damaged_and_foreign_files_are_left_alone),
                        STORE_TEST(test_a_file_of_another_tool_is_read_and_never_removed),
                        STORE_TEST(test_leftovers_of_a_killed_writer_go),
                        STORE_TEST(test_files_come_and_go_by_other_hands),
                        STORE_TEST(test_one_writer_at_a_time),
                        STORE_TEST(test_merging_is_exact),
                        STORE_TEST(test_a_merge_never_spans_a_gap),
                        STORE_TEST(test_a_collector_that_was_away_over_a_merge),
                        STORE_TEST(test_a_damaged_merged_window_gives_way_to_its_sources),
                        STORE_TEST(test_queries_during_merges_are_exact),
                        STORE_TEST(test_queries_select),
                        STORE_TEST(test_gaps_have_reasons),
                        STORE_TEST(test_an_orderly_stop_is_told_from_a_kill),
                        STORE_TEST(test_a_torn_log_of_gaps_is_read_as_far_as_it_goes),
        };

        log_set_level(LOG_EMERG);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
