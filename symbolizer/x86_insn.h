/* Lengths of x86-64 instructions, and what they do to the stack: as much of a decoder as it takes to follow
 * the stack pointer through compiled code. Encoding: Intel SDM volume 2, chapter 2 and appendix A. */
#ifndef SYMBOLIZER_X86_INSN_H
#define SYMBOLIZER_X86_INSN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum x86_effect {
        X86_NONE = 0,
        X86_PUSH,       /* reg; X86_R_OTHER when it is no register, or one that does not matter */
        X86_POP,        /* reg */
        X86_SP_ADD,     /* rsp += value */
        X86_SP_LOST,    /* rsp becomes something not known */
        X86_SP_FROM_FP, /* rsp = rbp + value */
        X86_FP_FROM_SP, /* rbp = rsp + value */
        X86_LEAVE,
        X86_STORE,   /* *(rsp + value) = reg */
        X86_LOAD,    /* reg = *(rsp + value) */
        X86_ADDRESS, /* a register = the address `target` */
        X86_CALL,    /* target; 0: not known */
        X86_JUMP,    /* target; 0: not known */
        X86_BRANCH,  /* target, or on */
        X86_RETURN,
        X86_END,     /* does not go on: traps */
        X86_STRANGE, /* nothing that compilers make of a function's stack */
};

enum { X86_R_BX = 3, X86_R_SP = 4, X86_R_FP = 5, X86_R_OTHER = 255 };

struct x86_decoded {
        uint8_t length;
        uint8_t effect; /* enum x86_effect */
        uint8_t reg;
        int32_t value;
        uint64_t target;
};

/* The instruction at p, of which n bytes may be read and whose address is `address`. False: none. */
bool x86_decode(const uint8_t *p, size_t n, uint64_t address, struct x86_decoded *ret);

#endif
