/* Event names, CPU lists, hybrid machines, and what a cycle is worth. The numbers are those of
 * perf_event_open(2) and, for hardware cache events, of its formula. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/events.h"
#include "daemon/sampler_impl.h"

static void check(const char *name, uint32_t type, uint64_t config)
{
        struct event_kind k;

        assert_int_equal(event_by_name(name, &k), 0);
        assert_int_equal(k.type, type);
        assert_true(k.config == config);
        assert_int_equal(k.hardware, type != 1);
}

static void test_names(void **state)
{
        struct event_kind k;
        static const char *const unknown[] = {
                        "",  "cycle", "cycles ", "r",    "rxyz",      "r12345678901234567",
                        "x", "r12:u", "LLC",     "LLC-", "foo-loads", "page_faults"};

        check("cycles", 0, 0);
        check("instructions", 0, 1);
        check("cache-references", 0, 2);
        check("cache-misses", 0, 3);
        check("branches", 0, 4);
        check("branch-misses", 0, 5);
        check("ref-cycles", 0, 9);
        check("cpu-clock", 1, 0);
        check("page-faults", 1, 2);
        check("faults", 1, 2);
        check("context-switches", 1, 3);
        check("cpu-migrations", 1, 4);
        check("major-faults", 1, 6);
        check("L1-dcache-load-misses", 3, 0 | 0 << 8 | 1 << 16);
        check("LLC-stores", 3, 2 | 1 << 8 | 0 << 16);
        check("dTLB-prefetch-misses", 3, 3 | 2 << 8 | 1 << 16);
        check("r1a8", 4, 0x1a8);
        check("rFFFFFFFFFFFFFFFF", 4, UINT64_MAX);
        for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++)
                assert_int_equal(event_by_name(unknown[i], &k), -EINVAL);

        assert_int_equal(event_by_name("cycles", &k), 0);
        assert_int_equal(k.weight, EVENT_WEIGHT_CYCLES);
        assert_int_equal(event_by_name("cpu-clock", &k), 0);
        assert_int_equal(k.weight, EVENT_WEIGHT_CLOCK);
        assert_int_equal(event_by_name("cache-misses", &k), 0);
        assert_int_equal(k.weight, EVENT_WEIGHT_PERIOD);
}

static void test_cpu_lists(void **state)
{
        static const char *const bad[] = {"x", "1-", "-1", "3-1", "0-128", "1,,2", "1;2", "0 1x"};
        struct cpu_set s;

        assert_int_equal(cpu_set_parse("0-3,5,64-65\n", 128, &s), 0);
        assert_int_equal(cpu_set_count(&s), 7);
        assert_true(cpu_set_has(&s, 0) && cpu_set_has(&s, 3) && cpu_set_has(&s, 5) && cpu_set_has(&s, 65));
        assert_false(cpu_set_has(&s, 4) || cpu_set_has(&s, 66) || cpu_set_has(&s, 1000));
        cpu_set_free(&s);
        assert_int_equal(cpu_set_parse("\n", 128, &s), 0);
        assert_int_equal(cpu_set_count(&s), 0);
        cpu_set_free(&s);
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
                assert_int_equal(cpu_set_parse(bad[i], 128, &s), -EINVAL);
}

static void put(const char *dir, const char *name, const char *text)
{
        char path[256];
        FILE *f;

        snprintf(path, sizeof(path), "%s/%s", dir, name);
        f = fopen(path, "w");
        assert_non_null(f);
        fputs(text, f);
        fclose(f);
}

/* A machine with two kinds of core, as sysfs shows it on Alder Lake. */
static void test_hybrid(void **state)
{
        char dir[] = "/tmp/profd-pmus-XXXXXX", path[64];
        struct core_pmus p;
        struct event_kind k;
        uint32_t type;
        uint64_t config;

        assert_non_null(mkdtemp(dir));
        for (int i = 0; i < 3; i++) {
                static const char *const names[] = {"cpu_core", "cpu_atom", "uncore_imc"};
                snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
                assert_int_equal(mkdir(path, 0700), 0);
        }
        put(dir, "cpu_core/type", "4\n");
        put(dir, "cpu_core/cpus", "0-3\n");
        put(dir, "cpu_atom/type", "10\n");
        put(dir, "cpu_atom/cpus", "4-7\n");
        put(dir, "uncore_imc/type", "12\n");
        assert_int_equal(core_pmus_read(dir, 8, &p), 0);
        assert_int_equal(p.n, 2);

        event_by_name("cycles", &k);
        event_on_cpu(&k, &p, 1, &type, &config);
        assert_int_equal(type, 0);
        assert_true(config == 4ull << 32);
        event_by_name("LLC-loads", &k);
        event_on_cpu(&k, &p, 5, &type, &config);
        assert_int_equal(type, 3);
        assert_true(config == (10ull << 32 | 2));
        event_by_name("r1a8", &k);
        event_on_cpu(&k, &p, 5, &type, &config);
        assert_int_equal(type, 10);
        assert_true(config == 0x1a8);
        event_by_name("cpu-clock", &k);
        event_on_cpu(&k, &p, 5, &type, &config);
        assert_int_equal(type, 1);
        assert_true(config == 0);
        core_pmus_free(&p);

        /* one kind of core: as it is */
        assert_int_equal(core_pmus_read("/tmp/no-such-directory", 8, &p), 0);
        assert_int_equal(p.n, 0);
        event_by_name("cycles", &k);
        event_on_cpu(&k, &p, 1, &type, &config);
        assert_true(type == 0 && config == 0);

        snprintf(path, sizeof(path), "rm -r %s", dir);
        assert_int_equal(system(path), 0);
}

