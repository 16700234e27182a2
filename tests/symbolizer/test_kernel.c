/* Against the kernel's own list, read here in the plainest way. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "symbolizer/kernel.h"

static void test_all_functions(void **state)
{
        struct kernel_symbols *k;
        int r = kernel_symbols_new(&k);
        char line[1024], name[512], type;
        uint64_t address;
        uint32_t n = 0, same = 0;
        struct kernel_symbol s;
        FILE *f;

        if (r == -EPERM) {
                print_message("kernel addresses are hidden from this user\n");
                skip();
        }
        assert_int_equal(r, 0);
        f = fopen("/proc/kallsyms", "r");
        assert_non_null(f);
        while (fgets(line, sizeof(line), f)) {
                if (sscanf(line, "%lx %c %511s", &address, &type, name) != 3 || !strchr("tT", type) ||
                    strncmp(name, "__pfx_", 6) == 0 || strchr(line, '[') || strstr(name, "_etext") ||
                    strstr(name, "_einittext") || strcmp(name, "_end") == 0)
                        continue;
                assert_true(kernel_symbols_find(k, address, &s));
                assert_int_equal(s.start, address);
                assert_int_equal(s.offset, 0);
                assert_string_equal(s.module, "[kernel.kallsyms]");
                same += strcmp(s.name, name) == 0;
                n++;
        }
        fclose(f);
        assert_true(n > 1000);
        assert_true(same > n * 9 / 10); /* the others are aliases */
        assert_true(kernel_symbols_find_name(k, "vfs_read", &address));
        assert_true(kernel_symbols_find(k, address + 1, &s));
        assert_false(kernel_symbols_find(k, 0, &s));
        assert_false(kernel_symbols_find(k, 0x1000, &s));
        /* other programs of this host may have loaded BPF since: then the second time finds no change */
        assert_true(kernel_symbols_refresh(k) >= 0);
        assert_int_equal(kernel_symbols_refresh(k), 0);
        kernel_symbols_free(k);
}

static void test_build_id(void **state)
{
        uint8_t id[32];
        FILE *f = fopen("/sys/kernel/notes", "r");

        if (!f)
                skip();
        fclose(f);
        assert_true(kernel_build_id(id, sizeof(id)) >= 16);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                        cmocka_unit_test(test_all_functions),
                        cmocka_unit_test(test_build_id),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
