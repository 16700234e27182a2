#include "symbolizer/gopclntab.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "symbolizer/go_module.h"

#define MAGIC_1_16 0xfffffffau
#define MAGIC_1_18 0xfffffff0u
#define MAGIC_1_20 0xfffffff1u

#define MAX_STEPS 100000 /* of one table of values of a function */
#define MAX_DEPTH 64     /* of inlined calls */

/* Numbers of a function's tables: _PCDATA_InlTreeIndex and _FUNCDATA_InlTree, the same since 1.16. */
#define VALUES_INLINED 2
#define DATA_INLINED   3

struct gopclntab {
        struct elf_image *image;
        struct span all;
        uint32_t magic, quantum, word; /* bytes of an instruction's unit, of a pointer */
        uint64_t text;                 /* what addresses are relative to */
        uint64_t gofunc;               /* what functions' data is relative to, since 1.18; 0: not known */
        uint64_t n_functions;
        struct span names, units, files, values,
                        functions; /* from their beginning to the end of the table */
};

/* The fixed part of a function's record that is read; all are 32 bits wide. */
enum field {
        FIELD_NAME,
        FIELD_ARGS,
        FIELD_DEFER,
        FIELD_SP,
        FIELD_FILE,
        FIELD_LINE,
        FIELD_N_DATA,
        FIELD_UNIT,
        FIELD_START_LINE
};

static bool load(struct span s, uint64_t at, uint32_t size, uint64_t *ret)
{
        uint64_t v = 0;

        if (at > s.size || size > s.size - at)
                return false;
        memcpy(&v, s.data + at, size); /* little-endian, as the image is */
        *ret = v;
        return true;
}

static struct span from(struct span s, uint64_t at)
{
        return at <= s.size ? (struct span){s.data + at, s.size - at} : (struct span){NULL, 0};
}

static const char *text_at(struct span s, uint64_t at)
{
        return at < s.size && memchr(s.data + at, 0, s.size - at) ? (const char *)s.data + at : NULL;
}

static int read_header(struct gopclntab *t, uint64_t address)
{
        uint64_t magic, quantum, word, part[5];
        uint32_t n = 0, first;
        struct go_module module;

        if (!load(t->all, 0, 4, &magic) || !load(t->all, 6, 1, &quantum) || !load(t->all, 7, 1, &word))
                return -EBADMSG;
        if (magic != MAGIC_1_16 && magic != MAGIC_1_18 && magic != MAGIC_1_20)
                return -EBADMSG;
        if ((quantum != 1 && quantum != 2 && quantum != 4) || (word != 4 && word != 8))
                return -EBADMSG;
        t->magic = (uint32_t)magic;
        t->quantum = (uint32_t)quantum;
        t->word = (uint32_t)word;
        if (!load(t->all, 8, t->word, &t->n_functions))
                return -EBADMSG;
        first = 8 + 2 * t->word; /* behind the numbers of functions and files */
        if (magic != MAGIC_1_16) {
                if (!load(t->all, first, t->word, &t->text))
                        return -EBADMSG;
                first += t->word;
        }
        for (; n < ARRAY_SIZE(part); n++)
                if (!load(t->all, first + n * t->word, t->word, &part[n]))
                        return -EBADMSG;
        t->names = from(t->all, part[0]);
        t->units = from(t->all, part[1]);
        t->files = from(t->all, part[2]);
        t->values = from(t->all, part[3]);
        t->functions = from(t->all, part[4]);
        if (magic != MAGIC_1_16) {
                struct go_table table = {address, t->all.size, address + part[0], t->word,
                                         magic == MAGIC_1_20};

                if (go_module_find(t->image, &table, &module) == 0) {
                        t->text = t->text ? t->text : module.text;
                        t->gofunc = module.gofunc;
                }
                if (t->text == 0)
                        return -EBADMSG; /* better no names than wrong ones */
        }
        return t->n_functions > 0 && t->n_functions < t->functions.size / 8 ? 0 : -EBADMSG;
}

int gopclntab_new(struct gopclntab **ret, struct elf_image *e)
{
        static const char *const name[] = {".gopclntab", ".data.rel.ro.gopclntab"};
        struct elf_section s = {};
        struct gopclntab *t;
        int r = -ENOENT;

        for (size_t i = 0; i < ARRAY_SIZE(name) && r < 0; i++)
                r = elf_image_section(e, name[i], &s);
        if (r < 0 || !s.bytes.data)
                return -ENODATA;
        t = calloc(1, sizeof(*t));
        if (!t)
                return -ENOMEM;
        t->image = e;
        t->all = s.bytes;
        r = read_header(t, s.address);
        if (r < 0) {
                free(t);
                return r;
        }
        *ret = t;
        return 0;
}

