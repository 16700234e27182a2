#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>

#include "daemon/process_table.h"
#include "tests/daemon/symclient_fake.h"

/* Pids that no process of this host has: nothing here may be read from /proc. */
#define PID(n) (0x7fff0000u + (n))
#define LIMIT  (1u << 20) /* bytes of processes */

struct world {
        struct symclient *symbols;
        struct object_table *objects;
        struct process_table *processes;
        uint32_t withdrawn;
};

/* Time that the host was suspended, beyond what it really was. */
static uint64_t suspended_ns;

uint64_t __real_now_boottime_ns(void);
uint64_t __wrap_now_boottime_ns(void);
uint64_t __wrap_now_boottime_ns(void)
{
        return __real_now_boottime_ns() + suspended_ns;
}

static void on_withdrawn(void *ctx, uint32_t first, uint32_t n)
{
        ((struct world *)ctx)->withdrawn += n;
}

static void on_step(void *ctx) {}

static void on_gone(void *ctx, struct process_entry *p) {}

static int setup(void **state)
{
        static struct world w;

        w = (struct world){.symbols = symclient_fake_new()};
        assert_int_equal(object_table_new(&w.objects, w.symbols, NULL, on_step, NULL), 0);
        assert_int_equal(process_table_new(&w.processes, w.objects, LIMIT, on_withdrawn, &w), 0);
        *state = &w;
        return 0;
}

static int teardown(void **state)
{
        struct world *w = *state;

        process_table_free(w->processes);
        object_table_free(w->objects);
        symclient_free(w->symbols);
        return 0;
}

static void tick(struct world *w)
{
        process_table_tick(w->processes, on_gone, NULL);
}

static void add_map(struct world *w, uint64_t time, uint32_t pid, uint64_t start, uint64_t end,
                    uint64_t offset, uint64_t inode, const char *name)
{
        struct process_record r = {
                        .type = RECORD_MMAP,
                        .time = time,
                        .pid = pid,
                        .tid = pid,
                        .start = start,
                        .end = end,
                        .offset = offset,
                        .device = inode ? 1 : 0,
                        .inode = inode,
                        .generation = inode ? 1 : 0,
                        .name = name,
        };

        process_table_apply(w->processes, &r);
}

static void fork_(struct world *w, uint64_t time, uint32_t pid, uint32_t ppid)
{
        process_table_apply(w->processes, &(struct process_record){.type = RECORD_FORK,
                                                                   .time = time,
                                                                   .pid = pid,
                                                                   .tid = pid,
                                                                   .ppid = ppid,
                                                                   .name = ""});
}

static void thread(struct world *w, uint64_t time, uint32_t pid, uint32_t tid)
{
        process_table_apply(w->processes, &(struct process_record){.type = RECORD_FORK,
                                                                   .time = time,
                                                                   .pid = pid,
                                                                   .tid = tid,
                                                                   .ppid = pid,
                                                                   .name = ""});
}

static void exit_(struct world *w, uint64_t time, uint32_t pid, uint32_t tid)
{
        process_table_apply(w->processes, &(struct process_record){.type = RECORD_EXIT,
                                                                   .time = time,
                                                                   .pid = pid,
                                                                   .tid = tid,
                                                                   .name = ""});
}

static void exec(struct world *w, uint64_t time, uint32_t pid, const char *comm)
{
        process_table_apply(w->processes, &(struct process_record){.type = RECORD_EXEC,
                                                                   .time = time,
                                                                   .pid = pid,
                                                                   .tid = pid,
                                                                   .name = comm});
}

/* "start-end+offset:name ..." in units of pages, of the image at a time. */
static const char *maps_at(struct world *w, uint32_t pid, uint64_t time)
{
        static char text[512];
        struct process_entry *p = process_table_at(w->processes, pid, time);
        size_t n = 0;

        text[0] = 0;
        if (!p)
                return "none";
        const struct process_maps *m = process_entry_image(p, time)->maps;
        for (uint32_t i = 0; i < m->n; i++)
                n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%llx-%llx+%llx:%s", i ? " " : "",
                                      (unsigned long long)m->mapping[i].start >> 12,
                                      (unsigned long long)m->mapping[i].end >> 12,
                                      (unsigned long long)m->mapping[i].offset >> 12,
                                      m->mapping[i].object->object.path);
        return text;
}

