/* An object as the worker meets it: opened, described, its table made, addresses named with and without
 * debug information, functions looked up, all dropped and named once more. As its separate files it is given
 * itself.
 *
 * Symbol tables and Go's tables are read a second time out of memory of the input's own size, so that a byte
 * read behind it is seen. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/io.h"
#include "symbolizer/gopclntab.h"
#include "symbolizer/objfile.h"
#include "symbolizer/plt.h"
#include "symbolizer/symtab.h"
#include "tests/fuzz/fuzz.h"

#define BUDGET    (8u << 20)
#define ADDRESSES 24

#define REQUIRE(condition)        \
        do {                      \
                if (!(condition)) \
                        abort();  \
        } while (0)

static int give_itself(void *ctx, const struct wire_want *want)
{
        int *fd = ctx;

        REQUIRE(memchr(want->name, 0, sizeof(want->name)) &&
                memchr(want->directory, 0, sizeof(want->directory)));
        REQUIRE(want->build_id_len <= SYM_BUILD_ID_MAX);
        return want->attempt < 2 ? fcntl(*fd, F_DUPFD_CLOEXEC, 0) : -ENOENT;
}

static uint64_t address_number(const struct sym_info *info, uint32_t i)
{
        const struct sym_segment *s;

        if (info->n_segments == 0 || i == 0)
                return info->entry + i;
        s = &info->segment[i % info->n_segments];
        return s->vaddr + s->memsz / ADDRESSES * i + i % 3;
}

static void name_all(struct objfile *o, const struct sym_info *info, bool no_debug)
{
        _cleanup_names_ struct names names = {}, read = {};
        _cleanup_buf_ struct buf b = {};

        for (uint32_t i = 0; i < ADDRESSES; i++)
                if (objfile_name(o, address_number(info, i), no_debug, &names) < 0)
                        break;
        REQUIRE(names_encode(&names, &b) == 0);
        REQUIRE(names_decode(b.data, b.len, &read) == 0); /* as the client does */
        REQUIRE(read.n_results == names.n_results && read.n_frames == names.n_frames);
}

static void use_object(int fd)
{
        _cleanup_buf_ struct buf b = {};
        struct cfi_table *table;
        struct wire_info info;
        struct objfile *o;

        if (objfile_open(fd, BUDGET, give_itself, &fd, &o) < 0)
                return;
        objfile_info(o, &info);
        REQUIRE(info.info.n_segments <= SYM_MAX_SEGMENTS && info.info.build_id_len <= SYM_BUILD_ID_MAX);
        if (objfile_table(o, &table) == 0)
                cfi_table_free(table);
        name_all(o, &info.info, false);
        name_all(o, &info.info, true);
        objfile_functions(o, "main", 0, &b);
        objfile_functions(o, "", info.info.entry, &b);
        objfile_drop_pages(o);
        objfile_drop(o);
        name_all(o, &info.info, false);
        objfile_free(o);
}

static void use_symtab(struct elf_image *e)
{
        struct symtab *t;
        struct symbol s, again;

        if (symtab_new(&t, &e, 1) < 0)
                return;
        for (uint32_t i = 0; i < 1000 && symtab_at(t, i, &s); i++) {
                REQUIRE(strlen(s.name) > 0 && s.size > 0);
                REQUIRE(symtab_find(t, s.start, &again) && again.start <= s.start);
                symtab_find(t, s.start + s.size, &again);
                symtab_find_label(t, 0, s.start, &again);
        }
        symtab_free(t);
}

#define GO_FRAMES 16

static void use_go(struct elf_image *e)
{
        struct gopclntab *t;
        struct go_frame f[GO_FRAMES];

        if (gopclntab_new(&t, e) < 0)
                return;
        for (uint32_t i = 0; i < 64 * elf_image_n_segments(e) && i < 1024; i++) {
                uint64_t address = elf_image_segment(e, i / 64)->vaddr + i % 64 * 7;
                uint32_t n = gopclntab_find(t, address, f, i % 8 ? GO_FRAMES : 1);

                REQUIRE(n <= GO_FRAMES);
                for (uint32_t k = 0; k < n; k++)
                        REQUIRE(strlen(f[k].name) > 0 && (!f[k].file || strlen(f[k].file) < SIZE_MAX));
        }
        gopclntab_free(t);
}

static void use_plt(struct elf_image *e)
{
        struct plt *p;
        struct symbol s;

        if (plt_new(&p, e) < 0)
                return;
        for (uint32_t i = 0; i < elf_image_n_sections(e) && i < 256; i++) {
                struct elf_section section;

                elf_image_section_header(e, i, &section, NULL);
                for (uint64_t k = 0; k < 16; k++)
                        if (plt_find(p, section.address + 5 * k, &s))
                                REQUIRE(strlen(s.name) > 4 && s.size > 0);
        }
        plt_free(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        int fd = memfd_create("object", MFD_CLOEXEC);
        struct elf_image *e;

        REQUIRE(fd >= 0 && write_all(fd, data, size) == 0);
        use_object(fd);
        close(fd);
        if (elf_image_from_memory(data, size, BUDGET, &e) == 0) {
                use_symtab(e);
                use_go(e);
                use_plt(e);
                elf_image_free(e);
        }
        return 0;
}
