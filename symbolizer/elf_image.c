/* Everything a file says about itself is copied and checked when it is opened: a header whose bytes are not
 * in the file is kept, but without bytes. From then on no reader meets an offset that was not checked.
 *
 * The file stays mapped, read-only and private. A file that is cut short under the mapping raises SIGBUS in
 * whoever reads it, which is one reason why this runs in a process of its own. */
#include "symbolizer/elf_image.h"

#include <errno.h>
#include <gelf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "symbolizer/inflate.h"
#include "symbolizer/scratch.h"

struct section {
        GElf_Shdr header;
        const char *name;  /* in the file; NULL when damaged */
        struct span bytes; /* as in the file */
        uint8_t *inflated; /* owned; NULL until asked for */
        size_t inflated_size;
        bool in_scratch; /* inflated there */
        bool outside;    /* its bytes are not in the file */
};

struct elf_image {
        const uint8_t *data;
        size_t size;
        bool mapped;
        Elf *elf;
        GElf_Ehdr header;
        bool is64;
        uint32_t n_segments;
        struct elf_segment *segment;
        uint32_t n_sections;
        struct section *section;
        uint64_t inflate_left;
        elf_scratch_fn scratch;
        void *scratch_ctx;
};

static bool in_file(const struct elf_image *e, uint64_t offset, uint64_t size)
{
        return offset <= e->size && size <= e->size - offset;
}

static int read_segments(struct elf_image *e)
{
        size_t n;

        if (elf_getphdrnum(e->elf, &n) < 0)
                return -ENOEXEC;
        if (n == 0)
                return 0;
        /* Each header has its bytes in the file, so this is bounded by the file's size. */
        if (n > e->size / sizeof(Elf32_Phdr))
                return -ENOEXEC;
        e->segment = calloc(n, sizeof(*e->segment));
        if (!e->segment)
                return -ENOMEM;
        for (size_t i = 0; i < n; i++) {
                GElf_Phdr p;

                if (!gelf_getphdr(e->elf, (int)i, &p))
                        break;
                e->segment[e->n_segments++] = (struct elf_segment){
                                .type = p.p_type,
                                .flags = p.p_flags,
                                .offset = p.p_offset,
                                .vaddr = p.p_vaddr,
                                .filesz = p.p_filesz,
                                .memsz = p.p_memsz,
                                .align = p.p_align,
                };
        }
        return 0;
}

static void name_sections(struct elf_image *e)
{
        size_t index;

        if (elf_getshdrstrndx(e->elf, &index) < 0 || index == 0 || index >= e->n_sections)
                return;

        struct span names = e->section[index].bytes;

        for (uint32_t i = 0; i < e->n_sections; i++) {
                uint32_t offset = e->section[i].header.sh_name;

                if (offset < names.size && memchr(names.data + offset, 0, names.size - offset))
                        e->section[i].name = (const char *)names.data + offset;
        }
}

static int read_sections(struct elf_image *e)
{
        size_t n;

        /* A damaged section table is no reason to lose what the program headers say. */
        if (elf_getshdrnum(e->elf, &n) < 0 || n == 0 || n > e->size / sizeof(Elf32_Shdr))
                return 0;
        e->section = calloc(n, sizeof(*e->section));
        if (!e->section)
                return -ENOMEM;
        for (size_t i = 0; i < n; i++) {
                struct section *s = &e->section[i];
                Elf_Scn *scn = elf_getscn(e->elf, i);

                e->n_sections++;
                if (!scn || !gelf_getshdr(scn, &s->header)) {
                        s->header = (GElf_Shdr){.sh_type = SHT_NULL};
                        continue;
                }
                if (s->header.sh_type == SHT_NOBITS || s->header.sh_type == SHT_NULL)
                        continue;
                if (in_file(e, s->header.sh_offset, s->header.sh_size))
                        s->bytes = (struct span){e->data + s->header.sh_offset, s->header.sh_size};
                else
                        s->outside = true;
        }
        name_sections(e);
        return 0;
}