/* Mappings in units of pages. */
static void page_map(struct world *w, uint32_t pid, uint64_t start, uint64_t end, uint64_t offset,
                     uint64_t inode, const char *name)
{
        static uint64_t time = 1000;

        add_map(w, time++, pid, start << 12, end << 12, offset << 12, inode, name);
}

static const char *maps(struct world *w, uint32_t pid)
{
        return maps_at(w, pid, UINT64_MAX);
}

static void test_newer_mapping_wins(void **state)
{
        struct world *w = *state;
        uint32_t pid = PID(1);

        page_map(w, pid, 0x10, 0x20, 5, 1, "a");
        page_map(w, pid, 0x30, 0x40, 0, 2, "b");
        assert_string_equal(maps(w, pid), "10-20+5:a 30-40+0:b");
        page_map(w, pid, 0x14, 0x18, 7, 3, "c"); /* splits */
        assert_string_equal(maps(w, pid), "10-14+5:a 14-18+7:c 18-20+d:a 30-40+0:b");
        page_map(w, pid, 0x12, 0x16, 0, 4, "d"); /* two in part */
        assert_string_equal(maps(w, pid), "10-12+5:a 12-16+0:d 16-18+9:c 18-20+d:a 30-40+0:b");
        page_map(w, pid, 0x12, 0x38, 1, 5, "e"); /* covers some, one in part */
        assert_string_equal(maps(w, pid), "10-12+5:a 12-38+1:e 38-40+8:b");
        page_map(w, pid, 0x8, 0x50, 0, 6, "f"); /* covers all */
        assert_string_equal(maps(w, pid), "8-50+0:f");
        page_map(w, pid, 0x0, 0x8, 0, 7, "g"); /* touches only */
        page_map(w, pid, 0x50, 0x51, 0, 8, "h");
        assert_string_equal(maps(w, pid), "0-8+0:g 8-50+0:f 50-51+0:h");
}

static void test_the_same_again_changes_nothing(void **state)
{
        struct world *w = *state;
        uint32_t pid = PID(1);

        page_map(w, pid, 0x10, 0x20, 5, 1, "a");
        while (process_table_next_dirty(w->processes))
                ;
        page_map(w, pid, 0x10, 0x20, 5, 1, "a");
        page_map(w, pid, 0x12, 0x14, 7, 1, "a"); /* an mprotect() of a part */
        assert_null(process_table_next_dirty(w->processes));
        page_map(w, pid, 0x12, 0x14, 8, 1, "a"); /* other bytes of the same file */
        assert_non_null(process_table_next_dirty(w->processes));
        assert_string_equal(maps(w, pid), "10-12+5:a 12-14+8:a 14-20+9:a");
}

static void test_anonymous_neighbours_become_one(void **state)
{
        struct world *w = *state;
        uint32_t pid = PID(1);

        for (uint64_t i = 0; i < 10000; i += 2)
                page_map(w, pid, i, i + 1, 0, 0, "//anon");
        /* The list is bounded, and that it is not whole is known. */
        assert_true(process_table_find(w->processes, pid)->image->maps->n <= PROCESS_MAX_MAPPINGS);
        assert_true(process_table_find(w->processes, pid)->rescan);

        pid = PID(2);
        for (uint64_t i = 0; i < 10000; i += 2)
                page_map(w, pid, i, i + 2, 0, 0, "//anon");
        assert_string_equal(maps(w, pid), "0-2710+0://anon");
        page_map(w, pid, 0x2710, 0x2711, 0, 0, "[heap]");
        page_map(w, pid, 0x2711, 0x2712, 0, 0, "//anon");
        assert_string_equal(maps(w, pid), "0-2710+0://anon 2710-2711+0:[heap] 2711-2712+0://anon");
        page_map(w, pid, 0x2710, 0x2711, 0, 0, "//anon");
        assert_string_equal(maps(w, pid), "0-2712+0://anon");
}

