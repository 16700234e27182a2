/* aliases.S says what is where; of a whole program, nm does. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/cleanup.h"
#include "symbolizer/demangle.h"
#include "symbolizer/symtab.h"

static struct elf_image *open_image(const char *path)
{
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
        struct elf_image *e;

        assert_true(fd >= 0);
        assert_int_equal(elf_image_open(fd, 0, &e), 0);
        return e;
}

static uint64_t address_of(const struct symtab *t, const char *name)
{
        struct symbol s;
        uint32_t at = 0;

        assert_true(symtab_find_name(t, name, &at, &s));
        return s.start;
}

static void assert_named(const struct symtab *t, uint64_t address, const char *name, uint64_t start,
                         uint64_t size)
{
        struct symbol s;

        assert_true(symtab_find(t, address, &s));
        assert_string_equal(s.name, name);
        assert_int_equal(s.start, start);
        assert_int_equal(s.size, size);
}

static void test_aliases_and_nesting(void **state)
{
        struct elf_image *e = open_image(ALIASES_PATH);
        struct symtab *t;
        struct symbol s;

        assert_int_equal(symtab_new(&t, &e, 1), 0);

        uint64_t call = address_of(t, "call");

        assert_named(t, call, "call", call, 32);
        assert_named(t, call + 31, "call", call, 32);
        assert_false(symtab_find(t, call + 32, &s)); /* not the neighbour's */

        uint64_t outer = call + 64;

        assert_named(t, outer, "outer", outer, 64);
        assert_named(t, outer + 15, "outer", outer, 64);
        assert_named(t, outer + 16, "inner", outer + 16, 8);
        assert_named(t, outer + 24, "outer", outer, 64);
        assert_named(t, outer + 39, "outer", outer, 64);
        assert_named(t, outer + 47, "inner2", outer + 40, 8);
        assert_named(t, outer + 48, "outer", outer, 64);
        assert_named(t, outer + 63, "outer", outer, 64);

        /* Without a size it names nothing, until somebody knows the function's bounds. */
        assert_false(symtab_find(t, outer + 64, &s));
        assert_true(symtab_find_label(t, outer + 64, outer + 70, &s));
        assert_string_equal(s.name, "bare");
        assert_false(symtab_find_label(t, outer + 65, outer + 70, &s));
        assert_false(symtab_find(t, 0, &s));
        assert_false(symtab_find(t, UINT64_MAX, &s));
        symtab_free(t);
        elf_image_free(e);
}

/* Every function that nm lists with a size is found at its first and last byte: by a symbol that starts
 * where nm says some symbol does. */
static void test_all_that_nm_lists(void **state)
{
        struct elf_image *e = open_image("/proc/self/exe");
        _cleanup_free_ char *command = NULL;
        char line[4096], type;
        uint64_t start, size;
        struct symtab *t;
        struct symbol s;
        uint32_t n = 0;
        FILE *f;

        assert_int_equal(symtab_new(&t, &e, 1), 0);
        assert_true(asprintf(&command, "nm -S --defined-only /proc/%d/exe", getpid()) > 0);
        f = popen(command, "r");
        assert_non_null(f);
        while (fgets(line, sizeof(line), f)) {
                if (sscanf(line, "%lx %lx %c", &start, &size, &type) != 3 || !strchr("tTwW", type) || !size)
                        continue;
                assert_true(symtab_find(t, start, &s));
                assert_int_equal(s.start, start);
                assert_true(symtab_find(t, start + size - 1, &s));
                n++;
        }
        assert_int_equal(pclose(f), 0);
        assert_true(n > 20);
        symtab_free(t);
        elf_image_free(e);
}

static void assert_demangled(const char *linkage, const char *want)
{
        char got[DEMANGLE_MAX];

        assert_true(demangle(linkage, got));
        assert_string_equal(got, want);
}

