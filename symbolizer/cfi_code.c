#include "symbolizer/cfi_code.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "symbolizer/cfi_infer.h"
#include "symbolizer/x86_insn.h"

#define ENTRY_MAX  128 /* bytes of a program entry */
#define FIRST_ROWS 256
#define GAPS_MAX   1024
#define GAP_MIN    16 /* less is padding */

struct finder {
        struct elf_image *e;
        struct cfi_entries *x;
        struct cfi_code *code;
        uint32_t n_fdes; /* real ones */
        int error;
};

static struct unwind_rule plain(enum unwind_kind kind)
{
        return (struct unwind_rule){.kind_fp = (uint8_t)kind};
}

/* x86-64: CFA = rsp + offset, rbp and rbx untouched. */
static struct unwind_rule x86_sp(int32_t offset)
{
        return (struct unwind_rule){.kind_fp = UNWIND_SP, .cfa_offset = offset};
}

/* aarch64: CFA = sp + offset, the return address as `aux` says. */
static struct unwind_rule arm_sp(int32_t offset, int8_t aux)
{
        return (struct unwind_rule){.kind_fp = UNWIND_SP, .aux = aux, .cfa_offset = offset};
}

/* [start, end) with rows at the offsets given, unless an FDE is there. */
static void add_region(struct finder *f, uint64_t start, uint64_t end, const struct cfi_code_row *row,
                       uint32_t n)
{
        const struct cfi_text *text = f->x->text;
        struct cfi_code *code = f->code;
        uint64_t pc = start - text->base;
        bool in_text = false;

        for (uint32_t i = 0; i < text->n; i++)
                in_text |= pc >= text->range[i].start && pc < text->range[i].end &&
                           end - start <= text->range[i].end - pc;
        if (!in_text || end <= start || n > CFI_CODE_MAX_ROWS - code->n || f->error)
                return;
        if (cfi_entries_cover(f->x, f->n_fdes, (uint32_t)pc, (uint32_t)(pc + (end - start))))
                return;
        f->error = cfi_entries_add(f->x, &(struct cfi_fde){.pc = (uint32_t)pc,
                                                           .end = (uint32_t)(pc + (end - start)),
                                                           .program = code->n,
                                                           .program_n = n,
                                                           .cie = CFI_FDE_CODE});
        if (!f->error && code->n + n > code->max) {
                uint32_t max = MAX_OF(code->max * 2, (uint32_t)FIRST_ROWS);
                void *p = realloc(code->row, max * sizeof(*code->row));

                if (!p)
                        f->error = -ENOMEM;
                else
                        code->row = p, code->max = max;
        }
        for (uint32_t i = 0; i < n && !f->error; i++) {
                code->row[code->n] = row[i];
                code->row[code->n++].pc += (uint32_t)pc;
        }
}

static bool ends(const struct x86_decoded *insn)
{
        return insn->effect == X86_JUMP || insn->effect == X86_RETURN || insn->effect == X86_END;
}

/* How far the code at a program's entry goes: to where it does not go on. */
static uint64_t entry_size(struct finder *f, uint64_t entry, uint64_t max)
{
        struct span b = elf_image_at(f->e, entry, max);
        struct x86_decoded insn;
        size_t at = 0;

        if (!f->x->arch->x86)
                return max;
        while (at < b.size && x86_decode(b.data + at, b.size - at, entry + at, &insn)) {
                at += insn.length;
                if (ends(&insn))
                        break;
        }
        return MIN_OF((uint64_t)at, max);
}

/* Where a program begins (ld.so, musl) nobody called: the outermost frame. Linkers give shared objects an
 * entry that nobody enters, so it counts only in what can be run. */
static void find_entry(struct finder *f)
{
        uint64_t entry = elf_image_entry(f->e), pc = entry - f->x->text->base, end = ENTRY_MAX;
        bool interpreter = false, needed = false;
        struct elf_section dynamic;
        uint32_t next;

        for (uint32_t i = 0; i < elf_image_n_segments(f->e); i++)
                interpreter |= elf_image_segment(f->e, i)->type == PT_INTERP;
        if (elf_image_type(f->e) != ET_EXEC && !interpreter &&
            elf_image_section(f->e, ".dynamic", &dynamic) >= 0)
                for (size_t at = 0; at + sizeof(Elf64_Dyn) <= dynamic.bytes.size; at += sizeof(Elf64_Dyn)) {
                        Elf64_Dyn d;

                        memcpy(&d, dynamic.bytes.data + at, sizeof(d));
                        needed |= d.d_tag == DT_NEEDED;
                }
        if (!entry || needed || pc > UINT32_MAX)
                return;
        for (uint32_t i = 0; i < f->x->text->n; i++)
                if (pc >= f->x->text->range[i].start && pc < f->x->text->range[i].end)
                        end = MIN_OF(end, f->x->text->range[i].end - pc);
        next = cfi_entries_after(f->x, f->n_fdes, (uint32_t)pc);
        if (next < f->n_fdes)
                end = MIN_OF(end, f->x->fde[next].pc - pc);
        add_region(f, entry, entry + entry_size(f, entry, end),
                   &(struct cfi_code_row){.rule = plain(UNWIND_STOP)}, 1);
}