static void test_fork_shares_the_list_until_one_changes(void **state)
{
        struct world *w = *state;

        add_map(w, 10, PID(1), 0x1000, 0x2000, 0, 1, "a");
        fork_(w, 20, PID(2), PID(1));
        fork_(w, 21, PID(3), PID(2));
        struct process_maps *shared = process_table_find(w->processes, PID(1))->image->maps;
        assert_ptr_equal(process_table_find(w->processes, PID(3))->image->maps, shared);
        assert_int_equal(shared->refs, 3);
        add_map(w, 30, PID(2), 0x3000, 0x4000, 0, 2, "b");
        assert_string_equal(maps(w, PID(1)), "1-2+0:a");
        assert_string_equal(maps(w, PID(2)), "1-2+0:a 3-4+0:b");
        assert_string_equal(maps(w, PID(3)), "1-2+0:a");
        assert_int_equal(process_table_find(w->processes, PID(3))->process.ppid, PID(2));
}

static void test_a_chain_of_execs_is_known_afterwards(void **state)
{
        struct world *w = *state;

        add_map(w, 5, PID(1), 0x1000, 0x2000, 0, 1, "shell");
        fork_(w, 10, PID(2), PID(1));
        exec(w, 20, PID(2), "env");
        add_map(w, 21, PID(2), 0x8000, 0x9000, 0, 2, "env");
        exec(w, 30, PID(2), "true");
        add_map(w, 31, PID(2), 0x5000, 0x6000, 0, 3, "true");
        exit_(w, 40, PID(2), PID(2));
        assert_string_equal(maps_at(w, PID(2), 15), "1-2+0:shell");
        assert_string_equal(maps_at(w, PID(2), 25), "8-9+0:env");
        assert_string_equal(maps_at(w, PID(2), 35), "5-6+0:true");
        assert_true(process_table_find(w->processes, PID(2))->process.exited);
        assert_string_equal(process_table_find(w->processes, PID(2))->process.comm, "true");

        tick(w); /* its samples are in this drain or, deferred, in the next */
        assert_string_equal(maps_at(w, PID(2), 25), "8-9+0:env");
        tick(w);
        assert_null(process_table_find(w->processes, PID(2)));
        assert_string_equal(maps(w, PID(1)), "1-2+0:shell");
}

static void test_a_pid_that_is_used_again(void **state)
{
        struct world *w = *state;
        uint64_t s = NSEC_PER_SEC;

        fork_(w, 10 * s, PID(2), PID(1));
        add_map(w, 11 * s, PID(2), 0x1000, 0x2000, 0, 1, "old");
        exit_(w, 12 * s, PID(2), PID(2));
        fork_(w, 20 * s, PID(2), PID(1));
        add_map(w, 21 * s, PID(2), 0x1000, 0x2000, 0, 2, "new");
        assert_string_equal(maps_at(w, PID(2), 11 * s + 1), "1-2+0:old");
        assert_string_equal(maps_at(w, PID(2), 22 * s), "1-2+0:new");

        struct process_entry *now = process_table_find(w->processes, PID(2));
        uint64_t new_start = now->process.start_ns, old_start = new_start - 10 * s;
        /* The kernel's own start time differs a little from the record's. */
        assert_ptr_equal(process_table_started(w->processes, PID(2), new_start - 3000000), now);
        assert_ptr_equal(process_table_started(w->processes, PID(2), old_start + 3000000), now->older);
        assert_null(process_table_started(w->processes, PID(2), old_start + 5 * s));
        assert_ptr_equal(process_table_started(w->processes, PID(2), 0), now);

        tick(w);
        tick(w);
        tick(w);
        assert_ptr_equal(process_table_find(w->processes, PID(2)), now);
        assert_null(now->older);
}

/* A host wakes, and many processes start before anything else happens here: samples carry their start in
 * boot time, which went on. */
static void test_a_process_that_starts_when_the_host_wakes(void **state)
{
        struct world *w = *state;
        uint64_t s = NSEC_PER_SEC, slept = 8 * 3600 * s;

        fork_(w, 10 * s, PID(2), PID(1));
        suspended_ns = slept;
        fork_(w, 11 * s, PID(3), PID(1));
        suspended_ns = 0;
        uint64_t before = process_table_find(w->processes, PID(2))->process.start_ns;
        assert_ptr_equal(process_table_started(w->processes, PID(3), before + s + slept),
                         process_table_find(w->processes, PID(3)));
}

