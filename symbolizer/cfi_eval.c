#include "symbolizer/cfi_eval.h"

#include <stddef.h>

#define STATE_STACK 32 /* nested DW_CFA_remember_state; compilers nest one or two */
#define REG_NONE    255

const struct cfi_arch cfi_arch_x86_64 = {.x86 = true, .sp = 7, .fp = 6, .ra = 16, .bx = 3};
const struct cfi_arch cfi_arch_aarch64 = {.x86 = false, .sp = 31, .fp = 29, .ra = 30, .bx = REG_NONE};

enum { /* primary opcodes, in the upper two bits */
       CFA_ADVANCE_LOC = 1,
       CFA_OFFSET = 2,
       CFA_RESTORE = 3,
};

enum {
        CFA_NOP = 0x00,
        CFA_SET_LOC = 0x01,
        CFA_ADVANCE_LOC1 = 0x02,
        CFA_ADVANCE_LOC2 = 0x03,
        CFA_ADVANCE_LOC4 = 0x04,
        CFA_OFFSET_EXTENDED = 0x05,
        CFA_RESTORE_EXTENDED = 0x06,
        CFA_UNDEFINED = 0x07,
        CFA_SAME_VALUE = 0x08,
        CFA_REGISTER = 0x09,
        CFA_REMEMBER_STATE = 0x0a,
        CFA_RESTORE_STATE = 0x0b,
        CFA_DEF_CFA = 0x0c,
        CFA_DEF_CFA_REGISTER = 0x0d,
        CFA_DEF_CFA_OFFSET = 0x0e,
        CFA_DEF_CFA_EXPRESSION = 0x0f,
        CFA_EXPRESSION = 0x10,
        CFA_OFFSET_EXTENDED_SF = 0x11,
        CFA_DEF_CFA_SF = 0x12,
        CFA_DEF_CFA_OFFSET_SF = 0x13,
        CFA_VAL_OFFSET = 0x14,
        CFA_VAL_OFFSET_SF = 0x15,
        CFA_VAL_EXPRESSION = 0x16,
        CFA_MIPS_ADVANCE_LOC8 = 0x1d,
        CFA_AARCH64_NEGATE_RA_STATE_WITH_PC = 0x2c,
        CFA_AARCH64_NEGATE_RA_STATE = 0x2d, /* DW_CFA_GNU_window_save on SPARC */
        CFA_GNU_ARGS_SIZE = 0x2e,
        CFA_GNU_NEGATIVE_OFFSET_EXTENDED = 0x2f,
};

enum {
        OP_DEREF = 0x06,
        OP_CONSTS = 0x11,
        OP_MUL = 0x1e,
        OP_PLUS = 0x22,
        OP_PLUS_UCONST = 0x23,
        OP_LIT0 = 0x30,
        OP_LIT31 = 0x4f,
        OP_BREG0 = 0x70,
        OP_BREG31 = 0x8f,
        OP_BREGX = 0x92,
};

static struct cfi_saved *tracked(struct cfi_state *s, const struct cfi_arch *arch, uint64_t reg)
{
        if (reg == arch->fp)
                return &s->fp;
        if (reg == arch->ra)
                return &s->ra;
        if (reg == arch->bx)
                return &s->bx;
        return NULL;
}

static void set_where(struct cfi_state *s, const struct cfi_arch *arch, uint64_t reg, enum cfi_where where)
{
        struct cfi_saved *saved = tracked(s, arch, reg);

        if (saved)
                *saved = (struct cfi_saved){.where = where};
}

static void set_offset(struct cfi_state *s, const struct cfi_arch *arch, uint64_t reg, int64_t factored,
                       int64_t data_align)
{
        struct cfi_saved *saved = tracked(s, arch, reg);
        int64_t offset;

        if (!saved)
                return;
        if (__builtin_mul_overflow(factored, data_align, &offset) || offset != (int32_t)offset)
                *saved = (struct cfi_saved){.where = CFI_OTHER};
        else
                *saved = (struct cfi_saved){.offset = (int32_t)offset, .where = CFI_AT_CFA};
}

