#include "symbolizer/plt.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

#define MAX_SLOTS    ((size_t)1 << 20)
#define MAX_NAME     4096
#define MAX_SECTIONS 3
#define SUFFIX       "@plt"

#define STUB         16
#define ARM_HEADER   32 /* before the first stub */
#define ARM_BTI_STUB 24
#define ARM_BTI_C    0xd503245fu

struct slot { /* of the global offset table */
        uint64_t address;
        uint32_t name; /* offset */
};

struct plt {
        uint16_t machine;
        struct elf_section section[MAX_SECTIONS];
        uint32_t n_sections;
        struct slot *slot; /* by address */
        uint32_t n_slots;
        uint32_t *pushed; /* names by number in .rela.plt, which the first stub of two pushes */
        uint32_t n_pushed;
        struct span strings;
        char name[MAX_NAME];
};

static int compare_slots(const void *a, const void *b)
{
        const struct slot *x = a, *y = b;

        return x->address < y->address ? -1 : x->address > y->address;
}

static bool fills_slot(uint16_t machine, uint64_t type)
{
        if (machine == EM_X86_64)
                return type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT;
        return type == R_AARCH64_JUMP_SLOT || type == R_AARCH64_GLOB_DAT;
}

/* The name of the symbol that a relocation is for; 0: none. */
static uint32_t name_of_symbol(struct span symbols, struct span strings, uint64_t number)
{
        Elf64_Sym y;

        if (number == 0 || number >= symbols.size / sizeof(y))
                return 0;
        memcpy(&y, symbols.data + number * sizeof(y), sizeof(y));
        return y.st_name < strings.size ? y.st_name : 0;
}

static int read_slots(struct plt *p, struct elf_image *e, const char *section, bool are_pushed)
{
        struct elf_section relocations, symbols, strings;
        size_t n;

        if (elf_image_section(e, section, &relocations) < 0 ||
            elf_image_section_at(e, relocations.link, &symbols) < 0 ||
            elf_image_section_at(e, symbols.link, &strings) < 0 || !relocations.bytes.data ||
            !strings.bytes.data)
                return 0;
        n = MIN_OF(relocations.bytes.size / sizeof(Elf64_Rela), MAX_SLOTS - p->n_slots);
        if (n == 0)
                return 0;
        p->strings = strings.bytes;

        struct slot *grown = reallocarray(p->slot, p->n_slots + n, sizeof(*grown));

        if (!grown)
                return -ENOMEM;
        p->slot = grown;
        if (are_pushed) {
                p->pushed = calloc(n, sizeof(*p->pushed));
                if (!p->pushed)
                        return -ENOMEM;
                p->n_pushed = (uint32_t)n;
        }
        for (size_t i = 0; i < n; i++) {
                Elf64_Rela r;
                uint32_t name;

                memcpy(&r, relocations.bytes.data + i * sizeof(r), sizeof(r));
                if (!fills_slot(p->machine, ELF64_R_TYPE(r.r_info)))
                        continue;
                name = name_of_symbol(symbols.bytes, strings.bytes, ELF64_R_SYM(r.r_info));
                p->slot[p->n_slots++] = (struct slot){r.r_offset, name};
                if (are_pushed)
                        p->pushed[i] = name;
        }
        return 0;
}

static int read_plt(struct plt *p, struct elf_image *e)
{
        static const char *const name[MAX_SECTIONS] = {".plt", ".plt.sec", ".plt.got"};
        int r;

        p->machine = elf_image_machine(e);
        if (!elf_image_is64(e) || (p->machine != EM_X86_64 && p->machine != EM_AARCH64))
                return -ENODATA;
        for (size_t i = 0; i < MAX_SECTIONS; i++) {
                struct elf_section s;

                if (elf_image_section(e, name[i], &s) >= 0 && s.bytes.data)
                        p->section[p->n_sections++] = s;
        }
        if (p->n_sections == 0)
                return -ENODATA;
        r = read_slots(p, e, ".rela.plt", true);
        if (r == 0)
                r = read_slots(p, e, ".rela.dyn", false);
        if (r < 0)
                return r;
        if (p->n_slots == 0)
                return -ENODATA;
        qsort(p->slot, p->n_slots, sizeof(*p->slot), compare_slots);
        return 0;
}

int plt_new(struct plt **ret, struct elf_image *e)
{
        struct plt *p = calloc(1, sizeof(*p));
        int r;

        if (!p)
                return -ENOMEM;
        r = read_plt(p, e);
        if (r < 0) {
                plt_free(p);
                return r;
        }
        *ret = p;
        return 0;
}

struct plt *plt_free(struct plt *p)
{
        if (!p)
                return NULL;
        free(p->slot);
        free(p->pushed);
        free(p);
        return NULL;
}

