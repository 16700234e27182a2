/* Entries of the sections are listed and sorted by address (cfi_section), code that has none is added
 * (cfi_code), then one sweep in ascending order evaluates each (cfi_eval) into rows (cfi_rows). */
#include "symbolizer/cfi.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "symbolizer/cfi_code.h"

#define MAX_SECTIONS 3  /* .eh_frame, .debug_frame, the debug file's .debug_frame */
#define PADDING      16 /* between two functions, no code: the row before goes on */

struct build {
        struct elf_image *e;
        struct cfi_text text;
        struct cfi_section section[MAX_SECTIONS];
        uint32_t n_sections;
        struct cfi_entries entries;
        struct cfi_code code;
        struct cfi_rows rows;
        struct cfi_function *function;
        uint32_t n_functions;
        uint32_t shift; /* from text base to the page of the first entry */
};

static void build_done(struct build *b)
{
        cfi_entries_done(&b->entries);
        cfi_code_done(&b->code);
        cfi_rows_done(&b->rows);
        free(b->function);
}

static int find_text(struct build *b)
{
        uint64_t base = UINT64_MAX;

        for (uint32_t i = 0; i < elf_image_n_segments(b->e); i++) {
                const struct elf_segment *s = elf_image_segment(b->e, i);

                if (s->type == PT_LOAD && s->flags & PF_X && s->filesz && s->vaddr < base)
                        base = s->vaddr;
        }
        b->text.base = base & ~(uint64_t)UNWIND_PAGE_MASK;
        for (uint32_t i = 0; i < elf_image_n_segments(b->e); i++) {
                const struct elf_segment *s = elf_image_segment(b->e, i);
                uint64_t start = s->vaddr - b->text.base;

                if (s->type != PT_LOAD || !(s->flags & PF_X) || !s->filesz)
                        continue;
                if (start > (uint64_t)CFI_MAX_PAGES << UNWIND_PAGE_SHIFT ||
                    s->filesz > ((uint64_t)CFI_MAX_PAGES << UNWIND_PAGE_SHIFT) - start ||
                    b->text.n == CFI_MAX_TEXT)
                        return -E2BIG;
                b->text.range[b->text.n].start = (uint32_t)start;
                b->text.range[b->text.n++].end = (uint32_t)(start + s->filesz);
        }
        /* Page numbers have 32 bits. */
        if (b->text.n && b->text.base >> UNWIND_PAGE_SHIFT > UINT32_MAX - CFI_MAX_PAGES)
                return -E2BIG;
        return b->text.n ? 0 : -ENODATA;
}

/* Where section headers are missing: PT_GNU_EH_FRAME holds a pointer to .eh_frame (LSB core 5.0, 10.6.2). */
static bool eh_frame_by_segment(struct elf_image *e, struct cfi_section *ret)
{
        for (uint32_t i = 0; i < elf_image_n_segments(e); i++) {
                const struct elf_segment *s = elf_image_segment(e, i);
                struct span header, frames;
                struct cfi_reader r;
                uint8_t version, encoding;
                uint64_t address;

                if (s->type != PT_GNU_EH_FRAME)
                        continue;
                header = elf_image_at(e, s->vaddr, 16);
                if (header.size == 0)
                        continue;
                r = (struct cfi_reader){.p = header.data, .end = header.data + header.size};
                version = cfi_u8(&r);
                encoding = cfi_u8(&r);
                cfi_skip(&r, 2); /* encodings of the search table */
                address = cfi_pointer(&r, encoding, s->vaddr + 4, s->vaddr);
                if (r.bad || version != 1)
                        continue;
                frames = elf_image_at(e, address, UINT32_MAX);
                if (!frames.size)
                        continue;
                *ret = (struct cfi_section){.data = frames.data,
                                            .size = frames.size,
                                            .address = address,
                                            .eh = true,
                                            .unbounded = true};
                return true;
        }
        return false;
}

/* 1: there; 0: not; negative: over the budget, or damaged. */
static int find_section(struct elf_image *e, const char *name, struct cfi_section *ret)
{
        struct elf_section s;
        int k = elf_image_section(e, name, &s);

        if (k == -ENOENT)
                return 0;
        if (k < 0)
                return k;
        if (s.bytes.size < 8)
                return 0;
        *ret = (struct cfi_section){.data = s.bytes.data, .size = s.bytes.size, .address = s.address};
        return 1;
}

