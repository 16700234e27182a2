/* DWARF: whatever the files hold, each address has at most the frames asked for, a chain ends in what is not
 * inlined, and the budget is kept.
 *
 * The input is one to four ELF files, each behind four bytes of length: the object, an alternate file, a
 * package, a split unit. What has no such form is taken for the object alone. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "symbolizer/dwarf_index.h"
#include "tests/fuzz/fuzz.h"

#define MAX_MEMORY  (48u << 20)
#define MAX_DIES    300000
#define MAX_FRAMES  64
#define N_ADDRESSES 256

#define REQUIRE(condition)        \
        do {                      \
                if (!(condition)) \
                        abort();  \
        } while (0)

enum { MAIN, ALT, DWP, DWO, N_FILES };

struct files {
        struct buf bytes[N_FILES]; /* in memory of their own, so that a byte read behind one is seen */
        struct elf_image *image[N_FILES];
};

static struct elf_image *find_dwo(void *ctx, const char *comp_dir, const char *name, uint64_t dwo_id)
{
        struct files *f = ctx;

        return f->image[DWO];
}

static void touch(const char *s)
{
        REQUIRE(!s || strlen(s) < SIZE_MAX);
}

static void check_frames(const struct dwarf_frame *f, uint32_t n)
{
        for (uint32_t i = 0; i < n; i++) {
                touch(f[i].name);
                touch(f[i].short_name);
                touch(f[i].file);
                REQUIRE(f[i].inlined == (i + 1 < n));
        }
}

static void use(struct dwarf_index *d, const struct elf_image *e)
{
        struct dwarf_frame frame[MAX_FRAMES];
        struct dwarf_stats stats;

        for (uint32_t i = 0; i < elf_image_n_segments(e); i++) {
                const struct elf_segment *s = elf_image_segment(e, i);

                for (uint64_t k = 0; k < N_ADDRESSES; k++) {
                        uint64_t address = s->vaddr + s->memsz / N_ADDRESSES * k + k % 3;
                        uint32_t max = k % 8 ? ARRAY_SIZE(frame) : (uint32_t)(k / 8 % 4);
                        int n = dwarf_index_find(d, address, frame, max);

                        REQUIRE(n <= (int)max || (max == 0 && n == 1));
                        if (n > 0 && max > 0)
                                check_frames(frame, (uint32_t)n);
                }
        }
        dwarf_index_stats(d, &stats);
        REQUIRE(stats.memory <= MAX_MEMORY && stats.walked <= stats.units);
}

static void split_input(struct files *f, const uint8_t *data, size_t size)
{
        size_t at = 0;
        uint32_t n = 0;

        if (size >= 4 && memcmp(data, "\177ELF", 4) == 0) {
                buf_add(&f->bytes[MAIN], data, size);
                return;
        }
        while (n < N_FILES && size - at > 4) {
                uint32_t len;

                memcpy(&len, data + at, sizeof(len));
                at += sizeof(len);
                len = MIN_OF(len, (uint32_t)MIN_OF(size - at, (size_t)UINT32_MAX));
                buf_add(&f->bytes[n++], data + at, len);
                at += len;
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct files f = {0};
        struct dwarf_index *d;

        split_input(&f, data, size);
        for (int i = 0; i < N_FILES; i++)
                if (!f.bytes[i].len ||
                    elf_image_from_memory(f.bytes[i].data, f.bytes[i].len, 4 << 20, &f.image[i]) < 0)
                        f.image[i] = NULL;

        struct dwarf_sources sources = {
                        .main = f.image[MAIN],
                        .alt = f.image[ALT],
                        .dwp = f.image[DWP],
                        .find_dwo = find_dwo,
                        .ctx = &f,
                        .max_memory = MAX_MEMORY,
                        .max_dies = MAX_DIES,
        };
        if (sources.main && dwarf_index_new(&d, &sources) >= 0) {
                use(d, sources.main);
                dwarf_index_free(d);
        }
        for (int i = 0; i < N_FILES; i++) {
                elf_image_free(f.image[i]);
                buf_free(&f.bytes[i]);
        }
        return 0;
}
