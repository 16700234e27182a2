/* Evaluates the instructions of call frame information (DWARF 5, section 6.4.2; LSB core, DW_CFA_GNU_*) into
 * unwind rules: what of a frame the rules can express, tracked as the instructions change it. */
#ifndef SYMBOLIZER_CFI_EVAL_H
#define SYMBOLIZER_CFI_EVAL_H

#include <stdbool.h>
#include <stdint.h>

#include "symbolizer/cfi_reader.h"
#include "symbolizer/cfi_rows.h"

/* DWARF numbers of the registers that are tracked: System V ABI, AMD64 supplement, figure 3.36; DWARF for
 * the Arm 64-bit architecture, table 4.1. */
struct cfi_arch {
        bool x86;
        uint8_t sp, fp, ra, bx; /* bx 255: none */
};
extern const struct cfi_arch cfi_arch_x86_64, cfi_arch_aarch64;

enum cfi_where {
        CFI_SAME = 0,      /* not changed by this function */
        CFI_AT_CFA = 1,    /* *(CFA + offset) */
        CFI_AT_FP = 2,     /* *(fp + offset) */
        CFI_AT_SP = 3,     /* *(sp + offset) */
        CFI_UNDEFINED = 4, /* DW_CFA_undefined; of the return address: the outermost frame */
        CFI_OTHER = 5,     /* somewhere that the rules cannot say */
        CFI_IN = 6,        /* the register whose number is `offset` */
};

struct cfi_saved {
        int32_t offset;
        uint8_t where;
};

struct cfi_state {
        uint8_t cfa; /* UNWIND_REG (register `cfa_reg`), UNWIND_PLT, UNWIND_DEREF_*, UNWIND_UNSUPPORTED */
        int8_t cfa_aux;
        uint16_t cfa_reg;
        int32_t cfa_offset;
        struct cfi_saved fp, ra, bx;
};

struct cfi_cie {
        uint64_t offset; /* in its section */
        uint64_t code_align;
        int64_t data_align;
        struct cfi_state initial;
        uint8_t encoding; /* of the addresses in its FDEs */
        bool usable, augmented, signal;
};

/* Runs the initial instructions of a CIE. False: damaged. */
bool cfi_eval_initial(const struct cfi_arch *arch, struct cfi_cie *cie, struct cfi_reader program);

/* Runs the instructions of an FDE for code from pc up to end and adds a row for each change. `address`: ELF
 * address of the first instruction byte, `pc_address` that of pc, for DW_CFA_set_loc. False: damaged; the
 * rows from the damage up to end say UNWIND_UNSUPPORTED. */
bool cfi_eval_fde(const struct cfi_arch *arch, struct cfi_rows *rows, const struct cfi_cie *cie,
                  struct cfi_reader program, uint64_t address, uint64_t pc_address, uint32_t pc,
                  uint32_t end);

#endif
