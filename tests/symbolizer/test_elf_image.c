/* Expected values come from objcopy and objdump of binutils, run on this very program. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "symbolizer/elf_image.h"
#include "tests/symbolizer/symbol_client.h"

#define BUDGET (64u << 20)

static char *dir;

static struct elf_image *open_image(const char *path, uint64_t budget)
{
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
        struct elf_image *e;

        assert_true(fd >= 0);
        assert_int_equal(elf_image_open(fd, budget, &e), 0);
        return e;
}

/* The path of a copy of this program that objcopy has worked on. */
static char *variant(const char *name, const char *options)
{
        char *path;

        assert_true(asprintf(&path, "%s/%s", dir, name) > 0);
        free(output_of("objcopy %s /proc/%d/exe %s 2>&1", options, getpid(), path));
        return path;
}

static void compare_with(const char *name, const char *options)
{
        _cleanup_free_ char *plain_path = variant("plain", "--decompress-debug-sections");
        _cleanup_free_ char *path = variant(name, options);
        struct elf_image *plain = open_image(plain_path, 0);
        struct elf_image *e = open_image(path, BUDGET);
        struct elf_section a, b;

        assert_int_equal(elf_image_section(plain, ".debug_info", &a), 0);
        assert_int_equal(elf_image_section(e, ".debug_info", &b), 0);
        assert_true(a.bytes.size > 1000);
        assert_int_equal(a.bytes.size, b.bytes.size);
        assert_memory_equal(a.bytes.data, b.bytes.data, a.bytes.size);
        assert_int_equal(elf_image_section(e, ".debug_nothing", &b), -ENOENT);
        elf_image_free(e);

        /* Not a byte over the budget. */
        e = open_image(path, a.bytes.size);
        assert_int_equal(elf_image_section(e, ".debug_info", &b), 0);
        elf_image_free(e);
        e = open_image(path, a.bytes.size - 1);
        assert_int_equal(elf_image_section(e, ".debug_info", &b), -E2BIG);
        elf_image_free(e);
        elf_image_free(plain);
}

static void test_zlib_section(void **state)
{
        compare_with("zlib", "--compress-debug-sections=zlib-gabi");
}

static void test_old_gnu_section(void **state)
{
        compare_with("zdebug", "--compress-debug-sections=zlib-gnu");
}

static void test_zstd_section(void **state)
{
        compare_with("zstd", "--compress-debug-sections=zstd");
}

static void test_build_id(void **state)
{
        _cleanup_free_ char *path = variant("id", "");
        _cleanup_free_ char *want = output_of("readelf -n %s | sed -n 's/.*Build ID: //p'", path);
        struct elf_image *e = open_image(path, 0);
        uint8_t id[32];
        char hex[65] = "";
        uint32_t n = elf_image_build_id(e, id, sizeof(id));

        for (uint32_t i = 0; i < n; i++)
                snprintf(hex + 2 * i, 3, "%02x", id[i]);
        assert_string_equal(hex, want);
        elf_image_free(e);
}

static void test_bytes_at_an_address(void **state)
{
        _cleanup_free_ char *path = variant("at", "");
        struct elf_image *e = open_image(path, 0);
        struct elf_section text;

        assert_int_equal(elf_image_section(e, ".text", &text), 0);

        struct span s = elf_image_at(e, text.address + 3, 16);

        assert_int_equal(s.size, 16);
        assert_memory_equal(s.data, text.bytes.data + 3, 16);
        assert_null(elf_image_at(e, UINT64_MAX - 4, 16).data);

        struct elf_section bss;

        assert_int_equal(elf_image_section(e, ".bss", &bss), 0);
        assert_null(bss.bytes.data);
        elf_image_free(e);
}

static void test_what_is_no_elf(void **state)
{
        _cleanup_close_ int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
        _cleanup_close_ int memfd = memfd_create("text", MFD_CLOEXEC);
        struct elf_image *e = NULL;
        uint8_t head[64] = {0x7f, 'E', 'L', 'F', 2, 2, 1}; /* big-endian */

        assert_int_equal(elf_image_open(null, 0, &e), -ENOEXEC);
        assert_int_equal(elf_image_open(memfd, 0, &e), -ENOEXEC);
        assert_int_equal(write(memfd, head, sizeof(head)), sizeof(head));
        assert_int_equal(elf_image_open(memfd, 0, &e), -ENOEXEC);
        assert_int_equal(elf_image_from_memory("\177ELF", 4, 0, &e), -ENOEXEC);
}

/* Every length of a file cut short, and every byte of its headers changed: an error or an image, all of
 * whose sections can be read. (The sanitizers watch when they are on.) */
static void test_damaged_headers(void **state)
{
        _cleanup_free_ char *path = variant("zz", "--compress-debug-sections=zlib-gabi");
        struct elf_image *whole = open_image(path, 0);
        struct span file = elf_image_file(whole);
        _cleanup_free_ uint8_t *copy = malloc(file.size);
        size_t tries = 0;

        assert_non_null(copy);
        for (size_t i = 0; i < 4000; i++) {
                struct elf_image *e;
                size_t cut = file.size;

                memcpy(copy, file.data, file.size);
                if (i < 64 * 8)
                        copy[i / 8] ^= 1u << (i & 7);
                else if (i % 3 == 0)
                        cut = (i * 7919) % file.size;
                else /* in the section table, at the end */
                        copy[file.size - 1 - (i * 31) % 2000] = (uint8_t)(i * 37);
                if (elf_image_from_memory(copy, cut, BUDGET, &e) < 0)
                        continue;
                for (uint32_t s = 0; s < elf_image_n_sections(e); s++) {
                        struct elf_section section;

                        if (s < 64 && elf_image_section_at(e, s, &section) == 0 && section.bytes.size > 0)
                                tries += section.bytes.data[section.bytes.size - 1];
                }
                elf_image_free(e);
        }
        assert_true(tries > 0);
        elf_image_free(whole);
}

static int make_dir(void **state)
{
        dir = strdup("/tmp/profd-elf.XXXXXX");
        return dir && mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
        free(output_of("rm -rf %s", dir));
        free(dir);
        return 0;
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                        cmocka_unit_test(test_zlib_section),        cmocka_unit_test(test_old_gnu_section),
                        cmocka_unit_test(test_zstd_section),        cmocka_unit_test(test_build_id),
                        cmocka_unit_test(test_bytes_at_an_address), cmocka_unit_test(test_what_is_no_elf),
                        cmocka_unit_test(test_damaged_headers),
        };

        return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
