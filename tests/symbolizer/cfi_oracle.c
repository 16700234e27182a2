#include "tests/symbolizer/cfi_oracle.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"

struct oracle {
        Dwarf_CFI *cfi;
        const struct cfi_table *table;
        bool arm;
        uint32_t print;
        struct cfi_oracle_result *result;
};

/* A register's place, read off libdw's operations. */
enum place { IS_SAME, IS_UNDEFINED, AT_THE_CFA, AT_THE_BASE, IN_A_REGISTER, IS_ELSEWHERE };

struct where {
        enum place place;
        int64_t offset;
        int base;
};

static bool breg(const Dwarf_Op *op, int *ret_reg, int64_t *ret_offset)
{
        if (op->atom >= DW_OP_breg0 && op->atom <= DW_OP_breg31) {
                *ret_reg = op->atom - DW_OP_breg0;
                *ret_offset = (int64_t)op->number;
                return true;
        }
        if (op->atom == DW_OP_bregx) {
                *ret_reg = (int)op->number;
                *ret_offset = (int64_t)op->number2;
                return true;
        }
        return false;
}

static struct where register_at(Dwarf_Frame *frame, int reg)
{
        Dwarf_Op memory[3], *op;
        size_t n;
        struct where w = {.place = IS_ELSEWHERE};

        if (dwarf_frame_register(frame, reg, memory, &op, &n) != 0)
                return w;
        if (n == 0) {
                w.place = op ? IS_UNDEFINED : IS_SAME;
        } else if (op[0].atom == DW_OP_call_frame_cfa) {
                if (n == 1) {
                        w.place = AT_THE_CFA;
                } else if (n == 2 && op[1].atom == DW_OP_plus_uconst) {
                        w.place = AT_THE_CFA;
                        w.offset = (int64_t)op[1].number;
                } else if (n == 2 && breg(&op[1], &w.base, &w.offset)) {
                        w.place = AT_THE_BASE;
                }
        } else if (n == 1 && breg(&op[0], &w.base, &w.offset)) {
                w.place = AT_THE_BASE;
        } else if (n == 1 && op[0].atom == DW_OP_regx) {
                w.place = IN_A_REGISTER;
                w.base = (int)op[0].number;
        }
        return w;
}

static enum unwind_kind cfa_kind(const struct oracle *o, const Dwarf_Op *op, size_t n, struct unwind_rule *r,
                                 int *ret_base)
{
        int sp = o->arm ? 31 : 7, fp = o->arm ? 29 : 6, reg;
        int64_t offset, addend = 0;

        if (!n || !breg(&op[0], &reg, &offset) || offset != (int32_t)offset)
                return UNWIND_UNSUPPORTED;
        r->cfa_offset = (int32_t)offset;
        if (n == 1) {
                *ret_base = reg;
                if (reg == sp)
                        return UNWIND_SP;
                if (reg == fp)
                        return UNWIND_FP;
                if (!o->arm && reg == 3)
                        return UNWIND_BX;
                r->aux = (int8_t)reg;
                return UNWIND_REG;
        }
        if (op[1].atom == DW_OP_deref && (reg == sp || reg == fp)) {
                if (n == 3 && op[2].atom == DW_OP_plus_uconst)
                        addend = (int64_t)op[2].number;
                else if (n != 2)
                        return UNWIND_UNSUPPORTED;
                r->aux = (int8_t)(addend / 8);
                return reg == sp ? UNWIND_DEREF_SP : UNWIND_DEREF_FP;
        }
        if (!o->arm && n == 7 && reg == 7 && breg(&op[1], &reg, &addend) && !addend &&
            op[2].atom == DW_OP_lit8 && op[3].atom == DW_OP_mul && op[4].atom == DW_OP_plus &&
            op[5].atom == DW_OP_deref && op[6].atom == DW_OP_plus_uconst && op[6].number == 8) {
                r->aux = (int8_t)reg;
                return UNWIND_DEREF_AT;
        }
        if (!o->arm && n == 9 && reg == 7 && offset == 8 && op[1].atom == DW_OP_breg16 &&
            op[2].atom == DW_OP_lit15 && op[3].atom == DW_OP_and && op[5].atom == DW_OP_ge &&
            op[6].atom == DW_OP_lit3 && op[7].atom == DW_OP_shl && op[8].atom == DW_OP_plus) {
                r->aux = (int8_t)(op[4].atom - DW_OP_lit0);
                return UNWIND_PLT;
        }
        return UNWIND_UNSUPPORTED;
}

