/* Names of the stubs that call functions of shared objects, against what objdump calls them, in programs as
 * linkers make them. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/cleanup.h"
#include "symbol_client.h"
#include "symbolizer/plt.h"

static const char program[] =
                "#include <stdio.h>\n"
                "#include <stdlib.h>\n"
                "#include <string.h>\n"
                "void *(*volatile taken)(size_t) = malloc;\n" /* called by a stub in .plt.got */
                "int main(int argc, char **argv)\n"
                "{\n"
                "        char *p = strdup(argv[0]);\n"
                "        void *q = malloc((size_t)argc);\n"
                "        printf(\"%s %p\", p, q);\n"
                "        free(taken(8));\n"
                "        return atoi(p) + (int)strlen(p) + puts(p);\n"
                "}\n";
static const char library[] = "void ext(void);\n"
                              "int ext2(int);\n"
                              "int f(void);\n"
                              "int f(void)\n"
                              "{\n"
                              "        ext();\n"
                              "        return ext2(1) + 1;\n"
                              "}\n";

static char *dir;

/* Compiles, and compares each stub that objdump has a label for, at its beginning and within. */
static void check(const char *source, const char *compile, const char *objdump, uint32_t at_least)
{
        char path[512], command[1024], label[256];
        _cleanup_close_ int fd = -1;
        struct symbol s;
        struct elf_image *e;
        struct plt *p;
        uint64_t address;
        uint32_t n = 0;
        FILE *f;

        snprintf(path, sizeof(path), "%s/source.c", dir);
        f = fopen(path, "w");
        assert_non_null(f);
        fputs(source, f);
        fclose(f);
        free(output_of("cd %s && %s -o program source.c", dir, compile));
        snprintf(path, sizeof(path), "%s/program", dir);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        assert_int_equal(elf_image_open(fd, 0, &e), 0);
        assert_int_equal(plt_new(&p, e), 0);
        snprintf(command, sizeof(command),
                 "%s -d %s | sed -n 's/^\\([0-9a-f]*\\) <\\(.*@plt\\)>:$/\\1 \\2/p'", objdump, path);
        f = popen(command, "r");
        assert_non_null(f);
        while (fscanf(f, "%lx %255s", &address, label) == 2) {
                assert_true(plt_find(p, address, &s));
                assert_string_equal(s.name, label);
                assert_int_equal(s.start, address);
                assert_true(plt_find(p, address + 4, &s));
                assert_string_equal(s.name, label);
                n++;
        }
        assert_int_equal(pclose(f), 0);
        print_message("%s: %u stubs\n", compile, n);
        assert_true(n >= at_least);
        assert_false(plt_find(p, elf_image_entry(e), &s));
        assert_false(plt_find(p, 0, &s));
        assert_false(plt_find(p, UINT64_MAX, &s));
        plt_free(p);
        elf_image_free(e);
}

static void test_stubs(void **state)
{
        check(program, "gcc -O1 -fno-builtin -Wl,-z,lazy", "objdump", 6);
        check(program, "gcc -O1 -fno-builtin -Wl,-z,now", "objdump", 6);
        check(program, "gcc -O1 -fno-builtin -fcf-protection=full -Wl,-z,ibtplt -Wl,-z,lazy", "objdump", 6);
        check(program, "gcc -O1 -fno-builtin -no-pie -Wl,-z,lazy", "objdump", 5);
        check(program, "clang -O1 -fno-builtin -fuse-ld=lld -Wl,-z,now", "llvm-objdump", 6);
        check(library, "clang --target=aarch64-linux-gnu -O1 -fPIC -shared -nostdlib -fuse-ld=lld",
              "llvm-objdump", 2);
        check(library,
              "clang --target=aarch64-linux-gnu -mbranch-protection=bti -O1 -fPIC -shared -nostdlib "
              "-fuse-ld=lld "
              "-Wl,-z,force-bti",
              "llvm-objdump", 2);
}

/* The first of two stubs, which pushes the number of its slot. */
static void test_stub_that_pushes(void **state)
{
        char path[512];
        _cleanup_close_ int fd = -1;
        struct elf_section section;
        struct elf_image *e;
        struct symbol s;
        struct plt *p;

        snprintf(path, sizeof(path), "%s/source.c", dir);
        free(output_of("cd %s && printf '#include <stdio.h>\\nint main(void) { return puts(\"a\"); }' "
                       ">source.c && "
                       "gcc -O1 -fcf-protection=full -Wl,-z,ibtplt -Wl,-z,lazy -o program source.c",
                       dir));
        snprintf(path, sizeof(path), "%s/program", dir);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        assert_int_equal(elf_image_open(fd, 0, &e), 0);
        assert_int_equal(plt_new(&p, e), 0);
        assert_int_equal(elf_image_section(e, ".plt", &section), 0);
        assert_false(plt_find(p, section.address, &s)); /* what all of them jump to */
        assert_true(plt_find(p, section.address + 16, &s));
        assert_string_equal(s.name, "puts@plt");
        plt_free(p);
        elf_image_free(e);
}

static void test_names_of_stubs_by_the_worker(void **state)
{
        struct symclient *c = client_new(NULL);
        char path[512], *address;
        struct answer a;

        free(output_of("cd %s && printf '#include <stdio.h>\\nint main(void) { return puts(\"a\"); }' "
                       ">source.c && "
                       "gcc -O1 -Wl,-z,lazy -o program source.c && strip program",
                       dir));
        address = output_of("objdump -d %s/program | sed -n 's/^\\([0-9a-f]*\\) <puts@plt>:$/\\1/p'", dir);
        snprintf(path, sizeof(path), "%s/program", dir);
        name_in_file(c, path, NULL, strtoull(address, NULL, 16) + 6, &a);
        free(address);
        assert_int_equal(a.err, 0);
        assert_string_equal(a.function, "puts@plt");
        symclient_free(c);
}

static int setup(void **state)
{
        dir = scratch_new();
        return 0;
}

static int teardown(void **state)
{
        scratch_free(dir);
        return 0;
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                        cmocka_unit_test(test_stubs),
                        cmocka_unit_test(test_stub_that_pushes),
                        cmocka_unit_test(test_names_of_stubs_by_the_worker),
        };

        return cmocka_run_group_tests(tests, setup, teardown);
}
