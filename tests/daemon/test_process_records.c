#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <errno.h>
#include <linux/perf_event.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "daemon/process_record.h"
#include "tests/daemon/perf_records.h"

static void test_mmap2_is_read_as_the_kernel_writes_it(void **state)
{
        uint8_t b[RECORD_BYTES];
        struct process_record r;

        size_t n = perf_mmap2(b, 77, 12, 0x7f0000001000, 0x2000, 0x3000, 8, 1, 4711, 9,
                              "/usr/lib/libx.so.1");
        assert_int_equal(process_record_parse(b, n, &r), 1);
        assert_int_equal(r.type, RECORD_MMAP);
        assert_int_equal(r.time, 77);
        assert_int_equal(r.pid, 12);
        assert_int_equal(r.start, 0x7f0000001000);
        assert_int_equal(r.end, 0x7f0000003000);
        assert_int_equal(r.offset, 0x3000);
        assert_int_equal(r.device, 8ull << 32 | 1);
        assert_int_equal(r.inode, 4711);
        assert_int_equal(r.generation, 9);
        assert_string_equal(r.name, "/usr/lib/libx.so.1");
}

static void test_exec_and_rename_are_told_apart(void **state)
{
        uint8_t b[RECORD_BYTES];
        struct process_record r;

        assert_int_equal(process_record_parse(b, perf_comm(b, 5, 3, 3, "cc1", true), &r), 1);
        assert_int_equal(r.type, RECORD_EXEC);
        assert_string_equal(r.name, "cc1");
        assert_int_equal(process_record_parse(b, perf_comm(b, 5, 3, 4, "worker", false), &r), 1);
        assert_int_equal(r.type, RECORD_COMM);
        assert_int_equal(r.tid, 4);
}

static void test_damaged_records_are_refused(void **state)
{
        uint8_t b[RECORD_BYTES];
        struct process_record r;

        size_t n = perf_mmap2(b, 1, 2, 0x1000, 0x1000, 0, 0, 0, 0, 0, "name");
        for (size_t cut = 0; cut < n; cut++) {
                /* Whatever is cut off: refused, or a name that still ends within the record. */
                if (process_record_parse(b, cut, &r))
                        assert_true(r.name + strlen(r.name) < (const char *)b + cut);
        }
        n = perf_mmap2(b, 1, 2, UINT64_MAX - 0xfff, 0x2000, 0, 0, 0, 0, 0, "wraps");
        assert_int_equal(process_record_parse(b, n, &r), 0);
        n = perf_mmap2(b, 1, 2, 0x1000, 0, 0, 0, 0, 0, 0, "empty");
        assert_int_equal(process_record_parse(b, n, &r), 0);
}

struct seen {
        uint32_t n;
        struct {
                uint64_t time;
                enum process_record_type type;
                uint32_t pid;
                uint64_t lost;
        } r[1000];
};

static void on_record(void *ctx, const struct process_record *r)
{
        struct seen *s = ctx;

        s->r[s->n].time = r->time;
        s->r[s->n].type = r->type;
        s->r[s->n].pid = r->pid;
        s->r[s->n].lost = r->lost;
        s->n++;
}

static void test_records_of_two_cpus_come_in_order_of_time(void **state)
{
        struct record_batch *b;
        struct seen seen = {0};
        uint8_t ring[2][1024];
        size_t n[2] = {0};

        assert_int_equal(record_batch_new(&b), 0);
        /* CPU 1 ran the child: its exec is read first, but came after the fork on CPU 0. */
        n[1] += perf_comm(ring[1] + n[1], 200, 50, 50, "child", true);
        n[1] += perf_task(ring[1] + n[1], PERF_RECORD_EXIT, 900, 50, 49, 50, 49);
        n[0] += perf_task(ring[0] + n[0], PERF_RECORD_FORK, 100, 50, 49, 50, 49);
        n[0] += perf_mmap2(ring[0] + n[0], 300, 50, 0x1000, 0x1000, 0, 0, 0, 0, 0, "a");
        assert_int_equal(record_batch_add(b, ring[1], n[1], NULL, 0), 0);
        assert_int_equal(record_batch_add(b, ring[0], n[0], NULL, 0), 0);

        assert_int_equal(record_batch_run(b, 500, on_record, &seen), 3);
        assert_int_equal(seen.r[0].type, RECORD_FORK);
        assert_int_equal(seen.r[1].type, RECORD_EXEC);
        assert_int_equal(seen.r[2].type, RECORD_MMAP);

        /* What was too young stays, and goes before younger ones that are added later. */
        n[0] = perf_comm(ring[0], 950, 51, 51, "x", false);
        assert_int_equal(record_batch_add(b, ring[0], n[0], NULL, 0), 0);
        assert_int_equal(record_batch_run(b, 1000, on_record, &seen), 2);
        assert_int_equal(seen.r[3].time, 900);
        assert_int_equal(seen.r[3].type, RECORD_EXIT);
        assert_int_equal(seen.r[4].time, 950);
        record_batch_free(b);
}

