/* Lists of mappings in real BPF maps, as the kernel half reads them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <bpf/bpf.h>
#include <errno.h>
#include <stdio.h>

#include "base/cleanup.h"
#include "daemon/unwind_lists.h"
#include "tests/daemon/bpf_maps.h"
#include "tests/daemon/symclient_fake.h"

#define PID(n) (0x7fff0000u + (n))

struct world {
        struct unwind_maps maps;
        struct symclient *symbols;
        struct object_table *objects;
        struct process_table *processes;
        struct unwind_lists *lists;
};

static struct world w;

static void on_step(void *ctx) {}

static int setup(void **state)
{
        int r = bpf_maps_new(&w.maps, 1, 1024);

        if (r < 0) {
                printf("cannot make BPF maps here: %s\n", strerror(-r));
                return r;
        }
        w.symbols = symclient_fake_new();
        assert_int_equal(unwind_lists_new(&w.lists, &w.maps), 0);
        assert_int_equal(object_table_new(&w.objects, w.symbols, NULL, on_step, NULL), 0);
        assert_int_equal(
                        process_table_new(&w.processes, w.objects, 1 << 20, unwind_lists_withdrawn, w.lists),
                        0);
        return 0;
}

static int teardown(void **state)
{
        process_table_free(w.processes);
        object_table_free(w.objects);
        unwind_lists_free(w.lists);
        symclient_free(w.symbols);
        bpf_maps_free(&w.maps);
        return 0;
}

static void on_gone(void *ctx, struct process_entry *p)
{
        unwind_lists_remove(w.lists, p);
}

static void tick(void)
{
        process_table_tick(w.processes, on_gone, NULL);
        unwind_lists_tick(w.lists);
}

static void record(enum process_record_type type, uint64_t time, uint32_t pid, uint32_t ppid, uint64_t start)
{
        struct process_record r = {
                        .type = type,
                        .time = time,
                        .pid = pid,
                        .tid = pid,
                        .ppid = ppid,
                        .start = start,
                        .end = start + 0x1000,
                        .name = type == RECORD_MMAP ? "//anon" : "x",
        };

        process_table_apply(w.processes, &r);
}

/* A sample of the process was deferred: it is to be known under a stamp. */
static void want(uint32_t pid, uint64_t stamp)
{
        struct process_entry *p = process_table_find(w.processes, pid);

        p->wanted_stamp = stamp;
        process_table_mark(w.processes, p);
}

static void publish(void)
{
        for (struct process_entry *p; (p = process_table_next_dirty(w.processes));)
                unwind_lists_publish(w.lists, w.processes, p, 100 * NSEC_PER_SEC);
}

/* What the kernel half sees; stamp 0: nothing. */
static struct abi_process seen(uint32_t pid)
{
        struct abi_process a = {0};

        (void)bpf_map_lookup_elem(w.maps.processes_fd, &pid, &a);
        return a;
}

static void test_only_what_was_sampled_is_published(void **state)
{
        record(RECORD_MMAP, 10, PID(1), 0, 0x10000);
        record(RECORD_MMAP, 11, PID(2), 0, 0x10000);
        publish();
        assert_int_equal(seen(PID(1)).stamp, 0);
        want(PID(1), 77);
        publish();
        struct abi_process a = seen(PID(1));
        assert_int_equal(a.stamp, 77);
        assert_int_equal(a.n, 1);
        assert_int_equal(w.maps.mappings[a.first].start, 0x10000);
        assert_int_equal(w.maps.mappings[a.first].end, 0x11000);
        assert_int_equal(seen(PID(2)).stamp, 0);
        record(RECORD_EXIT, 20, PID(1), 0, 0);
        publish();
        assert_int_equal(seen(PID(1)).stamp, 0);
}

static void test_a_list_that_is_read_is_not_written(void **state)
{
        record(RECORD_MMAP, 10, PID(1), 0, 0x10000);
        want(PID(1), 77);
        publish();
        struct abi_process before = seen(PID(1));
        for (uint32_t i = 0; i < 50; i++) {
                record(RECORD_MMAP, 20 + i, PID(1), 0, 0x20000 + 0x2000ull * i);
                publish();
                struct abi_process after = seen(PID(1));
                assert_int_equal(after.stamp, 77);
                assert_int_equal(after.n, 2 + i);
                /* A program that began before may still be at the old list. */
                assert_true(after.first >= before.first + before.n || after.first + after.n <= before.first);
                assert_int_equal(w.maps.mappings[before.first].start, 0x10000);
                for (uint32_t k = 1; k < after.n; k++)
                        assert_true(w.maps.mappings[after.first + k].start >=
                                    w.maps.mappings[after.first + k - 1].end);
                before = after;
                if (i % 3 == 2)
                        tick();
        }
        struct unwind_lists_stats s;
        unwind_lists_stats(w.lists, &s);
        assert_int_equal(s.mappings, 51);
        assert_int_equal(s.processes, 1);
}