static void restore(struct cfi_state *s, const struct cfi_arch *arch, uint64_t reg,
                    const struct cfi_state *initial)
{
        if (reg == arch->fp)
                s->fp = initial->fp;
        else if (reg == arch->ra)
                s->ra = initial->ra;
        else if (reg == arch->bx)
                s->bx = initial->bx;
}

static void set_cfa_offset(struct cfi_state *s, int64_t offset)
{
        if (s->cfa != UNWIND_REG || offset != (int32_t)offset)
                s->cfa = UNWIND_UNSUPPORTED;
        else
                s->cfa_offset = (int32_t)offset;
}

static void set_cfa(struct cfi_state *s, uint64_t reg, int64_t offset)
{
        s->cfa = reg > INT8_MAX ? UNWIND_UNSUPPORTED : UNWIND_REG;
        s->cfa_reg = (uint16_t)reg;
        set_cfa_offset(s, offset);
}

/* unsigned operands of def_cfa and the like are not factored; what exceeds an int64_t is no offset either */
static int64_t unfactored(uint64_t v)
{
        return v > INT64_MAX ? INT64_MAX : (int64_t)v;
}

static int64_t factored(int64_t v, int64_t data_align)
{
        int64_t product;

        return __builtin_mul_overflow(v, data_align, &product) ? INT64_MAX : product;
}

/* "register + offset" at the start of an expression. */
static bool read_breg(struct cfi_reader *r, uint64_t *ret_reg, int64_t *ret_offset)
{
        uint8_t op = cfi_u8(r);

        if (op >= OP_BREG0 && op <= OP_BREG31)
                *ret_reg = op - OP_BREG0;
        else if (op == OP_BREGX)
                *ret_reg = cfi_uleb(r);
        else
                return false;
        *ret_offset = cfi_sleb(r);
        return !r->bad;
}

/* The binutils linker's CFA of a lazy PLT, where the entry has pushed its index from some offset on:
 * rsp + 8 + ((rip & 15) >= N) << 3. */
static bool read_plt(struct cfi_reader r, int8_t *ret_aux)
{
        static const uint8_t before[] = {0x77, 8, 0x80, 0, 0x3f, 0x1a}; /* breg7 8, breg16 0, lit15, and */
        static const uint8_t after[] = {0x2a, 0x33, 0x24, 0x22};        /* ge, lit3, shl, plus */

        if (cfi_left(&r) != sizeof(before) + 1 + sizeof(after) || memcmp(r.p, before, sizeof(before)) != 0 ||
            memcmp(r.p + sizeof(before) + 1, after, sizeof(after)) != 0)
                return false;
        if (r.p[sizeof(before)] < OP_LIT0 || r.p[sizeof(before)] > OP_LIT31)
                return false;
        *ret_aux = (int8_t)(r.p[sizeof(before)] - OP_LIT0);
        return true;
}

/* What is left of the CFA of OpenSSL's multiplication, which keeps the stack pointer it was called with
 * above an array of so many words: rsp + N + rREG * 8, dereferenced, + 8. */
static bool read_deref_at(struct cfi_reader r, int8_t *ret_reg)
{
        static const uint8_t after[] = {OP_LIT0 + 8, OP_MUL, OP_PLUS, OP_DEREF, OP_PLUS_UCONST, 8};
        uint64_t reg;
        int64_t offset;

        if (!read_breg(&r, &reg, &offset) || reg > 15 || offset || cfi_left(&r) != sizeof(after) ||
            memcmp(r.p, after, sizeof(after)) != 0)
                return false;
        *ret_reg = (int8_t)reg;
        return true;
}

/* After a dereference: nothing, or the addition of a constant. */
static bool read_addend(struct cfi_reader *r, int64_t *ret)
{
        if (!cfi_left(r)) {
                *ret = 0;
                return true;
        }
        switch (cfi_u8(r)) {
        case OP_PLUS_UCONST:
                *ret = unfactored(cfi_uleb(r));
                break;
        case OP_CONSTS:
                *ret = cfi_sleb(r);
                if (cfi_u8(r) != OP_PLUS)
                        return false;
                break;
        default:
                return false;
        }
        return !r->bad && !cfi_left(r);
}

