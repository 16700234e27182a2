/* Go programs without symbols and debug information, against what `go tool addr2line` and, of inlined calls,
 * llvm-symbolizer say of the same program with them: stripping moves no code. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/cleanup.h"
#include "cfi_image.h"
#include "symbol_client.h"
#include "symbolizer/gopclntab.h"

static const char program[] = "package main\n"
                              "import (\"fmt\"; \"os\"; \"sort\"; \"strings\")\n"
                              "func square(n int) int { return n * n }\n"
                              "func mix(n int) int { return square(n) % 7 + square(n + 1) }\n"
                              "//go:noinline\n"
                              "func hot(n int) int {\n"
                              "\ts := 0\n"
                              "\tfor i := 0; i < n; i++ {\n"
                              "\t\ts += mix(i)\n"
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

/* The function that holds the code, and the place of the address itself, as go tool addr2line has them. */
struct place {
        char function[512], file[512];
        uint32_t line;
};

static void answer_place(void *ctx, int err, const struct sym_result *results, uint32_t n)
{
        struct place *p = ctx;

        *p = (struct place){};
        if (err < 0 || n != 1 || results->n == 0)
                return;
        snprintf(p->function, sizeof(p->function), "%s", results->frame[results->n - 1].function);
        snprintf(p->file, sizeof(p->file), "%s", results->frame[0].file ? results->frame[0].file : "?");
        p->line = results->frame[0].line;
}

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
                struct place a;
                char *colon = strrchr(place, ':');

                if (strcmp(function, "?") == 0 || !colon)
                        continue;
                *colon = 0;
                assert_int_equal(symclient_names(c, o, &address, 1, answer_place, &a), 0);
                assert_int_equal(symclient_wait(c, SOON_MS), 0);
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

/* A chain as "function file:line<function file:line", innermost first. */
struct chain {
        char text[8192];
        uint32_t n;
};

static void add_to_chain(struct chain *c, const char *function, const char *file, uint32_t line)
{
        size_t at = strlen(c->text);

        snprintf(c->text + at, sizeof(c->text) - at, "%s%s %s:%u", c->n ? "<" : "", function, file, line);
        c->n++;
}

static void answer_chain(void *ctx, int err, const struct sym_result *results, uint32_t n)
{
        struct chain *c = ctx;

        *c = (struct chain){};
        for (uint32_t i = 0; err == 0 && n == 1 && i < results->n; i++)
                add_to_chain(c, results->frame[i].function,
                             results->frame[i].file ? results->frame[i].file : "?", results->frame[i].line);
}

/* Reads one address's block of llvm-symbolizer, whose first line the last call has read. */
static bool read_block(FILE *f, char line[4096], uint64_t *ret_address, struct chain *ret)
{
        char function[4096];

        *ret = (struct chain){};
        if (strncmp(line, "0x", 2) != 0)
                return false;
        *ret_address = strtoull(line, NULL, 16);
        while (fgets(function, sizeof(function), f) && strncmp(function, "0x", 2) != 0) {
                char *colon;

                assert_non_null(fgets(line, 4096, f));
                colon = strrchr(line, ':');
                assert_non_null(colon);
                *colon = 0;
                function[strcspn(function, "\n")] = 0;
                add_to_chain(ret, function, line, (uint32_t)atoi(colon + 1));
                function[0] = 0;
        }
        strcpy(line, function); /* the next one's */
        return true;
}

/* What the table cannot be asked to agree in: names with a type's brackets, which it leaves out; padding,
 * and what is inlined into functions that the compiler has made, of which the debug information says
 * nothing. */
static bool is_comparable(const struct chain *theirs, const struct chain *ours)
{
        return !strchr(theirs->text, '[') && !strstr(theirs->text, "?") && theirs->n > 0 &&
               !strstr(theirs->text, ".abi0") && !strstr(ours->text, "<autogenerated>");
}

static void compare_inlined(const char *dir)
{
        struct symclient *c = client_new(NULL);
        struct answer opened = {};
        char path[512], command[1024], line[4096];
        uint32_t n = 0, same = 0, inlined = 0;
        struct chain theirs, ours;
        uint64_t address;
        struct symobj *o;
        FILE *f;

        snprintf(path, sizeof(path), "%s/bare", dir);
        o = open_path(c, path, NULL, &opened);
        snprintf(command, sizeof(command),
                 "cd %s && readelf -SW full | sed -n 's/.*\\] \\.text *PROGBITS *//p' | { read a o s x; "
                 "seq $((0x$a)) 101 $((0x$a + 0x$s)); } | xargs printf '0x%%x\\n' | "
                 "llvm-symbolizer -f -i -a --no-demangle --output-style=GNU -e full",
                 dir);
        f = popen(command, "r");
        assert_non_null(f);
        assert_non_null(fgets(line, sizeof(line), f));
        while (read_block(f, line, &address, &theirs)) {
                assert_int_equal(symclient_names(c, o, &address, 1, answer_chain, &ours), 0);
                assert_int_equal(symclient_wait(c, SOON_MS), 0);
                if (!is_comparable(&theirs, &ours))
                        continue;
                n++;
                inlined += theirs.n > 1;
                same += strcmp(theirs.text, ours.text) == 0;
                if (strcmp(theirs.text, ours.text) != 0)
                        print_message("0x%lx: %s, not %s\n", address, ours.text, theirs.text);
        }
        assert_int_equal(pclose(f), 0);
        print_message("of %u chains, %u with inlined calls, %u are the same\n", n, inlined, same);
        assert_true(n > 1000 && inlined > 200);
        assert_true(same >= n - n / 200);
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
        compare_inlined(dir);
        compare(dir, "pie", by_nm, 20);
        compare_inlined(dir);
        scratch_free(dir);
}