static void test_demangle(void **state)
{
        char got[DEMANGLE_MAX];

        assert_demangled("_ZNSt6vectorIiSaIiEE9push_backERKi",
                         "std::vector<int, std::allocator<int> >::push_back(int const&)");
        assert_demangled("_Z3foov.cold", "foo() [clone .cold]");
        assert_demangled("_Z3foov.constprop.0", "foo() [clone .constprop.0]");
        assert_demangled("_Z3foov.llvm.1234", "foo() [clone .llvm.1234]");
        assert_demangled("_Z3foov.0", "foo() [clone .0]");
        /* RFC 2603 and rustc's test suite */
        assert_demangled("_RNvC6_123foo3bar", "123foo::bar");
        assert_demangled("_RNvC6_123foo3bar.llvm.9D1C9369", "123foo::bar.llvm.9D1C9369");
        assert_demangled("_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write");
        assert_demangled("_ZN4core3fmt5write17h0123456789abcdefE.llvm.42", "core::fmt::write.llvm.42");
        assert_demangled("_ZN42_$LT$$RF$T$u20$as$u20$core..fmt..Debug$GT$3fmt17h0123456789abcdefE",
                         "<&T as core::fmt::Debug>::fmt");
        /* no hash: C++ */
        assert_demangled("_ZN3foo3barEv", "foo::bar()");
        assert_demangled("_ZN3foo3barEv@plt", "foo::bar()@plt");
        /* libiberty's test suite */
        assert_demangled("_Dmain", "D main");
        assert_demangled("_D8demangle4testFaZv", "demangle.test(char)");
        assert_demangled("_D8demangle4testFAiZv", "demangle.test(int[])");
        assert_demangled("_D8demangle9anonymous3fooZ", "demangle.anonymous.foo");
        assert_demangled("_D8demangle4testFaZv.part.0", "demangle.test(char).part.0");
        assert_false(demangle("_DYNAMIC", got));
        assert_false(demangle("_D", got));
        assert_false(demangle("write@plt", got));
        assert_false(demangle("main", got));
        assert_false(demangle("_Z", got));
        assert_false(demangle("", got));
}

static char *base62(char *p, size_t n)
{
        static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

        if (n >= 62)
                p = base62(p, n / 62);
        *p++ = digits[n % 62];
        *p = 0;
        return p;
}

/* Names that double with every step: 2^25 to 2^30 characters when written out. What fits is shown. */
static void test_names_that_explode(void **state)
{
        static const char base36[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
        char name[1024], got[DEMANGLE_MAX], *p, *tuple;

        /* pair<T, T> of pair<T, T> of ..., each by a substitution of the one before */
        p = stpcpy(name, "_Z1fSt4pairIiiE");
        for (int i = 0; i < 30; i++)
                p += sprintf(p, "S_IS%c_S%c_E", base36[i], base36[i]);
        assert_true(demangle(name, got));
        assert_int_equal(strlen(got), DEMANGLE_MAX - 1);
        assert_string_equal(got + DEMANGLE_MAX - 4, "...");

        /* The same with tuples and backward references, which count bytes from behind "_R". */
        p = stpcpy(name, "_RIC1a");
        tuple = p;
        p = stpcpy(p, "TmmE");
        for (int i = 0; i < 24; i++) {
                char reference[16] = "B";
                size_t at = (size_t)(tuple - name - 2);

                strcpy(base62(reference + 1, at - 1), "_");
                tuple = p;
                p += sprintf(p, "T%s%sE", reference, reference);
        }
        strcpy(p, "E");
        assert_true(demangle(name, got));
        assert_string_equal(got + DEMANGLE_MAX - 4, "...");
}

/* Functions of maps of types to the same types, of maps ..., in D; libiberty writes such a name out whole.
 * Real names have as many references, but not to each other. */
static void test_d_names_that_explode(void **state)
{
        char name[1024], got[DEMANGLE_MAX], *p = stpcpy(name, "_D1aFi");
        size_t last = (size_t)(p - name) - 1;

        for (int i = 0; i < 60; i++) {
                size_t here = (size_t)(p - name);

                *p++ = 'H';
                for (int k = 0; k < 2; k++) {
                        size_t distance = (size_t)(p - name) - last;

                        *p++ = 'Q';
                        *p++ = (char)('a' + distance);
                }
                last = here;
                strcpy(p, "Zv");
                if (demangle(name, got))
                        assert_true(strncmp(got, "a(int, ", 7) == 0);
                else
                        assert_true(i > 6);
        }
        assert_false(demangle(name, got));
}

static void test_names_that_nest(void **state)
{
        _cleanup_free_ char *pointers = malloc(300001);
        char got[DEMANGLE_MAX];

        assert_non_null(pointers);
        memset(pointers, 'P', 300000);
        memcpy(pointers, "_Z1f", 4);
        for (size_t n = 300000; n > 1000; n /= 3) {
                pointers[n - 1] = 'i';
                pointers[n] = 0;
                if (demangle(pointers, got))
                        assert_true(strncmp(got, "f(int*****", 10) == 0);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                        cmocka_unit_test(test_aliases_and_nesting),
                        cmocka_unit_test(test_all_that_nm_lists),
                        cmocka_unit_test(test_demangle),
                        cmocka_unit_test(test_names_that_explode),
                        cmocka_unit_test(test_d_names_that_explode),
                        cmocka_unit_test(test_names_that_nest),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