static void set_cfa_expression(struct cfi_state *s, const struct cfi_arch *arch, struct cfi_reader r)
{
        uint64_t reg;
        int64_t offset, addend;
        int8_t aux;

        s->cfa = UNWIND_UNSUPPORTED;
        if (arch->x86 && read_plt(r, &aux)) {
                s->cfa = UNWIND_PLT;
                s->cfa_aux = aux;
                s->cfa_offset = 8;
                return;
        }
        if (!read_breg(&r, &reg, &offset))
                return;
        if (!cfi_left(&r)) {
                set_cfa(s, reg, offset);
                return;
        }
        if (arch->x86 && reg == arch->sp && offset == (int32_t)offset && read_deref_at(r, &aux)) {
                s->cfa = UNWIND_DEREF_AT;
                s->cfa_aux = aux;
                s->cfa_offset = (int32_t)offset;
                return;
        }
        if (cfi_u8(&r) != OP_DEREF || !read_addend(&r, &addend))
                return;
        if ((reg != arch->sp && reg != arch->fp) || addend % 8 || addend / 8 != (int8_t)(addend / 8) ||
            offset != (int32_t)offset)
                return;
        s->cfa = reg == arch->sp ? UNWIND_DEREF_SP : UNWIND_DEREF_FP;
        s->cfa_aux = (int8_t)(addend / 8);
        s->cfa_offset = (int32_t)offset;
}

/* A register's address by an expression, which starts with the CFA on the stack. */
static void set_expression(struct cfi_state *s, const struct cfi_arch *arch, uint64_t reg,
                           struct cfi_reader r)
{
        struct cfi_saved *saved = tracked(s, arch, reg);
        uint64_t base;
        int64_t offset;

        if (!saved)
                return;
        *saved = (struct cfi_saved){.where = CFI_OTHER};
        if (!read_breg(&r, &base, &offset) || cfi_left(&r) || offset != (int32_t)offset)
                return;
        if (base == arch->fp)
                *saved = (struct cfi_saved){.offset = (int32_t)offset, .where = CFI_AT_FP};
        else if (base == arch->sp)
                *saved = (struct cfi_saved){.offset = (int32_t)offset, .where = CFI_AT_SP};
}

/* What the state says in terms of the CFA, where that is at a constant distance from the base. */
static struct cfi_saved relative(const struct cfi_state *s, const struct cfi_arch *arch,
                                 struct cfi_saved saved)
{
        int64_t offset;
        uint8_t base;

        if (saved.where == CFI_AT_FP)
                base = arch->fp;
        else if (saved.where == CFI_AT_SP)
                base = arch->sp;
        else
                return saved;
        if (s->cfa == UNWIND_REG && s->cfa_reg == base) {
                offset = (int64_t)saved.offset - s->cfa_offset;
                if (offset == (int32_t)offset)
                        return (struct cfi_saved){.offset = (int32_t)offset, .where = CFI_AT_CFA};
        }
        return saved;
}

/* Where the caller's rbx is, as `aux` says it. */
static int8_t bx_aux(const struct cfi_state *s, const struct cfi_arch *arch)
{
        struct cfi_saved bx = relative(s, arch, s->bx);

        if (bx.where == CFI_SAME)
                return 0;
        if (bx.where == CFI_AT_CFA && bx.offset % 8 == 0 && bx.offset && bx.offset / 8 > UNWIND_AUX_LOST &&
            bx.offset / 8 <= INT8_MAX)
                return (int8_t)(bx.offset / 8);
        return UNWIND_AUX_LOST;
}

static bool fits_fp_offset(int64_t offset)
{
        return offset % 8 == 0 && offset / 8 == (int16_t)(offset / 8);
}

/* aarch64: where the return address is, as `aux` says it. */
static bool set_ra(const struct cfi_state *s, const struct cfi_arch *arch, struct cfi_saved fp,
                   struct unwind_rule *r)
{
        struct cfi_saved ra = relative(s, arch, s->ra);
        int64_t beside = (int64_t)ra.offset - 8;

