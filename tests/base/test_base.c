#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "base/idtable.h"
#include "base/json_out.h"
#include "base/parse.h"

static void test_buf_keeps_its_first_error(void **state)
{
        _cleanup_buf_ struct buf b = {.limit = 5};

        buf_adds(&b, "1234");
        assert_int_equal(buf_error(&b), 0);
        buf_adds(&b, "56");
        assert_int_equal(buf_error(&b), -E2BIG);
        buf_adds(&b, "");
        assert_int_equal(buf_error(&b), -E2BIG);
        assert_string_equal(buf_text(&b), "1234");
}

struct items {
        uint64_t key[1000];
};

static bool item_equal(const void *ctx, uint32_t id, const void *key)
{
        const struct items *items = ctx;

        return items->key[id] == *(const uint64_t *)key;
}

static uint64_t item_hash(const void *ctx, uint32_t id)
{
        const struct items *items = ctx;

        return hash_u64(items->key[id], 0) & ~7ull; /* clusters, so that removal has something to shift */
}

static void test_idtable_finds_all_after_removals(void **state)
{
        struct idtable t = {0};
        struct items items;

        for (uint32_t i = 0; i < 1000; i++) {
                items.key[i] = i * 7919;
                assert_int_equal(idtable_add(&t, item_hash(&items, i), i, item_hash, &items), 0);
        }
        for (uint32_t i = 0; i < 1000; i += 3)
                idtable_remove(&t, item_hash(&items, i), i, item_hash, &items);
        for (uint32_t i = 0; i < 1000; i++) {
                uint32_t id = idtable_find(&t, item_hash(&items, i), item_equal, &items, &items.key[i]);
                assert_int_equal(id, i % 3 == 0 ? IDTABLE_NONE : i);
        }
        assert_int_equal(t.n, 666);
        idtable_free(&t);
}

static void test_json_escapes_and_separates(void **state)
{
        _cleanup_buf_ struct buf b = {0};
        struct json_out j = {.out = &b};

        json_object_begin(&j, NULL);
        json_string(&j, "a", "q\"\\\n\x01\xff\xc3\xa9");
        json_array_begin(&j, "b");
        json_u64(&j, NULL, UINT64_MAX);
        json_i64(&j, NULL, -1);
        json_double(&j, NULL, 1.0 / 0.0);
        json_array_end(&j);
        json_bool(&j, "c", true);
        json_object_end(&j);
        assert_string_equal(buf_text(&b), "{\"a\":\"q\\\"\\\\\\n\\u0001\xef\xbf\xbd\xc3\xa9\","
                                          "\"b\":[18446744073709551615,-1,null],\"c\":true}");
}

static void test_durations_as_systemd_reads_them(void **state)
{
        static const struct {
                const char *text;
                uint64_t ns;
        } good[] = {
                        {"60", 60 * NSEC_PER_SEC},         {"90s", 90 * NSEC_PER_SEC},
                        {"10min", 600 * NSEC_PER_SEC},     {"14d", 14 * 86400 * NSEC_PER_SEC},
                        {"1h 30min", 5400 * NSEC_PER_SEC}, {"2h3m", 7380 * NSEC_PER_SEC},
                        {"500ms", 500 * NSEC_PER_MSEC},    {"0.5s", 500 * NSEC_PER_MSEC},
        };
        static const char *const bad[] = {"", "s", "-1s", "1x", "1e", "inf", "1 2 3x", "0x1g"};
        uint64_t ns;

        for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
                assert_int_equal(parse_duration(good[i].text, &ns), 0);
                assert_int_equal(ns, good[i].ns);
        }
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
                assert_int_equal(parse_duration(bad[i], &ns), -EINVAL);
        assert_int_equal(parse_duration("101y", &ns), -ERANGE);
}

static void test_sizes_and_shares(void **state)
{
        uint64_t v;
        uint32_t ppm;

        assert_int_equal(parse_size("256M", &v), 0);
        assert_int_equal(v, 256u << 20);
        assert_int_equal(parse_size("1GiB", &v), 0);
        assert_int_equal(v, 1u << 30);
        assert_int_equal(parse_size("99999999T", &v), -ERANGE);
        assert_int_equal(parse_size("1X", &v), -EINVAL);
        assert_int_equal(parse_percent("0.5%", &ppm), 0);
        assert_int_equal(ppm, 5000);
        assert_int_equal(parse_percent("5", &ppm), -EINVAL);
        assert_int_equal(parse_bool("Yes"), 1);
        assert_int_equal(parse_bool("maybe"), -EINVAL);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                        cmocka_unit_test(test_buf_keeps_its_first_error),
                        cmocka_unit_test(test_idtable_finds_all_after_removals),
                        cmocka_unit_test(test_json_escapes_and_separates),
                        cmocka_unit_test(test_durations_as_systemd_reads_them),
                        cmocka_unit_test(test_sizes_and_shares),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