static struct where to_cfa(struct where w, int base, int64_t cfa_offset)
{
        if (w.place == AT_THE_BASE && w.base == base) {
                w.place = AT_THE_CFA;
                w.offset -= cfa_offset;
        }
        return w;
}

static struct unwind_rule expected(const struct oracle *o, Dwarf_Frame *frame)
{
        struct unwind_rule r = {0}, unsupported = {.kind_fp = UNWIND_UNSUPPORTED};
        struct where fp, ra, bx;
        Dwarf_Addr start, end;
        Dwarf_Op *op;
        size_t n;
        bool is_signal;
        enum unwind_kind kind;
        enum unwind_fp how = UNWIND_FP_UNDEFINED;
        int base = -1;

        dwarf_frame_info(frame, &start, &end, &is_signal);
        if (is_signal)
                return (struct unwind_rule){.kind_fp = UNWIND_SIGNAL};
        ra = register_at(frame, o->arm ? 30 : 16);
        if (ra.place == IS_UNDEFINED)
                return (struct unwind_rule){.kind_fp = UNWIND_STOP};
        if (dwarf_frame_cfa(frame, &op, &n) != 0)
                return unsupported;
        kind = cfa_kind(o, op, n, &r, &base);
        if (kind == UNWIND_UNSUPPORTED)
                return unsupported;
        fp = to_cfa(register_at(frame, o->arm ? 29 : 6), base, r.cfa_offset);
        ra = to_cfa(ra, base, r.cfa_offset);
        if (o->arm) {
                if (kind != UNWIND_SP && kind != UNWIND_FP)
                        return unsupported;
                if (ra.place == IS_SAME)
                        r.aux = 0;
                else if (ra.place != AT_THE_CFA)
                        return unsupported;
                else if (fp.place == AT_THE_CFA && ra.offset == fp.offset + 8)
                        r.aux = UNWIND_AUX_BESIDE_FP;
                else if (ra.offset >= -127 * 8 && ra.offset < 127 * 8)
                        r.aux = (int8_t)(ra.offset / 8);
                else if (fp.place != IS_SAME || (ra.offset - 8) / 8 < INT16_MIN)
                        return unsupported;
                else {
                        r.aux = UNWIND_AUX_BESIDE_FP;
                        r.fp_offset = (int16_t)((ra.offset - 8) / 8);
                }
        } else {
                if (ra.place == IN_A_REGISTER && ra.base < 16 && kind == UNWIND_SP && fp.place == IS_SAME)
                        return (struct unwind_rule){.kind_fp = UNWIND_RA_IN,
                                                    .aux = (int8_t)ra.base,
                                                    .cfa_offset = r.cfa_offset};
                if (ra.place != AT_THE_CFA || ra.offset != -8)
                        return unsupported;
                if (kind == UNWIND_SP || kind == UNWIND_FP || kind == UNWIND_BX) {
                        bx = to_cfa(register_at(frame, 3), base, r.cfa_offset);
                        r.aux = UNWIND_AUX_LOST;
                        /* Where nothing is said libdw 0.188 answers "undefined": its list of registers that
                         * the ABI preserves has rax in the place of rbx. */
                        if (bx.place == IS_SAME || bx.place == IS_UNDEFINED)
                                r.aux = 0;
                        else if (bx.place == AT_THE_CFA)
                                r.aux = (int8_t)(bx.offset / 8);
                }
        }
        if (fp.place == IS_SAME)
                how = UNWIND_FP_SAME;
        else if ((fp.place == AT_THE_CFA || (fp.place == AT_THE_BASE && fp.base == (o->arm ? 29 : 6))) &&
                 fp.offset % 8 == 0 && fp.offset / 8 == (int16_t)(fp.offset / 8)) {
                how = fp.place == AT_THE_CFA ? UNWIND_FP_AT_CFA : UNWIND_FP_AT_FP;
                r.fp_offset = (int16_t)(fp.offset / 8);
        }
        r.kind_fp = (uint8_t)(kind | how << 4);
        return r;
}

static struct unwind_rule table_rule(const struct cfi_table *t, uint64_t address)
{
        uint32_t id = cfi_table_find(t, address);

        if (id < UNWIND_RULE_FIRST)
                return (struct unwind_rule){.kind_fp = (uint8_t)id};
        return t->rule[id - UNWIND_RULE_FIRST];
}

static void print_rule(const char *label, struct unwind_rule r)
{
        printf("  %s: kind %d, cfa %d, aux %d, fp %d at %d\n", label, UNWIND_RULE_KIND(&r), r.cfa_offset,
               r.aux, UNWIND_RULE_FP(&r), r.fp_offset);
}

