/* The CPU budget on simulated hosts: given what sampling, following and naming cost there, does the rate
 * settle where it should, and how long is profd over its limit? The model is the test's own: cost is a fixed
 * part, a part per sample and what the worker is allowed of a backlog. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "daemon/budget.h"

#define LIMIT 10000 /* 1 % */

struct host {
        struct budget b;
        uint32_t cpus;
        double sample_ns;         /* per sample: kernel and drain */
        double following;         /* share of all CPUs */
        double naming;            /* share of all CPUs that the backlog would take */
        double serving;           /* share of all CPUs */
        double noise;             /* of what sampling costs, 0..1 */
        uint32_t f;               /* Hz in force */
        uint32_t changes;         /* of the rate */
        uint32_t over, most_over; /* intervals in a row over the limit, by more than what nobody sees */
        uint32_t waited;          /* seconds in which nothing was followed */
        double worker_ns;
};

static void host_init(struct host *h, uint32_t asked, uint32_t cpus)
{
        *h = (struct host){.cpus = cpus, .f = asked};
        budget_init(&h->b, asked, LIMIT);
}

static void run(struct host *h, uint32_t intervals)
{
        for (uint32_t i = 0; i < intervals; i++) {
                const double ns = BUDGET_INTERVAL_NS;
                double jitter = 1 + h->noise * ((double)(rand() % 2001) / 1000 - 1);
                struct budget_use use = {
                                .sampling_ns = (uint64_t)(h->f * h->cpus * 5 * h->sample_ns * jitter),
                                .serving_ns = (uint64_t)(h->serving * ns * h->cpus),
                };

                for (int second = 0; second < 5; second++)
                        if (budget_following_waits(&h->b, use.following_ns))
                                h->waited++;
                        else
                                use.following_ns += (uint64_t)(h->following * ns / 5 * h->cpus);
                for (int second = 0; second < 5; second++)
                        if (!budget_names_wait(&h->b, use.naming_ns))
                                use.naming_ns += (uint64_t)(h->naming * ns / 5 * h->cpus);
                h->worker_ns += (double)use.naming_ns;
                uint32_t f = budget_update(&h->b, &use, BUDGET_INTERVAL_NS, h->cpus);
                h->changes += f != h->f;
                h->f = f;
                h->over = h->b.used_ppm > LIMIT * 1.03 ? h->over + 1 : 0;
                h->most_over = MAX_OF(h->most_over, h->over);
        }
}

static void forget_start(struct host *h)
{
        run(h, 24);
        h->changes = h->most_over = h->waited = 0;
        h->worker_ns = 0;
}

static void test_rate_is_lowered_and_restored(void **state)
{
        struct host h;

        host_init(&h, 999, 4);
        h.sample_ns = 20000; /* 2 % of a CPU, twice the limit */
        forget_start(&h);
        run(&h, 240);
        assert_in_range(h.f, 350, 500);
        assert_true(h.b.used_ppm <= LIMIT);
        assert_int_equal(h.most_over, 0);
        assert_string_equal(budget_why(&h.b),
                            "lowered to keep to Cpu=: sampling at the rate asked takes more");

        h.sample_ns = 2000000; /* a storm: a tenth is the lowest, and it is said that this is too much still
                                */
        run(&h, 6);
        assert_int_equal(h.f, 101);
        assert_true(h.b.exceeded);

        h.sample_ns = 1000; /* calm: all of it comes back, within two minutes */
        run(&h, 24);
        assert_int_equal(h.f, 999);
        assert_null(budget_why(&h.b));
        assert_false(h.b.exceeded);
        h.changes = 0;
        run(&h, 1000);
        assert_int_equal(h.changes, 0);
}

/* Over the limit by whatever factor: never for longer than ten seconds, after the start's minute is used. */
static void test_over_the_limit_for_ten_seconds_at_most(void **state)
{
        for (double factor = 1.05; factor < 9; factor *= 1.3) {
                struct host h;

                host_init(&h, 99, 2);
                h.sample_ns = 10000;
                forget_start(&h);
                assert_int_equal(h.f, 99);
                h.sample_ns = factor * LIMIT / 1e6 * 1e9 / 99;
                run(&h, 100);
                assert_true(h.most_over <= 2);
        }
}

/* Most of the cost is there at any rate, and it is at the limit: the rate goes down and stays there. A
 * governor that took all cost for proportional to the rate swung here. */
static void test_no_swing(void **state)
{
        const double following[] = {0.002, 0.005, 0.007, 0.0085, 0.0095, 0.012, 0.03};

        for (size_t i = 0; i < ARRAY_SIZE(following); i++)
                for (double sample_ns = 20000; sample_ns < 400000; sample_ns *= 1.7) {
                        struct host h;

                        host_init(&h, 99, 2);
                        h.following = following[i];
                        h.sample_ns = sample_ns;
                        h.noise = 0.1;
                        forget_start(&h);
                        run(&h, 60);
                        h.changes = 0;
                        run(&h, 720); /* an hour */
                        assert_true(h.changes <= 12);
                        h.changes = 0;
                        run(&h, 720 * 3);
                        assert_true(h.changes <= 24);
                }
}

