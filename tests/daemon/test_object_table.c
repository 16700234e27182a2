/* Objects, with a worker that answers what the test tells it to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "daemon/object_table.h"
#include "daemon/unwind_lists.h"
#include "tests/daemon/bpf_maps.h"
#include "tests/daemon/symclient_fake.h"

#if defined(__x86_64__)
#define MACHINE EM_X86_64
#else
#define MACHINE EM_AARCH64
#endif

struct world {
        struct unwind_maps maps;
        struct unwind_tables *tables;
        struct symclient *symbols;
        struct object_table *objects;
        char path[64];
        struct stat st;
        uint32_t steps;
};

static struct world w;

static void on_step(void *ctx)
{
        w.steps++;
}

static int setup(void **state)
{
        w = (struct world){.path = "/tmp/object_table.XXXXXX"};
        int r = bpf_maps_new(&w.maps, 4, 8192);
        if (r < 0) {
                printf("cannot make BPF maps here: %s\n", strerror(-r));
                return r;
        }
        w.symbols = symclient_fake_new();
        assert_int_equal(unwind_tables_new(&w.tables, &w.maps, 4 << 20), 0);
        assert_int_equal(object_table_new(&w.objects, w.symbols, w.tables, on_step, NULL), 0);
        int fd = mkstemp(w.path);
        assert_true(fd >= 0);
        assert_int_equal(ftruncate(fd, 1 << 20), 0);
        fstat(fd, &w.st);
        close(fd);
        symclient_fake(w.symbols)->info = (struct sym_info){
                        .elf_class = ELFCLASS64,
                        .machine = MACHINE,
                        .has_unwind = true,
                        .n_segments = 1,
                        .segment[0] = {.vaddr = 0x2000, .offset = 0x1000, .filesz = 0x5000, .memsz = 0x5000},
        };
        return 0;
}

static int teardown(void **state)
{
        unlink(w.path);
        object_table_free(w.objects);
        unwind_tables_free(w.tables);
        symclient_free(w.symbols);
        bpf_maps_free(&w.maps);
        return 0;
}

static struct object_key key_of_file(uint64_t generation)
{
        return (struct object_key){
                        .device = (uint64_t)major(w.st.st_dev) << 32 | minor(w.st.st_dev),
                        .inode = w.st.st_ino,
                        .generation = generation,
                        .name = w.path,
        };
}

/* Until the object has gone on from `version`. */
static void wait_step(const struct object_entry *o, uint32_t version)
{
        struct pollfd fd = {.fd = object_table_fd(w.objects), .events = POLLIN};
        uint64_t end = now_monotonic_ns() + 10 * NSEC_PER_SEC;

        while (o->version == version && now_monotonic_ns() < end) {
                poll(&fd, 1, 10);
                object_table_dispatch(w.objects);
        }
        assert_int_not_equal(o->version, version);
}

static struct object_entry *opened(uint64_t generation)
{
        struct object_key key = key_of_file(generation);
        struct object_entry *o = object_table_get(w.objects, &key);

        assert_int_equal(object_table_need(w.objects, o, now_monotonic_ns()), OBJECT_WAIT);
        wait_step(o, o->version);
        return o;
}

static void test_equal_files_are_one_object(void **state)
{
        struct object_key a = key_of_file(5), b = key_of_file(0), c = key_of_file(6);

        struct object_entry *o = object_table_get(w.objects, &a);
        assert_ptr_equal(object_table_get(w.objects, &a), o);
        assert_ptr_equal(object_table_get(w.objects, &b), o);     /* /proc does not tell the generation */
        assert_ptr_not_equal(object_table_get(w.objects, &c), o); /* a new file with an old number */
        struct object_key anon = {.name = "//anon"}, heap = {.name = "[heap]"};
        struct object_entry *x = object_table_get(w.objects, &anon);
        assert_int_equal(x->state, OBJECT_CODE);
        assert_int_equal(x->object.id, 0);
        assert_ptr_equal(object_table_get(w.objects, &anon), x);
        assert_ptr_not_equal(object_table_get(w.objects, &heap), x);
}