static void test_a_record_across_the_end_of_the_ring(void **state)
{
        struct record_batch *b;
        struct seen seen = {0};
        uint8_t bytes[512];

        assert_int_equal(record_batch_new(&b), 0);
        size_t n = perf_comm(bytes, 1, 7, 7, "first", true);
        n += perf_comm(bytes + n, 2, 8, 8, "second", true);
        for (size_t cut = 0; cut <= n; cut++) {
                seen.n = 0;
                assert_int_equal(record_batch_add(b, bytes, cut, bytes + cut, n - cut), 0);
                assert_int_equal(record_batch_run(b, 10, on_record, &seen), 2);
                assert_int_equal(seen.r[0].pid, 7);
                assert_int_equal(seen.r[1].pid, 8);
        }
        record_batch_free(b);
}

static void test_lost_records_are_told(void **state)
{
        struct record_batch *b;
        struct seen seen = {0};
        uint8_t bytes[512];

        assert_int_equal(record_batch_new(&b), 0);
        size_t n = perf_lost(bytes, 3, 41);
        assert_int_equal(record_batch_add(b, bytes, n, NULL, 0), 0);
        assert_int_equal(record_batch_run(b, 10, on_record, &seen), 1);
        assert_int_equal(seen.r[0].type, RECORD_LOST);
        assert_int_equal(seen.r[0].lost, 41);
        record_batch_free(b);
}

static void test_a_length_that_lies_ends_the_reading(void **state)
{
        struct record_batch *b;
        struct seen seen = {0};
        uint8_t bytes[512] = {0};

        assert_int_equal(record_batch_new(&b), 0);
        size_t n = perf_comm(bytes, 1, 7, 7, "good", true);
        struct perf_event_header h = {.type = PERF_RECORD_COMM, .size = 4};
        memcpy(bytes + n, &h, sizeof(h));
        assert_int_equal(record_batch_add(b, bytes, n + 64, NULL, 0), 0);
        h.size = 400;
        memcpy(bytes + n, &h, sizeof(h));
        assert_int_equal(record_batch_add(b, bytes, n + 64, NULL, 0), 0);
        assert_int_equal(record_batch_run(b, 10, on_record, &seen), 2);
        record_batch_free(b);
}

static void test_many_records_with_a_rest_again_and_again(void **state)
{
        struct record_batch *b;
        struct seen seen = {0};
        uint8_t bytes[RECORD_BYTES];

        assert_int_equal(record_batch_new(&b), 0);
        for (uint32_t i = 0; i < 900; i++) {
                size_t n = perf_comm(bytes, i ^ 1, i, i, "x", false); /* neighbours are swapped */
                assert_int_equal(record_batch_add(b, bytes, n, NULL, 0), 0);
                if (i % 7 == 6 && i > 10)
                        record_batch_run(b, i - 8, on_record, &seen);
        }
        record_batch_run(b, UINT64_MAX, on_record, &seen);
        assert_int_equal(seen.n, 900);
        for (uint32_t i = 0; i < 900; i++)
                assert_int_equal(seen.r[i].time, i);
        record_batch_free(b);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                        cmocka_unit_test(test_mmap2_is_read_as_the_kernel_writes_it),
                        cmocka_unit_test(test_exec_and_rename_are_told_apart),
                        cmocka_unit_test(test_damaged_records_are_refused),
                        cmocka_unit_test(test_records_of_two_cpus_come_in_order_of_time),
                        cmocka_unit_test(test_a_record_across_the_end_of_the_ring),
                        cmocka_unit_test(test_lost_records_are_told),
                        cmocka_unit_test(test_a_length_that_lies_ends_the_reading),
                        cmocka_unit_test(test_many_records_with_a_rest_again_and_again),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
