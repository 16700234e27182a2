#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "daemon/unwind_rules.h"
#include "daemon/unwind_space.h"
#include "bpf/abi.h"

static void test_runs_come_back_after_two_ticks(void **state)
{
        struct unwind_space *s;
        uint32_t a, b;

        assert_int_equal(unwind_space_new(&s, 100, 100, 0), 0);
        assert_int_equal(unwind_space_take(s, 60, &a), 0);
        assert_int_equal(unwind_space_take(s, 60, &b), -ENOSPC);
        unwind_space_give(s, a, 60);
        assert_int_equal(unwind_space_used(s), 0);
        assert_int_equal(unwind_space_waiting(s), 60);
        assert_int_equal(unwind_space_take(s, 60, &b), -ENOSPC);
        unwind_space_tick(s);
        assert_int_equal(unwind_space_take(s, 60, &b), -ENOSPC);
        unwind_space_tick(s);
        assert_int_equal(unwind_space_take(s, 60, &b), 0);

        unwind_space_give(s, b, 60);
        unwind_space_quiet(s); /* nobody reads: at once */
        assert_int_equal(unwind_space_take(s, 100, &a), 0);
        assert_int_equal(unwind_space_take(s, 1, &b), -ENOSPC);
        unwind_space_free(s);
}

static void test_runs_do_not_cross_borders_nor_the_usable_part(void **state)
{
        struct unwind_space *s;
        uint32_t at;

        assert_int_equal(unwind_space_new(&s, 300, 100, 100), 0);
        assert_int_equal(unwind_space_take(s, 101, &at), -ENOSPC);
        assert_int_equal(unwind_space_take(s, 70, &at), 0);
        assert_int_equal(unwind_space_take(s, 40, &at), -ENOSPC);
        unwind_space_grow(s, 200);
        assert_int_equal(unwind_space_take(s, 40, &at), 0);
        assert_int_equal(at, 100); /* not 70..110 */
        assert_int_equal(unwind_space_take(s, 30, &at), 0);
        unwind_space_free(s);
}

/* Against a plain array of owners. */
static void test_no_unit_has_two_owners(void **state)
{
        enum { N = 500, RUNS = 64 };
        struct run {
                uint32_t first, n;
        } run[RUNS] = {0};
        int owner[N];
        struct unwind_space *s;
        uint32_t used = 0;

        memset(owner, -1, sizeof(owner));
        srand(7);
        assert_int_equal(unwind_space_new(&s, N, N, 128), 0);
        for (int step = 0; step < 20000; step++) {
                int k = rand() % RUNS;
                if (run[k].n) {
                        unwind_space_give(s, run[k].first, run[k].n);
                        for (uint32_t i = 0; i < run[k].n; i++)
                                owner[run[k].first + i] = -1;
                        used -= run[k].n;
                        run[k].n = 0;
                        if (rand() % 4 == 0)
                                unwind_space_quiet(s);
                } else {
                        uint32_t n = 1 + (uint32_t)rand() % 40;
                        if (unwind_space_take(s, n, &run[k].first) < 0)
                                continue;
                        run[k].n = n;
                        used += n;
                        assert_true(run[k].first + n <= N);
                        assert_int_equal(run[k].first / 128, (run[k].first + n - 1) / 128);
                        for (uint32_t i = 0; i < n; i++) {
                                assert_int_equal(owner[run[k].first + i], -1);
                                owner[run[k].first + i] = k;
                        }
                }
                assert_int_equal(unwind_space_used(s), used);
        }
        unwind_space_free(s);
}

static void test_each_rule_has_one_number(void **state)
{
        _cleanup_free_ struct unwind_rule *rule = calloc(ABI_MAX_RULES, sizeof(*rule));
        struct unwind_rules *r;
        uint32_t budget = 100000;

        assert_int_equal(unwind_rules_new(&r, rule), 0);
        struct unwind_rule a = {.kind_fp = UNWIND_SP, .cfa_offset = 16}, b = a;
        b.aux = -2;
        uint16_t ida = unwind_rules_id(r, &a, &budget), idb = unwind_rules_id(r, &b, &budget);
        assert_true(ida >= UNWIND_RULE_FIRST);
        assert_int_not_equal(ida, idb);
        assert_int_equal(unwind_rules_id(r, &a, &budget), ida);
        assert_memory_equal(&rule[ida], &a, sizeof(a));

        /* One object's budget, then the whole dictionary: what does not fit ends a stack, marked. */
        budget = 1;
        a.cfa_offset = 24;
        assert_true(unwind_rules_id(r, &a, &budget) >= UNWIND_RULE_FIRST);
        a.cfa_offset = 32;
        assert_int_equal(unwind_rules_id(r, &a, &budget), UNWIND_UNSUPPORTED);
        budget = UINT32_MAX;
        for (int32_t i = 0; i < 70000; i++) {
                a.cfa_offset = 1000 + i;
                unwind_rules_id(r, &a, &budget);
        }
        assert_int_equal(unwind_rules_n(r), ABI_MAX_RULES);
        assert_int_equal(unwind_rules_id(r, &a, &budget), UNWIND_UNSUPPORTED);
        a.cfa_offset = 1000;
        assert_true(unwind_rules_id(r, &a, &budget) >= UNWIND_RULE_FIRST);
        unwind_rules_free(r);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                        cmocka_unit_test(test_runs_come_back_after_two_ticks),
                        cmocka_unit_test(test_runs_do_not_cross_borders_nor_the_usable_part),
                        cmocka_unit_test(test_no_unit_has_two_owners),
                        cmocka_unit_test(test_each_rule_has_one_number),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
