/* Names on disk: kept over a restart, rejected when damaged, bounded in size. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/cleanup.h"
#include "symbol_client.h"
#include "symbolizer/cache.h"

static char *dir, *cache_dir;
static uint64_t address;

static char *path_in(const char *name)
{
        static char path[512];

        snprintf(path, sizeof(path), "%s/%s", dir, name);
        return path;
}

static struct symclient *client_with_cache(void)
{
        struct symclient_options options = {.cache_dir = cache_dir};

        return client_new(&options);
}

static uint64_t hits_of(struct symclient *c)
{
        struct symclient_stats s;

        symclient_stats(c, &s);
        return s.cache_hits;
}

static void assert_answer(const struct answer *a)
{
        assert_int_equal(a->err, 0);
        assert_string_equal(a->function, "deep_inside");
        assert_non_null(strstr(a->file, "find_me.c"));
        assert_true(a->line > 0);
}

/* The only file of a kind in the cache. */
static char *cache_file(const char *kind)
{
        return output_of("ls %s/*.%s", cache_dir, kind);
}

static void fill(void)
{
        struct symclient *c = client_with_cache();
        struct answer a;

        free(output_of("rm -rf %s/*", cache_dir));
        name_in_file(c, FIND_ME_PATH, NULL, address, &a);
        assert_answer(&a);
        assert_int_equal(hits_of(c), 0);
        symclient_free(c);
}

static void test_over_a_restart(void **state)
{
        struct symclient *c;
        struct answer a, opened = {};
        struct symobj *o;
        uint64_t two[] = {address + 1, address};

        fill();
        c = client_with_cache();
        o = open_path(c, FIND_ME_PATH, NULL, &opened);
        ask_one(c, o, address, &a);
        assert_answer(&a);
        assert_int_equal(hits_of(c), 1);
        /* One that is known and one that is not, the results in the order of the question. */
        a = (struct answer){};
        assert_int_equal(symclient_names(c, o, two, 2, answer_names, &a), 0);
        assert_int_equal(symclient_wait(c, SOON_MS), 0);
        assert_answer(&a);
        assert_int_equal(a.n, 2);
        assert_int_equal(hits_of(c), 2);
        symobj_close(c, o);
        symclient_free(c);

        c = client_with_cache(); /* both are there now */
        o = open_path(c, FIND_ME_PATH, NULL, &opened);
        assert_int_equal(symclient_names(c, o, two, 2, answer_names, &a), 0);
        assert_int_equal(symclient_wait(c, SOON_MS), 0);
        assert_answer(&a);
        assert_int_equal(hits_of(c), 2);
        symobj_close(c, o);
        symclient_free(c);
}

static void keep_functions(void *ctx, int err, const struct sym_result *results, uint32_t n)
{
        char(*function)[64] = ctx;

        assert_int_equal(err, 0);
        for (uint32_t i = 0; i < n; i++)
                snprintf(function[i], sizeof(function[i]), "%s",
                         results[i].n ? results[i].frame[results[i].n - 1].function : "");
}

/* The results of what is known and what is not are in the order of the question. */
static void test_order_of_a_question_known_in_part(void **state)
{
        const uint64_t other = address_by_nm(FIND_ME_PATH, "main"), asked[] = {other, address, other + 1};
        struct answer opened = {};
        struct symclient *c;
        struct symobj *o;
        char function[3][64] = {};

        fill(); /* with the second alone */
        c = client_with_cache();
        o = open_path(c, FIND_ME_PATH, NULL, &opened);
        assert_int_equal(symclient_wait(c, SOON_MS), 0);
        assert_int_equal(symclient_names(c, o, asked, 3, keep_functions, function), 0);
        assert_int_equal(symclient_wait(c, SOON_MS), 0);
        assert_int_equal(hits_of(c), 1);
        assert_string_equal(function[0], "main");
        assert_string_equal(function[1], "deep_inside");
        assert_string_equal(function[2], "main");
        symobj_close(c, o);
        symclient_free(c);
}