static int image_read(struct elf_image *e)
{
        int r;

        if (e->size < EI_NIDENT || memcmp(e->data, ELFMAG, SELFMAG) != 0 ||
            e->data[EI_DATA] != ELFDATA2LSB || e->data[EI_VERSION] != EV_CURRENT)
                return -ENOEXEC;
        if (elf_version(EV_CURRENT) == EV_NONE)
                return -ENOTSUP;
        /* libelf writes only when it converts byte order, which the test above rules out. */
        e->elf = elf_memory((char *)(uintptr_t)e->data, e->size);
        if (!e->elf || elf_kind(e->elf) != ELF_K_ELF || !gelf_getehdr(e->elf, &e->header))
                return -ENOEXEC;
        if (e->header.e_type != ET_EXEC && e->header.e_type != ET_DYN && e->header.e_type != ET_REL)
                return -ENOEXEC;
        e->is64 = gelf_getclass(e->elf) == ELFCLASS64;
        r = read_segments(e);
        if (r < 0)
                return r;
        return read_sections(e);
}

DEFINE_CLEANUP(struct elf_image, elf_image_free);

static int image_new(const void *data, size_t size, bool mapped, uint64_t inflate_budget,
                     struct elf_image **ret)
{
        _cleanup_(elf_image_free_cleanup) struct elf_image *e = calloc(1, sizeof(*e));
        int r;

        if (!e) {
                if (mapped)
                        munmap((void *)(uintptr_t)data, size);
                return -ENOMEM;
        }
        e->data = data;
        e->size = size;
        e->mapped = mapped;
        e->inflate_left = inflate_budget;
        r = image_read(e);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(e);
        return 0;
}

int elf_image_open(int fd, uint64_t inflate_budget, struct elf_image **ret)
{
        struct stat st;
        void *data;

        if (fstat(fd, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode) || st.st_size < EI_NIDENT)
                return -ENOEXEC;
        data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED)
                return -errno;
        return image_new(data, (size_t)st.st_size, true, inflate_budget, ret);
}

int elf_image_from_memory(const void *data, size_t size, uint64_t inflate_budget, struct elf_image **ret)
{
        return image_new(data, size, false, inflate_budget, ret);
}

struct elf_image *elf_image_free(struct elf_image *e)
{
        if (!e)
                return NULL;
        for (uint32_t i = 0; i < e->n_sections; i++) {
                struct section *s = &e->section[i];

                if (s->in_scratch)
                        munmap(s->inflated, s->inflated_size);
                else
                        free(s->inflated);
        }
        free(e->section);
        free(e->segment);
        elf_end(e->elf);
        if (e->mapped)
                munmap((void *)(uintptr_t)e->data, e->size);
        free(e);
        return NULL;
}

void elf_image_drop_pages(struct elf_image *e)
{
        /* Clean pages of a file: they come back from the page cache when they are read again. */
        if (e->mapped)
                madvise((void *)(uintptr_t)e->data, e->size, MADV_DONTNEED);
        for (uint32_t i = 0; i < e->n_sections; i++)
                if (e->section[i].in_scratch)
                        madvise(e->section[i].inflated, e->section[i].inflated_size, MADV_DONTNEED);
}

void elf_image_set_scratch(struct elf_image *e, elf_scratch_fn fn, void *ctx)
{
        e->scratch = fn;
        e->scratch_ctx = ctx;
}

bool elf_image_is64(const struct elf_image *e)
{
        return e->is64;
}

uint16_t elf_image_machine(const struct elf_image *e)
{
        return e->header.e_machine;
}

uint16_t elf_image_type(const struct elf_image *e)
{
        return e->header.e_type;
}

uint64_t elf_image_entry(const struct elf_image *e)
{
        return e->header.e_entry;
}

struct span elf_image_file(const struct elf_image *e)
{
        return (struct span){e->data, e->size};
}