struct gopclntab *gopclntab_free(struct gopclntab *t)
{
        free(t);
        return NULL;
}

/* Entries of the function table are an address and an offset: words in 1.16, 32 bits relative to the text
 * later. */
static uint32_t entry_size(const struct gopclntab *t)
{
        return t->magic == MAGIC_1_16 ? t->word : 4;
}

static bool function_start(const struct gopclntab *t, uint64_t i, uint64_t *ret)
{
        uint32_t n = entry_size(t);

        if (!load(t->functions, i * 2 * n, n, ret))
                return false;
        *ret += t->magic == MAGIC_1_16 ? 0 : t->text;
        return true;
}

static bool field(struct span record, const struct gopclntab *t, enum field f, uint32_t *ret)
{
        uint64_t v;

        /* first the function's entry, a word in 1.16 */
        if (!load(record, entry_size(t) + 4 * (uint64_t)f, 4, &v))
                return false;
        *ret = (uint32_t)v;
        return true;
}

static bool varint(struct span s, uint64_t *at, uint32_t *ret)
{
        uint32_t v = 0;

        for (uint32_t shift = 0; shift < 32 && *at < s.size; shift += 7) {
                uint8_t b = s.data[(*at)++];

                v |= (uint32_t)(b & 0x7f) << shift;
                if (!(b & 0x80)) {
                        *ret = v;
                        return true;
                }
        }
        return false;
}

/* A function's values by address: pairs of differences, of the value (sign in the lowest bit) and the
 * address, from -1 and the function's start on; a value difference of 0 ends it, unless it is the first. */
static bool value_at(const struct gopclntab *t, uint32_t offset, uint64_t start, uint64_t address,
                     int32_t *ret)
{
        uint64_t at = offset, pc = start;
        uint32_t difference, step, value = (uint32_t)-1;

        if (offset == 0)
                return false;
        for (uint32_t i = 0; i < MAX_STEPS; i++) {
                if (!varint(t->values, &at, &difference) || (difference == 0 && i > 0) ||
                    !varint(t->values, &at, &step))
                        return false;
                value += difference & 1 ? ~(difference >> 1) : difference >> 1;
                pc += (uint64_t)step * t->quantum;
                if (address < pc) {
                        *ret = (int32_t)value;
                        return true;
                }
        }
        return false;
}

static const char *file_of(const struct gopclntab *t, struct span record, uint64_t start, uint64_t address)
{
        uint32_t table, unit;
        uint64_t offset;
        int32_t number;

        if (!field(record, t, FIELD_FILE, &table) || !field(record, t, FIELD_UNIT, &unit) ||
            !value_at(t, table, start, address, &number) || number < 0 ||
            !load(t->units, ((uint64_t)unit + (uint32_t)number) * 4, 4, &offset))
                return NULL;
        return text_at(t->files, offset);
}

/* -- functions -- */

struct function {
        struct span record;
        uint64_t start, end;
        const char *name;
        uint32_t lines;   /* table of lines */
        uint32_t line;    /* where it begins; 0: unknown */
        uint32_t inlined; /* table of the innermost inlined call; 0: none */
        struct span calls;
};

static bool find_record(const struct gopclntab *t, uint64_t address, struct function *ret)
{
        uint64_t low = 0, high = t->n_functions, start, end, offset;

        while (low < high) {
                uint64_t middle = low + (high - low) / 2;

                if (!function_start(t, middle, &start))
                        return false;
                if (start <= address)
                        low = middle + 1;
                else
                        high = middle;
        }
        /* One entry more than there are functions: the end of the last. */
        if (low == 0 || !function_start(t, low - 1, &start) || !function_start(t, low, &end) ||
            address >= end ||
            !load(t->functions, (low - 1) * 2 * entry_size(t) + entry_size(t), entry_size(t), &offset))
                return false;
        *ret = (struct function){.record = from(t->functions, offset), .start = start, .end = end};
        return true;
}

/* The bytes from a function's piece of data to the end of its segment. Offsets of the pieces stand behind
 * those of the tables of values; addresses, aligned, in 1.16. */
