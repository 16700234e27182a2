#include "tests/truth/names.h"

#include <fcntl.h>
#include <gelf.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_FILES 64

struct symbol {
        uint64_t start, size;
        char *name;
};

struct file {
        char *path;
        struct symbol *symbol;
        size_t n;
        uint64_t text; /* page of its executable segment */
};

struct truth_names {
        struct file file[MAX_FILES];
        size_t n;
};

struct truth_names *truth_names_new(void)
{
        elf_version(EV_CURRENT);
        return calloc(1, sizeof(struct truth_names));
}

void truth_names_free(struct truth_names *names)
{
        for (size_t i = 0; i < names->n; i++) {
                for (size_t k = 0; k < names->file[i].n; k++)
                        free(names->file[i].symbol[k].name);
                free(names->file[i].symbol);
                free(names->file[i].path);
        }
        free(names);
}

static int by_start(const void *a, const void *b)
{
        const struct symbol *x = a, *y = b;

        return x->start < y->start ? -1 : x->start > y->start;
}

/* Linkers leave marks at addresses that are not of their section. */
static bool in_code(Elf *elf, uint16_t section)
{
        Elf_Scn *scn = section < SHN_LORESERVE ? elf_getscn(elf, section) : NULL;
        GElf_Shdr header;

        return scn && gelf_getshdr(scn, &header) && header.sh_flags & SHF_EXECINSTR;
}

static void read_table(struct file *f, Elf *elf, Elf_Scn *scn, const GElf_Shdr *header)
{
        Elf_Data *data = elf_getdata(scn, NULL);
        size_t n = header->sh_entsize ? header->sh_size / header->sh_entsize : 0;

        f->symbol = calloc(n + 1, sizeof(*f->symbol));
        for (size_t i = 0; data && f->symbol && i < n; i++) {
                GElf_Sym sym;
                const char *name;

                if (!gelf_getsym(data, (int)i, &sym) || sym.st_shndx == SHN_UNDEF || !sym.st_value)
                        continue;
                /* Hand-written code has symbols without a type. */
                if (GELF_ST_TYPE(sym.st_info) != STT_FUNC && GELF_ST_TYPE(sym.st_info) != STT_NOTYPE)
                        continue;
                if (!in_code(elf, sym.st_shndx))
                        continue;
                name = elf_strptr(elf, header->sh_link, sym.st_name);
                if (name && *name && name[0] != '$')
                        f->symbol[f->n++] = (struct symbol){
                                        .start = sym.st_value, .size = sym.st_size, .name = strdup(name)};
        }
        qsort(f->symbol, f->n, sizeof(*f->symbol), by_start);
}

static void read_file(struct file *f)
{
        int fd = open(f->path, O_RDONLY | O_CLOEXEC);
        Elf *elf = fd >= 0 ? elf_begin(fd, ELF_C_READ, NULL) : NULL;
        static const uint32_t types[] = {SHT_SYMTAB, SHT_DYNSYM};

        size_t headers = 0;
        GElf_Phdr segment;

        if (elf)
                elf_getphdrnum(elf, &headers);
        for (size_t i = headers; i-- > 0;)
                if (gelf_getphdr(elf, (int)i, &segment) && segment.p_type == PT_LOAD &&
                    segment.p_flags & PF_X)
                        f->text = segment.p_vaddr & ~0xfffull;
        for (size_t i = 0; elf && i < 2 && !f->n; i++) {
                Elf_Scn *scn = NULL;
                GElf_Shdr header;

                free(f->symbol);
                f->symbol = NULL;
                while (!f->symbol && (scn = elf_nextscn(elf, scn)))
                        if (gelf_getshdr(scn, &header) && header.sh_type == types[i])
                                read_table(f, elf, scn, &header);
        }
        if (elf)
                elf_end(elf);
        if (fd >= 0)
                close(fd);
}

static struct file *find_file(struct truth_names *names, const char *path)
{
        struct file *f = NULL;

        for (size_t i = 0; i < names->n; i++)
                if (strcmp(names->file[i].path, path) == 0)
                        f = &names->file[i];
        if (!f) {
                if (names->n == MAX_FILES)
                        return NULL;
                f = &names->file[names->n++];
                f->path = strdup(path);
                read_file(f);
        }
        return f;
}

static const char *find_symbol(const struct file *f, uint64_t address)
{
        size_t low = 0, high = f->n;

        while (low < high) {
                size_t middle = low + (high - low) / 2;

                if (f->symbol[middle].start <= address)
                        low = middle + 1;
                else
                        high = middle;
        }
        /* One with a size says how far it goes; marks of linkers and hand-written code have none. */
        for (int sized = 1; sized >= 0; sized--)
                for (size_t i = low; i-- > 0 && low - i < 8;) {
                        const struct symbol *s = &f->symbol[i];

                        if (!s->size == !sized && address - s->start < (sized ? s->size : 64))
                                return s->name;
                }
        return NULL;
}

const char *truth_name(struct truth_names *names, const char *path, uint64_t address)
{
        const struct file *f = find_file(names, path);

        return f ? find_symbol(f, address) : NULL;
}

const char *truth_name_in_text(struct truth_names *names, const char *path, uint64_t distance)
{
        const struct file *f = find_file(names, path);

        return f ? find_symbol(f, f->text + distance) : NULL;
}