static bool has(struct span s, size_t at, const void *bytes, size_t n)
{
        return at <= s.size && n <= s.size - at && memcmp(s.data + at, bytes, n) == 0;
}

#define HAS(s, at, ...) has(s, at, (const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__}))

/* crti.o and crtn.o of the C library put a prologue and an epilogue around what objects add. */
static void init_x86(struct finder *f, const struct elf_section *s)
{
        struct span b = s->bytes;
        uint32_t at = HAS(b, 0, 0xf3, 0x0f, 0x1e, 0xfa) ? 4 : 0; /* endbr64 */
        uint32_t prologue, epilogue;

        if (HAS(b, at, 0x48, 0x83, 0xec, 0x08) && b.size >= at + 9 &&
            HAS(b, b.size - 5, 0x48, 0x83, 0xc4, 0x08, 0xc3)) { /* sub $8, %rsp ... add $8, %rsp; ret */
                prologue = at + 4;
                epilogue = (uint32_t)b.size - 1;
        } else if (HAS(b, at, 0x50) && b.size >= 3 && HAS(b, b.size - 2, 0x58, 0xc3)) { /* push, pop %rax */
                prologue = at + 1;
                epilogue = (uint32_t)b.size - 1;
        } else {
                return;
        }
        add_region(f, s->address, s->address + b.size,
                   (struct cfi_code_row[]){{0, x86_sp(8)}, {prologue, x86_sp(16)}, {epilogue, x86_sp(8)}},
                   3);
}

static void init_arm(struct finder *f, const struct elf_section *s)
{
        struct unwind_rule saved = {.kind_fp = UNWIND_SP | UNWIND_FP_AT_CFA << 4,
                                    .aux = UNWIND_AUX_BESIDE_FP,
                                    .fp_offset = -2,
                                    .cfa_offset = 16};
        struct span b = s->bytes;
        size_t n = b.size, at = 0, end;

        if (HAS(b, 0, 0x5f, 0x24, 0x03, 0xd5) || HAS(b, 0, 0x3f, 0x23, 0x03, 0xd5)) /* bti c, paciasp */
                at = 4;
        if (!HAS(b, at, 0xfd, 0x7b, 0xbf, 0xa9) || n < at + 12) /* stp x29, x30, [sp, #-16]! */
                return;
        end = HAS(b, n - 8, 0xbf, 0x23, 0x03, 0xd5) ? n - 8 : n - 4;  /* autiasp */
        if (end < at + 8 || !HAS(b, end - 4, 0xfd, 0x7b, 0xc1, 0xa8)) /* ldp x29, x30, [sp], #16 */
                return;
        add_region(f, s->address, s->address + n,
                   (struct cfi_code_row[]){{0, arm_sp(0, 0)},
                                           {(uint32_t)at + 4, saved},
                                           {(uint32_t)end, arm_sp(0, 0)}},
                   3);
}

