/* Call frame information: what cfi_build() makes of any bytes is a table that its consumers can take.
 *
 * The first byte says how the rest is used: as a whole ELF file; or as .eh_frame, or .debug_frame, of a
 * small one of either machine, which is where the interesting paths are. */
#include <elf.h>
#include <stdlib.h>

#include "symbolizer/cfi.h"
#include "tests/fuzz/fuzz.h"
#include "tests/symbolizer/cfi_image.h"

#define REQUIRE(condition)        \
        do {                      \
                if (!(condition)) \
                        abort();  \
        } while (0)

static void check(const struct cfi_table *t)
{
        uint64_t base = (uint64_t)t->first_page << UNWIND_PAGE_SHIFT, start, end;

        REQUIRE(t->page_start[0] == 0 && t->page_start[t->n_pages] == t->n_rows);
        for (uint32_t p = 0; p < t->n_pages; p++) {
                REQUIRE(t->page_start[p] < t->page_start[p + 1]);
                REQUIRE(UNWIND_ROW_OFFSET(t->row[t->page_start[p]]) == 0);
                for (uint32_t i = t->page_start[p]; i < t->page_start[p + 1]; i++) {
                        REQUIRE(UNWIND_ROW_RULE(t->row[i]) < UNWIND_RULE_FIRST + t->n_rules);
                        REQUIRE(UNWIND_ROW_OFFSET(t->row[i]) <= UNWIND_PAGE_MASK);
                        REQUIRE(i == t->page_start[p] ||
                                UNWIND_ROW_OFFSET(t->row[i]) > UNWIND_ROW_OFFSET(t->row[i - 1]));
                }
        }
        for (uint32_t i = 0; i < t->n_rules; i++) {
                REQUIRE(UNWIND_RULE_KIND(&t->rule[i]) >= UNWIND_SP &&
                        UNWIND_RULE_KIND(&t->rule[i]) <= UNWIND_RA_IN);
                REQUIRE(UNWIND_RULE_FP(&t->rule[i]) <= UNWIND_FP_UNDEFINED);
        }
        for (uint64_t at = base - 64; at < base + 8192; at += 61) {
                REQUIRE(cfi_table_find(t, at) < UNWIND_RULE_FIRST + t->n_rules);
                if (cfi_function_bounds(t, at, &start, &end))
                        REQUIRE(start <= at && at < end);
        }
}

static void build(const void *file, size_t size)
{
        struct elf_image *image;
        struct cfi_table *t;

        if (elf_image_from_memory(file, size, 1 << 20, &image) < 0)
                return;
        if (cfi_build(image, NULL, &t) >= 0) {
                check(t);
                cfi_table_free(t);
        }
        elf_image_free(image);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct buf file = {0};

        if (size < 1)
                return 0;
        if (data[0] & 4) {
                /* In memory of its own, so that a byte read behind it is seen. */
                buf_add(&file, data + 1, size - 1);
                build(file.data, file.len);
        } else {
                image_make(&file, &(struct image_options){.machine = data[0] & 1 ? EM_AARCH64 : EM_X86_64},
                           &(struct image_section){.name = data[0] & 2 ? ".debug_frame" : ".eh_frame",
                                                   .data = data + 1,
                                                   .size = size - 1},
                           1);
                build(file.data, file.len);
        }
        buf_free(&file);
        return 0;
}
