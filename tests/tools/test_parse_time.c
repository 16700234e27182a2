/* Points in time: against `systemd-analyze timestamp`, against the C library's own zones, and where systemd
 * leaves the answer to chance (an hour that a change skips or repeats) against the calendar. */
#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/parse.h"
#include "base/zone.h"

static const char *const zones[] = {"Europe/Berlin", "America/New_York", "UTC", "Australia/Lord_Howe"};

static void use_zone(const char *zone)
{
        setenv("TZ", zone, 1);
        tzset();
}

/* What systemd-analyze says, in microseconds; -1: it refuses. */
static int64_t systemd_reads(const char *text)
{
        char command[512], line[256];
        int64_t us = -1;

        snprintf(command, sizeof(command), "systemd-analyze timestamp -- '%s' 2>/dev/null", text);
        FILE *pipe = popen(command, "r");
        assert_non_null(pipe);
        while (fgets(line, sizeof(line), pipe)) {
                char *p = strchr(line, '@');
                if (!p)
                        continue;
                us = strtoll(p + 1, &p, 10) * 1000000;
                if (*p == '.')
                        us += strtoll(p + 1, NULL, 10);
        }
        pclose(pipe);
        return us;
}

static void test_absolute_times_as_systemd_reads_them(void **state)
{
        static const char *const texts[] = {
                        "2026-12-01 02:10:30",
                        "2026-12-01 02:10",
                        "2026-12-01",
                        "26-12-01",
                        "2026-12-01 02:10:30.25",
                        "2026-07-01 12:00",
                        "1999-12-31 23:59:59",
                        "2026-12-01 02:10 UTC",
                        "2026-02-29",
                        "2028-02-29",
                        "Tue 2026-12-01 02:10",
                        "Mon 2026-12-01 02:10",
                        "Tuesday 2026-12-01 02:10:00 UTC",
                        "02:10",
                        "02:10:30.5",
                        "today",
                        "yesterday",
                        "tomorrow",
                        "yesterday UTC",
                        "today UTC",
                        "@1764554400",
                        "@1764554400.5",
                        "2026-12-01 24:00",
                        "2026-13-01",
                        "2026-12-01 02:60",
                        "2026-12-01 23:59:60",
                        "2026-12-01 2",
                        "",
                        "nonsense",
                        "12",
                        "2026-12-01 02:10 NoSuchZone",
                        "2026-12-01 02:10 x",
                        "@",
                        "@x",
                        "2:3",
        };

        for (size_t z = 0; z < ARRAY_SIZE(zones); z++) {
                use_zone(zones[z]);
                for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
                        if (!strcmp(texts[i], "2026-02-29"))
                                continue; /* systemd takes it for 1 March */
                        uint64_t ns = 0;
                        int64_t want = systemd_reads(texts[i]);
                        int r = parse_time(texts[i], now_realtime_ns(), &ns);
                        int64_t got = r < 0 ? -1 : (int64_t)(ns / 1000);
                        if (got != want)
                                fail_msg("%s in %s: %" PRId64 ", systemd says %" PRId64, texts[i], zones[z],
                                         got, want);
                }
        }
}

static void test_relative_times_as_systemd_reads_them(void **state)
{
        static const char *const texts[] = {"now",        "5min ago", "-5min", "+5min", "1h 30min ago",
                                            "2days left", "+3h30min", "-90s",  "1w ago"};

        use_zone("Europe/Berlin");
        for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
                uint64_t before = 0, after = 0;
                assert_int_equal(parse_time(texts[i], now_realtime_ns(), &before), 0);
                int64_t want = systemd_reads(texts[i]);
                assert_int_equal(parse_time(texts[i], now_realtime_ns(), &after), 0);
                assert_in_range(want, before / 1000 - 1, after / 1000 + 1);
        }
}

