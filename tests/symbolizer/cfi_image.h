/* Small ELF files in memory for tests of the CFI reader: one executable segment at TEXT, and sections. */
#ifndef TESTS_SYMBOLIZER_CFI_IMAGE_H
#define TESTS_SYMBOLIZER_CFI_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define IMAGE_TEXT      0x400000 /* address of the text, IMAGE_TEXT_SIZE bytes */
#define IMAGE_DATA      0x500000 /* address of all other sections, one after the other, 16 bytes aligned */
#define IMAGE_TEXT_SIZE 0x3000

struct image_section {
        const char *name;
        uint64_t address; /* 0: the next in the data */
        const void *data;
        size_t size;
        uint64_t flags;
};

struct image_options {
        uint16_t machine, type; /* 0: EM_X86_64, ET_EXEC */
        uint64_t entry;
        const void *text; /* from IMAGE_TEXT on; the rest of the text is zero */
        size_t text_size;
        uint64_t eh_frame_hdr; /* address of PT_GNU_EH_FRAME; 0: none */
        int no_sections;       /* leave out the section headers */
};

/* The file's bytes in `out`. */
void image_make(struct buf *out, const struct image_options *o, const struct image_section *section,
                size_t n);

/* Call frame information, appended to a section. Addresses are absolute (DW_EH_PE_absptr), ids and pointers
 * those of .eh_frame or of .debug_frame. */
struct image_cie {
        const char *augmentation;
        const void *augmentation_data;
        size_t augmentation_size;
        uint64_t code_align;
        int64_t data_align;
        uint8_t return_register;
        const void *program;
        size_t program_size;
};

uint64_t image_cie(struct buf *b, int eh, const struct image_cie *cie); /* its offset */
void image_fde(struct buf *b, int eh, uint64_t cie, uint64_t pc, uint64_t size, const char *augmentation,
               const void *program, size_t program_size);

#endif