static struct span data_of(const struct gopclntab *t, struct span record, uint64_t first, uint32_t n_values,
                           uint32_t number)
{
        bool is_address = t->magic == MAGIC_1_16;
        uint64_t at = first + 4 * (uint64_t)n_values, v, n = is_address ? t->word : 4;

        if (is_address)
                at += -(uint64_t)(record.data - t->all.data + at) & (t->word - 1);
        if (!load(record, at + number * n, (uint32_t)n, &v))
                return (struct span){NULL, 0};
        if (is_address ? v == 0 : v == UINT32_MAX || !t->gofunc)
                return (struct span){NULL, 0};
        return elf_image_at(t->image, is_address ? v : t->gofunc + v, SIZE_MAX);
}

/* Adds where a function's inlined calls are. */
static void find_inlined(const struct gopclntab *t, struct function *f)
{
        uint64_t counts = entry_size(t) +
                          4 * (uint64_t)(t->magic == MAGIC_1_20 ? FIELD_START_LINE + 1 : FIELD_START_LINE);
        uint64_t n_data, inlined;
        uint32_t n_values;

        if (!field(f->record, t, FIELD_N_DATA, &n_values) || n_values <= VALUES_INLINED ||
            !load(f->record, counts + 3, 1, &n_data) || n_data <= DATA_INLINED ||
            !load(f->record, counts + 4 + 4 * VALUES_INLINED, 4, &inlined))
                return;
        f->calls = data_of(t, f->record, counts + 4, n_values, DATA_INLINED);
        f->inlined = f->calls.data ? (uint32_t)inlined : 0;
}

static bool find_function(const struct gopclntab *t, uint64_t address, struct function *ret)
{
        struct function f;
        uint32_t name;

        if (!find_record(t, address, &f) || !field(f.record, t, FIELD_NAME, &name))
                return false;
        f.name = text_at(t->names, name);
        if (!f.name || !*f.name)
                return false;
        if (!field(f.record, t, FIELD_LINE, &f.lines))
                f.lines = 0;
        if (t->magic == MAGIC_1_20 && !field(f.record, t, FIELD_START_LINE, &f.line))
                f.line = 0;
        find_inlined(t, &f);
        *ret = f;
        return true;
}

/* An inlined call, as type inlinedCall. */
struct call {
        const char *name;
        uint32_t line;  /* where the function begins; 0: unknown */
        uint64_t place; /* address of an instruction of the caller at the line of the call */
};

static bool call_at(const struct gopclntab *t, const struct function *f, uint64_t address, struct call *ret)
{
        bool is_1_20 = t->magic == MAGIC_1_20;
        uint64_t name, place, line = 0, at;
        int32_t number;

        if (!f->inlined || !value_at(t, f->inlined, f->start, address, &number) || number < 0)
                return false;
        at = (uint64_t)number * (is_1_20 ? 16 : 20);
        if (!load(f->calls, at + (is_1_20 ? 4 : 12), 4, &name) ||
            !load(f->calls, at + (is_1_20 ? 8 : 16), 4, &place) ||
            (is_1_20 && !load(f->calls, at + 12, 4, &line)) || place >= f->end - f->start)
                return false;
        *ret = (struct call){text_at(t->names, name), (uint32_t)line, f->start + place};
        return ret->name && *ret->name;
}

uint32_t gopclntab_find(const struct gopclntab *t, uint64_t address, struct go_frame *ret, uint32_t max)
{
        struct function f;
        struct call call;
        uint32_t n = 0;

        if (max == 0 || !find_function(t, address, &f))
                return 0;
        for (uint32_t depth = 0; depth < MAX_DEPTH; depth++) {
                bool is_inlined = depth + 1 < MAX_DEPTH && call_at(t, &f, address, &call);
                struct go_frame *frame = &ret[n];
                int32_t line;

                if (!is_inlined || n + 1 < max) {
                        *frame = (struct go_frame){.name = is_inlined ? call.name : f.name,
                                                   .file = file_of(t, f.record, f.start, address),
                                                   .function_line = is_inlined ? call.line : f.line};
                        if (value_at(t, f.lines, f.start, address, &line) && line > 0)
                                frame->line = (uint32_t)line;
                        n++;
                }
                if (!is_inlined)
                        break;
                address = call.place;
        }
        return n;
}
