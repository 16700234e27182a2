#include "symbolizer/dwarf_line.h"
#include "symbolizer/dwarf_form.h"

#define MAX_ENTRY_FORMATS 255

struct dwarf_sequence {  /* rows of one contiguous piece of code */
        uint64_t lo, hi; /* hi: where it ends; no row stands there */
        uint64_t first, n;
};

struct line_header {
        struct dwarf_unit forms; /* what the forms of the tables are read by */
        struct dwarf_cursor tables, program;
        uint16_t version;
        uint8_t address_size; /* 0: not said, before DWARF 5 */
        uint8_t min_inst_length, line_range, opcode_base;
        int8_t line_base;
        const uint8_t *opcode_lengths; /* of opcodes 1 .. opcode_base - 1 */
};

struct entry_format {
        uint64_t content, form;
};

int64_t dwarf_text_find(const struct dwarf_text *t, uint64_t address)
{
        uint64_t lo = 0, hi = t->n;

        while (lo < hi) {
                uint64_t mid = (lo + hi) / 2;
                if (t->range[mid].lo <= address)
                        lo = mid + 1;
                else
                        hi = mid;
        }
        return lo > 0 && address < t->range[lo - 1].hi ? (int64_t)(lo - 1) : -1;
}

static bool read_header(const struct dwarf_unit *u, struct line_header *ret)
{
        struct dwarf_cursor c = dwarf_cursor_at(u->file->line, u->stmt_list);
        struct line_header h = {.forms = *u};
        uint64_t length = cursor_u32(&c), header_length;

        h.forms.offset_size = 4;
        if (length == 0xffffffffu) {
                length = cursor_uint(&c, 8);
                h.forms.offset_size = 8;
        }
        if (c.bad || length > cursor_left(&c))
                return false;
        c.end = c.p + length;

        h.version = cursor_u16(&c);
        if (h.version < 2 || h.version > 5)
                return false;
        if (h.version >= 5) {
                h.address_size = cursor_u8(&c);
                cursor_u8(&c); /* segment selector size */
        }
        header_length = cursor_uint(&c, h.forms.offset_size);
        if (c.bad || header_length > cursor_left(&c))
                return false;
        h.program = (struct dwarf_cursor){.p = c.p + header_length, .end = c.end};
        c.end = h.program.p;

        h.min_inst_length = cursor_u8(&c);
        if (h.version >= 4)
                cursor_u8(&c); /* operations per instruction: VLIW machines only */
        cursor_u8(&c);         /* default_is_stmt: statements and others count alike here */
        h.line_base = (int8_t)cursor_u8(&c);
        h.line_range = cursor_u8(&c);
        h.opcode_base = cursor_u8(&c);
        h.opcode_lengths = c.p;
        cursor_skip(&c, h.opcode_base ? h.opcode_base - 1u : 0);
        h.tables = c;
        h.forms.version = (uint8_t)h.version;
        *ret = h;
        return !c.bad;
}

/* -- the program -- */

static int add_row(struct dwarf_budget *budget, struct dwarf_line_scratch *s, struct dwarf_sequence *seq,
                   struct dwarf_row row)
{
        struct dwarf_row *last = seq->n ? &s->row[s->n_rows - 1] : NULL;
        int r;

        if (last && last->address == row.address) {
                last->file = row.file;
                last->line = row.line;
                return 0;
        }
        if (last && last->file == row.file && last->line == row.line)
                return 0;
        if (!dwarf_work(budget, 1))
                return -E2BIG;
        r = DWARF_GROW(budget, s->row, s->cap_rows, s->n_rows);
        if (r < 0)
                return r;
        if (!seq->n)
                *seq = (struct dwarf_sequence){.lo = row.address, .first = s->n_rows};
        s->row[s->n_rows++] = row;
        seq->n++;
        return 0;
}

/* Keeps the rows of a sequence that ends at `end` when they stand for code, else forgets them. */
static int end_sequence(struct dwarf_budget *budget, const struct dwarf_text *text,
                        struct dwarf_line_scratch *s, struct dwarf_sequence *seq, uint64_t end)
{
        struct dwarf_sequence done = *seq;
        int r;

        *seq = (struct dwarf_sequence){0};
        if (!done.n)
                return 0;
        if (end <= done.lo || dwarf_text_find(text, done.lo) < 0) {
                s->n_rows = done.first;
                return 0;
        }
        done.hi = end;
        r = DWARF_GROW(budget, s->sequence, s->cap_sequences, s->n_sequences);
        if (r < 0)
                return r;
        s->sequence[s->n_sequences++] = done;
        return 0;
}

struct machine {
        uint64_t address;
        uint32_t file, line;
};

static const struct machine machine_start = {.file = 1, .line = 1};

static void advance(struct machine *m, const struct line_header *h, unsigned adjusted_opcode)
{
        m->address += (uint64_t)(adjusted_opcode / h->line_range) * h->min_inst_length;
}

static uint32_t file_number(uint64_t number)
{
        return number < DWARF_NO_FILE ? (uint32_t)number : DWARF_NO_FILE;
}

