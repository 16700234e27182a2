/* One ELF file, mapped and checked, as the readers of the symbolizer see it. Runs in the worker.
 *
 * Containers are read with libelf; every offset and size is checked against the file here, once, so that a
 * reader gets spans it may read in full. Compressed sections (SHF_COMPRESSED with zlib or zstd, `.zdebug_*`)
 * are inflated on first use, within the image's budget. Both classes, little-endian only. */
#ifndef SYMBOLIZER_ELF_IMAGE_H
#define SYMBOLIZER_ELF_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"

struct elf_image;

struct span { /* bytes that may be read; data NULL: not there */
        const uint8_t *data;
        size_t size;
};

struct elf_section {
        struct span bytes; /* inflated; empty for SHT_NOBITS */
        uint64_t address;  /* sh_addr */
        uint64_t size;     /* sh_size: as stored, also of SHT_NOBITS */
        uint32_t type;     /* sh_type */
        uint64_t flags;
        uint32_t link, info;
        uint64_t entry_size;
        uint32_t index;
};

struct elf_segment {
        uint32_t type, flags;
        uint64_t offset, vaddr, filesz, memsz, align;
};

/* Maps the file behind `fd` (not taken over). inflate_budget: most bytes that compressed sections may grow
 * to in all. -ENOEXEC: not ELF, or not one of ours (big-endian, other version). */
int elf_image_open(int fd, uint64_t inflate_budget, struct elf_image **ret);
/* The same from memory that outlives the image (MiniDebugInfo, the vDSO). */
int elf_image_from_memory(const void *data, size_t size, uint64_t inflate_budget, struct elf_image **ret);
struct elf_image *elf_image_free(struct elf_image *e);

/* Where large sections are inflated to in place of memory: `size` bytes that munmap() gives back; NULL: in
 * memory after all. They do not count against the inflate budget. */
typedef void *(*elf_scratch_fn)(void *ctx, uint64_t size);
void elf_image_set_scratch(struct elf_image *e, elf_scratch_fn fn, void *ctx);

/* Gives back the pages of the file that were read; they are read again on need. For an image that rests. */
void elf_image_drop_pages(struct elf_image *e);

bool elf_image_is64(const struct elf_image *e);
uint16_t elf_image_machine(const struct elf_image *e);
uint16_t elf_image_type(const struct elf_image *e);
uint64_t elf_image_entry(const struct elf_image *e);
struct span elf_image_file(const struct elf_image *e);

uint32_t elf_image_n_segments(const struct elf_image *e);
const struct elf_segment *elf_image_segment(const struct elf_image *e, uint32_t i);

uint32_t elf_image_n_sections(const struct elf_image *e);
/* By name (".debug_info" also finds ".zdebug_info") or index. -ENOENT; -E2BIG over the budget; -EBADMSG. */
int elf_image_section(struct elf_image *e, const char *name, struct elf_section *ret);
int elf_image_section_at(struct elf_image *e, uint32_t index, struct elf_section *ret);
/* Header only, without inflating; the name is NULL when damaged. */
int elf_image_section_header(const struct elf_image *e, uint32_t index, struct elf_section *ret,
                             const char **ret_name);

/* NT_GNU_BUILD_ID; its length, 0 when there is none. */
uint32_t elf_image_build_id(struct elf_image *e, uint8_t *ret, uint32_t max);
/* The same in a run of notes, aligned to 4 or 8. */
uint32_t elf_notes_build_id(struct span notes, size_t align, uint8_t *ret, uint32_t max);

/* The bytes at an ELF virtual address, through PT_LOAD; shorter than asked at the end of the segment's file
 * part, empty outside. */
struct span elf_image_at(const struct elf_image *e, uint64_t vaddr, size_t size);

#endif
