/* One step of the walk of a user stack: from a frame to its caller, by the rules of
 * symbolizer/unwind_format.h. Written once, for the BPF program and for its user-space twin that finishes
 * deferred samples, so that both show the same stacks.
 *
 * What differs between the two is the includer's: UNWIND_ARM64, to be defined before the #include (nonzero
 * when the stacks are of aarch64, else x86-64), and the functions that are declared below, to be defined
 * after it.
 *
 * Every path does a bounded amount of work, whatever the stack, the registers and the tables hold. */
#ifndef BPF_UNWIND_STEP_H
#define BPF_UNWIND_STEP_H

#include "bpf/abi.h"

#define UNWIND_INLINE static inline __attribute__((always_inline))

/* Frames that are walked at most; of more than ABI_MAX_FRAMES the middle is left out. */
#define UNWIND_MAX_STEPS 2048

struct unwind_walk {
        uint64_t ip, sp, fp, lr, bx;
        struct abi_mapping mapping; /* the last one found; start == end: none */
        uint32_t n;                 /* frames emitted */
        uint32_t walk;              /* enum abi_walk, when unwind_step() returned nonzero */
        uint32_t uprobes;           /* return trampolines met */
        uint32_t flags;             /* ABI_MAPPING_* of the code at ip */
        uint8_t leaf;               /* ip is of an interrupted instruction, not a return address */
        uint8_t bx_known;
        uint8_t by_fp;    /* ip was found by a frame pointer that nothing vouches for */
        uint8_t defer;    /* ended for want of a table that is on its way */
        uint8_t unmapped; /* ended at an address outside every mapping: perhaps of one that is new */
};

/* 8 bytes of user memory, near the last read as a rule. 0, or nonzero when they cannot be read. */
UNWIND_INLINE int unwind_read8(struct unwind_walk *w, uint64_t address, uint64_t *ret);
/* The same for a few words, anywhere, also code. */
UNWIND_INLINE int unwind_read(struct unwind_walk *w, void *dst, uint32_t size, uint64_t address);
/* A register at the sample, by DWARF number, 0..15. */
UNWIND_INLINE uint64_t unwind_register(struct unwind_walk *w, uint32_t number);
/* Sets w->mapping to the mapping of pc and returns 1; 0 when there is none. */
UNWIND_INLINE int unwind_find_mapping(struct unwind_walk *w, uint64_t pc);
/* The struct unwind_rule for pc in w->mapping as a number (see below): 0 (UNWIND_NONE) outside the table,
 * UNWIND_RULE_ABSENT when that part of the table is not loaded. */
UNWIND_INLINE uint64_t unwind_find_rule(struct unwind_walk *w, uint64_t pc);
/* The address that w->ip, which is in [uprobes], stands for; 0 when it is not known. */
UNWIND_INLINE uint64_t unwind_uprobe(struct unwind_walk *w);
/* Appends a frame (ABI_FRAME) to the stack and increments w->n. */
UNWIND_INLINE void unwind_emit(struct unwind_walk *w, uint64_t frame);

/* struct unwind_rule as a little-endian number, as it is read with one load. */
#define UNWIND_RULE_ABSENT       0xffull /* no rule has this kind and these zero fields */
#define UNWIND_RULE_NUM_KIND(r)  ((uint32_t)(r)&15)
#define UNWIND_RULE_NUM_FP(r)    ((uint32_t)((r) >> 4) & 15)
#define UNWIND_RULE_NUM_AUX(r)   ((int64_t)(int8_t)((r) >> 8))
#define UNWIND_RULE_NUM_FPOFF(r) ((int64_t)(int16_t)((r) >> 16) * 8)
#define UNWIND_RULE_NUM_CFA(r)   ((int64_t)(int32_t)((r) >> 32))

/* Instruction bytes of `mov $15, %rax; syscall`, `mov $15, %eax; syscall` (x86-64), `mov x8, #139; svc #0`
 * (aarch64): trampolines out of a signal handler that carry no CFI (musl, Go, aarch64's vDSO). */
#define UNWIND_SIGRETURN_X86_RAX 0x0f0000000fc0c748ull
#define UNWIND_SIGRETURN_X86_EAX 0x00050f0000000fb8ull /* 7 bytes */
#define UNWIND_SIGRETURN_ARM64   0xd4000001d2801168ull

#define UNWIND_PAC_MASK ((1ull << 48) - 1) /* aarch64 signs return addresses in the bits above */
#define UNWIND_VSYSCALL 0xffffffffff600000ull
#define UNWIND_MAX_FP_GAP \
        (1ull << 20) /* a frame is smaller: else a frame pointer is taken as a plain value */

/* Signal frames as the kernel lays them out (arch/x86/include/asm/sigframe.h, arch/arm64/kernel/signal.c):
 * from sp in the trampoline to rbp, rbx, rdx, rax, rcx, rsp, rip; to x29, x30, sp, pc. */