/* -- tables as other versions write them, made by hand -- */

enum version { GO_1_16, GO_1_18, GO_1_20, GO_1_26, GO_VERSIONS };

#define TREE   8          /* of the inlined calls in functions' data */
#define GOFUNC IMAGE_DATA /* of that data, which takes up to 48 bytes */
#define TABLE  (IMAGE_DATA + 48)

static void put(struct buf *b, uint64_t v, size_t n)
{
        buf_add(b, &v, n);
}

static uint32_t put_text(struct buf *b, const char *s)
{
        uint32_t at = (uint32_t)b->len;

        buf_add(b, s, strlen(s) + 1);
        return at;
}

struct step {
        int value;
        uint8_t size; /* bytes of code */
};

/* Differences of values with the sign in the lowest bit, and of addresses; all small enough for one byte. */
static uint32_t put_values(struct buf *b, const struct step *s)
{
        uint32_t at = (uint32_t)b->len;
        int last = -1;

        for (; s->size; last = s->value, s++) {
                int d = s->value - last;

                put(b, (uint64_t)(d < 0 ? -2 * d - 1 : 2 * d), 1);
                put(b, s->size, 1);
        }
        put(b, 0, 1);
        return at;
}

/* main.f of 64 bytes: from 16 to 32 main.g is inlined, and from 24 to 28 main.h into that. */
static const struct step lines[] = {{10, 16}, {40, 8}, {60, 4}, {41, 4}, {12, 32}, {}};
static const struct step files[] = {{0, 64}, {}};
static const struct step calls[] = {{-1, 16}, {0, 8}, {1, 4}, {0, 4}, {-1, 32}, {}};
#define PLACE_OF_G 36 /* instructions of the callers at the lines of the calls */
#define PLACE_OF_H 30

static void put_call(struct buf *b, enum version v, uint32_t name, uint32_t line, uint32_t place)
{
        if (v >= GO_1_20) {
                put(b, 0, 4); /* kind of function */
        } else {
                put(b, 0, 4); /* parent, kind of function */
                put(b, 0, 8); /* file and line of the call */
        }
        put(b, name, 4);
        put(b, place, 4);
        if (v >= GO_1_20)
                put(b, line, 4);
}

static void put_function(struct buf *b, enum version v, uint32_t name, const uint32_t table[3])
{
        put(b, v == GO_1_16 ? IMAGE_TEXT : 0, v == GO_1_16 ? 8 : 4);
        put(b, name, 4);
        put(b, 0, 8);        /* arguments, defer */
        put(b, 0, 4);        /* stack */
        put(b, table[0], 4); /* files */
        put(b, table[1], 4); /* lines */
        put(b, 3, 4);        /* tables of values */
        put(b, 0, 4);        /* unit */
        if (v >= GO_1_20)
                put(b, 9, 4); /* line of the function */
        put(b, 4u << 24, 4);  /* pieces of data */
        put(b, 0, 8);         /* tables of values that nobody reads */
        put(b, table[2], 4);  /* inlined calls */
        while (v == GO_1_16 && b->len % 8)
                put(b, 0, 1);
        for (int i = 0; i < 3; i++)
                put(b, v == GO_1_16 ? 0 : UINT32_MAX, v == GO_1_16 ? 8 : 4);
        put(b, v == GO_1_16 ? GOFUNC + TREE : TREE, v == GO_1_16 ? 8 : 4);
}