/* Every half hour of the nights before, of and after a change. */
static void test_nights_of_a_change(void **state)
{
        static const struct {
                const char *zone, *date;
                int doubtful; /* the hour of which systemd's reading hangs on the season it runs in */
        } nights[] = {
                        {"Europe/Berlin", "2026-03-28", -1},    {"Europe/Berlin", "2026-03-29", 2},
                        {"Europe/Berlin", "2026-03-30", -1},    {"Europe/Berlin", "2026-10-24", -1},
                        {"Europe/Berlin", "2026-10-25", 2},     {"Europe/Berlin", "2026-10-26", -1},
                        {"America/New_York", "2026-03-08", 2},  {"America/New_York", "2026-11-01", 1},
                        {"America/New_York", "2026-11-02", -1},
        };
        char text[64];

        for (size_t i = 0; i < ARRAY_SIZE(nights); i++) {
                use_zone(nights[i].zone);
                for (int half = 0; half < 12; half++) {
                        if (half / 2 == nights[i].doubtful)
                                continue;
                        uint64_t ns = 0;
                        snprintf(text, sizeof(text), "%s %02d:%02d", nights[i].date, half / 2,
                                 half % 2 * 30);
                        assert_int_equal(parse_time(text, now_realtime_ns(), &ns), 0);
                        assert_int_equal(ns / 1000, systemd_reads(text));
                }
        }
}

static void test_hours_skipped_and_repeated(void **state)
{
        static const struct {
                const char *zone, *text;
                uint64_t utc;
        } cases[] = {
                        /* 2026-03-29 01:00 UTC, 02:00 becomes 03:00 */
                        {"Europe/Berlin", "2026-03-29 01:59:59", 1774745999},
                        {"Europe/Berlin", "2026-03-29 02:00", 1774746000},
                        {"Europe/Berlin", "2026-03-29 02:30", 1774746000},
                        {"Europe/Berlin", "2026-03-29 03:00", 1774746000},
                        {"Europe/Berlin", "2026-03-29 03:00:01", 1774746001},
                        /* 2026-10-25 01:00 UTC, 03:00 becomes 02:00 */
                        {"Europe/Berlin", "2026-10-25 02:30", 1792888200},
                        {"Europe/Berlin", "2026-10-25 02:30 CEST", 1792888200},
                        {"Europe/Berlin", "2026-10-25 02:30 CET", 1792891800},
                        {"Europe/Berlin", "2026-10-25 03:00", 1792893600},
                        /* 2026-03-08 07:00 UTC, 02:00 becomes 03:00 */
                        {"America/New_York", "2026-03-08 02:30", 1772953200},
                        {"America/New_York", "2026-11-01 01:30", 1793511000},
                        {"America/New_York", "2026-11-01 01:30 EST", 1793514600},
                        /* named zones do not hang on the local one */
                        {"America/New_York", "2026-03-29 02:30 Europe/Berlin", 1774746000},
                        {"UTC", "2026-12-01 02:10 Asia/Kolkata", 1796071200},
                        {"UTC", "2026-12-01T02:10:00Z", 1796091000},
                        {"Europe/Berlin", "2026-12-01T02:10:00Z", 1796091000},
                        {"Europe/Berlin", "2026-12-01t02:10:00.0z", 1796091000},
                        {"Europe/Berlin", "2026-12-01T02:10:00+01:00", 1796087400},
                        {"Europe/Berlin", "2026-12-01 02:10:00 -0530", 1796110800},
                        {"Europe/Berlin", "2026-12-01T02:10", 1796087400},
        };
        static const char *const bad[] = {"2026-02-29",
                                          "2026-12-01T",
                                          "2026-12-01 02:10 ../../etc/passwd",
                                          "2026-12-01 02:10+99:00",
                                          "1960-01-01",
                                          "2026-12-01T02:10:00+1",
                                          "@99999999999999",
                                          "ago",
                                          "-"};
        uint64_t ns;

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                use_zone(cases[i].zone);
                assert_int_equal(parse_time(cases[i].text, now_realtime_ns(), &ns), 0);
                if (ns / NSEC_PER_SEC != cases[i].utc)
                        fail_msg("%s in %s: %" PRIu64 ", not %" PRIu64, cases[i].text, cases[i].zone,
                                 (uint64_t)(ns / NSEC_PER_SEC), cases[i].utc);
        }
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
                assert_true(parse_time(bad[i], now_realtime_ns(), &ns) < 0);
}

/* Compares a zone file with what the C library makes of it, from 1960 to 2199. */
static void compare_zone(const char *tz, const struct zone *z)
{
        use_zone(tz);
        for (int64_t t = -315619200; t < 7258118400; t += 1234567) {
                time_t tt = (time_t)t;
                struct tm tm;
                assert_non_null(localtime_r(&tt, &tm));
                if (zone_offset(z, t) != tm.tm_gmtoff)
                        fail_msg("%s at %" PRId64 ": %d, not %ld", tz, t, zone_offset(z, t), tm.tm_gmtoff);
                /* back again: the same instant, or the first of the two that bear this local time */
                int64_t back = zone_to_utc(z, t + tm.tm_gmtoff);
                assert_int_equal(back + zone_offset(z, back), t + tm.tm_gmtoff);
                assert_true(back <= t);
        }
}