/* PLTs of linkers that describe none (lld, mold). The binutils linker's have an FDE. */
static void plt_x86(struct finder *f, const struct elf_section *s, bool lazy)
{
        struct span b = s->bytes;
        struct cfi_code_row row[3] = {{0, x86_sp(8)}};
        uint32_t n = 1;

        if (lazy && HAS(b, 0, 0xff, 0x35)) { /* push; jmp; then entries of 16 bytes */
                uint8_t pushed;

                if (HAS(b, 16, 0xff, 0x25) && HAS(b, 22, 0x68)) /* jmp *; push; jmp */
                        pushed = 11;
                else if (HAS(b, 16, 0xf3, 0x0f, 0x1e, 0xfa, 0x68)) /* endbr64; push; jmp */
                        pushed = 9;
                else
                        return;
                row[0] = (struct cfi_code_row){0, x86_sp(16)};
                row[1] = (struct cfi_code_row){6, x86_sp(24)};
                row[2] = (struct cfi_code_row){
                                16, {.kind_fp = UNWIND_PLT, .aux = (int8_t)pushed, .cfa_offset = 8}};
                n = 3;
        } else if (lazy && HAS(b, 0, 0xf3, 0x0f, 0x1e, 0xfa, 0x41, 0x53, 0xff, 0x35)) {
                /* mold: endbr64; push %r11; push; jmp; then entries that push nothing from 32 on */
                return add_region(f, s->address, s->address + b.size,
                                  (struct cfi_code_row[]){{0, x86_sp(8)},
                                                          {6, x86_sp(16)},
                                                          {12, x86_sp(24)},
                                                          {32, x86_sp(8)}},
                                  b.size > 32 ? 4 : 3);
        } else if (!HAS(b, 0, 0xff, 0x25) && !HAS(b, 0, 0xf3, 0x0f, 0x1e, 0xfa) &&
                   !HAS(b, 0, 0xf2, 0xff, 0x25)) {
                return;
        }
        add_region(f, s->address, s->address + b.size, row, n);
}

static void plt_arm(struct finder *f, const struct elf_section *s, bool lazy)
{
        struct span b = s->bytes;
        uint32_t at = HAS(b, 0, 0x5f, 0x24, 0x03, 0xd5) ? 4 : 0; /* bti c */

        if (lazy && b.size > 32 && HAS(b, at, 0xf0, 0x7b, 0xbf, 0xa9)) /* stp x16, x30, [sp, #-16]! */
                add_region(f, s->address, s->address + b.size,
                           (struct cfi_code_row[]){
                                           {0, arm_sp(0, 0)}, {at + 4, arm_sp(16, -1)}, {32, arm_sp(0, 0)}},
                           3);
        else if (!lazy)
                add_region(f, s->address, s->address + b.size, &(struct cfi_code_row){0, arm_sp(0, 0)}, 1);
}

static void find_sections(struct finder *f)
{
        static const struct {
                const char *name;
                bool plt, lazy;
        } known[] = {
                        {".init", false, false},   {".fini", false, false},   {".plt", true, true},
                        {".plt.sec", true, false}, {".plt.got", true, false}, {".iplt", true, false},
        };
        bool x86 = f->x->arch->x86;

        for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
                struct elf_section s;

                if (elf_image_section(f->e, known[i].name, &s) < 0 || !(s.flags & SHF_EXECINSTR) ||
                    s.bytes.size < 8 || s.bytes.size > UINT32_MAX)
                        continue;
                if (known[i].plt)
                        (x86 ? plt_x86 : plt_arm)(f, &s, known[i].lazy);
                else
                        (x86 ? init_x86 : init_arm)(f, &s);
        }
}

struct gap {
        uint32_t start, end; /* after text base */
        struct cfi_infer *infer;
};

struct gaps {
        struct finder *f;
        struct gap gap[GAPS_MAX];
        uint32_t n;
        uint32_t found; /* entries since the last round */
};

static void gaps_entry(void *ctx, uint64_t address)
{
        struct gaps *g = ctx;
        uint64_t pc = address - g->f->x->text->base;
        uint32_t low = 0, high = g->n;

        while (low < high) {
                uint32_t middle = low + (high - low) / 2;

                if (g->gap[middle].start <= pc)
                        low = middle + 1;
                else
                        high = middle;
        }
        if (low && pc < g->gap[low - 1].end)
                g->found += cfi_infer_entry(g->gap[low - 1].infer, address);
}

/* Pieces of text that nothing covers. More than can be looked at are those of Go and its like, which keep
 * frame pointers: then none is. */
static void list_gaps(struct gaps *g)
{
        const struct cfi_entries *x = g->f->x;
        uint64_t total = 0;

        for (uint32_t i = 0; i < x->text->n; i++) {
                uint32_t at = x->text->range[i].start, end = x->text->range[i].end;
                uint32_t k = cfi_entries_after(x, x->n_fdes, at);

                if (k)
                        at = MAX_OF(at, x->fde[k - 1].end);
                for (; at < end; k++) {
                        uint32_t next = k < x->n_fdes ? MIN_OF(x->fde[k].pc, end) : end;

                        if (next >= at + GAP_MIN) {
                                total += next - at;
                                if (total > CFI_INFER_MAX || g->n == GAPS_MAX) {
                                        g->n = 0;
                                        return;
                                }
                                g->gap[g->n++] = (struct gap){.start = at, .end = next};
                        }
                        at = k < x->n_fdes ? MAX_OF(at, x->fde[k].end) : end;
                }
        }
}

