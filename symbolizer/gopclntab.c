#include "symbolizer/gopclntab.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

#define MAGIC_1_16 0xfffffffau
#define MAGIC_1_18 0xfffffff0u
#define MAGIC_1_20 0xfffffff1u

#define MAX_STEPS 100000 /* of one table of values of a function */

struct gopclntab {
        struct span all;
        uint32_t magic, quantum, word; /* bytes of an instruction's unit, of a pointer */
        uint64_t text;                 /* what addresses are relative to */
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

/* In a position-independent program the linker may have left the word to the loader. */
static uint64_t relocated(struct elf_image *e, uint64_t place)
{
        static const char *const name[] = {".rela", ".rela.dyn"};
        struct elf_section s;
        Elf64_Rela r;

        for (size_t k = 0; k < ARRAY_SIZE(name); k++) {
                if (elf_image_section(e, name[k], &s) < 0)
                        continue;
                for (size_t at = 0; s.bytes.size - at >= sizeof(r); at += sizeof(r)) {
                        memcpy(&r, s.bytes.data + at, sizeof(r));
                        if (r.r_offset == place)
                                return (uint64_t)r.r_addend;
                }
        }
        return 0;
}

static int read_header(struct gopclntab *t, struct elf_image *e, uint64_t address)
{
        uint64_t magic, quantum, word, part[5];
        uint32_t n = 0, first;

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
                if (t->text == 0 && word == 8)
                        t->text = relocated(e, address + first);
                if (t->text == 0)
                        return -EBADMSG; /* better no names than wrong ones */
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
        t->all = s.bytes;
        r = read_header(t, e, s.address);
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

bool gopclntab_find(const struct gopclntab *t, uint64_t address, struct go_function *ret)
{
        uint64_t low = 0, high = t->n_functions, start, end, offset;
        struct go_function f = {};
        uint32_t name, lines, line;
        struct span record;
        int32_t value;

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
        record = from(t->functions, offset);
        if (!field(record, t, FIELD_NAME, &name))
                return false;
        f.name = text_at(t->names, name);
        if (!f.name || !*f.name)
                return false;
        f.start = start;
        f.end = end;
        f.file = file_of(t, record, start, address);
        if (field(record, t, FIELD_LINE, &lines) && value_at(t, lines, start, address, &value) && value > 0)
                f.line = (uint32_t)value;
        if (t->magic == MAGIC_1_20 && field(record, t, FIELD_START_LINE, &line))
                f.function_line = line;
        *ret = f;
        return true;
}