uint32_t elf_image_n_segments(const struct elf_image *e)
{
        return e->n_segments;
}

const struct elf_segment *elf_image_segment(const struct elf_image *e, uint32_t i)
{
        return i < e->n_segments ? &e->segment[i] : NULL;
}

uint32_t elf_image_n_sections(const struct elf_image *e)
{
        return e->n_sections;
}

int elf_image_section_header(const struct elf_image *e, uint32_t index, struct elf_section *ret,
                             const char **ret_name)
{
        if (index >= e->n_sections)
                return -ENOENT;

        const struct section *s = &e->section[index];

        *ret = (struct elf_section){
                        .address = s->header.sh_addr,
                        .size = s->header.sh_size,
                        .type = s->header.sh_type,
                        .flags = s->header.sh_flags,
                        .link = s->header.sh_link,
                        .info = s->header.sh_info,
                        .entry_size = s->header.sh_entsize,
                        .index = index,
        };
        if (ret_name)
                *ret_name = s->name;
        return 0;
}

static uint64_t load_be64(const uint8_t *p)
{
        uint64_t v;

        memcpy(&v, p, sizeof(v));
        return __builtin_bswap64(v);
}

/* Where the compressed bytes are, how, and how large they say they become. 0: not compressed. */
static int compression_of(const struct elf_image *e, const struct section *s, struct span *ret,
                          uint64_t *ret_size)
{
        const struct span *b = &s->bytes;

        if (s->header.sh_flags & SHF_COMPRESSED) {
                Elf64_Chdr c64;
                Elf32_Chdr c32;
                size_t n = e->is64 ? sizeof(c64) : sizeof(c32);
                uint32_t type;

                if (b->size < n)
                        return -EBADMSG;
                if (e->is64) {
                        memcpy(&c64, b->data, n);
                        type = c64.ch_type;
                        *ret_size = c64.ch_size;
                } else {
                        memcpy(&c32, b->data, n);
                        type = c32.ch_type;
                        *ret_size = c32.ch_size;
                }
                *ret = (struct span){b->data + n, b->size - n};
                return type == INFLATE_ZLIB || type == INFLATE_ZSTD ? (int)type : -EBADMSG;
        }
        /* GNU's older way: "ZLIB" and the size, big-endian, before the stream. */
        if (s->name && strncmp(s->name, ".zdebug", 7) == 0 && b->size >= 12 &&
            memcmp(b->data, "ZLIB", 4) == 0) {
                *ret = (struct span){b->data + 12, b->size - 12};
                *ret_size = load_be64(b->data + 4);
                return INFLATE_ZLIB;
        }
        return 0;
}

/* False: not in scratch room. */
static bool inflate_to_scratch(struct elf_image *e, struct section *s, enum inflate_type type,
                               struct span from, uint64_t size)
{
        uint8_t *room;

        if (!e->scratch || size < SCRATCH_MIN || !inflate_is_possible(type, from.size, size))
                return false;
        room = e->scratch(e->scratch_ctx, size);
        if (!room)
                return false;
        if (inflate_into(type, from.data, from.size, room, size, true) < 0) {
                munmap(room, size);
                return false;
        }
        s->inflated = room;
        s->inflated_size = size;
        s->in_scratch = true;
        return true;
}

static int inflate_section(struct elf_image *e, struct section *s, enum inflate_type type, struct span from,
                           uint64_t size)
{
        int r;

        if (inflate_to_scratch(e, s, type, from, size))
                return 0;
        if (size > e->inflate_left)
                return -E2BIG;
        r = inflate_exactly(type, from.data, from.size, size, &s->inflated);
        if (r < 0)
                return r;
        s->inflated_size = size;
        e->inflate_left -= size;
        return 0;
}

