/* Go's pprof reads our files and finds the same values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/io.h"
#include "profile/pprof.h"
#include "tests/profile/sample_profile.h"

struct top_row {
        double flat, cum;
};

/* The flat and cumulative values that `go tool pprof -top` prints for a function, in counts. */
static struct top_row find_row(const char *text, const char *function)
{
        _cleanup_free_ char *copy = strdup(text);
        char *rest = copy, *line;

        while ((line = strsep(&rest, "\n"))) {
                struct top_row row;
                char name[256];
                if (sscanf(line, " %lf %*f%% %*f%% %lf %*f%% %255[^\n]", &row.flat, &row.cum, name) == 3) {
                        char *inlined = strstr(name, " (inline)");
                        if (inlined)
                                *inlined = 0;
                        if (!strcmp(name, function))
                                return row;
                }
        }
        fail_msg("no row for %s in:\n%s", function, text);
        return (struct top_row){0};
}

static void run_top(const char *path, const char *type, struct buf *out)
{
        _cleanup_free_ char *command = NULL;

        assert_true(asprintf(&command,
                             "go tool pprof -top -nodecount=1000 -nodefraction=0 -sample_index=%s %s 2>&1",
                             type, path) > 0);
        FILE *f = popen(command, "r");
        assert_non_null(f);
        assert_int_equal(read_fd(fileno(f), 1 << 20, out), 0);
        assert_int_equal(pclose(f), 0);
}

static void test_go_agrees(void **state)
{
        static const struct {
                const char *function;
                double flat, cum;
        } want[] = {
                        {"main", 0, 47}, {"work", 30, 42},   {"outer", 0, 12},  {"inner", 12, 12},
                        {"read", 0, 5},  {"sys_read", 5, 5}, {"swapper", 1, 1},
        };
        char path[] = "/tmp/test_go_pprof.XXXXXX";
        _cleanup_close_ int fd = mkstemp(path);
        _cleanup_profile_ struct profile *p = test_new_profile();
        _cleanup_buf_ struct buf samples = {0}, cpu = {0};

        assert_true(fd >= 0);
        test_add(p, "app", 7, "main;work", 30);
        test_add(p, "app", 7, "main;work;outer+inner", 12);
        test_add(p, "db", 9, "main;read;[k]sys_read", 5);
        test_add(p, "db", 9, "[k]swapper", 1);
        p->duration_ns = 60000000000;
        assert_int_equal(pprof_write_file(p, path), 0);

        run_top(path, "samples", &samples);
        for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
                struct top_row row = find_row(buf_text(&samples), want[i].function);
                assert_true(row.flat == want[i].flat);
                assert_true(row.cum == want[i].cum);
        }
        run_top(path, "cpu", &cpu);
        assert_non_null(strstr(buf_text(&cpu), "Total samples = 480ms"));
        unlink(path);
}

int main(void)
{
        const struct CMUnitTest tests[] = {cmocka_unit_test(test_go_agrees)};

        if (system("go version >/dev/null 2>&1") != 0) {
                printf("skipped: there is no go command, install golang-go\n");
                return 77; /* meson: skipped */
        }
        return cmocka_run_group_tests(tests, NULL, NULL);
}
