#include "symbolizer/x86_insn.h"

#include <string.h>

#define MAX_LENGTH 15

/* What follows an opcode byte of the first map:
 *   - nothing      m ModRM         b, z, w  an immediate of 8, 16 or 32, 16 bits
 *   B, Z  ModRM and an immediate    r, R  a distance of 8, 32 bits
 *   v  an immediate of the operand's size    o  an address    e  16 and 8 bits
 *   g, G  ModRM and, of two of eight, an immediate    p  a prefix    X  not in 64-bit code, or handled apart
 */
static const char map1[] = "mmmmbzXXmmmmbzXX"  /* 00 */
                           "mmmmbzXXmmmmbzXX"  /* 10 */
                           "mmmmbzpXmmmmbzpX"  /* 20 */
                           "mmmmbzpXmmmmbzpX"  /* 30 */
                           "pppppppppppppppp"  /* 40 */
                           "----------------"  /* 50 */
                           "XXXmppppzZbB----"  /* 60 */
                           "rrrrrrrrrrrrrrrr"  /* 70 */
                           "BZXBmmmmmmmmmmmm"  /* 80 */
                           "----------X-----"  /* 90 */
                           "oooo----bz------"  /* a0 */
                           "bbbbbbbbvvvvvvvv"  /* b0 */
                           "BBw-XXBZe-w--bX-"  /* c0 */
                           "mmmmXXX-mmmmmmmm"  /* d0 */
                           "rrrrbbbbRRXr----"  /* e0 */
                           "p-pp--gG------mm"; /* f0 */
/* Of the second map, behind 0f. */
static const char map2[] = "mmmmX-----X--m-B"  /* 00 */
                           "mmmmmmmmmmmmmmmm"  /* 10 */
                           "mmmmXXXXmmmmmmmm"  /* 20 */
                           "--------XXXXXXXX"  /* 30 */
                           "mmmmmmmmmmmmmmmm"  /* 40 */
                           "mmmmmmmmmmmmmmmm"  /* 50 */
                           "mmmmmmmmmmmmmmmm"  /* 60 */
                           "BBBBmmm-mmmmmmmm"  /* 70 */
                           "RRRRRRRRRRRRRRRR"  /* 80 */
                           "mmmmmmmmmmmmmmmm"  /* 90 */
                           "---mBmXX---mBmmm"  /* a0 */
                           "mmmmmmmmmmBmmmmm"  /* b0 */
                           "mmBmBBBm--------"  /* c0 */
                           "mmmmmmmmmmmmmmmm"  /* d0 */
                           "mmmmmmmmmmmmmmmm"  /* e0 */
                           "mmmmmmmmmmmmmmmm"; /* f0 */

struct decoding {
        const uint8_t *p, *end;
        bool operand16, wide; /* prefixes 66; REX.W */
        uint8_t rex;
        bool vector;  /* VEX or EVEX */
        unsigned map; /* 1, 2 (0f), 3 (0f 38), 4 (0f 3a) */
        uint8_t op;
        char form;
        bool has_modrm, memory, rip, sp_base, fp_base; /* *_base: that register and no index */
        uint8_t mod, reg, rm;                          /* reg and rm with their REX bits */
        int32_t displacement;
        int64_t immediate;
        uint8_t immediate_size;
};

static bool take(struct decoding *d, size_t n, int64_t *ret)
{
        uint64_t v = 0;

        if ((size_t)(d->end - d->p) < n)
                return false;
        memcpy(&v, d->p, n);
        d->p += n;
        if (n && n < 8 && v >> (8 * n - 1)) /* signed */
                v |= ~0ull << (8 * n);
        *ret = (int64_t)v;
        return true;
}

static bool take_byte(struct decoding *d, uint8_t *ret)
{
        if (d->p == d->end)
                return false;
        *ret = *d->p++;
        return true;
}