/* -- stubs -- */

static uint32_t load32(const uint8_t *p)
{
        uint32_t v;

        memcpy(&v, p, sizeof(v));
        return v;
}

/* adrp x16, page */
static bool is_adrp(uint32_t instruction)
{
        return (instruction & 0x9f00001f) == 0x90000010;
}

/* Stubs of programs with branch target identification are longer, but not those of all linkers in all
 * objects. */
static uint64_t arm_stub_size(struct span code)
{
        uint64_t second = ARM_HEADER + STUB;

        return code.size == second || (code.size >= second + 4 && is_adrp(load32(code.data + second)))
                               ? STUB
                               : ARM_BTI_STUB;
}

/* Where the stub that holds an offset of its section begins, and how long it is. */
static bool find_stub(const struct plt *p, const struct elf_section *s, uint64_t offset, uint64_t *ret_start,
                      uint64_t *ret_size)
{
        uint64_t size = s->entry_size == 8 ? 8 : STUB, header = 0;

        if (p->machine == EM_AARCH64) {
                header = ARM_HEADER;
                size = arm_stub_size(s->bytes);
        }
        if (offset < header)
                return false;
        *ret_start = header + (offset - header) / size * size;
        *ret_size = size;
        return *ret_start <= s->bytes.size && size <= s->bytes.size - *ret_start;
}

static uint32_t name_of_slot(const struct plt *p, uint64_t address)
{
        struct slot key = {.address = address};
        const struct slot *s = bsearch(&key, p->slot, p->n_slots, sizeof(key), compare_slots);

        return s ? s->name : 0;
}

/* jmp *slot(%rip), behind endbr64 and bnd, or push $number as the first of two stubs. */
static uint32_t name_x86(const struct plt *p, const uint8_t *code, uint64_t address, uint64_t size)
{
        static const uint8_t endbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};
        uint64_t at = memcmp(code, endbr64, sizeof(endbr64)) == 0 ? sizeof(endbr64) : 0;

        if (at + 5 <= size && code[at] == 0x68) {
                uint32_t number = load32(code + at + 1);

                return number < p->n_pushed ? p->pushed[number] : 0;
        }
        if (code[at] == 0xf2)
                at++;
        if (at + 6 > size || code[at] != 0xff || code[at + 1] != 0x25)
                return 0;
        return name_of_slot(p, address + at + 6 + (uint64_t)(int64_t)(int32_t)load32(code + at + 2));
}

/* adrp x16, page; ldr x17, [x16, #offset] */
static uint32_t name_arm(const struct plt *p, const uint8_t *code, uint64_t address, uint64_t size)
{
        uint64_t at = load32(code) == ARM_BTI_C ? 4 : 0;
        uint32_t adrp, ldr;
        int64_t pages;

        if (at + 8 > size)
                return 0;
        adrp = load32(code + at);
        ldr = load32(code + at + 4);
        if (!is_adrp(adrp) || (ldr & 0xffc003ff) != 0xf9400211)
                return 0;
        /* 21 bits: the lower two stand apart. */
        pages = (int64_t)(int32_t)((adrp >> 5 & 0x7ffff) << 13) >> 13;
        pages = pages * 4 + (adrp >> 29 & 3);
        return name_of_slot(p, ((address + at) & ~(uint64_t)0xfff) + (uint64_t)pages * 4096 +
                                               (ldr >> 10 & 0xfff) * 8);
}

static bool make_name(struct plt *p, uint32_t name)
{
        size_t room, n;

        if (name == 0 || name >= p->strings.size)
                return false;
        room = MIN_OF(p->strings.size - name, sizeof(p->name) - sizeof(SUFFIX));
        n = strnlen((const char *)p->strings.data + name, room);
        if (n == 0 || n == room)
                return false;
        memcpy(p->name, p->strings.data + name, n);
        memcpy(p->name + n, SUFFIX, sizeof(SUFFIX));
        return true;
}

bool plt_find(struct plt *p, uint64_t address, struct symbol *ret)
{
        for (uint32_t i = 0; i < p->n_sections; i++) {
                const struct elf_section *s = &p->section[i];
                uint64_t start, size;
                const uint8_t *code;

                if (address < s->address || address - s->address >= s->bytes.size)
                        continue;
                if (!find_stub(p, s, address - s->address, &start, &size))
                        return false;
                code = s->bytes.data + start;
                start += s->address;
                if (!make_name(p, p->machine == EM_X86_64 ? name_x86(p, code, start, size)
                                                          : name_arm(p, code, start, size)))
                        return false;
                *ret = (struct symbol){.name = p->name, .start = start, .size = size};
                return true;
        }
        return false;
}