static void test_named_zones_as_the_c_library_reads_them(void **state)
{
        static const char *const names[] = {"Europe/Berlin",     "America/New_York",  "Australia/Lord_Howe",
                                            "Asia/Kolkata",      "America/Sao_Paulo", "Europe/Dublin",
                                            "Africa/Casablanca", "Antarctica/Troll",  "Pacific/Apia",
                                            "America/Nuuk",      "Asia/Gaza",         "Etc/GMT+5"};

        for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
                _cleanup_(zone_free_cleanup) struct zone *z = NULL;
                assert_int_equal(zone_open(names[i], &z), 0);
                compare_zone(names[i], z);
        }
        struct zone *none = NULL;
        assert_int_equal(zone_open("No/Such", &none), -ENOENT);
        assert_int_equal(zone_open("Europe", &none), -ENOENT);
        assert_int_equal(zone_open("../../../etc/passwd", &none), -ENOENT);
}

/* Files that other distributions make: all of the present is in the footer. */
static void test_slim_zone_files(void **state)
{
        static const char rules[] = "Rule E 1996 max - Mar lastSun 1:00u 1:00 S\n"
                                    "Rule E 1996 max - Oct lastSun 1:00u 0 -\n"
                                    "Rule S 1996 max - Oct Sun>=1 2:00s 1:00 D\n"
                                    "Rule S 1996 max - Apr Sun>=1 2:00s 0 S\n"
                                    "Zone North 1:00 E CE%sT\n"
                                    "Zone South 10:00 S AE%sT\n"
                                    "Zone Fixed -3:30 - XST\n";
        char dir[] = "/tmp/profd-zic-XXXXXX", command[256], path[64], tz[72];

        if (system("command -v zic >/dev/null || test -x /usr/sbin/zic") != 0) {
                print_message("skipped: zic is not installed (Debian: libc-bin)\n");
                skip();
        }
        assert_non_null(mkdtemp(dir));
        snprintf(path, sizeof(path), "%s/rules", dir);
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fputs(rules, f);
        fclose(f);
        snprintf(command, sizeof(command), "PATH=$PATH:/usr/sbin zic -b slim -d %s %s", dir, path);
        assert_int_equal(system(command), 0);

        static const char *const names[] = {"North", "South", "Fixed"};
        for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
                _cleanup_(zone_free_cleanup) struct zone *z = NULL;
                _cleanup_buf_ struct buf b = {0};
                snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
                assert_int_equal(read_file(path, 1 << 20, &b), 0);
                assert_int_equal(zone_parse(b.data, b.len, &z), 0);
                snprintf(tz, sizeof(tz), ":%s", path);
                compare_zone(tz, z);

                /* No prefix of it, nor any byte changed, leads astray. */
                for (size_t n = 0; n < b.len; n++) {
                        struct zone *cut = NULL;
                        if (zone_parse(b.data, n, &cut) == 0)
                                zone_free(cut);
                        char saved = b.data[n];
                        for (int v = 1; v < 256; v += 37) {
                                b.data[n] = (char)(saved ^ v);
                                if (zone_parse(b.data, b.len, &cut) == 0) {
                                        zone_to_utc(cut, 1800000000);
                                        zone_free(cut);
                                }
                        }
                        b.data[n] = saved;
                }
        }
        snprintf(command, sizeof(command), "rm -r %s", dir);
        assert_int_equal(system(command), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                        cmocka_unit_test(test_absolute_times_as_systemd_reads_them),
                        cmocka_unit_test(test_relative_times_as_systemd_reads_them),
                        cmocka_unit_test(test_nights_of_a_change),
                        cmocka_unit_test(test_hours_skipped_and_repeated),
                        cmocka_unit_test(test_named_zones_as_the_c_library_reads_them),
                        cmocka_unit_test(test_slim_zone_files),
        };

        if (system("command -v systemd-analyze >/dev/null") != 0) {
                print_message("skipped: systemd-analyze is not installed (Debian: systemd)\n");
                return 77;
        }
        return cmocka_run_group_tests(tests, NULL, NULL);
}