static void test_cycle_rate(void **state)
{
        struct cycle_rate r = {.rate = 1e9};

        /* 3 GHz while busy; too little to tell, then enough */
        assert_false(cycle_rate_update(&r, 300000000, 100000000));
        assert_true(r.rate == 1e9);
        assert_true(cycle_rate_update(&r, 450000000, 150000000));
        assert_true(r.rate > 2.99e9 && r.rate < 3.01e9);
        /* it slows down to 1.5 GHz: followed within a few intervals */
        for (int i = 0; i < 6; i++)
                cycle_rate_update(&r, 1500000000, 1000000000);
        assert_true(r.rate > 1.49e9 && r.rate < 1.56e9);
        /* a counter that stands still, or jumps, is not believed */
        assert_false(cycle_rate_update(&r, 0, 1000000000));
        assert_false(cycle_rate_update(&r, UINT64_MAX / 2, 1000000000));
        assert_true(r.rate > 1.49e9 && r.rate < 1.56e9);
}

/* An event that had its counter a third of the time stands for three. */
static void test_scale(void **state)
{
        assert_int_equal(watch_scale(1000000000, 1000000000), 0);
        assert_int_equal(watch_scale(900, 300), 3 * 65536);
        assert_int_equal(watch_scale(0, 0), 0);
        assert_int_equal(watch_scale(UINT64_MAX, 1), 1000 * 65536);
}

/* 100 Hz for a second: 100 ticks, of which the last may be under way. */
static void test_missed_ticks(void **state)
{
        struct event_watch w = {.since_ns = 5000, .since_ticks = 40};

        assert_int_equal(missed_ticks(&w, 140, UINT64_MAX, 10000000, 1000005000), 0);
        assert_int_equal(missed_ticks(&w, 139, UINT64_MAX, 10000000, 1000005000), 0);
        assert_int_equal(missed_ticks(&w, 130, UINT64_MAX, 10000000, 1000005000), 9);
        assert_int_equal(missed_ticks(&w, 200, UINT64_MAX, 10000000, 1000005000), 0);
        assert_int_equal(missed_ticks(&w, 130, 4, 10000000, 1000005000), 4);
        w.missed = 20;
        assert_int_equal(missed_ticks(&w, 130, UINT64_MAX, 10000000, 1000005000), 20);
}