/* All rows that libdw has for one function. */
static void compare_function(struct oracle *o, uint64_t pc, uint64_t end)
{
        while (pc < end) {
                Dwarf_Frame *frame;
                Dwarf_Addr from, to;
                struct unwind_rule want, got;
                bool same = true, is_signal;

                if (dwarf_cfi_addrframe(o->cfi, pc, &frame) != 0) {
                        want = table_rule(o->table, pc);
                        if (UNWIND_RULE_KIND(&want) != UNWIND_UNSUPPORTED &&
                            UNWIND_RULE_KIND(&want) != UNWIND_NONE) {
                                o->result->refused++;
                                if (o->print) {
                                        o->print--;
                                        printf("%" PRIx64 ": libdw: %s\n", pc, dwarf_errmsg(-1));
                                        print_rule("table", want);
                                }
                        }
                        return;
                }
                dwarf_frame_info(frame, &from, &to, &is_signal);
                want = expected(o, frame);
                free(frame);
                if (to <= pc || to > end)
                        to = end;
                o->result->rows++;
                o->result->unsupported += UNWIND_RULE_KIND(&want) == UNWIND_UNSUPPORTED;
                for (int i = 0; i < 3; i++) {
                        uint64_t at = i == 0 ? pc : i == 1 ? pc + (to - pc) / 2 : to - 1;

                        got = table_rule(o->table, at);
                        same &= memcmp(&got, &want, sizeof(got)) == 0;
                        if (!same && o->print) {
                                o->print--;
                                printf("%" PRIx64 " of [%" PRIx64 ", %" PRIx64 "):\n", at, pc, (uint64_t)to);
                                print_rule("libdw", want);
                                print_rule("table", got);
                        }
                        if (!same)
                                break;
                }
                o->result->differ += !same;
                pc = to;
        }
}

static int64_t sized(const uint8_t *p, uint8_t encoding, size_t *ret_size)
{
        int32_t v4;
        int64_t v8;

        switch (encoding & 0x0f) {
        case DW_EH_PE_sdata4:
        case DW_EH_PE_udata4:
                memcpy(&v4, p, 4);
                *ret_size = 4;
                return (encoding & 0x0f) == DW_EH_PE_udata4 ? (int64_t)(uint32_t)v4 : v4;
        case DW_EH_PE_absptr:
        case DW_EH_PE_sdata8:
        case DW_EH_PE_udata8:
                memcpy(&v8, p, 8);
                *ret_size = 8;
                return v8;
        default:
                *ret_size = 0;
                return 0;
        }
}

/* The encoding of addresses in the FDEs of a CIE; 0xff: not found out. */
static uint8_t fde_encoding(const Dwarf_CIE *cie)
{
        const uint8_t *data = cie->augmentation_data;
        size_t n;

        if (cie->augmentation[0] != 'z')
                return DW_EH_PE_absptr;
        for (const char *a = cie->augmentation + 1; *a; a++)
                switch (*a) {
                case 'R':
                        return *data;
                case 'L':
                        data++;
                        break;
                case 'P':
                        sized(data + 1, *data, &n);
                        if (!n)
                                return 0xff;
                        data += 1 + n;
                        break;
                default:
                        break;
                }
        return DW_EH_PE_absptr;
}

struct functions {
        uint64_t (*range)[2];
        size_t n, max;
};

static int list_functions(Elf *elf, Elf_Data *data, uint64_t address, struct functions *f)
{
        const unsigned char *ident = (const unsigned char *)elf_getident(elf, NULL);
        Dwarf_Off offset = 0, next, at;
        Dwarf_CFI_Entry entry, cie;

        for (; dwarf_next_cfi(ident, data, true, offset, &next, &entry) == 0; offset = next) {
                const uint8_t *p = entry.fde.start;
                uint8_t encoding;
                uint64_t pc;
                size_t n;

                if (!dwarf_cfi_cie_p(&entry)) {
                        at = entry.fde.CIE_pointer;
                        Dwarf_Off ignored;

                        if (dwarf_next_cfi(ident, data, true, at, &ignored, &cie) != 0 ||
                            !dwarf_cfi_cie_p(&cie))
                                continue;
                        encoding = fde_encoding(&cie.cie);
                        if (encoding & 0x80 || (encoding & 0x70 && (encoding & 0x70) != DW_EH_PE_pcrel))
                                continue;
                        pc = (uint64_t)sized(p, encoding, &n);
                        if (!n)
                                continue;
                        if ((encoding & 0x70) == DW_EH_PE_pcrel)
                                pc += address + (uint64_t)(p - (const uint8_t *)data->d_buf);
                        if (f->n == f->max) {
                                f->max = f->max ? f->max * 2 : 1024;
                                f->range = realloc(f->range, f->max * sizeof(*f->range));
                                if (!f->range)
                                        return -ENOMEM;
                        }
                        f->range[f->n][0] = pc;
                        f->range[f->n++][1] = pc + (uint64_t)sized(p + n, encoding & 0x0f, &n);
                }
                if (next == (Dwarf_Off)-1)
                        break;
        }
        return 0;
}