static int run(const struct dwarf_unit *u, const struct line_header *h, const struct dwarf_text *text,
               struct dwarf_line_scratch *s)
{
        struct dwarf_budget *budget = u->file->budget;
        struct dwarf_cursor c = h->program;
        struct machine m = machine_start;
        struct dwarf_sequence seq = {0};
        uint64_t steps = 0;
        int r = 0;

        while (c.p < c.end && r >= 0) {
                uint8_t op = *c.p++;
                bool row = false;

                if ((++steps & 1023) == 0 && !dwarf_work(budget, 128))
                        return -E2BIG;
                if (op >= h->opcode_base) {
                        unsigned adjusted = op - h->opcode_base;
                        advance(&m, h, adjusted);
                        m.line += (uint32_t)(h->line_base + (int)(adjusted % h->line_range));
                        row = true;
                } else {
                        switch (op) {
                        case 0: {
                                uint64_t n = cursor_uleb(&c);
                                struct dwarf_cursor x = c;

                                cursor_skip(&c, n);
                                if (n == 0 || c.bad)
                                        return 0;
                                x.end = c.p;
                                switch (cursor_u8(&x)) {
                                case DW_LNE_end_sequence:
                                        r = end_sequence(budget, text, s, &seq, m.address);
                                        m = machine_start;
                                        break;
                                case DW_LNE_set_address:
                                        m.address = cursor_uint(&x, n - 1 > 8 ? 8 : (unsigned)(n - 1));
                                        break;
                                }
                                break;
                        }
                        case DW_LNS_copy:
                                row = true;
                                break;
                        case DW_LNS_advance_pc:
                                m.address += cursor_uleb(&c) * h->min_inst_length;
                                break;
                        case DW_LNS_advance_line:
                                m.line += (uint32_t)cursor_sleb(&c);
                                break;
                        case DW_LNS_set_file:
                                m.file = file_number(cursor_uleb(&c));
                                break;
                        case DW_LNS_const_add_pc:
                                advance(&m, h, 255u - h->opcode_base);
                                break;
                        case DW_LNS_fixed_advance_pc:
                                m.address += cursor_u16(&c);
                                break;
                        case DW_LNS_negate_stmt:
                        case DW_LNS_set_basic_block:
                        case DW_LNS_set_prologue_end:
                        case DW_LNS_set_epilogue_begin:
                                break;
                        default: /* DW_LNS_set_column, DW_LNS_set_isa and what is not known */
                                for (unsigned i = h->opcode_lengths[op - 1]; i > 0; i--)
                                        cursor_uleb(&c);
                        }
                }
                if (c.bad)
                        return 0;
                /* Addresses of a sequence only grow; where they do not, a new one begins, and how far the
                 * last row of the old one reached is not known. */
                if (row && seq.n && m.address < s->row[s->n_rows - 1].address)
                        r = end_sequence(budget, text, s, &seq, s->row[s->n_rows - 1].address);
                if (row && r >= 0)
                        r = add_row(budget, s, &seq, (struct dwarf_row){m.address, m.file, m.line});
        }
        return r < 0 ? r : 0;
}

static int compare_sequences(const void *a, const void *b)
{
        const struct dwarf_sequence *x = a, *y = b;

        if (x->lo != y->lo)
                return x->lo < y->lo ? -1 : 1;
        return x->first < y->first ? -1 : x->first > y->first;
}

static int put(struct dwarf_budget *budget, struct dwarf_line_scratch *s, struct dwarf_row row)
{
        int r;

        while (s->n_out && s->out[s->n_out - 1].address >= row.address)
                s->n_out--;
        r = DWARF_GROW(budget, s->out, s->cap_out, s->n_out);
        if (r < 0)
                return r;
        s->out[s->n_out++] = row;
        return 0;
}

/* Sequences stand in any order, and each is sorted. Where two overlap, the one that begins later wins. */
static int join_sequences(struct dwarf_budget *budget, struct dwarf_line_scratch *s)
{
        int r;

        if (s->n_sequences > 1)
                qsort(s->sequence, s->n_sequences, sizeof(*s->sequence), compare_sequences);
        for (uint64_t i = 0; i < s->n_sequences; i++) {
                const struct dwarf_sequence *seq = &s->sequence[i];

                for (uint64_t j = 0; j < seq->n && s->row[seq->first + j].address < seq->hi; j++) {
                        r = put(budget, s, s->row[seq->first + j]);
                        if (r < 0)
                                return r;
                }
                r = put(budget, s, (struct dwarf_row){seq->hi, DWARF_NO_FILE, 0});
                if (r < 0)
                        return r;
        }
        return 0;
}

int dwarf_line_rows(const struct dwarf_unit *u, const struct dwarf_text *text, struct dwarf_line_scratch *s)
{
        struct line_header h;
        int r;

        s->n_rows = s->n_out = s->n_sequences = 0;
        if (u->stmt_list == UINT64_MAX || !read_header(u, &h) || h.line_range == 0 || h.opcode_base == 0)
                return 0;
        r = run(u, &h, text, s);
        if (r < 0)
                return r;
        return join_sequences(u->file->budget, s);
}