#define UNWIND_SIGFRAME_X86_RBP   (40 + 10 * 8)
#define UNWIND_SIGFRAME_ARM64_X29 (128 + 176 + 8 + 29 * 8)

UNWIND_INLINE void unwind_begin(struct unwind_walk *w)
{
        w->n = 0;
        w->walk = ABI_WALK_DEPTH;
        w->uprobes = 0;
        w->leaf = 1;
        w->bx_known = 1;
        w->by_fp = 0;
        w->defer = 0;
        w->unmapped = 0;
        w->mapping.start = w->mapping.end = 0;
}

UNWIND_INLINE int unwind_end(struct unwind_walk *w, uint32_t walk)
{
        w->walk = walk;
        return 1;
}

/* Goes to a caller whose registers are set but for ip. */
UNWIND_INLINE int unwind_to(struct unwind_walk *w, uint64_t ip, uint64_t sp, uint64_t fp)
{
        w->ip = ip;
        w->sp = sp;
        w->fp = fp;
        w->leaf = 0;
        if (!ip && !fp) /* both zero: how both ABIs mark the outermost frame */
                return unwind_end(w, ABI_WALK_COMPLETE);
        return 0;
}

/* Out of a signal handler: registers from the signal frame, possibly on another stack. */
UNWIND_INLINE int unwind_signal(struct unwind_walk *w)
{
        uint64_t g[7];

        if (UNWIND_ARM64) {
                if (unwind_read(w, g, 4 * 8, w->sp + UNWIND_SIGFRAME_ARM64_X29))
                        return unwind_end(w, ABI_WALK_UNREADABLE);
                w->fp = g[0];
                w->lr = g[1];
                w->sp = g[2];
                w->ip = g[3];
        } else {
                if (unwind_read(w, g, 7 * 8, w->sp + UNWIND_SIGFRAME_X86_RBP))
                        return unwind_end(w, ABI_WALK_UNREADABLE);
                w->fp = g[0];
                w->bx = g[1];
                w->bx_known = 1;
                w->sp = g[5];
                w->ip = g[6];
        }
        w->leaf = 1;
        w->by_fp = 0;
        return 0;
}

/* Code without a rule: the frame pointer, where it looks like one. */
UNWIND_INLINE int unwind_frame_pointer(struct unwind_walk *w)
{
        uint64_t sp = w->sp, fp = w->fp, code = 0, v[2];
        uint32_t flags = w->flags;
        uint32_t end = flags & ABI_MAPPING_GO   ? ABI_WALK_COMPLETE
                       : flags & ABI_MAPPING_FP ? ABI_WALK_FP_END
                                                : ABI_WALK_NO_TABLE;

        if (!(flags & (ABI_MAPPING_FP | ABI_MAPPING_GO)) || w->leaf) {
                if (unwind_read(w, &code, 8, w->ip))
                        code = 0;
                if (!w->leaf && (UNWIND_ARM64 ? code == UNWIND_SIGRETURN_ARM64
                                              : code == UNWIND_SIGRETURN_X86_RAX ||
                                                                 (code & 0xffffffffffffffull) ==
                                                                                 UNWIND_SIGRETURN_X86_EAX))
                        return unwind_signal(w);
        }
        w->bx_known = 0;
        if (!UNWIND_ARM64 && w->leaf && flags & (ABI_MAPPING_FP | ABI_MAPPING_GO)) {
                /* Where the frame is not made yet, or already undone, the return address is on top of the
                 * stack: at `push %rbp` (also behind endbr64) and `ret`; at `mov %rsp, %rbp` below rbp. */
                uint64_t at = sp;
                int bare = (code & 0xff) == 0x55 || (code & 0xff) == 0xc3 ||
                           (code & 0xffffffffff) == 0x55fa1e0ff3ull;
                if ((code & 0xffffff) == 0xe58948 || (code & 0xffffff) == 0xec8b48) {
                        at += 8;
                        bare = 1;
                }
                if (bare) {
                        if (unwind_read8(w, at, &v[0]))
                                return unwind_end(w, ABI_WALK_UNREADABLE);
                        w->by_fp = 1;
                        return unwind_to(w, v[0], at + 8, fp);
                }
        }
        if (!fp && (w->n > 1 || flags & (ABI_MAPPING_FP | ABI_MAPPING_GO)))
                return unwind_end(w, ABI_WALK_COMPLETE);
        if (fp < sp || fp & 7 || fp - sp > UNWIND_MAX_FP_GAP)
                return unwind_end(w, end);
        if (unwind_read(w, v, 16, fp))
                return unwind_end(w, ABI_WALK_UNREADABLE);
        if (UNWIND_ARM64)
                v[1] &= UNWIND_PAC_MASK;
        if (!v[1])
                return unwind_end(w, !v[0] && flags & ABI_MAPPING_FP ? ABI_WALK_COMPLETE : end);
        w->by_fp = 1;
        return unwind_to(w, v[1], fp + 16, v[0]);
}