int elf_image_section_at(struct elf_image *e, uint32_t index, struct elf_section *ret)
{
        struct elf_section section;
        struct span compressed;
        uint64_t size;
        int r;

        r = elf_image_section_header(e, index, &section, NULL);
        if (r < 0)
                return r;

        struct section *s = &e->section[index];

        if (s->outside)
                return -EBADMSG;
        section.bytes = s->bytes;
        if (s->bytes.data && !s->inflated) {
                r = compression_of(e, s, &compressed, &size);
                if (r > 0)
                        r = inflate_section(e, s, (enum inflate_type)r, compressed, size);
                if (r < 0)
                        return r;
        }
        if (s->inflated)
                section.bytes = (struct span){s->inflated, s->inflated_size};
        *ret = section;
        return 0;
}

int elf_image_section(struct elf_image *e, const char *name, struct elf_section *ret)
{
        bool debug = strncmp(name, ".debug", 6) == 0;

        for (uint32_t i = 1; i < e->n_sections; i++) {
                const char *have = e->section[i].name;

                if (!have)
                        continue;
                if (strcmp(have, name) == 0 ||
                    (debug && strncmp(have, ".z", 2) == 0 && strcmp(have + 2, name + 1) == 0))
                        return elf_image_section_at(e, i, ret);
        }
        return -ENOENT;
}

static size_t align_up(size_t n, size_t align)
{
        return (n + align - 1) & ~(align - 1);
}

uint32_t elf_notes_build_id(struct span notes, size_t align, uint8_t *ret, uint32_t max)
{
        size_t at = 0;

        while (notes.size - at >= sizeof(Elf64_Nhdr)) {
                Elf64_Nhdr n;

                memcpy(&n, notes.data + at, sizeof(n));
                at += sizeof(n);

                size_t name = align_up(n.n_namesz, align);

                if (name < n.n_namesz || name > notes.size - at)
                        return 0;

                const uint8_t *owner = notes.data + at;

                at += name;
                if (n.n_descsz > notes.size - at)
                        return 0;
                if (n.n_type == NT_GNU_BUILD_ID && n.n_namesz == 4 && memcmp(owner, "GNU", 4) == 0 &&
                    n.n_descsz > 0) {
                        uint32_t len = MIN_OF(n.n_descsz, max);

                        memcpy(ret, notes.data + at, len);
                        return len;
                }

                size_t desc = align_up(n.n_descsz, align);

                if (desc > notes.size - at)
                        return 0;
                at += desc;
        }
        return 0;
}

uint32_t elf_image_build_id(struct elf_image *e, uint8_t *ret, uint32_t max)
{
        uint32_t n;

        /* Sections first: the program headers of a separate debug file are those of the program, and point
         * to bytes that it does not have. */
        for (uint32_t i = 0; i < e->n_sections; i++) {
                const struct section *s = &e->section[i];

                if (s->header.sh_type != SHT_NOTE || !s->bytes.data || (s->header.sh_flags & SHF_COMPRESSED))
                        continue;
                n = elf_notes_build_id(s->bytes, s->header.sh_addralign == 8 ? 8 : 4, ret, max);
                if (n > 0)
                        return n;
        }
        for (uint32_t i = 0; i < e->n_segments; i++) {
                const struct elf_segment *p = &e->segment[i];

                if (p->type != PT_NOTE || !in_file(e, p->offset, p->filesz))
                        continue;
                n = elf_notes_build_id((struct span){e->data + p->offset, p->filesz}, p->align == 8 ? 8 : 4,
                                       ret, max);
                if (n > 0)
                        return n;
        }
        return 0;
}

struct span elf_image_at(const struct elf_image *e, uint64_t vaddr, size_t size)
{
        for (uint32_t i = 0; i < e->n_segments; i++) {
                const struct elf_segment *p = &e->segment[i];

                if (p->type != PT_LOAD || vaddr < p->vaddr || vaddr - p->vaddr >= p->filesz ||
                    !in_file(e, p->offset, p->filesz))
                        continue;

                uint64_t skip = vaddr - p->vaddr;

                return (struct span){e->data + p->offset + skip, MIN_OF(size, p->filesz - skip)};
        }
        return (struct span){NULL, 0};
}