/* Prefixes, the escapes to other maps, the opcode. */
static bool read_opcode(struct decoding *d)
{
        uint8_t byte, payload;

        for (;;) {
                if (!take_byte(d, &byte))
                        return false;
                if (map1[byte] != 'p')
                        break;
                if ((byte & 0xf0) == 0x40) {
                        d->rex = byte;
                        continue;
                }
                d->rex = 0; /* counts only directly before the opcode */
                d->operand16 |= byte == 0x66;
        }
        d->wide = d->rex & 8;
        if (byte == 0xc4 || byte == 0xc5 || byte == 0x62) {
                unsigned map = 1;

                d->vector = true;
                if (!take_byte(d, &payload))
                        return false;
                if (byte != 0xc5)
                        map = byte == 0x62 ? payload & 7 : payload & 31;
                for (int i = 0; i < (byte == 0xc5 ? 0 : byte == 0xc4 ? 1 : 2); i++)
                        if (!take_byte(d, &payload))
                                return false;
                if (!map || map > 6 || map == 4 || !take_byte(d, &d->op))
                        return false;
                d->map = map > 4 ? 3 : map + 1; /* 5 and 6: half-precision, without immediates */
        } else if (byte == 0x8f && d->p < d->end && (*d->p & 31) >= 8) { /* XOP */
                unsigned map = *d->p & 31;

                d->vector = true;
                for (int i = 0; i < 2; i++)
                        if (!take_byte(d, &payload))
                                return false;
                d->map = 3;
                d->form = map == 8 ? 'B' : map == 9 ? 'm' : 'Z';
                return map <= 10 && take_byte(d, &d->op);
        } else if (byte == 0x0f) {
                d->map = 2;
                if (!take_byte(d, &d->op))
                        return false;
                if (d->op == 0x38 || d->op == 0x3a) {
                        d->map = d->op == 0x38 ? 3 : 4;
                        if (!take_byte(d, &d->op))
                                return false;
                }
        } else {
                d->map = 1;
                d->op = byte;
        }
        d->form = d->map == 1 ? map1[d->op] : d->map == 2 ? map2[d->op] : d->map == 3 ? 'm' : 'B';
        return d->form != 'X';
}

static bool read_modrm(struct decoding *d)
{
        uint8_t modrm, sib = 0;
        int64_t v = 0;
        bool has_sib;

        if (!take_byte(d, &modrm))
                return false;
        d->has_modrm = true;
        d->mod = modrm >> 6;
        d->reg = (uint8_t)((modrm >> 3 & 7) | (d->rex & 4) << 1);
        d->rm = (uint8_t)((modrm & 7) | (d->rex & 1) << 3);
        d->memory = d->mod != 3;
        if (!d->memory)
                return true;
        has_sib = (modrm & 7) == 4;
        if (has_sib && !take_byte(d, &sib))
                return false;
        if (d->mod == 1) {
                if (!take(d, 1, &v))
                        return false;
        } else if (d->mod == 2 || (modrm & 7) == 5 || (has_sib && (sib & 7) == 5)) {
                if (!take(d, 4, &v))
                        return false;
        }
        d->displacement = (int32_t)v;
        d->rip = d->mod == 0 && (modrm & 7) == 5;
        d->sp_base = has_sib && sib == 0x24 && !(d->rex & 3);
        d->fp_base = d->mod != 0 && (modrm & 7) == 5 && !(d->rex & 1);
        return true;
}

static bool read_immediate(struct decoding *d)
{
        uint8_t z = d->operand16 && !d->wide ? 2 : 4, n = 0;

        switch (d->form) {
        case 'b':
        case 'B':
        case 'r':
                n = 1;
                break;
        case 'z':
        case 'Z':
                n = z;
                break;
        case 'R':
                n = 4;
                break;
        case 'w':
                n = 2;
                break;
        case 'e':
                n = 3;
                break;
        case 'v':
                n = d->wide ? 8 : z;
                break;
        case 'o':
                n = 8;
                break;
        case 'g':
        case 'G':
                n = d->reg & 6 ? 0 : d->form == 'g' ? 1 : z;
                break;
        default:
                break;
        }
        d->immediate_size = n;
        return take(d, n, &d->immediate);
}

static void set(struct x86_decoded *r, enum x86_effect effect, uint8_t reg, int64_t value)
{
        r->effect = effect;
        r->reg = reg == X86_R_FP || reg == X86_R_BX ? reg : X86_R_OTHER;
        r->value = (int32_t)value;
}

