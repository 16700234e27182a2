/* The table is three arrays, 12 bytes a symbol: start (32 bits, from a common base), length, name. They are
 * disjoint and ascending, so that a look-up is one branch-free binary search over the starts. Where symbols
 * nest, what remains of the outer one behind the inner one is a further entry, marked as a continuation. */
#include "symbolizer/symtab.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

/* A name is an offset into one of the string tables. */
#define NAME_CONTINUES    (1u << 31)
#define NAME_IMAGE_SHIFT  29
#define NAME_OFFSET_MASK  ((1u << NAME_IMAGE_SHIFT) - 1)
#define NAME_WITHOUT_FLAG (~NAME_CONTINUES)

struct symtab {
        uint64_t base; /* ELF address of key 0 */
        uint32_t n, n_labels;
        uint32_t *key, *size, *name;  /* sized symbols */
        uint32_t *label, *label_name; /* the others */
        struct span strings[SYMTAB_MAX_IMAGES];
};

/* While loading. */
struct candidate {
        uint32_t key, size, name;
        uint32_t local; /* binding */
};

struct order {
        uint32_t key, index;
};

struct loader {
        struct symtab *table;
        struct candidate *c;
        uint32_t n, cap;
        uint64_t base;
        bool have_base;
};

static const char *name_of(const struct symtab *t, uint32_t name)
{
        name &= NAME_WITHOUT_FLAG;
        return (const char *)t->strings[name >> NAME_IMAGE_SHIFT].data + (name & NAME_OFFSET_MASK);
}

/* -- reading -- */

static void find_base(struct loader *l, const struct elf_image *e)
{
        for (uint32_t i = 0; i < elf_image_n_segments(e); i++) {
                const struct elf_segment *s = elf_image_segment(e, i);

                if (s->type == PT_LOAD && (s->flags & PF_X) && (!l->have_base || s->vaddr < l->base)) {
                        l->base = s->vaddr;
                        l->have_base = true;
                }
        }
}

static int executable_sections(const struct elf_image *e, uint8_t **ret)
{
        uint32_t n = elf_image_n_sections(e);
        uint8_t *map = calloc(n + 1, 1);
        struct elf_section s;

        if (!map)
                return -ENOMEM;
        for (uint32_t i = 0; i < n; i++)
                if (elf_image_section_header(e, i, &s, NULL) == 0)
                        map[i] = (s.flags & SHF_EXECINSTR) != 0;
        *ret = map;
        return 0;
}

static void load_symbol(Elf64_Sym *ret, const uint8_t *p, bool is64)
{
        Elf32_Sym s;

        if (is64) {
                memcpy(ret, p, sizeof(*ret));
                return;
        }
        memcpy(&s, p, sizeof(s));
        *ret = (Elf64_Sym){s.st_name, s.st_info, s.st_other, s.st_shndx, s.st_value, s.st_size};
}

static bool is_function(const Elf64_Sym *s, const char *name)
{
        switch (ELF64_ST_TYPE(s->st_info)) {
        case STT_FUNC:
        case STT_GNU_IFUNC:
                return *name != 0;
        case STT_NOTYPE: /* assembly; not the mapping symbols of the ARM ABIs, not local labels */
                return *name != 0 && *name != '$' && !(name[0] == '.' && name[1] == 'L');
        default:
                return false;
        }
}