static void test_a_process_lives_as_long_as_its_threads(void **state)
{
        struct world *w = *state;

        fork_(w, 10, PID(2), PID(1));
        thread(w, 11, PID(2), PID(3));
        thread(w, 12, PID(2), PID(4));
        exit_(w, 13, PID(2), PID(2)); /* pthread_exit() in main() */
        exit_(w, 14, PID(2), PID(3));
        assert_false(process_table_find(w->processes, PID(2))->process.exited);
        exit_(w, 15, PID(2), PID(4));
        assert_true(process_table_find(w->processes, PID(2))->process.exited);

        /* exec in a thread ends the others. */
        fork_(w, 20, PID(5), PID(1));
        thread(w, 21, PID(5), PID(6));
        exit_(w, 22, PID(5), PID(5));
        exec(w, 23, PID(5), "x");
        assert_false(process_table_find(w->processes, PID(5))->process.exited);
        exit_(w, 24, PID(5), PID(5));
        assert_true(process_table_find(w->processes, PID(5))->process.exited);
}

static void test_late_records_do_not_undo_younger_ones(void **state)
{
        struct world *w = *state;

        add_map(w, 5, PID(1), 0x1000, 0x2000, 0, 1, "parent");
        exec(w, 20, PID(2), "child");
        add_map(w, 21, PID(2), 0x5000, 0x6000, 0, 2, "child");
        fork_(w, 10, PID(2), PID(1));
        add_map(w, 11, PID(2), 0x8000, 0x9000, 0, 3, "before");
        assert_string_equal(maps(w, PID(2)), "5-6+0:child");
        assert_int_equal(process_table_find(w->processes, PID(2))->process.ppid, PID(1));
        exit_(w, 30, PID(2), PID(2));
        add_map(w, 25, PID(2), 0x8000, 0x9000, 0, 3, "before");
        assert_true(process_table_find(w->processes, PID(2))->process.exited);
}

static void test_followed_are_the_children_too(void **state)
{
        struct world *w = *state;

        fork_(w, 10, PID(2), PID(1));
        process_table_find(w->processes, PID(2))->process.marks = 5;
        fork_(w, 11, PID(3), PID(2));
        exec(w, 12, PID(3), "x");
        fork_(w, 13, PID(4), PID(3));
        fork_(w, 14, PID(5), PID(1));
        assert_int_equal(process_table_find(w->processes, PID(4))->process.marks, 5);
        assert_int_equal(process_table_find(w->processes, PID(5))->process.marks, 0);
}

static void test_objects_live_as_long_as_something_maps_them(void **state)
{
        struct world *w = *state;
        struct object_table_stats s;

        fork_(w, 10, PID(2), PID(1));
        add_map(w, 11, PID(2), 0x1000, 0x2000, 0, 1, "/bin/a");
        add_map(w, 12, PID(2), 0x3000, 0x4000, 0, 2, "/bin/b (deleted)");
        fork_(w, 13, PID(3), PID(2));
        struct object_entry *b = process_table_find(w->processes, PID(2))->image->maps->mapping[1].object;
        assert_string_equal(b->object.path, "/bin/b");
        uint32_t id = b->object.id;
        exit_(w, 20, PID(2), PID(2));
        for (int i = 0; i < 8; i++) {
                tick(w);
                object_table_tick(w->objects, 1);
        }
        assert_null(process_table_find(w->processes, PID(2)));
        assert_ptr_equal(object_table_find(w->objects, id), b);
        object_ref(&b->object);
        exit_(w, 30, PID(3), PID(3));
        for (int i = 0; i < 8; i++) {
                tick(w);
                object_table_tick(w->objects, 1);
        }
        object_table_stats(w->objects, &s);
        assert_int_equal(s.objects, 1);
        assert_ptr_equal(object_table_find(w->objects, id), b);
        object_unref(&b->object);
        object_table_tick(w->objects, 1);
        assert_null(object_table_find(w->objects, id));
        object_table_stats(w->objects, &s);
        assert_int_equal(s.objects, 0);
}