        if (ra.where == CFI_SAME) {
                r->aux = 0;
                return true;
        }
        if (ra.where != CFI_AT_CFA || ra.offset % 8)
                return false;
        if (fp.where == CFI_AT_CFA && fp.offset == beside && fits_fp_offset(beside)) {
                r->aux = UNWIND_AUX_BESIDE_FP;
                return true;
        }
        if (ra.offset && ra.offset / 8 > INT8_MIN && ra.offset / 8 < UNWIND_AUX_BESIDE_FP) {
                r->aux = (int8_t)(ra.offset / 8);
                return true;
        }
        /* Large frames that leave the frame pointer alone: the place of its offset is free. */
        if (fp.where != CFI_SAME || !fits_fp_offset(beside))
                return false;
        r->fp_offset = (int16_t)(beside / 8);
        r->aux = UNWIND_AUX_BESIDE_FP;
        return true;
}

static bool make_cfa(const struct cfi_arch *arch, const struct cfi_state *s, struct unwind_rule *r,
                     enum unwind_kind *ret_kind)
{
        enum unwind_kind kind = s->cfa;

        r->cfa_offset = s->cfa_offset;
        r->aux = s->cfa_aux;
        if (kind == UNWIND_UNSUPPORTED)
                return false;
        if (kind == UNWIND_REG) {
                if (s->cfa_reg == arch->sp)
                        kind = UNWIND_SP;
                else if (s->cfa_reg == arch->fp)
                        kind = UNWIND_FP;
                else if (s->cfa_reg == arch->bx)
                        kind = UNWIND_BX;
                r->aux = kind == UNWIND_REG ? (int8_t)s->cfa_reg : 0;
        }
        *ret_kind = kind;
        return true;
}

static void make_rule(const struct cfi_arch *arch, const struct cfi_cie *cie, const struct cfi_state *s,
                      struct unwind_rule *ret)
{
        struct unwind_rule r = {0};
        struct cfi_saved fp = relative(s, arch, s->fp);
        enum unwind_fp how = UNWIND_FP_UNDEFINED;
        enum unwind_kind kind;

        if (cie->signal) {
                *ret = (struct unwind_rule){.kind_fp = UNWIND_SIGNAL};
                return;
        }
        if (s->ra.where == CFI_UNDEFINED) {
                *ret = (struct unwind_rule){.kind_fp = UNWIND_STOP};
                return;
        }
        *ret = (struct unwind_rule){.kind_fp = UNWIND_UNSUPPORTED};
        if (!make_cfa(arch, s, &r, &kind))
                return;
        if (arch->x86) {
                struct cfi_saved ra = relative(s, arch, s->ra);

                /* The C library's vfork, whose child would overwrite it on the stack. */
                if (ra.where == CFI_IN && ra.offset < 16 && kind == UNWIND_SP && fp.where == CFI_SAME) {
                        *ret = (struct unwind_rule){.kind_fp = UNWIND_RA_IN,
                                                    .aux = (int8_t)ra.offset,
                                                    .cfa_offset = r.cfa_offset};
                        return;
                }
                if (ra.where != CFI_AT_CFA || ra.offset != -8)
                        return;
                if (kind == UNWIND_SP || kind == UNWIND_FP || kind == UNWIND_BX)
                        r.aux = bx_aux(s, arch);
        } else if ((kind != UNWIND_SP && kind != UNWIND_FP) || !set_ra(s, arch, fp, &r)) {
                return; /* aux is taken by the return address */
        }
        if (fp.where == CFI_SAME)
                how = UNWIND_FP_SAME;
        else if ((fp.where == CFI_AT_CFA || fp.where == CFI_AT_FP) && fits_fp_offset(fp.offset)) {
                how = fp.where == CFI_AT_CFA ? UNWIND_FP_AT_CFA : UNWIND_FP_AT_FP;
                r.fp_offset = (int16_t)(fp.offset / 8);
        }
        r.kind_fp = (uint8_t)(kind | how << 4);
        *ret = r;
}

struct run {
        const struct cfi_arch *arch;
        const struct cfi_cie *cie;
        const struct cfi_state *initial; /* what DW_CFA_restore goes back to */
        struct cfi_state state;
        struct cfi_state stack[STATE_STACK];
        uint32_t depth;
};