/* One symbol table of one image. */
static int load_section(struct loader *l, struct elf_image *e, uint32_t image,
                        const struct elf_section *syms, const uint8_t *executable)
{
        bool is64 = elf_image_is64(e);
        size_t entry = is64 ? sizeof(Elf64_Sym) : sizeof(Elf32_Sym);
        size_t n = syms->bytes.size / entry;
        struct elf_section strings;
        struct span s;

        if (elf_image_section_at(e, syms->link, &strings) < 0)
                return 0;
        s = strings.bytes;
        if (s.size > NAME_OFFSET_MASK)
                s.size = NAME_OFFSET_MASK;
        while (s.size > 0 && s.data[s.size - 1] != 0) /* so that each name ends within */
                s.size--;
        l->table->strings[image] = s;
        if (n > UINT32_MAX / sizeof(struct candidate) - l->n)
                return -E2BIG;
        if (l->n + n > l->cap) {
                struct candidate *c = reallocarray(l->c, l->n + n, sizeof(*c));

                if (!c)
                        return -ENOMEM;
                l->c = c;
                l->cap = l->n + (uint32_t)n;
        }
        for (size_t i = 1; i < n; i++) {
                Elf64_Sym y;

                load_symbol(&y, syms->bytes.data + i * entry, is64);
                if (y.st_shndx == SHN_UNDEF || y.st_shndx >= elf_image_n_sections(e) ||
                    !executable[y.st_shndx] || y.st_name >= s.size || y.st_value < l->base ||
                    y.st_value - l->base > UINT32_MAX || !is_function(&y, (const char *)s.data + y.st_name))
                        continue;

                uint32_t key = (uint32_t)(y.st_value - l->base);

                l->c[l->n++] = (struct candidate){
                                .key = key,
                                .size = (uint32_t)MIN_OF(y.st_size, (uint64_t)(UINT32_MAX - key)),
                                .name = image << NAME_IMAGE_SHIFT | y.st_name,
                                .local = ELF64_ST_BIND(y.st_info) == STB_LOCAL,
                };
        }
        return 0;
}

static int load_image(struct loader *l, struct elf_image *e, uint32_t image)
{
        _cleanup_free_ uint8_t *executable = NULL;
        struct elf_section s, dynamic = {}, full = {};
        int r;

        for (uint32_t i = 0; i < elf_image_n_sections(e); i++) {
                if (elf_image_section_header(e, i, &s, NULL) < 0)
                        continue;
                if (s.type == SHT_SYMTAB && !full.type)
                        full = s;
                else if (s.type == SHT_DYNSYM && !dynamic.type)
                        dynamic = s;
        }
        s = full.type ? full : dynamic;
        if (!s.type || elf_image_section_at(e, s.index, &s) < 0 || !s.bytes.data)
                return 0;
        r = executable_sections(e, &executable);
        if (r < 0)
                return r;
        return load_section(l, e, image, &s, executable);
}

/* -- ordering -- */

/* Radix sort, least digit first: three passes over 32 bits. Stable. Leaves the result in `a`. */
static int sort_by_key(struct order *a, uint32_t n)
{
        _cleanup_free_ struct order *spare = malloc(((size_t)n + 1) * sizeof(*spare));
        struct order *from = a, *to = spare;
        int passes = 0;

        if (!spare)
                return -ENOMEM;
        for (int shift = 0; shift < 33; shift += 11, passes++) {
                uint32_t count[2049] = {};

                for (uint32_t i = 0; i < n; i++)
                        count[(from[i].key >> shift & 2047) + 1]++;
                for (int i = 0; i < 2048; i++)
                        count[i + 1] += count[i];
                for (uint32_t i = 0; i < n; i++)
                        to[count[from[i].key >> shift & 2047]++] = from[i];

                struct order *swap = from;

                from = to;
                to = swap;
        }
        if (from != a)
                memcpy(a, from, (size_t)n * sizeof(*a));
        return 0;
}

static size_t underscores(const char *s)
{
        return strspn(s, "_");
}

/* Whether `a` is the better name of two at one address. */
static bool better(const struct symtab *t, const struct candidate *a, const struct candidate *b)
{
        if ((a->size != 0) != (b->size != 0))
                return a->size != 0;
        if (a->local != b->local)
                return !a->local;
        if (a->name == b->name)
                return a->size > b->size;

        const char *x = name_of(t, a->name), *y = name_of(t, b->name);
        size_t ux = underscores(x), uy = underscores(y);

        if (ux != uy)
                return ux < uy;
        ux = strlen(x);
        uy = strlen(y);
        if (ux != uy)
                return ux < uy;
        int r = strcmp(x, y);

        return r != 0 ? r < 0 : a->size > b->size;
}

/* Keeps the best symbol of each address, in order; returns how many. `order` is overwritten with them. */
static uint32_t choose(const struct loader *l, struct order *order, uint32_t n)
{
        uint32_t kept = 0;

        for (uint32_t i = 0; i < n;) {
                uint32_t best = order[i].index, key = order[i].key;

                for (i++; i < n && order[i].key == key; i++)
                        if (better(l->table, &l->c[order[i].index], &l->c[best]))
                                best = order[i].index;
                order[kept++] = (struct order){key, best};
        }
        return kept;
}

/* -- flattening -- */