static int compare_pc(const void *a, const void *b)
{
        const uint64_t *x = a, *y = b;

        return x[0] < y[0] ? -1 : x[0] > y[0];
}

static Elf_Data *find_eh_frame(Elf *elf, uint64_t *ret_address)
{
        Elf_Scn *scn = NULL;
        size_t names;

        if (elf_getshdrstrndx(elf, &names) < 0)
                return NULL;
        while ((scn = elf_nextscn(elf, scn))) {
                GElf_Shdr header;
                const char *name;

                if (!gelf_getshdr(scn, &header) || header.sh_type == SHT_NOBITS)
                        continue;
                name = elf_strptr(elf, names, header.sh_name);
                if (!name || strcmp(name, ".eh_frame") != 0)
                        continue;
                *ret_address = header.sh_addr;
                return elf_rawdata(scn, NULL);
        }
        return NULL;
}

static double cpu_ms(void)
{
        struct timespec t;

        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int build(int fd, struct cfi_oracle_result *r)
{
        struct elf_image *image;
        double before;
        int k = elf_image_open(fd, 256u << 20, &image);

        if (k < 0)
                return k;
        before = cpu_ms();
        k = cfi_build(image, NULL, &r->table);
        if (k >= 0) { /* again, with the file's pages in memory */
                cfi_table_free(r->table);
                before = cpu_ms();
                k = cfi_build(image, NULL, &r->table);
        }
        r->build_ms = cpu_ms() - before;
        elf_image_free(image);
        return k;
}

static int compare(struct oracle *o, Elf *elf, Elf_Data *data, uint64_t address, uint64_t max_rows)
{
        struct functions f = {0};
        uint64_t budget = max_rows ? max_rows : UINT64_MAX, stride = 1;
        int k = list_functions(elf, data, address, &f);

        if (k >= 0 && f.n) {
                qsort(f.range, f.n, sizeof(*f.range), compare_pc);
                if (max_rows && f.n > max_rows / 8)
                        stride = f.n / (max_rows / 8) + 1;
                for (size_t i = 0; i < f.n && o->result->rows < budget; i += stride) {
                        /* Where two overlap the later one holds, and nothing after it. */
                        if (f.range[i][0] == 0 || f.range[i][1] <= f.range[i][0] ||
                            (i + 1 < f.n && f.range[i + 1][0] < f.range[i][1]))
                                continue;
                        o->result->fdes++;
                        compare_function(o, f.range[i][0], f.range[i][1]);
                }
        }
        free(f.range);
        return k;
}

int cfi_oracle_compare(const char *path, uint64_t max_rows, uint32_t print, struct cfi_oracle_result *ret)
{
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
        struct cfi_oracle_result r = {0};
        struct oracle o = {.print = print, .result = &r};
        uint64_t address;
        GElf_Ehdr header;
        Elf_Data *data;
        Elf *elf;
        int k;

        if (fd < 0)
                return -errno;
        elf_version(EV_CURRENT);
        elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
        if (!elf)
                return -ENOEXEC;
        k = build(fd, &r);
        data = elf_kind(elf) == ELF_K_ELF && gelf_getehdr(elf, &header) ? find_eh_frame(elf, &address)
                                                                        : NULL;
        if (!data || !data->d_buf || header.e_type == ET_REL || header.e_ident[EI_CLASS] != ELFCLASS64 ||
            (header.e_machine != EM_X86_64 && header.e_machine != EM_AARCH64)) {
                cfi_table_free(r.table);
                r.table = NULL;
                k = -ENODATA;
        } else if (k >= 0) {
                o.cfi = dwarf_getcfi_elf(elf);
                o.arm = header.e_machine == EM_AARCH64;
                o.table = r.table;
                r.eh_bytes = data->d_size;
                k = o.cfi ? compare(&o, elf, data, address, max_rows) : -EBADE;
                dwarf_cfi_end(o.cfi);
        }
        elf_end(elf);
        if (k < 0)
                cfi_table_free(r.table);
        else
                *ret = r;
        return k;
}