static void test_an_object_is_opened_once_and_its_table_asked_for_once(void **state)
{
        struct object_entry *o = opened(1);
        struct symclient_fake *fake = symclient_fake(w.symbols);

        assert_int_equal(o->state, OBJECT_READING);
        assert_int_equal(object_table_need(w.objects, o, now_monotonic_ns()), OBJECT_WAIT);
        assert_int_equal(fake->opens, 1);
        fake->table_error = -ENODATA;
        assert_int_equal(symclient_fake_run(w.symbols),
                         2); /* the table was asked for as soon as it was open */
        assert_int_equal(fake->tables, 1);
        assert_int_equal(o->state, OBJECT_READY);
        assert_int_equal(object_table_need(w.objects, o, now_monotonic_ns()), OBJECT_HAVE);
        assert_int_equal(object_table_need_rows(w.objects, o, 0x2345, now_monotonic_ns()), OBJECT_HAVE);
        assert_int_equal(fake->tables, 1);
        assert_int_equal(o->object.text_start, 0x2000);
        assert_int_equal(o->object.text_end, 0x7000);
        assert_int_equal(o->object.text_offset, 0x1000);
        assert_true(object_table_changed(w.objects));
}

static void test_the_bias_comes_from_the_segment_that_holds_the_offset(void **state)
{
        struct symclient_fake *fake = symclient_fake(w.symbols);
        struct object_entry *o;
        uint64_t bias;

        /* As lld lays files out: each segment has its own distance of address and offset; two share the page
         * at 0x3000 of the file. */
        fake->info.n_segments = 2;
        fake->info.segment[0] = (struct sym_segment){
                        .vaddr = 0x11000, .offset = 0x1000, .filesz = 0x2800, .memsz = 0x2800};
        fake->info.segment[1] = (struct sym_segment){
                        .vaddr = 0x25800, .offset = 0x3800, .filesz = 0x1000, .memsz = 0x1000};
        fake->table_error = -ENODATA;
        o = opened(1);
        symclient_fake_run(w.symbols);
        assert_true(object_entry_bias(o, 0x7f0000011000, 0x1000, &bias));
        assert_int_equal(bias, 0x7f0000000000);
        assert_true(object_entry_bias(o, 0x7f0000012000, 0x2000, &bias)); /* a part of it */
        assert_int_equal(bias, 0x7f0000000000);
        assert_true(object_entry_bias(o, 0x7f0000025000, 0x3000, &bias));
        assert_int_equal(bias, 0x7f0000000000);
        assert_false(object_entry_bias(o, 0x7f0000000000, 0, &bias)); /* headers */
        assert_false(object_entry_bias(o, 0x7f0000000000, 0x5000, &bias));
}

static void test_a_mapped_file_that_is_no_elf_is_like_anonymous_code(void **state)
{
        struct object_entry *o = opened(1);
        struct process_mapping m = {0x10000, 0x20000, 0, o};
        struct abi_mapping a;

        unwind_mapping_of(&m, &a);
        assert_int_equal(a.flags, ABI_MAPPING_DEFER);
        assert_int_equal(a.object, 0); /* nobody knows what its addresses mean yet */
        symclient_fake(w.symbols)->open_error = -ENOEXEC;
        symclient_fake_run(w.symbols);
        assert_int_equal(o->state, OBJECT_CODE);
        unwind_mapping_of(&m, &a);
        assert_int_equal(a.flags, ABI_MAPPING_FP);
        assert_int_equal(a.object, 0);
        assert_int_equal(a.n_pages, 0);
}