/* Takes the caller's registers from the frame whose CFA is known. */
UNWIND_INLINE int unwind_caller(struct unwind_walk *w, uint64_t rule, uint64_t cfa)
{
        uint64_t fp = w->fp, ra;
        uint32_t kind = UNWIND_RULE_NUM_KIND(rule), fp_rule = UNWIND_RULE_NUM_FP(rule);
        int64_t aux = UNWIND_RULE_NUM_AUX(rule), fp_offset = UNWIND_RULE_NUM_FPOFF(rule);

        if (fp_rule == UNWIND_FP_AT_CFA || fp_rule == UNWIND_FP_AT_FP) {
                if (unwind_read8(w, (fp_rule == UNWIND_FP_AT_CFA ? cfa : fp) + fp_offset, &fp))
                        return unwind_end(w, ABI_WALK_UNREADABLE);
        }
        if (UNWIND_ARM64) {
                ra = w->lr;
                if (!aux) {
                        if (!w->leaf) /* lr holds what the callee returned to, that is this function */
                                return unwind_end(w, ABI_WALK_UNSUPPORTED);
                } else if (unwind_read8(w, cfa + (aux == UNWIND_AUX_BESIDE_FP ? fp_offset + 8 : aux * 8),
                                        &ra)) {
                        return unwind_end(w, ABI_WALK_UNREADABLE);
                }
                ra &= UNWIND_PAC_MASK;
        } else {
                if (kind == UNWIND_SP || kind == UNWIND_FP || kind == UNWIND_BX) {
                        if (aux == UNWIND_AUX_LOST) {
                                w->bx_known = 0;
                        } else if (aux) {
                                if (unwind_read8(w, cfa + aux * 8, &w->bx))
                                        return unwind_end(w, ABI_WALK_UNREADABLE);
                                w->bx_known = 1;
                        }
                } else if (kind != UNWIND_PLT) {
                        w->bx_known = 0;
                }
                if (unwind_read8(w, cfa - 8, &ra))
                        return unwind_end(w, ABI_WALK_UNREADABLE);
        }
        w->by_fp = 0;
        return unwind_to(w, ra, cfa, fp);
}

/* What unwind_locate() found. */
enum unwind_located {
        UNWIND_FOUND = 0, /* frame and rule of w->ip, and w->flags */
        UNWIND_ENDED = 1, /* the walk has ended, see w->walk */
        UNWIND_MOVED = 2, /* w->ip stood for another address, where it is now: locate again */
};

/* The frame and the rule of w->ip, by mappings and tables. */
UNWIND_INLINE int unwind_locate(struct unwind_walk *w, uint64_t *ret_frame, uint64_t *ret_rule)
{
        uint64_t ip = w->ip, pc = w->leaf ? ip : ip - 1, v;

        /* The return trampoline is at the very start of [uprobes]. */
        if (!(ip & UNWIND_PAGE_MASK) && unwind_find_mapping(w, ip) && w->mapping.flags & ABI_MAPPING_UPROBES)
                pc = ip;
        if (pc - w->mapping.start >= w->mapping.end - w->mapping.start && !unwind_find_mapping(w, pc)) {
                w->mapping.start = w->mapping.end = 0;
                if (!UNWIND_ARM64 && w->leaf && ip >> 12 == UNWIND_VSYSCALL >> 12) {
                        unwind_emit(w, ABI_FRAME(0, pc));
                        if (unwind_read8(w, w->sp, &v))
                                return unwind_end(w, ABI_WALK_UNREADABLE);
                        return unwind_to(w, v, w->sp + 8, w->fp) ? UNWIND_ENDED : UNWIND_MOVED;
                }
                if (w->leaf) /* elsewhere it is no address of code, and naming it would invent a caller */
                        unwind_emit(w, ABI_FRAME(0, pc));
                w->unmapped = 1;
                return unwind_end(w, w->by_fp ? ABI_WALK_FP_END : ABI_WALK_NO_MAPPING);
        }
        w->flags = w->mapping.flags;
        if (w->flags & ABI_MAPPING_UPROBES) {
                v = unwind_uprobe(w);
                w->uprobes++;
                if (!v || v == ip) {
                        unwind_emit(w, ABI_FRAME(0, pc));
                        return unwind_end(w, ABI_WALK_UNSUPPORTED);
                }
                w->ip = v;
                return UNWIND_MOVED;
        }
        *ret_frame = ABI_FRAME(w->mapping.object, w->mapping.object ? pc - w->mapping.bias : pc);
        *ret_rule = unwind_find_rule(w, pc);
        return UNWIND_FOUND;
}

