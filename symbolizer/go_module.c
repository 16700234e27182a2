#include "symbolizer/go_module.h"

#include <elf.h>
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"

/* Fields, counted in words. */
#define TEXT        22
#define GOFUNC_1_18 38
#define GOFUNC_1_20 40 /* two more before it, of coverage */
#define N_WORDS     52

/* Pointers to the table that are looked at; the program's code has a few besides the module's. */
#define MAX_POINTERS 16

static uint64_t load(const uint8_t *p, uint32_t word)
{
        uint64_t v = 0;

        memcpy(&v, p, word); /* little-endian, as the image is */
        return v;
}

/* Calls fn for each relocation that has no symbol, so adds the load address, until it returns true. */
static bool each_relative(struct elf_image *e, bool (*fn)(void *ctx, const Elf64_Rela *r), void *ctx)
{
        static const char *const name[] = {".rela", ".rela.dyn"};
        struct elf_section s;
        Elf64_Rela r;

        for (size_t k = 0; k < ARRAY_SIZE(name); k++) {
                if (elf_image_section(e, name[k], &s) < 0)
                        continue;
                for (size_t at = 0; s.bytes.size - at >= sizeof(r); at += sizeof(r)) {
                        memcpy(&r, s.bytes.data + at, sizeof(r));
                        if (ELF64_R_SYM(r.r_info) == 0 && fn(ctx, &r))
                                return true;
                }
        }
        return false;
}

struct words {
        uint64_t at; /* address */
        uint64_t w[N_WORDS];
};

static bool relocate_word(void *ctx, const Elf64_Rela *r)
{
        struct words *m = ctx;
        uint64_t i = (r->r_offset - m->at) / 8;

        if (r->r_offset >= m->at && i < N_WORDS && (r->r_offset - m->at) % 8 == 0)
                m->w[i] = (uint64_t)r->r_addend;
        return false;
}

/* The words at an address, as they are when the program runs at the address that it is linked for. */
static bool read_words(struct elf_image *e, uint64_t at, uint32_t word, struct words *ret)
{
        struct span bytes = elf_image_at(e, at, (size_t)N_WORDS * word);

        if (bytes.size < (size_t)N_WORDS * word)
                return false;
        ret->at = at;
        for (uint32_t i = 0; i < N_WORDS; i++)
                ret->w[i] = load(bytes.data + (size_t)i * word, word);
        /* In a position-independent program the linker may leave all words to the loader. */
        if (word == 8 && elf_image_type(e) == ET_DYN)
                each_relative(e, relocate_word, ret);
        return true;
}

static bool is_module(const struct words *m, const struct go_table *t)
{
        return m->w[0] == t->address && m->w[1] == t->names;
}

struct search {
        struct elf_image *e;
        const struct go_table *table;
        struct words *ret;
        uint32_t n_pointers;
};

static bool try_relocation(void *ctx, const Elf64_Rela *r)
{
        struct search *s = ctx;

        return (uint64_t)r->r_addend == s->table->address && s->n_pointers++ < MAX_POINTERS &&
               read_words(s->e, r->r_offset, s->table->word, s->ret) && is_module(s->ret, s->table);
}

static bool search_section(struct search *s, const struct elf_section *section)
{
        uint32_t word = s->table->word;
        struct span b = section->bytes;

        for (size_t at = 0; b.data && b.size - at >= 2 * (size_t)word; at += word)
                if (load(b.data + at, word) == s->table->address &&
                    load(b.data + at + word, word) == s->table->names)
                        return read_words(s->e, section->address + at, word, s->ret);
        return false;
}

static bool search_module(struct search *s)
{
        static const char *const name[] = {".go.module", ".noptrdata", ".data", ".data.rel.ro"};
        struct elf_section section;

        for (size_t i = 0; i < ARRAY_SIZE(name); i++)
                if (elf_image_section(s->e, name[i], &section) >= 0 && search_section(s, &section))
                        return true;
        return s->table->word == 8 && each_relative(s->e, try_relocation, s);
}

int go_module_find(struct elf_image *e, const struct go_table *table, struct go_module *ret)
{
        struct words m;
        struct search s = {e, table, &m, 0};
        uint32_t gofunc = table->is_1_20 ? GOFUNC_1_20 : GOFUNC_1_18;

        if (!search_module(&s))
                return -ENOENT;
        /* Since 1.26 the end of the table stands behind it, since 1.27 at another place. */
        for (uint32_t i = GOFUNC_1_20; table->is_1_20 && i < N_WORDS; i++)
                if (m.w[i] == table->address + table->size)
                        gofunc = i - 1;
        *ret = (struct go_module){.text = m.w[TEXT], .gofunc = m.w[gofunc]};
        return 0;
}