static void test_a_file_that_cannot_be_read_keeps_offsets(void **state)
{
        struct object_entry *o = opened(1);
        struct process_mapping m = {0x10000, 0x20000, 0x3000, o};
        struct abi_mapping a;

        symclient_fake(w.symbols)->open_error = -E2BIG;
        symclient_fake_run(w.symbols);
        assert_int_equal(o->state, OBJECT_FAILED);
        assert_int_equal(o->object.error, E2BIG);
        assert_true(o->object.address_is_offset);
        assert_null(o->object.symbols);
        unwind_mapping_of(&m, &a);
        assert_int_equal(a.object, o->object.id);
        assert_int_equal(0x10123 - a.bias, 0x3123);
        assert_int_equal(a.n_pages, 0);
        /* It is not tried again and again. */
        object_table_need(w.objects, o, now_monotonic_ns() + 100 * NSEC_PER_SEC);
        assert_int_equal(symclient_fake(w.symbols)->opens, 1);
}

static void test_found_later_it_is_another_object(void **state)
{
        char hidden[80];
        struct object_key key = key_of_file(1);

        snprintf(hidden, sizeof(hidden), "%s.hidden", w.path);
        assert_int_equal(rename(w.path, hidden), 0);
        struct object_entry *o = object_table_get(w.objects, &key);
        assert_int_equal(object_table_need(w.objects, o, now_monotonic_ns()), OBJECT_WAIT);
        wait_step(o, o->version);
        assert_int_equal(o->state, OBJECT_FAILED);
        assert_int_equal(o->object.error, ENOENT);
        /* Frames have left with file offsets under its id. Somebody else maps it, and there it is found. */
        assert_int_equal(rename(hidden, w.path), 0);
        struct object_mapper mapper = {.pid = 1, .ppid = 0, .start = 0x1000, .end = 0x2000};
        uint64_t now = now_monotonic_ns() + 2 * NSEC_PER_SEC;
        object_table_mapper(w.objects, o, &mapper, now);
        assert_int_equal(object_table_need(w.objects, o, now), OBJECT_WAIT);
        uint32_t version = o->version;
        while (!o->successor)
                wait_step(o, version), version = o->version;
        symclient_fake(w.symbols)->table_error = -ENODATA;
        symclient_fake_run(w.symbols);
        assert_true(o->object.address_is_offset);
        assert_int_equal(o->successor->state, OBJECT_READY);
        assert_int_not_equal(o->successor->object.id, o->object.id);
        assert_ptr_equal(object_table_get(w.objects, &key), o->successor);
}

/* As when there were no descriptors: samples go on to come for it, and nobody maps it anew. */
static void test_what_failed_for_want_of_something_is_tried_again(void **state)
{
        static const int wants[] = {-EMFILE, -ENFILE, -ENOMEM, -ECHILD};
        struct symclient_fake *fake = symclient_fake(w.symbols);
        struct object_entry *o = opened(1);
        struct object_key key = key_of_file(1);
        uint64_t now = now_monotonic_ns(), tried = 0;

        o->mappings = 1;
        for (uint32_t i = 0; i < ARRAY_SIZE(wants); i++) {
                fake->open_error = wants[i];
                symclient_fake_run(w.symbols);
                assert_int_equal(o->state, OBJECT_FAILED);
                assert_int_equal(o->object.error, -wants[i]);
                assert_int_equal(fake->opens, i + 1);
                object_table_tick(w.objects, o->retry_ns); /* too soon */
                assert_int_equal(o->state, OBJECT_FAILED);
                assert_true(o->retry_ns - now > tried); /* longer each time */
                tried = o->retry_ns - now;
                now = o->retry_ns + 1;
                object_entry_used(o, now);
                object_table_tick(w.objects, now);
                assert_int_equal(o->state, OBJECT_OPENING);
                wait_step(o, o->version);
                object_table_get(w.objects, &key)->mappings = 1;
                o->mappings = 0;
                o = object_table_get(w.objects, &key);
                assert_int_equal(o->state, OBJECT_READING);
        }
        struct object_table_stats stats;
        object_table_stats(w.objects, &stats);
        assert_int_equal(stats.failed, 1);
        assert_int_equal(stats.changed, 0);

        /* It is there now, but no worker to make its table. */
        fake->open_error = 0;
        fake->table_error = -ECHILD;
        symclient_fake_run(w.symbols);
        assert_int_equal(o->state, OBJECT_READY);
        assert_int_equal(fake->tables, 1);
        assert_int_equal(object_table_need_rows(w.objects, o, 0x2345, now), OBJECT_HAVE);
        assert_int_equal(fake->tables, 1);
        object_table_tick(w.objects, o->retry_ns + 1);
        fake->table_error = -ENODATA;
        assert_int_equal(object_table_need_rows(w.objects, o, 0x2345, o->retry_ns + 1), OBJECT_WAIT);
        symclient_fake_run(w.symbols);
        assert_int_equal(fake->tables, 2);
        assert_int_equal(object_table_need_rows(w.objects, o, 0x2345, o->retry_ns + 1), OBJECT_HAVE);
        o->mappings = 0;
}

