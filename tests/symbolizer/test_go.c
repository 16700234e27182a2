/* Go programs without symbols and debug information, against what `go tool addr2line` says of the same
 * program with them: stripping moves no code. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/cleanup.h"
#include "symbol_client.h"

static const char program[] = "package main\n"
                              "import (\"fmt\"; \"os\"; \"sort\"; \"strings\")\n"
                              "//go:noinline\n"
                              "func hot(n int) int {\n"
                              "\ts := 0\n"
                              "\tfor i := 0; i < n; i++ {\n"
                              "\t\ts += i * i % 7\n"
                              "\t}\n"
                              "\treturn s\n"
                              "}\n"
                              "func main() {\n"
                              "\tx := strings.Fields(strings.Repeat(\"b a \", len(os.Args)))\n"
                              "\tsort.Strings(x)\n"
                              "\tfmt.Println(x, hot(len(x)))\n"
                              "}\n";

/* What the program is asked for: addresses, functions and places, a line each. */
static const char by_addr2line[] =
                "go tool nm -size full | awk '$3 ~ /^[tT]$/ && $2 > 40 && $4 ~ /\\./ { print $1 }' | "
                "while read a; do echo 0x$a; printf '0x%x\\n' $((0x$a + 33)); done > list && "
                "go tool addr2line full < list | paste - - | paste -d ' ' list -";
/* Go 1.19's addr2line reads no position-independent programs; nm knows their functions. */
static const char by_nm[] =
                "nm -S full | awk '$3 ~ /^[tT]$/ && $2 > \"0000000000000028\" && $4 ~ /^main[.]|^fmt[.]/ "
                "{ print \"0x\" $1, $4, \"?:0\" }'";

static void compare(const char *dir, const char *mode, const char *list, uint32_t at_least)
{
        struct symclient *c = client_new(NULL);
        struct answer opened = {};
        char path[512], command[1024], function[512], place[1024];
        uint32_t n = 0, same = 0, same_line = 0;
        uint64_t address;
        struct symobj *o;
        FILE *f;

        free(output_of("cd %s && export GOCACHE=${GOCACHE:-${HOME:-%s}/.cache/go-build} && "
                       "go build -buildmode=%s -o full main.go && "
                       "go build -buildmode=%s -ldflags='-s -w' -o bare main.go",
                       dir, dir, mode, mode));
        snprintf(path, sizeof(path), "%s/bare", dir);
        o = open_path(c, path, NULL, &opened);
        snprintf(command, sizeof(command), "cd %s && %s", dir, list);
        f = popen(command, "r");
        assert_non_null(f);
        while (fscanf(f, "%lx %511s %1023s", &address, function, place) == 3) {
                struct answer a;
                char *colon = strrchr(place, ':');

                if (strcmp(function, "?") == 0 || !colon)
                        continue;
                *colon = 0;
                ask_one(c, o, address, &a);
                n++;
                same += strcmp(a.function, function) == 0;
                same_line += strcmp(place, "?") == 0 ||
                             (strcmp(a.file, place) == 0 && a.line == (uint32_t)atoi(colon + 1));
        }
        assert_int_equal(pclose(f), 0);
        print_message("%s: of %u addresses %u functions and %u lines are the same\n", mode, n, same,
                      same_line);
        assert_true(n >= at_least);
        assert_int_equal(same, n);
        assert_int_equal(same_line, n);
        symobj_close(c, o);
        symclient_free(c);
}

static void test_stripped_programs(void **state)
{
        char *dir, path[512];
        FILE *f;

        if (system("go version >/dev/null 2>&1") != 0) {
                print_message("there is no Go on this machine\n");
                skip();
        }
        dir = scratch_new();
        snprintf(path, sizeof(path), "%s/main.go", dir);
        f = fopen(path, "w");
        assert_non_null(f);
        fputs(program, f);
        fclose(f);
        compare(dir, "exe", by_addr2line, 1000);
        compare(dir, "pie", by_nm, 20);
        scratch_free(dir);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                        cmocka_unit_test(test_stripped_programs),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