/* Each byte of the file changed, and each length: never a wrong name. */
static void test_damage(void **state)
{
        struct cache_key key = {.build_id = {1, 2, 3}, .build_id_len = 3, .owner = 7};
        struct names names = {};
        struct cache_object *o;
        struct cache *c;
        char *path;
        size_t size;
        uint8_t file[8192];
        int fd;

        free(output_of("rm -rf %s/*", cache_dir));
        assert_int_equal(names_begin(&names), 0);
        assert_int_equal(names_add_raw(&names, "_Z3foov", "/src/foo.c", 3, 1, true), 0);
        assert_int_equal(names_add_raw(&names, "bar", "/src/bar.c", 4, 2, false), 0);
        assert_int_equal(cache_new(&c, cache_dir, 0, 99), 0);
        assert_int_equal(cache_open(c, &key, 5, false, &o), 0);
        assert_int_equal(cache_add(o, 0x1000, &names, 0, NAMES_FROM_DWARF), 0);
        cache_close(c, o);
        names_free(&names);

        path = cache_file("names");
        fd = open(path, O_RDWR | O_CLOEXEC);
        assert_true(fd >= 0);
        size = (size_t)read(fd, file, sizeof(file));
        assert_in_range(size, 100, sizeof(file) - 1);
        for (size_t i = 0; i <= 2 * size; i++) {
                uint8_t changed = (uint8_t)(file[i % size] ^ 0x41);

                if (i < size)
                        assert_int_equal(pwrite(fd, &changed, 1, (off_t)i), 1);
                else
                        assert_int_equal(ftruncate(fd, (off_t)(2 * size - i)), 0);
                assert_int_equal(cache_open(c, &key, 5, false, &o), 0);
                names = (struct names){};

                int found = cache_find(o, 0x1000, &names);

                assert_in_range(found, 0, 1);
                if (found) { /* of the header some bytes do not matter */
                        struct sym_frame f;

                        assert_true(i < 72 || i == size);
                        assert_int_equal(names.n_frames, 2);
                        names_frame(&names, 0, &f);
                        assert_string_equal(f.function, "foo()");
                        assert_string_equal(f.linkage, "_Z3foov");
                        names_frame(&names, 1, &f);
                        assert_string_equal(f.file, "/src/bar.c");
                }
                names_free(&names);
                cache_close(c, o);
                assert_int_equal(pwrite(fd, file, size, 0), size);
        }
        close(fd);
        free(path);
        cache_free(c);
}

/* Without a build ID it is the file that is known, until it changes. */
static void test_without_build_id(void **state)
{
        _cleanup_free_ char *path = strdup(path_in("no-id"));
        struct answer a;

        free(output_of("rm -rf %s/* && objcopy --remove-section=.note.gnu.build-id %s %s", cache_dir,
                       FIND_ME_PATH, path));
        for (int i = 0; i < 3; i++) {
                struct symclient *c = client_with_cache();

                name_in_file(c, path, NULL, address, &a);
                assert_answer(&a);
                assert_int_equal(hits_of(c), i == 1);
                symclient_free(c);
                if (i == 1)
                        free(output_of("touch %s", path));
        }
}

/* Names of a stripped object are not kept from being better when a debug package comes. */
static void test_debug_information_that_comes_later(void **state)
{
        _cleanup_free_ char *id = output_of("readelf -n %s | sed -n 's/.*Build ID: //p'", FIND_ME_PATH);
        static const char *debug_dirs[2];
        struct symclient_options options = {.cache_dir = cache_dir, .debug_dirs = debug_dirs};
        _cleanup_free_ char *debug = strdup(path_in("debug")), *bare = strdup(path_in("bare"));
        struct symclient *c;
        struct answer a;

        debug_dirs[0] = debug;
        free(output_of("rm -rf %s/* && objcopy --strip-debug %s %s", cache_dir, FIND_ME_PATH, bare));
        for (int i = 0; i < 2; i++) {
                c = client_new(&options);
                name_in_file(c, bare, NULL, address, &a);
                assert_string_equal(a.function, "deep_inside");
                assert_string_equal(a.file, "");
                assert_int_equal(hits_of(c), i);
                symclient_free(c);
        }
        free(output_of("mkdir -p %s/.build-id/%.2s && objcopy --only-keep-debug %s "
                       "%s/.build-id/%.2s/%s.debug",
                       debug, id, FIND_ME_PATH, debug, id, id + 2));
        for (int i = 0; i < 2; i++) {
                c = client_new(&options);
                name_in_file(c, bare, NULL, address, &a);
                assert_answer(&a);
                assert_int_equal(hits_of(c), i);
                symclient_free(c);
        }
}