/* Additions and subtractions of a constant (groups 80, 81, 83). */
static void group1(const struct decoding *d, struct x86_decoded *r)
{
        unsigned operation = d->reg & 7;

        if (d->memory || d->rm != X86_R_SP || operation == 7) /* 7 compares */
                return;
        if (d->wide && d->op != 0x80 && (operation == 0 || operation == 5))
                set(r, X86_SP_ADD, 0, operation ? -d->immediate : d->immediate);
        else
                set(r, X86_SP_LOST, 0, 0);
}

static void move(const struct decoding *d, struct x86_decoded *r)
{
        bool to_rm = d->op == 0x89;
        uint8_t to = to_rm ? d->rm : d->reg, from = to_rm ? d->reg : d->rm;

        if (!d->memory) {
                if (to == X86_R_SP)
                        set(r, from == X86_R_FP && d->wide ? X86_SP_FROM_FP : X86_SP_LOST, 0, 0);
                else if (to == X86_R_FP && from == X86_R_SP && d->wide)
                        set(r, X86_FP_FROM_SP, 0, 0);
        } else if (d->sp_base && d->wide && (d->reg == X86_R_FP || d->reg == X86_R_BX)) {
                set(r, to_rm ? X86_STORE : X86_LOAD, d->reg, d->displacement);
        } else if (!to_rm && d->reg == X86_R_SP) {
                set(r, X86_SP_LOST, 0, 0);
        }
}

static void load_address(const struct decoding *d, uint64_t next, struct x86_decoded *r)
{
        if (d->rip) {
                r->effect = X86_ADDRESS;
                r->target = next + (uint64_t)(int64_t)d->displacement;
        } else if (d->reg == X86_R_SP) {
                if (d->sp_base && d->wide)
                        set(r, X86_SP_ADD, 0, d->displacement);
                else if (d->fp_base && d->wide)
                        set(r, X86_SP_FROM_FP, 0, d->displacement);
                else
                        set(r, X86_SP_LOST, 0, 0);
        } else if (d->reg == X86_R_FP && d->sp_base && d->wide) {
                set(r, X86_FP_FROM_SP, 0, d->displacement);
        }
}

/* Group ff: increments, calls, jumps, pushes. */
static void group5(const struct decoding *d, struct x86_decoded *r)
{
        switch (d->reg & 7) {
        case 0:
        case 1:
                if (!d->memory && d->rm == X86_R_SP)
                        set(r, X86_SP_LOST, 0, 0);
                break;
        case 2:
                r->effect = X86_CALL;
                break;
        case 4:
                r->effect = X86_JUMP;
                break;
        case 6:
                set(r, X86_PUSH, X86_R_OTHER, 0);
                break;
        default:
                r->effect = X86_STRANGE;
                break;
        }
}