struct open_symbol {
        uint32_t end, name;
};

#define MAX_WALK    4096 /* entries, to where a symbol begins that others nest in */
#define MAX_NESTING 8    /* deeper ones are cut off by what is inside them */

struct flattener {
        struct symtab *t;
        uint32_t cap;
        struct open_symbol stack[MAX_NESTING];
        uint32_t depth;
};

static void emit(struct flattener *f, uint32_t key, uint32_t end, uint32_t name)
{
        struct symtab *t = f->t;

        if (key >= end || t->n >= f->cap)
                return;
        t->key[t->n] = key;
        t->size[t->n] = end - key;
        t->name[t->n] = name;
        t->n++;
}

/* Ends the open symbols that end at or before `key`; what remains of each outer one is continued. */
static void close_until(struct flattener *f, uint32_t key)
{
        while (f->depth > 0 && f->stack[f->depth - 1].end <= key) {
                uint32_t end = f->stack[--f->depth].end;

                while (f->depth > 0 && f->stack[f->depth - 1].end <= end)
                        f->depth--;
                if (f->depth > 0 && end < key) {
                        const struct open_symbol *outer = &f->stack[f->depth - 1];

                        emit(f, end, MIN_OF(outer->end, key), outer->name | NAME_CONTINUES);
                }
        }
}

static int flatten(struct symtab *t, const struct candidate *c, const struct order *order, uint32_t n)
{
        uint32_t sized = 0;

        for (uint32_t i = 0; i < n; i++)
                sized += c[order[i].index].size != 0;

        struct flattener f = {.t = t, .cap = 2 * sized};

        t->key = malloc(((size_t)f.cap + 1) * sizeof(*t->key));
        t->size = malloc(((size_t)f.cap + 1) * sizeof(*t->size));
        t->name = malloc(((size_t)f.cap + 1) * sizeof(*t->name));
        t->label = malloc(((size_t)(n - sized) + 1) * sizeof(*t->label));
        t->label_name = malloc(((size_t)(n - sized) + 1) * sizeof(*t->label_name));
        if (!t->key || !t->size || !t->name || !t->label || !t->label_name)
                return -ENOMEM;
        for (uint32_t i = 0; i < n; i++) {
                const struct candidate *s = &c[order[i].index];

                close_until(&f, s->key);
                if (s->size == 0) {
                        t->label[t->n_labels] = s->key;
                        t->label_name[t->n_labels++] = s->name;
                        continue;
                }
                if (f.depth > 0 && t->n > 0 && t->key[t->n - 1] + t->size[t->n - 1] > s->key)
                        t->size[t->n - 1] = s->key - t->key[t->n - 1];
                emit(&f, s->key, s->key + s->size, s->name);
                if (f.depth == MAX_NESTING)
                        memmove(f.stack, f.stack + 1, (--f.depth) * sizeof(f.stack[0]));
                f.stack[f.depth++] = (struct open_symbol){s->key + s->size, s->name};
        }
        close_until(&f, UINT32_MAX);
        return 0;
}

/* Gives back what the estimate was too large for. */
static void shrink(uint32_t **array, uint32_t n)
{
        uint32_t *p = realloc(*array, ((size_t)n + 1) * sizeof(**array));

        if (p)
                *array = p;
}

DEFINE_CLEANUP(struct symtab, symtab_free);

int symtab_new(struct symtab **ret, struct elf_image *const *images, uint32_t n_images)
{
        _cleanup_(symtab_free_cleanup) struct symtab *t = calloc(1, sizeof(*t));
        _cleanup_free_ struct candidate *candidates = NULL;
        _cleanup_free_ struct order *order = NULL;
        struct loader l = {.table = t};
        uint32_t n;
        int r = 0;

        if (!t)
                return -ENOMEM;
        n_images = MIN_OF(n_images, (uint32_t)SYMTAB_MAX_IMAGES);
        for (uint32_t i = 0; i < n_images; i++)
                find_base(&l, images[i]);
        t->base = l.base;
        for (uint32_t i = 0; i < n_images && r == 0; i++)
                r = load_image(&l, images[i], i);
        candidates = l.c;
        if (r < 0)
                return r;
        if (l.n == 0)
                return -ENODATA;
        order = malloc(l.n * sizeof(*order));
        if (!order)
                return -ENOMEM;
        for (uint32_t i = 0; i < l.n; i++)
                order[i] = (struct order){candidates[i].key, i};
        r = sort_by_key(order, l.n);
        if (r < 0)
                return r;
        n = choose(&l, order, l.n);
        r = flatten(t, candidates, order, n);
        if (r < 0)
                return r;
        shrink(&t->key, t->n);
        shrink(&t->size, t->n);
        shrink(&t->name, t->n);
        *ret = TAKE_PTR(t);
        return 0;
}

