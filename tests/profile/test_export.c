#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/buf.h"
#include "profile/export.h"
#include "profile/flamegraph.h"
#include "tests/profile/sample_profile.h"

static struct profile *make_profile(void)
{
        struct profile *p = test_new_profile();

        test_add(p, "app", 7, "main;work", 3);
        test_add(p, "app", 8, "main;work", 1); /* another process of the same name */
        test_add(p, "app", 7, "main;work;outer+inner", 2);
        test_add(p, "a;b", 9, "main;read;[k]sys_read", 5);
        test_add(p, "app", 7, "main;fib;fib", 1);
        p->time_ns = 1764554400000000000;
        p->duration_ns = 60000000000;
        return p;
}

static void export_as(enum export_format f, const struct profile *p, const struct export_options *o,
                      struct buf *out)
{
        assert_int_equal(export_profile(f, p, o, out), 0);
}

static void test_folded(void **state)
{
        _cleanup_profile_ struct profile *p = make_profile();
        _cleanup_buf_ struct buf b = {0}, ns = {0};

        export_as(EXPORT_FOLDED, p, &(struct export_options){.type = 0}, &b);
        assert_string_equal(buf_text(&b), "a:b;main;read;sys_read_[k] 5\n"
                                          "app;main;fib;fib 1\n"
                                          "app;main;work 4\n"
                                          "app;main;work;outer;inner_[i] 2\n");
        export_as(EXPORT_FOLDED, p, &(struct export_options){.type = 1, .no_inline = true}, &ns);
        assert_non_null(strstr(buf_text(&ns), "app;main;work;outer 20000000\n"));
}

/* Reads records by the rules of stackcollapse-perf.pl: the event's line begins without a blank, its name is
 * what is before " pid"; a frame is "address name (object)"; an empty line ends a record. */
static unsigned count_stack(const char *text, const char *comm, const char *folded)
{
        _cleanup_free_ char *copy = strdup(text);
        char *rest = copy, *line, name[64] = "", stack[512] = "", function[256], object[256];
        unsigned n = 0, pid, tid;
        unsigned long long address;

        while ((line = strsep(&rest, "\n"))) {
                if (!*line) {
                        n += !strcmp(name, comm) && !strcmp(stack, folded);
                        *stack = *name = 0;
                } else if (*line != '\t') {
                        assert_int_equal(sscanf(line, "%63s %u/%u", name, &pid, &tid), 3);
                } else {
                        assert_int_equal(sscanf(line, " %llx %255s (%255[^)])", &address, function, object),
                                         3);
                        char longer[1024];
                        snprintf(longer, sizeof(longer), "%s%s%s", function, *stack ? ";" : "", stack);
                        snprintf(stack, sizeof(stack), "%.511s", longer);
                }
        }
        return n;
}

static void test_perf_script_has_one_record_a_sample(void **state)
{
        _cleanup_profile_ struct profile *p = make_profile();
        _cleanup_buf_ struct buf b = {0};

        export_as(EXPORT_PERF_SCRIPT, p, &(struct export_options){.type = 1}, &b);
        assert_int_equal(count_stack(buf_text(&b), "app", "main;work"), 4);
        assert_int_equal(count_stack(buf_text(&b), "app", "main;work;outer;inner"), 2);
        assert_int_equal(count_stack(buf_text(&b), "a;b", "main;read;sys_read"), 5);
        assert_non_null(strstr(buf_text(&b), " inner (inlined)\n"));
        assert_non_null(strstr(buf_text(&b), " sys_read ([kernel.kallsyms])\n"));
        assert_non_null(strstr(buf_text(&b), ":   10000000 cpu: \n"));
        /* Times are in order and within the profile's. */
        double last = 0;
        for (const char *at = buf_text(&b); (at = strstr(at, " [000] ")); at++) {
                double t = strtod(at + 7, NULL);
                assert_true(t >= last && t >= 1764554400 && t <= 1764554460);
                last = t;
        }
}

static void test_speedscope(void **state)
{
        _cleanup_profile_ struct profile *p = make_profile();
        _cleanup_buf_ struct buf b = {0};

        export_as(EXPORT_SPEEDSCOPE, p, &(struct export_options){.type = 1, .title = "x"}, &b);
        const char *t = buf_text(&b);
        assert_non_null(strstr(t, "\"$schema\":\"https://www.speedscope.app/file-format-schema.json\""));
        assert_non_null(strstr(
                        t, "\"type\":\"sampled\",\"name\":\"cpu\",\"unit\":\"nanoseconds\",\"startValue\":0,"
                           "\"endValue\":120000000,"));
        assert_non_null(strstr(t, "{\"name\":\"inner\",\"file\":\"main.c\",\"line\":10}"));
        assert_non_null(strstr(t, "\"weights\":[40000000,20000000,50000000,10000000]"));
}