static void test_size(void **state)
{
        enum { N = 200, MAX = 64 << 10 };
        struct names names = {};
        struct cache *c;
        uint64_t size;
        _cleanup_free_ char *text = NULL;

        free(output_of("rm -rf %s/*", cache_dir));
        assert_int_equal(names_begin(&names), 0);
        assert_int_equal(names_add_raw(&names, "a_function_with_some_name", "/a/file/somewhere.c", 1, 1,
                                       false),
                         0);
        assert_int_equal(cache_new(&c, cache_dir, MAX, 1), 0);
        for (uint32_t i = 0; i < N; i++) {
                struct cache_key key = {.build_id = {(uint8_t)i, 1}, .build_id_len = 2};
                struct cache_object *o;

                assert_int_equal(cache_open(c, &key, 0, false, &o), 0);
                for (uint64_t k = 0; k < 100; k++)
                        assert_int_equal(cache_add(o, 0x1000 + k, &names, 0, NAMES_FROM_DWARF), 0);
                cache_close(c, o);
        }
        text = output_of("cat %s/* | wc -c", cache_dir);
        size = strtoull(text, NULL, 10);
        assert_in_range(size, MAX / 4, MAX);
        assert_in_range(cache_bytes(c), MAX / 4, MAX);
        names_free(&names);
        cache_free(c);
}

static void test_tables(void **state)
{
        /* large enough to be kept */
        _cleanup_free_ char *libc = output_of("ldd %s | awk '/libc\\.so/ { print $3 }'", FIND_ME_PATH);
        struct answer a, opened = {};

        free(output_of("rm -rf %s/*", cache_dir));
        for (int i = 0; i < 3; i++) {
                struct symclient *c = client_with_cache();
                struct symobj *o = open_path(c, libc, NULL, &opened);
                uint32_t rows = a.n_rows;

                a = (struct answer){};
                assert_int_equal(symclient_table(c, o, answer_table, &a), 0);
                assert_int_equal(symclient_wait(c, SOON_MS), 0);
                assert_int_equal(a.err, 0);
                assert_int_equal(hits_of(c), i == 1);
                if (i > 0)
                        assert_int_equal(a.n_rows, rows);
                symobj_close(c, o);
                symclient_free(c);
                if (i == 1) { /* damaged: made anew */
                        char *path = cache_file("unwind");
                        int fd = open(path, O_RDWR | O_CLOEXEC);

                        assert_int_equal(pwrite(fd, "x", 1, 200), 1);
                        close(fd);
                        free(path);
                }
        }
}

static uint64_t free_bytes(void)
{
        struct statvfs v;

        assert_int_equal(statvfs(cache_dir, &v), 0);
        return v.f_bavail * v.f_frsize;
}

/* An eighth of the file system is left to what others write there; what they have already filled counts. */
static void test_others_find_room(void **state)
{
        enum { SIZE = 1 << 20, SPARE = SIZE / 8, TABLE = 48 << 10 };
        static char data[TABLE];
        struct cache *c;

        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            mount("none", cache_dir, "tmpfs", 0, "size=1m") < 0) {
                print_message("skipped: no file system can be mounted here: %s\n", strerror(errno));
                skip();
        }
        assert_int_equal(cache_new(&c, cache_dir, 0, 1), 0);
        for (uint8_t i = 0; i < 100; i++) {
                struct cache_key key = {.build_id = {i}, .build_id_len = 20};
                int r = cache_store_table(c, &key, data, sizeof(data));
                assert_true(r == 0 || r == -ENOSPC);
        }
        assert_true(cache_bytes(c) > SIZE / 2);
        cache_make_room(c);
        assert_true(free_bytes() >= SPARE);

        uint64_t before = cache_bytes(c);
        free(output_of("head -c %llu /dev/zero >%s/.others", (unsigned long long)free_bytes(), cache_dir));
        assert_int_equal(free_bytes(), 0);
        cache_make_room(c);
        assert_true(free_bytes() >= SPARE);
        assert_true(cache_bytes(c) > 0 && cache_bytes(c) < before);
        cache_free(c);
        assert_int_equal(umount(cache_dir), 0);
}

static int setup(void **state)
{
        dir = scratch_new();
        cache_dir = strdup(path_in("cache"));
        address = address_by_nm(FIND_ME_PATH, "deep_inside");
        return mkdir(cache_dir, 0700);
}

static int teardown(void **state)
{
        scratch_free(dir);
        free(cache_dir);
        return 0;
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                        cmocka_unit_test(test_over_a_restart),
                        cmocka_unit_test(test_order_of_a_question_known_in_part),
                        cmocka_unit_test(test_without_build_id),
                        cmocka_unit_test(test_damage),
                        cmocka_unit_test(test_debug_information_that_comes_later),
                        cmocka_unit_test(test_size),
                        cmocka_unit_test(test_tables),
                        cmocka_unit_test(test_others_find_room),
        };

        return cmocka_run_group_tests(tests, setup, teardown);
}