/* Go's own code keeps frame pointers, through which also its stack switches can be followed; the CFI in its
 * .debug_frame cannot say those. */
static bool is_go(struct elf_image *e)
{
        struct elf_section s;

        return elf_image_section(e, ".gopclntab", &s) >= 0 ||
               elf_image_section(e, ".note.go.buildid", &s) >= 0;
}

static int read_entries(struct build *b, struct elf_image *debug)
{
        struct cfi_section s;
        int eh, k;

        eh = find_section(b->e, ".eh_frame", &s);
        s.eh = true;
        if (eh <= 0)
                eh = eh_frame_by_segment(b->e, &s) ? 1 : eh;
        if (eh > 0) {
                b->section[b->n_sections] = s;
                k = cfi_section_read(&b->entries, &s, b->n_sections++);
                if (k < 0)
                        return k;
                k = cfi_entries_sort(&b->entries);
                if (k < 0)
                        return k;
        }
        if (is_go(b->e))
                return 0;
        for (int i = 0; i < 2; i++) {
                struct elf_image *from = i == 0 ? b->e : debug;

                if (!from || elf_image_machine(from) != elf_image_machine(b->e) || !elf_image_is64(from))
                        continue;
                k = find_section(from, ".debug_frame", &s);
                if (k < 0 && !b->entries.n_fdes)
                        return k;
                if (k <= 0)
                        continue; /* what .eh_frame said is better than nothing */
                b->section[b->n_sections] = s;
                k = cfi_section_fill(&b->entries, &s, b->n_sections++);
                if (k < 0)
                        return k;
        }
        return eh < 0 && !b->entries.n_fdes ? eh : 0;
}

/* One entry, cut at the next one's start. */
static void sweep_entry(struct build *b, const struct cfi_fde *f, uint32_t end)
{
        const struct cfi_section *s = &b->section[f->section];
        struct cfi_reader program;

        if (f->cie == CFI_FDE_CODE) {
                for (uint32_t i = f->program; i < f->program + f->program_n; i++)
                        if (b->code.row[i].pc < end)
                                cfi_rows_add(&b->rows, b->code.row[i].pc - b->shift, &b->code.row[i].rule);
                return;
        }
        program.p = s->data + f->program;
        program.end = program.p + f->program_n;
        program.bad = false;
        if (!cfi_eval_fde(b->entries.arch, &b->rows, &b->entries.cie[f->cie], program,
                          s->address + f->program, b->text.base + f->pc, f->pc - b->shift, end - b->shift))
                b->entries.bad++;
}

static int sweep(struct build *b)
{
        const struct cfi_entries *x = &b->entries;
        uint32_t covered = 0;

        for (uint32_t i = 0; i < x->n_fdes; i++) {
                const struct cfi_fde *f = &x->fde[i];
                uint32_t end = f->end;

                if (i + 1 < x->n_fdes)
                        end = MIN_OF(end, x->fde[i + 1].pc);
                if (end <= f->pc)
                        continue;
                if (covered && f->pc >= covered + PADDING)
                        cfi_rows_add_plain(&b->rows, covered - b->shift, UNWIND_NONE);
                sweep_entry(b, f, end);
                covered = end;
        }
        if (covered & UNWIND_PAGE_MASK)
                cfi_rows_add_plain(&b->rows, covered - b->shift, UNWIND_NONE);
        return cfi_rows_finish(&b->rows);
}

static int make_rows(struct build *b)
{
        const struct cfi_entries *x = &b->entries;
        uint32_t last = 0;
        int k;

        b->shift = x->fde[0].pc & ~UNWIND_PAGE_MASK;
        for (uint32_t i = 0; i < x->n_fdes; i++)
                last = MAX_OF(last, x->fde[i].end - 1);
        k = cfi_rows_init(&b->rows, ((last - b->shift) >> UNWIND_PAGE_SHIFT) + 1);
        if (k < 0)
                return k;
        return sweep(b);
}