/* Following is given up last, and no more of it than must be: half of the limit is for it at least. */
static void test_following_waits_last(void **state)
{
        struct host h;

        host_init(&h, 99, 2);
        h.sample_ns = 30000; /* 0.3 % */
        forget_start(&h);
        h.following = 0.006;
        run(&h, 400);
        assert_int_equal(h.waited, 0);

        for (h.following = 0.012; h.following < 0.2; h.following *= 1.6) {
                run(&h, 24);
                h.waited = h.most_over = 0;
                run(&h, 400);
                double followed = h.following * (1 - h.waited / 2000.0);
                assert_true(followed > 0.005 && followed < 0.0097);
                assert_true(h.most_over <= 2);
                assert_true(h.f <= 11);
        }

        h.following = 0.001;
        run(&h, 24);
        assert_int_equal(h.f, 99);
        h.waited = 0;
        run(&h, 400);
        assert_int_equal(h.waited, 0);
}

/* A rate that some ticks of the scheduler make a period of would see the same moments all the time. */
static void test_no_rate_keeps_step_with_the_scheduler(void **state)
{
        static const uint32_t tick_hz[] = {100, 250, 300, 1000};
        uint32_t rates[512] = {0};

        for (double sample_ns = 1000; sample_ns < 4000000; sample_ns *= 1.1) {
                struct host h;

                host_init(&h, 999, 4);
                h.sample_ns = sample_ns;
                for (int i = 0; i < 60; i++) {
                        run(&h, 1);
                        rates[h.f / 2]++;
                        for (size_t k = 0; k < ARRAY_SIZE(tick_hz) && h.f != 999; k++)
                                assert_true(tick_hz[k] % h.f != 0 && (2 * tick_hz[k]) % h.f != 0);
                }
        }
        uint32_t different = 0;
        for (size_t i = 0; i < ARRAY_SIZE(rates); i++)
                different += rates[i] > 0;
        assert_true(different > 20);
}

/* Naming waits, and is no reason to sample less; it has a quarter of the limit at least. */
static void test_naming_has_a_budget_of_its_own(void **state)
{
        struct host h;

        host_init(&h, 99, 2);
        h.sample_ns = 30000; /* 0.3 % */
        forget_start(&h);
        h.naming = 0.1; /* ten times the limit, for as long as it lasts */
        run(&h, 10);
        h.worker_ns = 0;
        run(&h, 100);
        assert_int_equal(h.f, 99);
        double share = h.worker_ns / (100.0 * BUDGET_INTERVAL_NS * 2);
        assert_true(share > 0.0065 && share < 0.0075); /* what sampling leaves of 1 % */

        h.following = 0.02; /* more than there is: a quarter all the same, and what following leaves */
        run(&h, 10);
        h.worker_ns = 0;
        run(&h, 400);
        share = h.worker_ns / (400.0 * BUDGET_INTERVAL_NS * 2);
        assert_true(share > 0.002 && share < 0.0045);
}

/* Naming a whole host at the start costs once what sampling never does: not a reason to sample less, nor to
 * let names wait. */
static void test_a_start_is_borne(void **state)
{
        struct host h;

        host_init(&h, 99, 2);
        h.sample_ns = 20000;
        h.naming = 0.05;
        run(&h, 2);
        assert_int_equal(h.f, 99);
        assert_false(h.b.names_wait);
        h.naming = 0;
        run(&h, 100);
        assert_int_equal(h.changes, 0);
}

/* A report over a long range takes seconds of CPU once; a collector that keeps asking is another thing. */
static void test_one_query_is_no_reason_to_sample_less(void **state)
{
        struct host h;

        host_init(&h, 99, 2);
        h.sample_ns = 50000; /* half of the limit */
        forget_start(&h);
        h.serving = 0.04;
        run(&h, 1);
        h.serving = 0;
        run(&h, 100);
        assert_int_equal(h.changes, 0);

        h.serving = 0.008;
        run(&h, 100);
        assert_true(h.f < 99);
        assert_string_equal(budget_why(&h.b),
                            "lowered to keep to Cpu=: queries and the store take most of it");
        assert_true(h.b.used_ppm <= LIMIT);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                        cmocka_unit_test(test_rate_is_lowered_and_restored),
                        cmocka_unit_test(test_over_the_limit_for_ten_seconds_at_most),
                        cmocka_unit_test(test_no_swing),
                        cmocka_unit_test(test_following_waits_last),
                        cmocka_unit_test(test_no_rate_keeps_step_with_the_scheduler),
                        cmocka_unit_test(test_naming_has_a_budget_of_its_own),
                        cmocka_unit_test(test_a_start_is_borne),
                        cmocka_unit_test(test_one_query_is_no_reason_to_sample_less),
        };

        srand(1);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