/* The header and five parts; where the names begin in *ret_names. */
static void put_table(struct buf *b, enum version v, struct buf *tree, uint64_t *ret_names)
{
        static const uint32_t magic[] = {0xfffffffa, 0xfffffff0, 0xfffffff1, 0xfffffff1};
        size_t word = v == GO_1_16 ? 8 : 4;
        struct buf part[5] = {};
        uint32_t f, g, h, table[3];
        uint64_t at = v == GO_1_16 ? 64 : 72;

        put_text(&part[0], "");
        f = put_text(&part[0], "main.f");
        g = put_text(&part[0], "main.g");
        h = put_text(&part[0], "main.h");
        put(&part[1], 1, 4); /* files of the unit: the second byte of the names */
        put_text(&part[2], "");
        put_text(&part[2], "/src/main.go");
        put(&part[3], 0, 1);
        table[0] = put_values(&part[3], files);
        table[1] = put_values(&part[3], lines);
        table[2] = put_values(&part[3], calls);
        /* One function and the end of the last, then its record. */
        put(&part[4], v == GO_1_16 ? IMAGE_TEXT : 0, word);
        put(&part[4], 4 * word, word);
        put(&part[4], v == GO_1_16 ? IMAGE_TEXT + 64 : 64, word);
        put(&part[4], 0, word);
        put_function(&part[4], v, f, table);
        put(tree, 0, TREE);
        put_call(tree, v, g, 39, PLACE_OF_G);
        put_call(tree, v, h, 59, PLACE_OF_H);

        put(b, magic[v], 4);
        put(b, 0, 2);
        put(b, 1, 1); /* bytes of an instruction's unit */
        put(b, 8, 1); /* of a pointer */
        put(b, 1, 8); /* functions */
        put(b, 1, 8); /* files */
        if (v != GO_1_16)
                put(b, v == GO_1_26 ? 0 : IMAGE_TEXT, 8);
        *ret_names = at;
        for (int i = 0; i < 5; i++) {
                put(b, at, 8);
                at += (part[i].len + 7) & ~(size_t)7;
        }
        for (int i = 0; i < 5; i++) {
                buf_add(b, part[i].data, part[i].len);
                while (b->len % 8)
                        put(b, 0, 1);
                buf_free(&part[i]);
        }
}

static void put_module(struct buf *b, enum version v, uint64_t names, uint64_t table_size)
{
        put(b, 1, 8); /* something else before it */
        for (int i = 0; i < 52; i++) {
                uint64_t word = 0x1000 + (uint64_t)i;

                if (i == 0)
                        word = TABLE;
                else if (i == 1)
                        word = TABLE + names;
                else if (i == 22)
                        word = IMAGE_TEXT;
                else if (i == (v == GO_1_18 ? 38 : 40))
                        word = GOFUNC;
                else if (i == 41 && v == GO_1_26)
                        word = TABLE + table_size;
                put(b, word, 8);
        }
}

static void make_program(struct buf *out, enum version v)
{
        struct buf table = {}, module = {}, tree = {};
        uint64_t names;

        put_table(&table, v, &tree, &names);
        put_module(&module, v, names, table.len);
        struct image_section section[] = {
                        {".rodata", 0, tree.data, tree.len, 0},
                        {".gopclntab", 0, table.data, table.len, 0},
                        {v == GO_1_26 ? ".go.module" : ".noptrdata", 0, module.data, module.len, 0},
        };
        image_make(out, &(struct image_options){}, section, ARRAY_SIZE(section));
        buf_free(&table);
        buf_free(&module);
        buf_free(&tree);
}

static void test_tables_of_all_versions(void **state)
{
        static const struct {
                uint64_t at;
                uint32_t n;
                const char *chain;
        } expected[] = {
                        {0, 1, "main.f /src/main.go:10"},
                        {17, 2, "main.g /src/main.go:40<main.f /src/main.go:12"},
                        {25, 3, "main.h /src/main.go:60<main.g /src/main.go:41<main.f /src/main.go:12"},
                        {31, 2, "main.g /src/main.go:41<main.f /src/main.go:12"},
                        {63, 1, "main.f /src/main.go:12"},
                        {64, 0, ""},
        };

        for (enum version v = 0; v < GO_VERSIONS; v++) {
                struct buf file = {};
                struct elf_image *e;
                struct gopclntab *t;

                make_program(&file, v);
                assert_int_equal(elf_image_from_memory(file.data, file.len, 0, &e), 0);
                assert_int_equal(gopclntab_new(&t, e), 0);
                for (size_t i = 0; i < ARRAY_SIZE(expected); i++) {
                        struct go_frame f[8];
                        struct chain c = {};
                        uint32_t n = gopclntab_find(t, IMAGE_TEXT + expected[i].at, f, ARRAY_SIZE(f));

                        for (uint32_t k = 0; k < n; k++)
                                add_to_chain(&c, f[k].name, f[k].file, f[k].line);
                        assert_string_equal(c.text, expected[i].chain);
                        assert_int_equal(n, expected[i].n);
                        if (n == 3 && v >= GO_1_20) {
                                assert_int_equal(f[0].function_line, 59);
                                assert_int_equal(f[1].function_line, 39);
                                assert_int_equal(f[2].function_line, 9);
                                /* The outermost and the innermost ones stay. */
                                assert_int_equal(gopclntab_find(t, IMAGE_TEXT + 25, f, 2), 2);
                                assert_string_equal(f[0].name, "main.h");
                                assert_string_equal(f[1].name, "main.f");
                        }
                }
                gopclntab_free(t);
                elf_image_free(e);
                buf_free(&file);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                        cmocka_unit_test(test_tables_of_all_versions),
                        cmocka_unit_test(test_stripped_programs),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
