#include "symbolizer/cfi_code.h"

#include <elf.h>
#include <string.h>

#include "base/cleanup.h"

#define ENTRY_MAX      128        /* bytes of a program entry */
#define SCAN_MAX       (4u << 20) /* bytes searched for signal trampolines */
#define TRAMPOLINE_MAX 4

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
        for (uint32_t i = 0; i < n && !f->error; i++) {
                code->row[code->n] = row[i];
                code->row[code->n++].pc += (uint32_t)pc;
        }
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
        add_region(f, entry, entry + end, &(struct cfi_code_row){.rule = plain(UNWIND_STOP)}, 1);
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

/* The code that a signal handler returns to is recognised by its bytes, as debuggers do: musl, Go and the
 * arm64 vDSO have no CFI for it that says so. It is looked up by an address before its first byte (a return
 * address less one), so the region begins there. */
static void scan_gap(struct finder *f, uint64_t start, uint64_t end)
{
        static const uint8_t x86[] = {0x48, 0xc7, 0xc0, 0x0f, 0,
                                      0,    0,    0x0f, 0x05};                   /* mov $15, %rax; syscall */
        static const uint8_t arm[] = {0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4}; /* mov x8, #139; svc #0 */
        const uint8_t *code = f->x->arch->x86 ? x86 : arm;
        size_t n = f->x->arch->x86 ? sizeof(x86) : sizeof(arm);
        struct span b = elf_image_at(f->e, start, (size_t)(end - start));

        for (uint32_t found = 0; found < TRAMPOLINE_MAX && b.size >= n; found++) {
                const uint8_t *p = memmem(b.data, b.size, code, n);
                uint64_t at;

                if (!p)
                        return;
                at = start + (uint64_t)(p - b.data);
                add_region(f, at > start ? at - 1 : at, at + n,
                           &(struct cfi_code_row){.rule = plain(UNWIND_SIGNAL)}, 1);
                start = at + n;
                b.size -= (size_t)(p - b.data) + n;
                b.data = p + n;
        }
}

static void find_trampolines(struct finder *f)
{
        const struct cfi_text *text = f->x->text;
        uint32_t budget = SCAN_MAX;

        for (uint32_t i = 0; i < text->n; i++) {
                uint32_t at = text->range[i].start, end = text->range[i].end;
                uint32_t k = cfi_entries_after(f->x, f->n_fdes, at);

                if (k)
                        at = MAX_OF(at, f->x->fde[k - 1].end);
                for (; at < end && budget; k++) {
                        uint32_t next = k < f->n_fdes ? MIN_OF(f->x->fde[k].pc, end) : end;

                        if (next > at && next - at >= 8) {
                                uint32_t n = MIN_OF(next - at, budget);

                                scan_gap(f, text->base + at, text->base + at + n);
                                budget -= n;
                        }
                        at = k < f->n_fdes ? MAX_OF(at, f->x->fde[k].end) : end;
                }
        }
}

int cfi_code_find(struct elf_image *e, struct cfi_entries *x, struct cfi_code *code)
{
        struct finder f = {.e = e, .x = x, .code = code, .n_fdes = x->n_fdes};

        code->n = 0;
        find_sections(&f);
        find_entry(&f);
        find_trampolines(&f);
        return f.error ? f.error : cfi_entries_sort(x);
}