static void test_forks_share_one_list(void **state)
{
        struct unwind_lists_stats s;

        for (uint32_t i = 0; i < 20; i++)
                record(RECORD_MMAP, 10 + i, PID(1), 0, 0x10000 + 0x2000ull * i);
        want(PID(1), 77);
        for (uint32_t i = 2; i < 500; i++) {
                record(RECORD_FORK, 100 + i, PID(i), PID(1), 0);
                want(PID(i), 77);
        }
        publish();
        unwind_lists_stats(w.lists, &s);
        assert_int_equal(s.processes, 499);
        assert_int_equal(s.mappings, 20);
        assert_int_equal(seen(PID(1)).first, seen(PID(400)).first);

        /* One goes its own way, the parent ends: the others stay as they are. */
        uint32_t shared = seen(PID(3)).first;
        record(RECORD_MMAP, 1000, PID(2), 0, 0x100000);
        record(RECORD_EXIT, 1001, PID(1), 0, 0);
        publish();
        for (int i = 0; i < 5; i++)
                tick();
        assert_int_equal(seen(PID(1)).stamp, 0);
        assert_int_equal(seen(PID(2)).n, 21);
        assert_int_not_equal(seen(PID(2)).first, shared);
        assert_int_equal(seen(PID(3)).first, shared);
        unwind_lists_stats(w.lists, &s);
        assert_int_equal(s.mappings, 41);
        for (uint32_t i = 2; i < 500; i++)
                record(RECORD_EXIT, 2000 + i, PID(i), 0, 0);
        publish();
        for (int i = 0; i < 5; i++)
                tick();
        unwind_lists_stats(w.lists, &s);
        assert_int_equal(s.mappings, 0);
        assert_int_equal(s.processes, 0);
}

static void test_after_exec_the_old_list_is_gone(void **state)
{
        record(RECORD_MMAP, 10, PID(1), 0, 0x10000);
        want(PID(1), 77);
        publish();
        record(RECORD_EXEC, 20, PID(1), 0, 0);
        record(RECORD_MMAP, 21, PID(1), 0, 0x50000);
        publish();
        assert_int_equal(seen(PID(1)).stamp, 0);
        want(PID(1), 78);
        publish();
        assert_int_equal(seen(PID(1)).stamp, 78);
        assert_int_equal(w.maps.mappings[seen(PID(1)).first].start, 0x50000);
}

static void test_when_full_those_not_sampled_go(void **state)
{
        struct unwind_lists_stats s;

        /* The map of processes takes 1024. */
        for (uint32_t i = 1; i <= 3000; i++) {
                record(RECORD_MMAP, i, PID(i), 0, 0x10000);
                want(PID(i), i + 10);
                process_table_find(w.processes, PID(i))->used_ns = i < 500 ? 100 * NSEC_PER_SEC : 0;
                publish();
                assert_int_equal(seen(PID(i)).stamp, i + 10);
                if (i % 64 == 0)
                        tick();
        }
        unwind_lists_stats(w.lists, &s);
        assert_true(s.processes <= 1024);
        assert_int_equal(s.no_room, 0);
        for (uint32_t i = 1; i < 500; i++)
                assert_int_equal(seen(PID(i)).stamp, i + 10); /* in use */
}

static void test_more_mappings_than_there_is_room_for(void **state)
{
        struct unwind_lists_stats s;

        for (uint32_t i = 0; i < 4000; i++) /* of 4096 */
                record(RECORD_MMAP, 10 + i, PID(1), 0, 0x10000 + 0x2000ull * i);
        for (uint32_t i = 0; i < 500; i++)
                record(RECORD_MMAP, 10 + i, PID(2), 0, 0x10000 + 0x2000ull * i);
        process_table_find(w.processes, PID(1))->used_ns = 100 * NSEC_PER_SEC;
        want(PID(1), 7);
        publish();
        want(PID(2), 8);
        publish();
        unwind_lists_stats(w.lists, &s);
        assert_int_equal(seen(PID(1)).n, 4000);
        assert_int_equal(seen(PID(2)).stamp, 0); /* its samples stay deferred */
        assert_int_equal(s.no_room, 1);
        record(RECORD_EXIT, 9000, PID(1), 0, 0);
        publish();
        for (int i = 0; i < 5; i++)
                tick();
        want(PID(2), 8);
        publish();
        assert_int_equal(seen(PID(2)).n, 500);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        const struct CMUnitTest tests[] = {
                        TEST(test_only_what_was_sampled_is_published),
                        TEST(test_a_list_that_is_read_is_not_written),
                        TEST(test_forks_share_one_list),
                        TEST(test_after_exec_the_old_list_is_gone),
                        TEST(test_when_full_those_not_sampled_go),
                        TEST(test_more_mappings_than_there_is_room_for),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