/* One instruction that changes the state. False: damaged, or not known. */
static bool change_state(struct run *u, uint8_t op, struct cfi_reader *r)
{
        struct cfi_state *s = &u->state;
        const struct cfi_arch *arch = u->arch;
        uint64_t reg;
        struct cfi_reader part;

        switch (op) {
        case CFA_NOP:
                return true;
        case CFA_OFFSET_EXTENDED:
                reg = cfi_uleb(r);
                set_offset(s, arch, reg, unfactored(cfi_uleb(r)), u->cie->data_align);
                return !r->bad;
        case CFA_OFFSET_EXTENDED_SF:
                reg = cfi_uleb(r);
                set_offset(s, arch, reg, cfi_sleb(r), u->cie->data_align);
                return !r->bad;
        case CFA_GNU_NEGATIVE_OFFSET_EXTENDED:
                reg = cfi_uleb(r);
                set_offset(s, arch, reg, -unfactored(cfi_uleb(r)), u->cie->data_align);
                return !r->bad;
        case CFA_RESTORE_EXTENDED:
                reg = cfi_uleb(r);
                restore(s, arch, reg, u->initial);
                return !r->bad;
        case CFA_UNDEFINED:
                set_where(s, arch, cfi_uleb(r), CFI_UNDEFINED);
                return !r->bad;
        case CFA_SAME_VALUE:
                set_where(s, arch, cfi_uleb(r), CFI_SAME);
                return !r->bad;
        case CFA_REGISTER: {
                struct cfi_saved *saved = tracked(s, arch, cfi_uleb(r));
                uint64_t in = cfi_uleb(r);

                if (saved)
                        *saved = (struct cfi_saved){.offset = in < INT8_MAX ? (int32_t)in : INT8_MAX,
                                                    .where = CFI_IN};
                return !r->bad;
        }
        case CFA_VAL_OFFSET:
        case CFA_VAL_OFFSET_SF: /* the second operand is skipped: its sign does not matter */
                reg = cfi_uleb(r);
                cfi_uleb(r);
                set_where(s, arch, reg, CFI_OTHER);
                return !r->bad;
        case CFA_REMEMBER_STATE:
                if (u->depth == STATE_STACK)
                        return false;
                u->stack[u->depth++] = *s;
                return true;
        case CFA_RESTORE_STATE:
                if (!u->depth)
                        return false;
                *s = u->stack[--u->depth];
                return true;
        case CFA_DEF_CFA:
                reg = cfi_uleb(r);
                set_cfa(s, reg, unfactored(cfi_uleb(r)));
                return !r->bad;
        case CFA_DEF_CFA_SF:
                reg = cfi_uleb(r);
                set_cfa(s, reg, factored(cfi_sleb(r), u->cie->data_align));
                return !r->bad;
        case CFA_DEF_CFA_REGISTER:
                reg = cfi_uleb(r);
                if (s->cfa != UNWIND_REG || reg > INT8_MAX)
                        s->cfa = UNWIND_UNSUPPORTED;
                else
                        s->cfa_reg = (uint16_t)reg;
                return !r->bad;
        case CFA_DEF_CFA_OFFSET:
                set_cfa_offset(s, unfactored(cfi_uleb(r)));
                return !r->bad;
        case CFA_DEF_CFA_OFFSET_SF:
                set_cfa_offset(s, factored(cfi_sleb(r), u->cie->data_align));
                return !r->bad;
        case CFA_DEF_CFA_EXPRESSION:
                part = cfi_take(r, cfi_uleb(r));
                set_cfa_expression(s, arch, part);
                return !r->bad;
        case CFA_EXPRESSION:
                reg = cfi_uleb(r);
                part = cfi_take(r, cfi_uleb(r));
                set_expression(s, arch, reg, part);
                return !r->bad;
        case CFA_VAL_EXPRESSION:
                reg = cfi_uleb(r);
                cfi_skip(r, cfi_uleb(r));
                set_where(s, arch, reg, CFI_OTHER);
                return !r->bad;
        case CFA_GNU_ARGS_SIZE:
                cfi_uleb(r);
                return !r->bad;
        case CFA_AARCH64_NEGATE_RA_STATE:
        case CFA_AARCH64_NEGATE_RA_STATE_WITH_PC: /* the walker strips signatures from every address */
                return !arch->x86;
        default:
                return false;
        }
}