/* 100 Hz, and a CPU that was idle for 0.7 of a second: 30 samples, whatever ticks came. */
static void test_missed_of_an_idle_cpu(void **state)
{
        struct event_watch w = {0};

        assert_int_equal(missed_at_most(&w, 50, 4000000000, 10000000, 1000000000), 0);
        assert_int_equal(missed_at_most(&w, 50, 5000000000, 10000000, 2000000000), 0);
        assert_int_equal(missed_at_most(&w, 80, 4700000000, 10000000, 2000000000), 0);
        assert_int_equal(missed_at_most(&w, 70, 4700000000, 10000000, 2000000000), 10);
        assert_int_equal(missed_at_most(&w, 50, 4000000000, 10000000, 2000000000), 100);
        assert_int_equal(missed_at_most(&w, 50, 9000000000, 10000000, 2000000000), 0);
}

static void test_idle_times(void **state)
{
        uint64_t idle[4], tick = NSEC_PER_SEC / (uint64_t)sysconf(_SC_CLK_TCK);

        parse_idle_times("cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 100 0 50 700 30 2 1 4 0 0\ncpu2 1 1 1 9 0 0 0 0 0 "
                         "0\n"
                         "cpu9 1 1 1 9 0 0 0 0 0 0\nintr 5 6\nctxt 1\n",
                         4, idle);
        assert_true(idle[0] == 734 * tick);
        assert_true(idle[1] == 0);
        assert_true(idle[2] == 9 * tick);
        assert_true(idle[3] == 0);
}

/* Sizes stay within the memory given, from a laptop to a large server. */
static void test_plan(void **state)
{
        static const uint32_t cpus[] = {1, 2, 8, 64, 128, 512};
        static const uint32_t hz[] = {19, 99, 999};

        for (size_t i = 0; i < 6; i++)
                for (size_t k = 0; k < 3; k++) {
                        struct sampler_config c = {.n_events = 2, .frequency = hz[k], .memory = 256 << 20};
                        struct sampler_sizes z;

                        sampler_plan(&z, &c, cpus[i]);
                        assert_true(sampler_fixed_bytes(&z) < c.memory * 3 / 5);
                        /* a second's samples, each with a row of its own, fit */
                        if (cpus[i] <= 128 || hz[k] <= 99)
                                assert_true(z.rows_per_cpu > 2 * hz[k]);
                        assert_true((z.stacks_ring & (z.stacks_ring - 1)) == 0);
                        assert_true((z.raws_ring & (z.raws_ring - 1)) == 0);
                        assert_true(z.index_lines * 16 >= z.rows_per_cpu);
                }
}

/* CPU time is in a profile once, and a name too, whatever Events= says: the second of two is off, and says
 * why. */
static void test_clashes(void **state)
{
        static const struct {
                const char *name;
                bool off;
        } asked[] = {{"page-faults", false}, {"cycles", false},     {"cpu-clock", true},
                     {"cpu-cycles", true},   {"page-faults", true}, {"instructions", false}};
        const char *names[ARRAY_SIZE(asked)];
        struct sampler s = {.sizes.cpus = 1};
        struct sampler_config c = {.events = names, .n_events = ARRAY_SIZE(asked), .frequency = 99};

        for (size_t i = 0; i < ARRAY_SIZE(asked); i++)
                names[i] = asked[i].name;
        assert_int_equal(sampler_events_init(&s, &c), 0);
        for (size_t i = 0; i < ARRAY_SIZE(asked); i++) {
                assert_int_equal(s.event[i].off, asked[i].off);
                assert_int_equal(s.event[i].info.why != NULL, asked[i].off);
        }
        sampler_events_close(&s);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                        cmocka_unit_test(test_clashes),      cmocka_unit_test(test_names),
                        cmocka_unit_test(test_cpu_lists),    cmocka_unit_test(test_hybrid),
                        cmocka_unit_test(test_cycle_rate),   cmocka_unit_test(test_idle_times),
                        cmocka_unit_test(test_plan),         cmocka_unit_test(test_scale),
                        cmocka_unit_test(test_missed_ticks), cmocka_unit_test(test_missed_of_an_idle_cpu),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
