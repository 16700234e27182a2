/* The directory of fetched debug files: what it keeps, and what it lets go. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "tools/debug_cache.h"
#include "tools/say.h"

#define ONE   "aa01020304050607"
#define TWO   "bb01020304050607"
#define THREE "aa99999999999999"
#define KIB   1024
#define DAY   86400

static char dir[] = "/tmp/profctl-debug-XXXXXX";
static struct debug_cache cache;

static const char *path_of(const char *below)
{
        static char path[PATH_MAX];

        snprintf(path, sizeof(path), "%s/%s", dir, below);
        return path;
}

static bool there(const char *below)
{
        return access(path_of(below), F_OK) == 0;
}

static void age(const char *below, time_t seconds)
{
        struct timespec t[2] = {{.tv_sec = time(NULL) - seconds}, {.tv_sec = time(NULL) - seconds}};

        assert_int_equal(utimensat(AT_FDCWD, path_of(below), t, AT_SYMLINK_NOFOLLOW), 0);
}

/* A file of 64 KiB on disk. */
static int add(const char *id, int64_t since_s)
{
        static char bytes[64 * KIB];
        FILE *f = fopen(cache.temporary, "w");

        for (size_t i = 0; i < sizeof(bytes); i++)
                bytes[i] = (char)i;
        assert_non_null(f);
        assert_int_equal(fwrite(bytes, sizeof(bytes), 1, f), 1);
        fclose(f);
        return debug_cache_add(&cache, id, cache.temporary, since_s);
}

static void test_least_used_goes_first(void **state)
{
        assert_int_equal(add(ONE, time(NULL)), 0);
        assert_int_equal(add(TWO, time(NULL)), 0);
        assert_true(there(".build-id/aa/01020304050607.debug"));
        assert_int_equal(debug_cache_look(&cache, ONE), DEBUG_CACHED);
        assert_int_equal(debug_cache_look(&cache, THREE), DEBUG_UNKNOWN);

        /* Room for two. Both were used lately. */
        assert_int_equal(add(THREE, time(NULL) - 60), -ENOSPC);
        assert_false(there(".fetching"));
        age(".build-id/aa/01020304050607.debug", 2 * DAY);
        age(".build-id/bb/01020304050607.debug", 3 * DAY);
        debug_cache_look(&cache, TWO); /* is use */
        assert_int_equal(add(THREE, time(NULL) - 60), 0);
        assert_int_equal(debug_cache_look(&cache, ONE), DEBUG_UNKNOWN);
        assert_int_equal(debug_cache_look(&cache, TWO), DEBUG_CACHED);
        assert_int_equal(debug_cache_look(&cache, THREE), DEBUG_CACHED);
}

static void test_use_of_a_file_is_use_of_its_dwz_file(void **state)
{
        assert_int_equal(add(ONE, time(NULL)), 0);
        assert_int_equal(add(TWO, time(NULL)), 0);
        assert_int_equal(debug_cache_link(&cache, TWO, ONE), 0);
        age(".build-id/aa/01020304050607.debug", 2 * DAY);
        debug_cache_look(&cache, TWO);
        assert_int_equal(add(THREE, time(NULL) - 60), -ENOSPC);
}

static void test_missing_for_a_day(void **state)
{
        assert_int_equal(debug_cache_set_missing(&cache, ONE), 0);
        assert_int_equal(debug_cache_look(&cache, ONE), DEBUG_MISSING);
        age(".missing/" ONE, DAY + 60);
        assert_int_equal(debug_cache_look(&cache, ONE), DEBUG_UNKNOWN);
        debug_cache_tidy(&cache);
        assert_false(there(".missing/" ONE));

        assert_int_equal(debug_cache_set_missing(&cache, TWO), 0);
        assert_int_equal(debug_cache_link(&cache, THREE, TWO), 0);
        debug_cache_tidy(&cache);
        assert_true(there(".missing/" TWO));
        struct stat st;
        assert_int_equal(lstat(path_of(".alt/" THREE), &st), -1); /* it is not there */
}

static void test_one_at_a_time(void **state)
{
        struct debug_cache other;

        assert_int_equal(debug_cache_open(&other, dir, 1), STATUS_FAILED);
}

static int setup(void **state)
{
        snprintf(dir, sizeof(dir), "/tmp/profctl-debug-XXXXXX");
        return mkdtemp(dir) && debug_cache_open(&cache, dir, 150 * KIB) == STATUS_DONE ? 0 : -1;
}

static int teardown(void **state)
{
        char command[64];

        debug_cache_close(&cache);
        snprintf(command, sizeof(command), "rm -r %s", dir);
        return system(command);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                        cmocka_unit_test_setup_teardown(test_least_used_goes_first, setup, teardown),
                        cmocka_unit_test_setup_teardown(test_use_of_a_file_is_use_of_its_dwz_file, setup,
                                                        teardown),
                        cmocka_unit_test_setup_teardown(test_missing_for_a_day, setup, teardown),
                        cmocka_unit_test_setup_teardown(test_one_at_a_time, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
