/* Unwind tables: what `.eh_frame` and `.debug_frame` say, as rows that the kernel half can search.
 *
 * The one place that defines the format: the symbolizer's worker makes tables in it, the daemon loads them
 * into BPF maps, the BPF program (and its user-space twin) walks with them. Values are explicit and never
 * reused. Plain C for gcc, clang and the BPF target.
 *
 * A row says that from its address on, up to the next row, one rule holds. Text is cut into pages of 4 KiB;
 * each page starts with a row at offset 0 (carried over from before), so that a search stays in its page.
 *
 *   row, 32 bits:   31..16 offset within the page (bits 11..0 of the ELF address)   15..0 rule id
 *   rule, 64 bits:  struct unwind_rule
 *
 * Within a table from the worker rule ids index the table's own rule list; the daemon renumbers them into
 * one dictionary for the host when it loads the table. Ids below UNWIND_RULE_FIRST are the same everywhere
 * and have no parameters. */
#ifndef SYMBOLIZER_UNWIND_FORMAT_H
#define SYMBOLIZER_UNWIND_FORMAT_H

#ifdef __BPF__
typedef unsigned char uint8_t;
typedef signed char int8_t;
typedef unsigned short uint16_t;
typedef short int16_t;
typedef unsigned int uint32_t;
typedef int int32_t;
typedef unsigned long long uint64_t;
typedef long long int64_t;
#else
#include <stdint.h>
#endif

#define UNWIND_PAGE_SHIFT 12
#define UNWIND_PAGE_MASK  ((1u << UNWIND_PAGE_SHIFT) - 1)

/* How the canonical frame address (DWARF 5, section 6.4) is found. */
enum unwind_kind {
        UNWIND_NONE = 0,        /* no CFI covers this address: try the frame pointer */
        UNWIND_STOP = 1,        /* return address undefined: the outermost frame */
        UNWIND_SIGNAL = 2,      /* signal trampoline: registers are in the ucontext on the stack */
        UNWIND_UNSUPPORTED = 3, /* CFI that the rules cannot express */
        UNWIND_SP = 4,          /* CFA = sp + cfa_offset */
        UNWIND_FP = 5,          /* CFA = fp + cfa_offset */
        UNWIND_PLT = 6,         /* CFA = sp + 8 + ((pc & 15) >= aux ? 8 : 0) */
        UNWIND_DEREF_SP = 7,    /* CFA = *(sp + cfa_offset) + 8 * aux */
        UNWIND_DEREF_FP = 8,    /* CFA = *(fp + cfa_offset) + 8 * aux */
        UNWIND_BX = 9,          /* x86-64: CFA = rbx + cfa_offset */
        UNWIND_REG = 10,        /* CFA = register[aux] + cfa_offset, valid in the innermost frames only */
        UNWIND_DEREF_AT = 11,   /* CFA = *(sp + 8 * register[aux] + cfa_offset) + 8, in the innermost only */
        UNWIND_RA_IN = 12, /* x86-64: CFA = sp + cfa_offset, the return address is register[aux], all else
                            * is unchanged; in the innermost frame only */
};
#define UNWIND_RULE_FIRST 4 /* rule ids 0..3 are the kinds without parameters */

/* Where the caller's frame pointer is. */
enum unwind_fp {
        UNWIND_FP_SAME = 0,      /* not changed */
        UNWIND_FP_AT_CFA = 1,    /* *(CFA + 8 * fp_offset) */
        UNWIND_FP_AT_FP = 2,     /* *(fp + 8 * fp_offset) */
        UNWIND_FP_UNDEFINED = 3, /* not recoverable */
};

/* x86-64: the return address is at CFA - 8, but for RA_IN. `aux` of kinds SP, FP and BX is where the
 * caller's rbx is: 0 not changed, UNWIND_AUX_LOST not recoverable, else *(CFA + 8 * aux). PLT leaves it
 * unchanged, after the other kinds it is taken as lost. aarch64: `aux` is where the return address is: 0 in
 * lr, UNWIND_AUX_BESIDE_FP at CFA + 8 * fp_offset + 8 (also where the frame pointer is not changed), else
 * *(CFA + 8 * aux). */
struct unwind_rule {
        uint8_t kind_fp; /* unwind_kind | unwind_fp << 4 */
        int8_t aux;
        int16_t fp_offset; /* in units of 8 bytes */
        int32_t cfa_offset;
};

#define UNWIND_AUX_LOST      (-128)
#define UNWIND_AUX_BESIDE_FP 127

_Static_assert(sizeof(struct unwind_rule) == 8, "a rule is 8 bytes");

#define UNWIND_RULE_KIND(r) ((r)->kind_fp & 15)
#define UNWIND_RULE_FP(r)   ((r)->kind_fp >> 4)

#define UNWIND_ROW(offset, rule) ((uint32_t)(offset) << 16 | (uint32_t)(rule))
#define UNWIND_ROW_OFFSET(row)   ((row) >> 16)
#define UNWIND_ROW_RULE(row)     ((row)&0xffffu)

#endif