/* The value that callgrind's rules give: the number behind the line number on a cost line within `fn`. */
static long own_cost(const char *text, const char *function)
{
        _cleanup_free_ char *copy = strdup(text);
        char *rest = copy, *line, id[32] = "", key[300];
        bool within = false, is_call = false;
        long sum = 0, cost;

        snprintf(key, sizeof(key), ") %s", function);
        while ((line = strsep(&rest, "\n"))) { /* the name is said once: find its number */
                char *name = strstr(line, key);
                char *end = strchr(line, ')');
                if (name && end && !name[strlen(key)] &&
                    (!strncmp(line, "fn=", 3) || !strncmp(line, "cfn=", 4)))
                        snprintf(id, sizeof(id), "fn=%.*s", (int)(end - strchr(line, '(') + 1),
                                 strchr(line, '('));
        }
        assert_true(*id);
        _cleanup_free_ char *again = strdup(text);
        for (rest = again; (line = strsep(&rest, "\n"));) {
                if (!strncmp(line, "fn=", 3))
                        within = !strncmp(line, id, strlen(id));
                else if (!strncmp(line, "calls=", 6))
                        is_call = true;
                else if (*line >= '0' && *line <= '9' && sscanf(line, "%*d %ld", &cost) == 1) {
                        sum += within && !is_call ? cost : 0;
                        is_call = false;
                }
        }
        return sum;
}

static void test_callgrind(void **state)
{
        _cleanup_profile_ struct profile *p = make_profile();
        _cleanup_buf_ struct buf b = {0};

        export_as(EXPORT_CALLGRIND, p, &(struct export_options){.type = 0}, &b);
        const char *t = buf_text(&b);
        assert_int_equal(own_cost(t, "work"), 4);
        assert_int_equal(own_cost(t, "inner"), 2);
        assert_int_equal(own_cost(t, "outer"), 0);
        assert_int_equal(own_cost(t, "sys_read"), 5);
        assert_int_equal(own_cost(t, "fib"), 1);
        assert_non_null(strstr(t, "positions: line\n"));
        assert_non_null(strstr(t, "events: samples\nsummary: 12\n"));
        assert_non_null(strstr(t, "calls=6 0\n10 6\n")); /* main calls work */
}

static void test_json(void **state)
{
        _cleanup_profile_ struct profile *p = test_new_profile();
        _cleanup_buf_ struct buf b = {0};

        test_add(p, "app", 7, "main", 3);
        export_as(EXPORT_JSON, p, &(struct export_options){.type = 0}, &b);
        assert_non_null(strstr(buf_text(&b), "\"types\":[{\"type\":\"samples\",\"unit\":\"count\"},"
                                             "{\"type\":\"cpu\",\"unit\":\"nanoseconds\"}]"));
        assert_non_null(strstr(buf_text(&b), "\"samples\":[{\"stack\":[0],\"values\":[3,30000000],"
                                             "\"labels\":{\"comm\":\"app\",\"pid\":7}}]"));
        assert_non_null(strstr(buf_text(&b),
                               "\"file\":\"main.c\",\"line\":10,\"inlined\":false,\"kernel\":false"));
}

static void test_flamegraph_page_holds_any_name(void **state)
{
        _cleanup_profile_ struct profile *p = test_new_profile(), *before = test_new_profile();
        _cleanup_buf_ struct buf b = {0}, d = {0};

        test_add(p, "</script><b>", 7, "main;vector<int>", 3);
        test_add(before, "app", 7, "main", 1);
        export_as(EXPORT_FLAMEGRAPH, p, &(struct export_options){.type = 0, .title = "t"}, &b);
        const char *data = strstr(buf_text(&b), "id=\"data\">");
        assert_non_null(data);
        data += strlen("id=\"data\">");
        const char *end = strchr(data, '<'); /* the first one ends the data's element */
        assert_memory_equal(end, "</script>\n", 10);
        assert_non_null(strstr(data, "\"\\u003c/script>\\u003cb>\""));
        assert_non_null(strstr(data, "\"level\":[0,1,2,3],"));
        assert_non_null(strstr(data, "\"value\":[3,3,3,3],\"rest\":[]"));
        assert_null(strstr(buf_text(&b), "://")); /* nothing is loaded from anywhere */
        assert_null(strstr(buf_text(&b), " src="));
        assert_int_equal(flamegraph_write(p, before, &(struct export_options){.type = 0}, &d), 0);
        assert_non_null(strstr(buf_text(&d), "\"valueBefore\":[1,"));
}

static void test_format_names(void **state)
{
        static const struct {
                const char *path;
                int result;
                enum export_format format;
        } cases[] = {
                        {"a.pb.gz", 0, EXPORT_PPROF},      {"/x.y/a.folded", 0, EXPORT_FOLDED},
                        {"a.json", 0, EXPORT_JSON},        {"a.speedscope.json", 0, EXPORT_SPEEDSCOPE},
                        {"a.html", 0, EXPORT_FLAMEGRAPH},  {"d/callgrind.out.7", 0, EXPORT_CALLGRIND},
                        {"a.perf", 0, EXPORT_PERF_SCRIPT}, {"a.txt", -EINVAL, 0},
                        {"a.json/b", -EINVAL, 0},          {".json", -EINVAL, 0},
        };
        enum export_format f;

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                f = EXPORT_PPROF;
                assert_int_equal(export_format_by_path(cases[i].path, &f), cases[i].result);
                if (cases[i].result == 0)
                        assert_int_equal(f, cases[i].format);
        }
        for (int i = 0; i < EXPORT_FORMATS; i++) {
                assert_int_equal(export_format_by_name(export_format_name((enum export_format)i), &f), 0);
                assert_int_equal(f, i);
        }
        assert_int_equal(export_format_by_name("svg", &f), -EINVAL);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                        cmocka_unit_test(test_folded),
                        cmocka_unit_test(test_perf_script_has_one_record_a_sample),
                        cmocka_unit_test(test_speedscope),
                        cmocka_unit_test(test_callgrind),
                        cmocka_unit_test(test_json),
                        cmocka_unit_test(test_flamegraph_page_holds_any_name),
                        cmocka_unit_test(test_format_names),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