static uint64_t memory(struct world *w)
{
        struct process_table_stats s;

        process_table_stats(w->processes, &s);
        return s.memory;
}

/* Each pid once, more at a time than the table began with room for; what they took is given back. */
static void test_a_storm_of_processes(void **state)
{
        struct world *w = *state;
        uint64_t before;

        add_map(w, 1, PID(0), 0x1000, 0x2000, 0, 1, "shell");
        for (uint32_t round = 0; round < 2; round++) {
                before = memory(w);
                for (uint32_t i = 1; i <= 3000; i++) {
                        fork_(w, 10 + round, PID(i), PID(0));
                        exec(w, 10 + round, PID(i), "true");
                        add_map(w, 10 + round, PID(i), 0x5000, 0x6000, 0, 3, "true");
                }
                for (uint32_t i = 1; i <= 3000; i++) {
                        assert_string_equal(maps(w, PID(i)), "5-6+0:true");
                        exit_(w, 20 + round, PID(i), PID(i));
                }
                assert_true(memory(w) > before + 3000 * sizeof(struct process_entry));
                tick(w);
                tick(w);
                for (uint32_t i = 1; i <= 3000; i++)
                        assert_null(process_table_find(w->processes, PID(i)));
        }
        assert_int_equal(memory(w), before); /* the buckets stay */
}

static void test_ended_processes_keep_to_their_share(void **state)
{
        struct world *w = *state;
        struct process_table_stats s;

        add_map(w, 1, PID(0), 0x1000, 0x2000, 0, 1, "shell");
        for (uint32_t i = 1; i <= 10000; i++) {
                fork_(w, i, PID(i), PID(0));
                if (i > 1)
                        exit_(w, i, PID(i), PID(i));
        }
        process_table_stats(w->processes, &s);
        assert_true(s.memory > LIMIT);
        process_table_trim(w->processes, on_gone, NULL);
        process_table_stats(w->processes, &s);
        assert_in_range(s.memory, LIMIT / 2, LIMIT);
        assert_int_equal(s.forgotten + s.processes, 10001);
        /* Those that ended first are gone; what lives stays. */
        assert_string_equal(maps(w, PID(0)), "1-2+0:shell");
        assert_string_equal(maps(w, PID(1)), "1-2+0:shell");
        assert_null(process_table_find(w->processes, PID(2)));
        assert_null(process_table_find(w->processes, PID(1 + s.forgotten)));
        assert_non_null(process_table_find(w->processes, PID(2 + s.forgotten)));
        assert_non_null(process_table_find(w->processes, PID(10000)));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                        cmocka_unit_test_setup_teardown(test_newer_mapping_wins, setup, teardown),
                        cmocka_unit_test_setup_teardown(test_the_same_again_changes_nothing, setup,
                                                        teardown),
                        cmocka_unit_test_setup_teardown(test_anonymous_neighbours_become_one, setup,
                                                        teardown),
                        cmocka_unit_test_setup_teardown(test_fork_shares_the_list_until_one_changes, setup,
                                                        teardown),
                        cmocka_unit_test_setup_teardown(test_a_chain_of_execs_is_known_afterwards, setup,
                                                        teardown),
                        cmocka_unit_test_setup_teardown(test_a_pid_that_is_used_again, setup, teardown),
                        cmocka_unit_test_setup_teardown(test_a_process_that_starts_when_the_host_wakes,
                                                        setup, teardown),
                        cmocka_unit_test_setup_teardown(test_a_process_lives_as_long_as_its_threads, setup,
                                                        teardown),
                        cmocka_unit_test_setup_teardown(test_late_records_do_not_undo_younger_ones, setup,
                                                        teardown),
                        cmocka_unit_test_setup_teardown(test_followed_are_the_children_too, setup, teardown),
                        cmocka_unit_test_setup_teardown(test_a_storm_of_processes, setup, teardown),
                        cmocka_unit_test_setup_teardown(test_ended_processes_keep_to_their_share, setup,
                                                        teardown),
                        cmocka_unit_test_setup_teardown(test_objects_live_as_long_as_something_maps_them,
                                                        setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