struct symtab *symtab_free(struct symtab *t)
{
        if (!t)
                return NULL;
        free(t->key);
        free(t->size);
        free(t->name);
        free(t->label);
        free(t->label_name);
        free(t);
        return NULL;
}

/* -- look-up -- */

/* Index of the last element <= key; n > 0 and a[0] <= key. */
static uint32_t last_not_above(const uint32_t *a, uint32_t n, uint32_t key)
{
        const uint32_t *base = a;

        while (n > 1) {
                uint32_t half = n / 2;

                base += base[half] <= key ? half : 0;
                n -= half;
        }
        return (uint32_t)(base - a);
}

static bool key_of(const struct symtab *t, uint64_t address, uint32_t *ret)
{
        if (address < t->base || address - t->base > UINT32_MAX)
                return false;
        *ret = (uint32_t)(address - t->base);
        return true;
}

static void describe(const struct symtab *t, uint32_t i, struct symbol *ret)
{
        uint32_t first = i, last = i, name = t->name[i] & NAME_WITHOUT_FLAG;

        /* A symbol that others nest in is in pieces. */
        while (t->name[first] & NAME_CONTINUES && first > 0 && i - first < MAX_WALK) {
                do
                        first--;
                while (first > 0 && (t->name[first] & NAME_WITHOUT_FLAG) != name && i - first < MAX_WALK);
        }
        if ((t->name[first] & NAME_WITHOUT_FLAG) != name)
                first = i;
        for (uint32_t j = i + 1; j < t->n && j - i <= 2 * MAX_NESTING; j++)
                if (t->name[j] == (name | NAME_CONTINUES))
                        last = j;
        *ret = (struct symbol){
                        .name = name_of(t, name),
                        .start = t->base + t->key[first],
                        .size = (uint64_t)t->key[last] + t->size[last] - t->key[first],
        };
}

bool symtab_find(const struct symtab *t, uint64_t address, struct symbol *ret)
{
        uint32_t key, i;

        if (t->n == 0 || !key_of(t, address, &key) || key < t->key[0])
                return false;
        i = last_not_above(t->key, t->n, key);
        if (key - t->key[i] >= t->size[i])
                return false;
        describe(t, i, ret);
        return true;
}

/* Where the last sized symbol that begins at or before a key ends. */
static uint64_t sized_end(const struct symtab *t, uint32_t key)
{
        uint32_t i;

        if (t->n == 0 || key < t->key[0])
                return 0;
        i = last_not_above(t->key, t->n, key);
        return t->base + t->key[i] + t->size[i];
}

bool symtab_find_label(const struct symtab *t, uint64_t low, uint64_t address, struct symbol *ret)
{
        uint32_t key, i;

        if (t->n_labels == 0 || !key_of(t, address, &key) || key < t->label[0])
                return false;
        i = last_not_above(t->label, t->n_labels, key);
        if (t->base + t->label[i] < low || t->base + t->label[i] < sized_end(t, key))
                return false;
        *ret = (struct symbol){.name = name_of(t, t->label_name[i]), .start = t->base + t->label[i]};
        return true;
}

bool symtab_at(const struct symtab *t, uint32_t i, struct symbol *ret)
{
        if (i >= t->n)
                return false;
        describe(t, i, ret);
        return true;
}

bool symtab_find_name(const struct symtab *t, const char *name, uint32_t *at, struct symbol *ret)
{
        for (; *at < t->n; ++*at) {
                if (t->name[*at] & NAME_CONTINUES || strcmp(name_of(t, t->name[*at]), name) != 0)
                        continue;
                describe(t, (*at)++, ret);
                return true;
        }
        return false;
}

size_t symtab_memory(const struct symtab *t)
{
        return sizeof(*t) + ((size_t)t->n * 3 + (size_t)t->n_labels * 2) * sizeof(uint32_t);
}