/* Objects that nobody maps any more are kept for their names, but not when others lack a descriptor. */
static void test_idle_objects_make_way(void **state)
{
        static const int errors[] = {-E2BIG, -EMFILE};
        struct symclient_fake *fake = symclient_fake(w.symbols);
        struct object_table_stats stats;
        uint64_t now = now_monotonic_ns();

        fake->table_error = -ENODATA;
        object_entry_used(opened(1), now);
        symclient_fake_run(w.symbols);
        for (uint32_t i = 0; i < ARRAY_SIZE(errors); i++) {
                struct object_entry *other = opened(2 + i);
                other->mappings = 1;
                fake->open_error = errors[i];
                symclient_fake_run(w.symbols);
                for (uint32_t k = 0; k < 10; k++)
                        object_table_tick(w.objects, now);
                object_table_stats(w.objects, &stats);
                assert_int_equal(stats.open, errors[i] == -EMFILE ? 0 : 1);
                assert_int_equal(stats.lacking, errors[i] == -EMFILE ? 1 : 0);
                assert_int_equal(stats.lacking_error, errors[i] == -EMFILE ? EMFILE : 0);
        }
}

static void test_a_file_changed_in_place_is_another_object(void **state)
{
        struct object_key key = key_of_file(1);
        struct object_mapper mapper = {.pid = (uint32_t)getpid(), .start = 0x1000, .end = 0x2000};

        symclient_fake(w.symbols)->table_error = -ENODATA;
        struct object_entry *o = opened(1);
        symclient_fake_run(w.symbols);
        assert_int_equal(truncate(w.path, 4096), 0);
        object_table_mapper(w.objects, o, &mapper, now_monotonic_ns()); /* too soon to look again */
        assert_false(o->looking);
        object_table_mapper(w.objects, o, &mapper, now_monotonic_ns() + 2 * NSEC_PER_SEC);
        assert_true(o->looking);
        wait_step(o, o->version);
        assert_non_null(o->successor);
        assert_ptr_equal(object_table_get(w.objects, &key), o->successor);
        assert_int_equal(o->successor->state, OBJECT_NEW);
        assert_non_null(o->object.symbols); /* frames of before still find their names */
}

static void test_what_is_outstanding_at_the_end(void **state)
{
        opened(1);
        assert_int_equal(symclient_fake(w.symbols)->closes, 0);
        /* teardown frees all with the request open */
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        const struct CMUnitTest tests[] = {
                        TEST(test_equal_files_are_one_object),
                        TEST(test_an_object_is_opened_once_and_its_table_asked_for_once),
                        TEST(test_the_bias_comes_from_the_segment_that_holds_the_offset),
                        TEST(test_a_mapped_file_that_is_no_elf_is_like_anonymous_code),
                        TEST(test_a_file_that_cannot_be_read_keeps_offsets),
                        TEST(test_found_later_it_is_another_object),
                        TEST(test_what_failed_for_want_of_something_is_tried_again),
                        TEST(test_idle_objects_make_way),
                        TEST(test_a_file_changed_in_place_is_another_object),
                        TEST(test_what_is_outstanding_at_the_end),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