void dwarf_line_scratch_clear(struct dwarf_line_scratch *s, struct dwarf_budget *budget)
{
        dwarf_release(budget, s->row, s->cap_rows, sizeof(*s->row));
        dwarf_release(budget, s->out, s->cap_out, sizeof(*s->out));
        dwarf_release(budget, s->sequence, s->cap_sequences, sizeof(*s->sequence));
        *s = (struct dwarf_line_scratch){0};
}

/* -- file names -- */

struct entry {
        struct dwarf_value path;
        const char *text; /* before DWARF 5 */
        uint64_t dir;
};

/* Before DWARF 5: sequences of strings and numbers, each ended by an empty string, counted from 1. */
static bool find_file_v2(struct dwarf_cursor c, const char *comp_dir, uint64_t number,
                         struct dwarf_file_name *ret)
{
        struct dwarf_cursor dirs = c;
        const char *name, *dir = NULL;
        uint64_t dir_number = 0;

        do
                name = cursor_string(&c);
        while (name && *name);

        for (uint64_t i = 1;; i++) {
                name = cursor_string(&c);
                if (!name || !*name)
                        return false;
                dir_number = cursor_uleb(&c);
                cursor_uleb(&c); /* time */
                cursor_uleb(&c); /* length */
                if (c.bad)
                        return false;
                if (i == number)
                        break;
        }
        for (uint64_t i = 1; i <= dir_number; i++) {
                dir = cursor_string(&dirs);
                if (!dir || !*dir) {
                        dir = NULL;
                        break;
                }
        }
        *ret = (struct dwarf_file_name){comp_dir, dir, name};
        return true;
}

static unsigned read_formats(struct dwarf_cursor *c, struct entry_format *ret)
{
        unsigned n = cursor_u8(c);

        for (unsigned i = 0; i < n; i++)
                ret[i] = (struct entry_format){cursor_uleb(c), cursor_uleb(c)};
        return n;
}

static void read_entry(struct dwarf_cursor *c, const struct dwarf_unit *forms,
                       const struct entry_format *format, unsigned n, struct entry *ret)
{
        *ret = (struct entry){0};
        for (unsigned i = 0; i < n && !c->bad; i++) {
                uint16_t form = format[i].form > UINT16_MAX ? UINT16_MAX : (uint16_t)format[i].form;
                struct dwarf_value v;

                if (form == DW_FORM_string) { /* stands in .debug_line, unlike other values of this form */
                        const char *s = cursor_string(c);
                        if (format[i].content == DW_LNCT_path)
                                ret->text = s;
                        continue;
                }
                v = dwarf_read_form(c, forms, form, 0);
                if (format[i].content == DW_LNCT_path)
                        ret->path = v;
                else if (format[i].content == DW_LNCT_directory_index)
                        ret->dir = v.u;
        }
}

static const char *entry_text(const struct dwarf_unit *forms, const struct entry *e)
{
        return e->text ? e->text : dwarf_value_string(forms, e->path);
}

/* Entry `number` of the table here, counted from 0; the cursor ends behind the table. */
static bool read_table(struct dwarf_cursor *c, const struct dwarf_unit *forms, uint64_t number, bool skip,
                       struct entry *ret)
{
        struct entry_format format[MAX_ENTRY_FORMATS];
        unsigned n_formats = read_formats(c, format);
        uint64_t n = cursor_uleb(c);
        struct entry e;

        if (n_formats == 0 && n > 0)
                return false;
        if (!skip && number >= n)
                return false;
        for (uint64_t i = 0; i < (skip ? n : number + 1); i++) {
                const uint8_t *before = c->p;

                read_entry(c, forms, format, n_formats, &e);
                /* Entries without a byte could be repeated for ever. */
                if (c->bad || c->p == before)
                        return false;
                if (i == number)
                        *ret = e;
        }
        return true;
}

static bool find_file_v5(const struct line_header *h, const char *comp_dir, uint64_t number,
                         struct dwarf_file_name *ret)
{
        struct dwarf_cursor c = h->tables, dirs = c;
        struct entry file = {0}, dir = {0};

        if (!read_table(&c, &h->forms, UINT64_MAX, true, &dir) ||
            !read_table(&c, &h->forms, number, false, &file))
                return false;
        if (!read_table(&dirs, &h->forms, file.dir, false, &dir))
                dir = (struct entry){0};
        *ret = (struct dwarf_file_name){comp_dir, entry_text(&h->forms, &dir), entry_text(&h->forms, &file)};
        return ret->name != NULL;
}

bool dwarf_line_file(const struct dwarf_unit *u, uint64_t number, struct dwarf_file_name *ret)
{
        struct line_header h;

        if (u->stmt_list == UINT64_MAX || !read_header(u, &h) ||
            !dwarf_work(u->file->budget, 1 + cursor_left(&h.tables) / 64))
                return false;
        if (h.version >= 5)
                return find_file_v5(&h, u->comp_dir, number, ret);
        return find_file_v2(h.tables, u->comp_dir, number, ret);
}