static void effect_of_map1(const struct decoding *d, uint64_t next, struct x86_decoded *r)
{
        uint8_t op = d->op;

        if (d->operand16 && (op >> 4 == 5 || op == 0x68 || op == 0x6a || op == 0x9c || op == 0x9d)) {
                r->effect = X86_STRANGE; /* 16 bits pushed */
        } else if (op >> 3 == 0x50 >> 3 || op >> 3 == 0x58 >> 3) {
                uint8_t reg = (uint8_t)((op & 7) | (d->rex & 1) << 3);

                if (op == 0x5c && reg == X86_R_SP)
                        set(r, X86_SP_LOST, 0, 0);
                else
                        set(r, op < 0x58 ? X86_PUSH : X86_POP, reg, 0);
        } else if (op >> 4 == 7 || (op >= 0xe0 && op <= 0xe3)) {
                r->effect = X86_BRANCH;
                r->target = next + (uint64_t)d->immediate;
        } else if (op < 0x40 && (op & 7) < 6) { /* arithmetic; 38 to 3d compare */
                bool sp = (op & 7) < 2 ? !d->memory && d->rm == X86_R_SP
                                       : (op & 7) < 4 && d->reg == X86_R_SP;

                if (sp && op < 0x38)
                        set(r, X86_SP_LOST, 0, 0);
        } else {
                switch (op) {
                case 0x68:
                case 0x6a:
                case 0x9c: /* pushf */
                        set(r, X86_PUSH, X86_R_OTHER, 0);
                        break;
                case 0x9d: /* popf */
                        set(r, X86_POP, X86_R_OTHER, 0);
                        break;
                case 0x8f:
                        r->effect = d->reg & 7 ? X86_STRANGE : X86_POP; /* else XOP */
                        r->reg = X86_R_OTHER;
                        break;
                case 0x80:
                case 0x81:
                case 0x83:
                        group1(d, r);
                        break;
                case 0x89:
                case 0x8b:
                        move(d, r);
                        break;
                case 0x8d:
                        load_address(d, next, r);
                        break;
                case 0xff:
                        group5(d, r);
                        break;
                case 0xc9:
                        r->effect = X86_LEAVE;
                        break;
                case 0xc3:
                        r->effect = X86_RETURN;
                        break;
                case 0xe8:
                        r->effect = X86_CALL;
                        r->target = next + (uint64_t)d->immediate;
                        break;
                case 0xe9:
                case 0xeb:
                        r->effect = X86_JUMP;
                        r->target = next + (uint64_t)d->immediate;
                        break;
                case 0xcc: /* int3 */
                case 0xf4: /* hlt */
                        r->effect = X86_END;
                        break;
                case 0xc2: /* ret that pops arguments; enter; far returns; iret */
                case 0xc8:
                case 0xca:
                case 0xcb:
                case 0xcf:
                        r->effect = X86_STRANGE;
                        break;
                case 0xbc:
                        if (!(d->rex & 1))
                                set(r, X86_SP_LOST, 0, 0);
                        break;
                case 0x63:
                case 0x69:
                case 0x6b:
                        if (d->reg == X86_R_SP)
                                set(r, X86_SP_LOST, 0, 0);
                        break;
                case 0x87:
                        if (d->reg == X86_R_SP || (!d->memory && d->rm == X86_R_SP))
                                set(r, X86_SP_LOST, 0, 0);
                        break;
                case 0xc1:
                case 0xc7:
                case 0xd1:
                case 0xd3:
                case 0xf7:
                        if (!d->memory && d->rm == X86_R_SP && !(op == 0xf7 && (d->reg & 7) < 2))
                                set(r, X86_SP_LOST, 0, 0);
                        break;
                default:
                        break;
                }
        }
}

static void effect_of_map2(const struct decoding *d, uint64_t next, struct x86_decoded *r)
{
        uint8_t op = d->op;

        if (op >> 4 == 8) {
                r->effect = X86_BRANCH;
                r->target = next + (uint64_t)d->immediate;
        } else if (op == 0x0b || op == 0xb9 || op == 0xff) {
                r->effect = X86_END;
        } else if (op == 0xa0 || op == 0xa8) { /* push, pop of fs and gs */
                set(r, X86_PUSH, X86_R_OTHER, 0);
        } else if (op == 0xa1 || op == 0xa9) {
                set(r, X86_POP, X86_R_OTHER, 0);
        } else if ((op >> 4 == 4 || op == 0xaf || op == 0xb6 || op == 0xb7 || op == 0xb8 || op == 0xbc ||
                    op == 0xbd || op == 0xbe || op == 0xbf) &&
                   d->reg == X86_R_SP) { /* moves and arithmetic into a general register */
                set(r, X86_SP_LOST, 0, 0);
        }
}

bool x86_decode(const uint8_t *p, size_t n, uint64_t address, struct x86_decoded *ret)
{
        struct decoding d = {.p = p, .end = p + (n < MAX_LENGTH ? n : MAX_LENGTH)};
        struct x86_decoded r = {.reg = X86_R_OTHER};
        uint64_t next;

        if (!read_opcode(&d))
                return false;
        if ((d.form == 'm' || d.form == 'B' || d.form == 'Z' || d.form == 'g' || d.form == 'G') &&
            !read_modrm(&d))
                return false;
        if (!read_immediate(&d))
                return false;
        r.length = (uint8_t)(d.p - p);
        next = address + r.length;
        if (!d.vector && d.map == 1)
                effect_of_map1(&d, next, &r);
        else if (!d.vector && d.map == 2)
                effect_of_map2(&d, next, &r);
        *ret = r;
        return true;
}