/* The distance that an advancing instruction goes, in *ret; false when `op` is none. */
static bool read_advance(uint8_t op, struct cfi_reader *r, uint64_t code_align, uint64_t *ret)
{
        uint64_t delta;

        switch (op) {
        case CFA_ADVANCE_LOC1:
                delta = cfi_u8(r);
                break;
        case CFA_ADVANCE_LOC2:
                delta = cfi_u16(r);
                break;
        case CFA_ADVANCE_LOC4:
                delta = cfi_u32(r);
                break;
        case CFA_MIPS_ADVANCE_LOC8:
                delta = cfi_u64(r);
                break;
        default:
                if (op >> 6 != CFA_ADVANCE_LOC)
                        return false;
                delta = op & 63;
                break;
        }
        if (__builtin_mul_overflow(delta, code_align, ret))
                *ret = UINT64_MAX;
        return true;
}

bool cfi_eval_initial(const struct cfi_arch *arch, struct cfi_cie *cie, struct cfi_reader program)
{
        struct cfi_state before = {.cfa = UNWIND_UNSUPPORTED};
        struct run u = {.arch = arch, .cie = cie, .initial = &before};
        uint64_t delta;

        if (arch->x86) /* the call has pushed it: true also where a CIE does not say so */
                before.ra = (struct cfi_saved){.offset = -8, .where = CFI_AT_CFA};
        u.state = before;
        while (program.p < program.end) {
                uint8_t op = *program.p++;

                if (op >> 6 == CFA_OFFSET)
                        set_offset(&u.state, arch, op & 63, unfactored(cfi_uleb(&program)), cie->data_align);
                else if (op >> 6 == CFA_RESTORE) /* the assembler moves what FDEs have in common here */
                        restore(&u.state, arch, op & 63, &before);
                else if (read_advance(op, &program, 1, &delta))
                        continue; /* meaningless here */
                else if (!change_state(&u, op, &program))
                        return false;
        }
        cie->initial = u.state;
        return !program.bad;
}

bool cfi_eval_fde(const struct cfi_arch *arch, struct cfi_rows *rows, const struct cfi_cie *cie,
                  struct cfi_reader program, uint64_t address, uint64_t pc_address, uint32_t pc,
                  uint32_t end)
{
        struct run u;
        const uint8_t *start = program.p;
        struct unwind_rule rule;

        u.arch = arch;
        u.cie = cie;
        u.initial = &cie->initial;
        u.state = cie->initial;
        u.depth = 0;
        while (program.p < program.end) {
                uint8_t op = *program.p++;
                uint64_t delta;

                if (op >> 6 == CFA_OFFSET) {
                        set_offset(&u.state, arch, op & 63, unfactored(cfi_uleb(&program)), cie->data_align);
                        continue;
                }
                if (op >> 6 == CFA_RESTORE) {
                        restore(&u.state, arch, op & 63, &cie->initial);
                        continue;
                }
                if (op == CFA_SET_LOC) {
                        uint64_t to = cfi_pointer(&program, cie->encoding,
                                                  address + (uint64_t)(program.p - start), 0);

                        if (program.bad || to < pc_address)
                                goto damaged;
                        delta = to - pc_address;
                } else if (!read_advance(op, &program, cie->code_align, &delta)) {
                        if (!change_state(&u, op, &program))
                                goto damaged;
                        continue;
                }
                if (program.bad)
                        goto damaged;
                if (!delta)
                        continue;
                make_rule(arch, cie, &u.state, &rule);
                cfi_rows_add(rows, pc, &rule);
                if (delta >= end - pc)
                        return true;
                pc += (uint32_t)delta;
                pc_address += delta;
        }
        if (program.bad)
                goto damaged;
        make_rule(arch, cie, &u.state, &rule);
        cfi_rows_add(rows, pc, &rule);
        return true;

damaged:
        cfi_rows_add_plain(rows, pc, UNWIND_UNSUPPORTED);
        return false;
}