static int open_gaps(struct gaps *g)
{
        uint64_t base = g->f->x->text->base;

        for (uint32_t i = 0; i < g->n; i++) {
                struct gap *gap = &g->gap[i];
                struct span code = elf_image_at(g->f->e, base + gap->start, gap->end - gap->start);
                int k = cfi_infer_new(&gap->infer, base + gap->start, code, gaps_entry, g);

                if (k < 0)
                        return k;
        }
        return 0;
}

static void symbol_entries(struct gaps *g, const char *section)
{
        struct elf_section s;

        if (elf_image_section(g->f->e, section, &s) < 0)
                return;
        for (size_t at = 0; at + sizeof(Elf64_Sym) <= s.bytes.size; at += sizeof(Elf64_Sym)) {
                Elf64_Sym symbol;

                memcpy(&symbol, s.bytes.data + at, sizeof(symbol));
                if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_shndx != SHN_UNDEF)
                        gaps_entry(g, symbol.st_value);
        }
}

static void array_entries(struct gaps *g, const char *section)
{
        struct elf_section s;

        if (elf_image_section(g->f->e, section, &s) < 0)
                return;
        for (size_t at = 0; at + sizeof(uint64_t) <= s.bytes.size; at += sizeof(uint64_t)) {
                uint64_t address;

                memcpy(&address, s.bytes.data + at, sizeof(address));
                gaps_entry(g, address);
        }
}

/* What the program's entry calls, and what it passes on. */
static void start_entries(struct gaps *g)
{
        struct span b = elf_image_at(g->f->e, elf_image_entry(g->f->e), ENTRY_MAX);
        struct x86_decoded insn;

        for (size_t at = 0; at < b.size; at += insn.length) {
                if (!x86_decode(b.data + at, b.size - at, elf_image_entry(g->f->e) + at, &insn) ||
                    ends(&insn))
                        return;
                if (insn.target)
                        gaps_entry(g, insn.target);
        }
}

struct rows {
        struct finder *f;
        struct cfi_code_row row[64];
        uint32_t n;
        uint64_t start;
};

static void flush_rows(struct rows *r, uint64_t end)
{
        if (r->n)
                add_region(r->f, r->start, end, r->row, r->n);
        r->n = 0;
}

/* A region goes from one piece without rows to the next. */
static void inferred_row(void *ctx, uint64_t address, const struct unwind_rule *rule)
{
        struct rows *r = ctx;

        if (UNWIND_RULE_KIND(rule) == UNWIND_NONE || r->n == ARRAY_SIZE(r->row))
                flush_rows(r, address);
        if (UNWIND_RULE_KIND(rule) == UNWIND_NONE)
                return;
        if (!r->n)
                r->start = address;
        r->row[r->n++] = (struct cfi_code_row){(uint32_t)(address - r->start), *rule};
}

static int infer(struct gaps *g)
{
        struct rows rows = {.f = g->f};
        int k = open_gaps(g);

        if (k < 0)
                return k;
        symbol_entries(g, ".symtab");
        symbol_entries(g, ".dynsym");
        array_entries(g, ".init_array");
        array_entries(g, ".fini_array");
        start_entries(g);
        while (k >= 0 && g->found) { /* entries in one gap may be found in another */
                g->found = 0;
                for (uint32_t i = 0; i < g->n && k >= 0; i++)
                        k = cfi_infer_run(g->gap[i].infer);
        }
        for (uint32_t i = 0; i < g->n && k >= 0; i++)
                cfi_infer_rows(g->gap[i].infer, inferred_row, &rows);
        return k;
}

static void infer_rest(struct finder *f)
{
        struct gaps *g = calloc(1, sizeof(*g));

        if (!g) {
                f->error = -ENOMEM;
                return;
        }
        g->f = f;
        list_gaps(g);
        f->error = infer(g);
        for (uint32_t i = 0; i < g->n; i++)
                cfi_infer_free(g->gap[i].infer);
        free(g);
}

void cfi_code_done(struct cfi_code *code)
{
        free(code->row);
        *code = (struct cfi_code){0};
}

int cfi_code_find(struct elf_image *e, struct cfi_entries *x, struct cfi_code *code)
{
        struct finder f = {.e = e, .x = x, .code = code, .n_fdes = x->n_fdes};

        find_sections(&f);
        find_entry(&f);
        if (!f.error)
                f.error = cfi_entries_sort(x);
        if (!f.error && x->arch->x86) {
                f.n_fdes = x->n_fdes;
                infer_rest(&f);
        }
        return f.error ? f.error : cfi_entries_sort(x);
}
