/* The entries of one `.eh_frame` or `.debug_frame` section (LSB core 5.0, section 10.6; DWARF 5, section
 * 6.4.1): CIEs parsed, FDEs listed. */
#ifndef SYMBOLIZER_CFI_SECTION_H
#define SYMBOLIZER_CFI_SECTION_H

#include <stdint.h>

#include "base/idtable.h"
#include "symbolizer/cfi_eval.h"

#define CFI_MAX_FDES (1u << 22)
#define CFI_MAX_CIES (1u << 20)
#define CFI_MAX_TEXT 32 /* executable segments */

/* Where code may be: FDEs outside are dropped. Addresses are kept as distances from `base`. */
struct cfi_text {
        uint64_t base; /* page-aligned */
        uint32_t n;
        struct {
                uint32_t start, end;
        } range[CFI_MAX_TEXT];
};

struct cfi_section {
        const uint8_t *data;
        size_t size; /* at most UINT32_MAX */
        uint64_t address;
        bool eh;        /* .eh_frame, else .debug_frame */
        bool unbounded; /* size is not from a section header: ends at the terminator */
};

struct cfi_fde {
        uint32_t pc, end;            /* after text base */
        uint32_t program, program_n; /* instructions: offset in the section, bytes */
        uint32_t cie;                /* index; CFI_FDE_CODE: see below */
        uint32_t section;            /* which of the sections it came from */
};
/* Not an FDE: rows [program, program + program_n) of cfi_code. */
#define CFI_FDE_CODE UINT32_MAX

struct cfi_entries {
        const struct cfi_arch *arch;
        const struct cfi_text *text;
        struct cfi_cie *cie;
        uint32_t n_cies, max_cies;
        struct cfi_fde *fde;
        uint32_t n_fdes, max_fdes;
        uint32_t bad; /* entries skipped */
};

/* Appends what the section holds. -ENOMEM, -E2BIG; damage is skipped and counted in `bad`. */
int cfi_section_read(struct cfi_entries *x, const struct cfi_section *s, uint32_t section_index);
void cfi_entries_done(struct cfi_entries *x);

int cfi_entries_add(struct cfi_entries *x, const struct cfi_fde *fde);

/* By address. */
int cfi_entries_sort(struct cfi_entries *x);
/* Of the first n entries, which are sorted: the index of the first that begins after pc; whether one
 * overlaps [start, end). */
uint32_t cfi_entries_after(const struct cfi_entries *x, uint32_t n, uint32_t pc);
bool cfi_entries_cover(const struct cfi_entries *x, uint32_t n, uint32_t start, uint32_t end);

/* Appends of a section what the entries so far, sorted, do not cover; sorted afterwards. */
int cfi_section_fill(struct cfi_entries *x, const struct cfi_section *s, uint32_t section_index);

#endif