static int list_functions(struct build *b)
{
        const struct cfi_entries *x = &b->entries;

        b->function = malloc((x->n_fdes + 1) * sizeof(*b->function));
        if (!b->function)
                return -ENOMEM;
        for (uint32_t i = 0; i < x->n_fdes; i++)
                if (x->fde[i].cie != CFI_FDE_CODE)
                        b->function[b->n_functions++] =
                                        (struct cfi_function){.start = x->fde[i].pc, .end = x->fde[i].end};
        return 0;
}

static int build(struct build *b, struct elf_image *debug, struct cfi_table **ret)
{
        struct cfi_table *t;
        int k;

        k = find_text(b);
        if (k < 0)
                return k;
        b->entries.text = &b->text;
        k = read_entries(b, debug);
        if (k < 0)
                return k;
        k = cfi_code_find(b->e, &b->entries, &b->code);
        if (k < 0)
                return k;
        if (!b->entries.n_fdes)
                return b->entries.bad ? -EBADMSG : -ENODATA;
        k = make_rows(b);
        if (k < 0)
                return k;
        k = list_functions(b);
        if (k < 0)
                return k;
        t = calloc(1, sizeof(*t));
        if (!t)
                return -ENOMEM;
        *t = (struct cfi_table){
                        .first_page = (uint32_t)(b->text.base >> UNWIND_PAGE_SHIFT) +
                                      (b->shift >> UNWIND_PAGE_SHIFT),
                        .n_pages = b->rows.n_pages,
                        .n_rows = b->rows.n_rows,
                        .n_rules = b->rows.n_rules,
                        .page_start = TAKE_PTR(b->rows.page_start),
                        .row = TAKE_PTR(b->rows.row),
                        .rule = TAKE_PTR(b->rows.rule),
                        .bad_fdes = b->entries.bad,
                        .function_base = b->text.base,
                        .n_functions = b->n_functions,
                        .function = TAKE_PTR(b->function),
        };
        *ret = t;
        return 0;
}

int cfi_build(struct elf_image *e, struct elf_image *debug, struct cfi_table **ret)
{
        struct build b = {.e = e};
        int k;

        if (!elf_image_is64(e))
                return -ENODATA;
        switch (elf_image_machine(e)) {
        case EM_X86_64:
                b.entries.arch = &cfi_arch_x86_64;
                break;
        case EM_AARCH64:
                b.entries.arch = &cfi_arch_aarch64;
                break;
        default:
                return -ENODATA;
        }
        k = build(&b, debug, ret);
        build_done(&b);
        return k;
}

struct cfi_table *cfi_table_free(struct cfi_table *t)
{
        if (!t)
                return NULL;
        free(t->page_start);
        free(t->row);
        free(t->rule);
        free(t->function);
        free(t);
        return NULL;
}

uint32_t cfi_table_find(const struct cfi_table *t, uint64_t address)
{
        uint64_t page = (address >> UNWIND_PAGE_SHIFT) - t->first_page;
        uint32_t low, high, offset = (uint32_t)address & UNWIND_PAGE_MASK;

        if (page >= t->n_pages)
                return UNWIND_NONE;
        low = t->page_start[page];
        high = t->page_start[page + 1];
        while (high - low > 1) {
                uint32_t middle = low + (high - low) / 2;

                if (UNWIND_ROW_OFFSET(t->row[middle]) <= offset)
                        low = middle;
                else
                        high = middle;
        }
        return UNWIND_ROW_RULE(t->row[low]);
}

bool cfi_function_bounds(const struct cfi_table *t, uint64_t address, uint64_t *ret_start, uint64_t *ret_end)
{
        uint64_t at = address - t->function_base;
        uint32_t low = 0, high = t->n_functions;

        while (low < high) {
                uint32_t middle = low + (high - low) / 2;

                if (t->function[middle].start <= at)
                        low = middle + 1;
                else
                        high = middle;
        }
        if (!low || at >= t->function[low - 1].end)
                return false;
        *ret_start = t->function_base + t->function[low - 1].start;
        *ret_end = t->function_base + t->function[low - 1].end;
        return true;
}