/* Emits the frame at w->ip and goes to its caller by its rule. 0: go on; nonzero: the walk has ended, see
 * w->walk. */
UNWIND_INLINE int unwind_apply(struct unwind_walk *w, uint64_t frame, uint64_t rule)
{
        uint64_t ip = w->ip, sp = w->sp, fp = w->fp, cfa, v;
        uint32_t kind = UNWIND_RULE_NUM_KIND(rule);
        int64_t off = UNWIND_RULE_NUM_CFA(rule), aux = UNWIND_RULE_NUM_AUX(rule);

        unwind_emit(w, frame);
        if (rule == UNWIND_RULE_ABSENT) {
                w->defer = 1;
                return unwind_end(w, ABI_WALK_PAGE_MISSING);
        }
        switch (kind) {
        case UNWIND_NONE:
                if (w->flags & ABI_MAPPING_DEFER) {
                        w->defer = 1;
                        return unwind_end(w, ABI_WALK_NO_TABLE);
                }
                return unwind_frame_pointer(w);
        case UNWIND_STOP:
                return unwind_end(w, ABI_WALK_COMPLETE);
        case UNWIND_SIGNAL:
                return unwind_signal(w);
        case UNWIND_SP:
                cfa = sp + off;
                break;
        case UNWIND_FP:
                cfa = fp + off;
                break;
        case UNWIND_PLT:
                cfa = sp + 8 + ((ip & 15) >= (uint64_t)aux ? 8 : 0);
                break;
        case UNWIND_DEREF_SP:
        case UNWIND_DEREF_FP:
                if (unwind_read8(w, (kind == UNWIND_DEREF_SP ? sp : fp) + off, &v))
                        return unwind_end(w, ABI_WALK_UNREADABLE);
                cfa = v + aux * 8;
                break;
        case UNWIND_BX:
                if (UNWIND_ARM64 || !w->bx_known)
                        return unwind_end(w, ABI_WALK_UNSUPPORTED);
                cfa = w->bx + off;
                break;
        case UNWIND_REG:
                /* Not followed from frame to frame, but still what it was in the first ones of hand-written
                 * assembly. */
                if (w->n > 3)
                        return unwind_end(w, ABI_WALK_UNSUPPORTED);
                cfa = unwind_register(w, aux & 15) + off;
                break;
        case UNWIND_RA_IN:
                if (UNWIND_ARM64 || w->n > 1)
                        return unwind_end(w, ABI_WALK_UNSUPPORTED);
                w->bx_known = 0;
                w->by_fp = 0;
                return unwind_to(w, unwind_register(w, aux & 15), sp + off, fp);
        case UNWIND_DEREF_AT:
                if (w->n > 1) /* as above, and of a register that is not kept across calls */
                        return unwind_end(w, ABI_WALK_UNSUPPORTED);
                if (unwind_read8(w, sp + unwind_register(w, aux & 15) * 8 + off, &v))
                        return unwind_end(w, ABI_WALK_UNREADABLE);
                cfa = v + 8;
                break;
        default:
                return unwind_end(w, ABI_WALK_UNSUPPORTED);
        }
        /* A frame does not go down the stack. On aarch64 a leaf may have none at all. */
        if (cfa & 7 || cfa < sp || (cfa == sp && !(UNWIND_ARM64 && w->leaf)))
                return unwind_end(w, ABI_WALK_BAD_STACK);
        return unwind_caller(w, rule, cfa);
}

/* From a frame to its caller. 0: go on; nonzero: the walk has ended, see w->walk. */
UNWIND_INLINE int unwind_step(struct unwind_walk *w)
{
        uint64_t frame, rule;
        int r = unwind_locate(w, &frame, &rule);

        return r == UNWIND_FOUND ? unwind_apply(w, frame, rule) : r == UNWIND_ENDED;
}

/* Index of the last of n entries (n > 0, at most 2^20) that is not above the key, by loads of
 * KEY_AT(index), which may be any expression. Without a data-dependent branch: the processor does not
 * mispredict, and the BPF verifier sees one path whatever the table. The barrier keeps the compiler from
 * turning the mask into a branch. */
#define UNWIND_SEARCH(base, n, key, KEY_AT)                                                            \
        do {                                                                                           \
                uint64_t _len = (n), _key = (key);                                                     \
                for (int _i = 0; _i < 20 && _len > 1; _i++) {                                          \
                        uint64_t _half = _len >> 1, _mask = (KEY_AT((base) + _half) - _key - 1) >> 63; \
                        __asm__ volatile("" : "+r"(_mask));                                            \
                        (base) += _half & -_mask;                                                      \
                        _len -= _half;                                                                 \
                }                                                                                      \
        } while (0)

#endif
