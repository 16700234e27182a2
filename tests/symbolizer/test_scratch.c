/* Large compressed sections are inflated outside of the budget of memory, and read the same. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>
#include <elf.h>
#include <zlib.h>

#include "symbolizer/elf_image.h"
#include "symbolizer/scratch.h"
#include "tests/symbolizer/cfi_image.h"

#define SIZE (SCRATCH_MIN + 12345)

struct counted {
        uint32_t asked;
        bool refuse;
};

static void *give_scratch(void *ctx, uint64_t size)
{
        struct counted *c = ctx;
        int fd = c->refuse ? -ENOSPC : scratch_create("/var/tmp", size);

        c->asked++;
        return fd < 0 ? NULL : scratch_map(fd, size);
}

/* A section of SIZE bytes as zlib, with `announced` in its header. */
static struct elf_image *make_image(struct buf *file, const uint8_t *plain, uint64_t announced)
{
        Elf64_Chdr header = {.ch_type = ELFCOMPRESS_ZLIB, .ch_size = announced, .ch_addralign = 1};
        uLongf n = compressBound(SIZE);
        _cleanup_free_ uint8_t *packed = malloc(sizeof(header) + n);
        struct elf_image *e;

        assert_non_null(packed);
        memcpy(packed, &header, sizeof(header));
        assert_int_equal(compress2(packed + sizeof(header), &n, plain, SIZE, 1), Z_OK);
        image_make(file, &(struct image_options){0},
                   &(struct image_section){.name = ".debug_info",
                                           .data = packed,
                                           .size = sizeof(header) + n,
                                           .flags = SHF_COMPRESSED},
                   1);
        assert_int_equal(elf_image_from_memory(file->data, file->len, 1 << 20, &e), 0);
        return e;
}

static void test_sections(void **state)
{
        _cleanup_free_ uint8_t *plain = malloc(SIZE);
        int fd = scratch_create("/var/tmp", SIZE);

        if (fd < 0) {
                print_message("skipped: no scratch file in /var/tmp: %s\n", strerror(-fd));
                skip();
        }
        close(fd);
        assert_non_null(plain);
        for (uint64_t i = 0; i < SIZE; i++)
                plain[i] = (uint8_t)(i * i >> 9);

        for (int k = 0; k < 3; k++) {
                struct counted c = {.refuse = k == 1};
                _cleanup_buf_ struct buf file = {0};
                struct elf_section s;
                struct elf_image *e = make_image(&file, plain, k == 2 ? SIZE + 1 : SIZE);

                elf_image_set_scratch(e, give_scratch, &c);
                if (k == 0) {
                        assert_int_equal(elf_image_section(e, ".debug_info", &s), 0);
                        assert_int_equal(s.bytes.size, SIZE);
                        assert_memory_equal(s.bytes.data, plain, SIZE);
                        elf_image_drop_pages(e);
                        assert_memory_equal(s.bytes.data, plain, SIZE);
                } else { /* refused: over the budget of 1 MiB; or the size is a lie */
                        assert_int_equal(elf_image_section(e, ".debug_info", &s), -E2BIG);
                }
                assert_int_equal(c.asked, 1);
                elf_image_free(e);
        }
}

static void test_limits(void **state)
{
        assert_int_equal(scratch_create("/var/tmp", 0), -E2BIG);
        assert_int_equal(scratch_create("/var/tmp", SCRATCH_MAX + 1), -E2BIG);
        assert_int_equal(scratch_create("/nowhere", SIZE), -ENOENT);
        assert_int_equal(scratch_create("/dev/shm", SIZE), -ENOSPC); /* is memory */
}

int main(void)
{
        const struct CMUnitTest tests[] = {cmocka_unit_test(test_sections), cmocka_unit_test(test_limits)};

        return cmocka_run_group_tests(tests, NULL, NULL);
}
