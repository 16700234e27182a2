#include "symbolizer/objfile.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/cleanup.h"
#include "symbolizer/dwarf_index.h"
#include "symbolizer/gopclntab.h"
#include "symbolizer/inflate.h"
#include "symbolizer/plt.h"
#include "symbolizer/scratch.h"
#include "symbolizer/symtab.h"

#define MAX_CANDIDATES  16 /* separate debug files looked at for one object */
#define MAX_SPLIT_UNITS 16384
#define MAX_CHAIN       256 /* of which SYM_MAX_INLINE are kept */
#define MINIDEBUG_MAX   ((uint64_t)64 << 20)
#define DWARF_MEMORY    ((uint64_t)256 << 20)

struct objfile {
        struct elf_image *image;
        uint64_t inflate_budget;
        objfile_want_fn want;
        void *ctx;

        bool searched; /* for what is below, down to mini */
        struct elf_image *debug;
        uint8_t *mini_bytes;
        struct elf_image *mini;

        struct symtab *symtab;
        bool symtab_tried;
        struct cfi_table *cfi;
        bool cfi_tried;
        struct gopclntab *go;
        bool go_tried;
        struct plt *plt;
        bool plt_tried;

        struct dwarf_index *dwarf;
        bool dwarf_tried;
        struct elf_image *alt, *dwp;
        struct elf_image **split; /* split units' files */
        uint32_t n_split;
};

/* -- what a file has -- */

static bool has_section(struct elf_image *e, const char *name)
{
        struct elf_section s;

        for (uint32_t i = 1; i < elf_image_n_sections(e); i++) {
                const char *have;

                if (elf_image_section_header(e, i, &s, &have) == 0 && have && s.type != SHT_NOBITS &&
                    strcmp(have, name) == 0)
                        return true;
        }
        return false;
}

static bool has_symtab(struct elf_image *e)
{
        struct elf_section s;

        for (uint32_t i = 1; i < elf_image_n_sections(e); i++)
                if (elf_image_section_header(e, i, &s, NULL) == 0 && s.type == SHT_SYMTAB)
                        return true;
        return false;
}

static bool has_dwarf(struct elf_image *e)
{
        return has_section(e, ".debug_info") || has_section(e, ".zdebug_info");
}

static void copy_alt_build_id(struct elf_image *e, struct sym_info *info)
{
        struct span id;

        if (!dwarf_alt_link(e, &id) || id.size > sizeof(info->alt_build_id))
                return;
        memcpy(info->alt_build_id, id.data, id.size);
        info->alt_build_id_len = (uint8_t)id.size;
}

void objfile_info(struct objfile *o, struct wire_info *ret)
{
        struct elf_image *e = o->image;
        struct sym_info *info = &ret->info;

        *ret = (struct wire_info){
                        .info =
                                        {
                                                        .elf_class = elf_image_is64(e) ? ELFCLASS64
                                                                                       : ELFCLASS32,
                                                        .machine = elf_image_machine(e),
                                                        .type = elf_image_type(e),
                                                        .entry = elf_image_entry(e),
                                                        .has_symtab = has_symtab(e),
                                                        .has_debug = has_dwarf(e),
                                                        .is_go = has_section(e, ".gopclntab") ||
                                                                 has_section(e, ".data.rel.ro.gopclntab"),
                                                        .has_unwind = has_section(e, ".eh_frame") ||
                                                                      has_section(e, ".debug_frame"),
                                        },
                        .has_minidebug = has_section(e, ".gnu_debugdata"),
        };
        info->build_id_len = (uint8_t)elf_image_build_id(e, info->build_id, sizeof(info->build_id));
        copy_alt_build_id(e, info);
        for (uint32_t i = 0; i < elf_image_n_segments(e) && info->n_segments < SYM_MAX_SEGMENTS; i++) {
                const struct elf_segment *s = elf_image_segment(e, i);

                if (s->type == PT_GNU_EH_FRAME)
                        info->has_unwind = true;
                if (s->type == PT_LOAD && s->flags & PF_X)
                        info->segment[info->n_segments++] = (struct sym_segment){
                                        .vaddr = s->vaddr,
                                        .offset = s->offset,
                                        .filesz = s->filesz,
                                        .memsz = s->memsz,
                        };
        }
}

/* -- separate files -- */

static void *scratch(void *ctx, uint64_t size)
{
        struct wire_want want = {.kind = WIRE_WANT_SCRATCH, .size = size};
        struct objfile *o = ctx;
        int fd = o->want ? o->want(o->ctx, &want) : -ENOENT;

        return fd < 0 ? NULL : scratch_map(fd, size);
}

static int open_wanted(struct objfile *o, const struct wire_want *want, struct elf_image **ret)
{
        _cleanup_close_ int fd = o->want ? o->want(o->ctx, want) : -ENOENT;
        int r;

        if (fd < 0)
                return fd;
        r = elf_image_open(fd, o->inflate_budget, ret);
        if (r == 0)
                elf_image_set_scratch(*ret, scratch, o);
        return r;
}

/* The name in .gnu_debuglink, and the checksum of the file that is meant; NULL when there is none. */
static const char *debug_link(struct elf_image *e, uint32_t *ret_crc)
{
        struct elf_section s;

        if (elf_image_section(e, ".gnu_debuglink", &s) < 0)
                return NULL;

        size_t n = s.bytes.data ? strnlen((const char *)s.bytes.data, s.bytes.size) : 0;
        size_t at = (n + 4) & ~(size_t)3; /* the name, its NUL, zeros to a multiple of 4 */

        if (n == 0 || at + sizeof(*ret_crc) > s.bytes.size)
                return NULL;
        memcpy(ret_crc, s.bytes.data + at, sizeof(*ret_crc));
        return (const char *)s.bytes.data;
}

static uint32_t file_crc(const struct elf_image *e)
{
        struct span f = elf_image_file(e);

        return (uint32_t)crc32_z(crc32(0, NULL, 0), f.data, f.size);
}

/* A file belongs to the object when both have one build ID, or else when it is the one that the link names.
 */
static bool belongs(struct objfile *o, struct elf_image *candidate, bool linked, uint32_t crc)
{
        uint8_t a[SYM_BUILD_ID_MAX], b[SYM_BUILD_ID_MAX];
        uint32_t na = elf_image_build_id(o->image, a, sizeof(a));
        uint32_t nb = elf_image_build_id(candidate, b, sizeof(b));

        if (na > 0 && nb > 0)
                return na == nb && memcmp(a, b, na) == 0;
        return linked && file_crc(candidate) == crc;
}

static void copy_name(char *to, size_t size, const char *from)
{
        size_t n = from ? strnlen(from, size) : 0;

        if (n == size) /* does not fit: no such file */
                n = 0;
        if (n > 0)
                memcpy(to, from, n);
        to[n] = 0;
}

static void search_debug(struct objfile *o)
{
        struct wire_want want = {.kind = WIRE_WANT_DEBUG};
        uint32_t crc = 0;
        const char *link = debug_link(o->image, &crc);
        struct elf_image *symbols_only = NULL;

        want.build_id_len = elf_image_build_id(o->image, want.build_id, sizeof(want.build_id));
        copy_name(want.name, sizeof(want.name), link);
        if (want.build_id_len == 0 && !link)
                return;
        for (; want.attempt < MAX_CANDIDATES && !o->debug; want.attempt++) {
                struct elf_image *e;
                int r = open_wanted(o, &want, &e);

                if (r == -ENOENT || r == -ETIME)
                        break;
                if (r < 0)
                        continue;
                /* One that is itself stripped must not hide a full one behind it. */
                if (belongs(o, e, link != NULL, crc) && has_dwarf(e))
                        o->debug = TAKE_PTR(e);
                else if (!symbols_only && has_symtab(e) && belongs(o, e, link != NULL, crc))
                        symbols_only = TAKE_PTR(e);
                elf_image_free(e);
        }
        if (!o->debug)
                o->debug = TAKE_PTR(symbols_only);
        elf_image_free(symbols_only);
}

/* MiniDebugInfo: a small ELF file with a symbol table, as xz, in a section. */
static void open_minidebug(struct objfile *o)
{
        struct elf_section s;
        size_t size;

        if (elf_image_section(o->image, ".gnu_debugdata", &s) < 0 ||
            inflate_xz(s.bytes.data, s.bytes.size, MINIDEBUG_MAX, &o->mini_bytes, &size) < 0)
                return;
        if (elf_image_from_memory(o->mini_bytes, size, 0, &o->mini) < 0) {
                free(o->mini_bytes);
                o->mini_bytes = NULL;
        }
}

static void search(struct objfile *o)
{
        if (o->searched)
                return;
        o->searched = true;
        if (!has_dwarf(o->image))
                search_debug(o);
        if (!has_symtab(o->image) && !(o->debug && has_symtab(o->debug)))
                open_minidebug(o);
}

/* -- sources of names -- */

static int load_symtab(struct objfile *o)
{
        struct elf_image *images[SYMTAB_MAX_IMAGES];
        uint32_t n = 0;
        int r;

        if (o->symtab_tried)
                return 0;
        if (o->debug && has_symtab(o->debug))
                images[n++] = o->debug;
        images[n++] = o->image;
        if (o->mini)
                images[n++] = o->mini;
        r = symtab_new(&o->symtab, images, n);
        if (r == -ENOMEM)
                return r;
        o->symtab_tried = true;
        return 0;
}

static int load_cfi(struct objfile *o)
{
        int r;

        if (o->cfi_tried)
                return 0;
        r = cfi_build(o->image, o->debug, &o->cfi);
        if (r == -ENOMEM)
                return r;
        o->cfi_tried = true;
        return 0;
}

static void load_go(struct objfile *o)
{
        if (o->go_tried)
                return;
        o->go_tried = true;
        if (gopclntab_new(&o->go, o->image) < 0)
                o->go = NULL;
}

static struct elf_image *find_dwo(void *ctx, const char *comp_dir, const char *name, uint64_t dwo_id)
{
        struct objfile *o = ctx;
        struct wire_want want = {.kind = WIRE_WANT_DWO};
        struct elf_image **split, *e;

        copy_name(want.name, sizeof(want.name), name);
        copy_name(want.directory, sizeof(want.directory), comp_dir);
        if (!want.name[0] || o->n_split == MAX_SPLIT_UNITS || open_wanted(o, &want, &e) < 0)
                return NULL;
        split = reallocarray(o->split, o->n_split + 1, sizeof(*split));
        if (!split) {
                elf_image_free(e);
                return NULL;
        }
        o->split = split;
        o->split[o->n_split++] = e;
        return e;
}

static void open_alt(struct objfile *o, struct elf_image *main)
{
        struct wire_want want = {.kind = WIRE_WANT_ALT};
        struct span id = {};
        const char *link = dwarf_alt_link(main, &id);

        if (!link)
                return;
        copy_name(want.name, sizeof(want.name), link);
        want.build_id_len = (uint32_t)MIN_OF(id.size, sizeof(want.build_id));
        if (want.build_id_len > 0)
                memcpy(want.build_id, id.data, want.build_id_len);
        for (; want.attempt < MAX_CANDIDATES && !o->alt; want.attempt++) {
                uint8_t have[SYM_BUILD_ID_MAX];
                struct elf_image *e;
                int r = open_wanted(o, &want, &e);

                if (r == -ENOENT || r == -ETIME)
                        break;
                if (r < 0)
                        continue;

                uint32_t n = elf_image_build_id(e, have, sizeof(have));

                if (n == want.build_id_len && memcmp(have, want.build_id, n) == 0)
                        o->alt = e;
                else
                        elf_image_free(e);
        }
}

static int load_dwarf(struct objfile *o)
{
        struct elf_image *main = has_dwarf(o->image) ? o->image : o->debug;
        int r;

        if (o->dwarf_tried)
                return 0;
        if (!main || !has_dwarf(main)) {
                o->dwarf_tried = true;
                return 0;
        }
        open_alt(o, main);
        if (has_section(main, ".debug_addr")) { /* as units that are split need */
                struct wire_want want = {.kind = WIRE_WANT_DWP};

                if (!o->dwp && open_wanted(o, &want, &o->dwp) < 0)
                        o->dwp = NULL;
        }

        struct dwarf_sources sources = {
                        .main = main,
                        .alt = o->alt,
                        .dwp = o->dwp,
                        .find_dwo = find_dwo,
                        .ctx = o,
                        .max_memory = DWARF_MEMORY,
        };

        r = dwarf_index_new(&o->dwarf, &sources);
        if (r == -ENOMEM)
                return r;
        o->dwarf_tried = true;
        return 0;
}

/* -- names -- */

/* A function that has no size in the symbol table, by the bounds that call frame information gives it: the
 * label that it begins with (or one byte on: a signal trampoline's information begins before it). */
static bool find_by_bounds(struct objfile *o, uint64_t address, struct symbol *ret)
{
        uint64_t start, end;

        /* Only where there is a label at all is the table worth its memory. */
        if (!o->symtab || !symtab_find_label(o->symtab, 0, address, ret))
                return false;
        if (load_cfi(o) < 0 || !o->cfi || !cfi_function_bounds(o->cfi, address, &start, &end))
                return false;
        return symtab_find_label(o->symtab, start, MIN_OF(start + 1, address), ret);
}

static bool is_mangled(const char *name)
{
        return name[0] == '_' && (name[1] == 'Z' || name[1] == 'R' || name[1] == 'D');
}

/* Whether a mangled name can be that of a function with this plain name. */
static bool contains_name(const char *mangled, const char *name)
{
        char plain[256];
        size_t n = strcspn(name, "<(~ ");

        if (n == 0 || n >= sizeof(plain))
                return false;
        memcpy(plain, name, n);
        plain[n] = '\0';
        return strstr(mangled, plain) != NULL;
}

/* What the outermost function is called. The symbol table knows the parts that compilers split off a
 * function by their own names ("f.cold", "f.part.0"), what it is in where debug information is of lines only
 * ("<Square as Area>::area" for "area"), and the name that callers write for a library's own ("write" for
 * "__libc_write"). Else debug information has the better name, as aliases are one address. */
static const char *outermost_name(const struct dwarf_frame *f, const char *symbol)
{
        size_t n;

        if (!f->name || !symbol)
                return f->name ? f->name : symbol;
        if (f->name == f->short_name && is_mangled(symbol) && contains_name(symbol, f->name))
                return symbol;
        if (!is_mangled(symbol) && !is_mangled(f->name) && strspn(symbol, "_") < strspn(f->name, "_"))
                return symbol;
        n = strlen(f->name);
        return strncmp(symbol, f->name, n) == 0 && symbol[n] == '.' ? symbol : f->name;
}

static int add_chain(struct names *names, const struct dwarf_frame *f, uint32_t n, const char *symbol)
{
        uint32_t skip_from = n, skip_to = n; /* the middle of a chain that is too long */
        int r = 0;

        if (n > SYM_MAX_INLINE) {
                skip_from = SYM_MAX_INLINE / 2;
                skip_to = n - SYM_MAX_INLINE / 2;
        }
        for (uint32_t i = 0; i < n && r == 0; i++) {
                bool last = i == n - 1;

                if (i >= skip_from && i < skip_to)
                        continue;
                r = names_add_raw(names, last ? outermost_name(&f[i], symbol) : f[i].name, f[i].file,
                                  f[i].line, f[i].function_line, !last);
        }
        return r;
}

/* The number of frames that were added, or an error. */
static int add_go_chain(struct objfile *o, uint64_t address, struct names *names)
{
        struct go_frame frame[SYM_MAX_INLINE];
        uint32_t n = gopclntab_find(o->go, address, frame, ARRAY_SIZE(frame));
        int r = 0;

        for (uint32_t i = 0; i < n && r == 0; i++)
                r = names_add_raw(names, frame[i].name, frame[i].file, frame[i].line, frame[i].function_line,
                                  i + 1 < n);
        return r < 0 ? r : (int)n;
}

struct elf_image *objfile_image(struct objfile *o)
{
        return o->image;
}

struct symtab *objfile_symtab(struct objfile *o)
{
        search(o);
        return load_symtab(o) < 0 ? NULL : o->symtab;
}

static struct plt *load_plt(struct objfile *o)
{
        if (!o->plt_tried) {
                o->plt_tried = true;
                if (plt_new(&o->plt, o->image) < 0)
                        o->plt = NULL;
        }
        return o->plt;
}

bool objfile_symbol_at(struct objfile *o, uint64_t address, struct symbol *ret)
{
        if (objfile_symtab(o) && (symtab_find(o->symtab, address, ret) || find_by_bounds(o, address, ret)))
                return true;
        return load_plt(o) && plt_find(o->plt, address, ret);
}

int objfile_name(struct objfile *o, uint64_t address, bool no_debug, struct names *names)
{
        struct dwarf_frame frame[MAX_CHAIN];
        struct symbol symbol = {};
        int n = 0, r;

        search(o);
        r = load_symtab(o);
        if (r == 0 && !no_debug)
                r = load_dwarf(o);
        if (r < 0)
                return r;
        if (o->dwarf && !no_debug) {
                n = dwarf_index_find(o->dwarf, address, frame, MAX_CHAIN);
                if (n == -ENOMEM)
                        return n;
                n = MAX_OF(n, 0); /* over its budget: by symbol, then */
        }
        if (!objfile_symbol_at(o, address, &symbol))
                symbol.name = NULL;
        r = names_begin(names);
        if (r < 0)
                return r;
        if (n > 0)
                return add_chain(names, frame, (uint32_t)n, symbol.name);
        load_go(o);
        if (o->go) {
                r = add_go_chain(o, address, names);
                if (r != 0)
                        return MIN_OF(r, 0);
        }
        return symbol.name ? names_add_raw(names, symbol.name, NULL, 0, 0, false) : 0;
}

enum name_quality objfile_quality(struct objfile *o, bool no_debug)
{
        if (o->dwarf && !no_debug)
                return NAMES_FROM_DWARF;
        return o->mini || has_symtab(o->image) || (o->debug && has_symtab(o->debug)) ? NAMES_FROM_SYMTAB
                                                                                     : NAMES_FROM_DYNSYM;
}

int objfile_table(struct objfile *o, struct cfi_table **ret)
{
        if (has_section(o->image, ".eh_frame"))
                return cfi_build(o->image, NULL, ret);
        search(o);
        return cfi_build(o->image, o->debug, ret);
}

/* -- life -- */

DEFINE_CLEANUP(struct objfile, objfile_free);

int objfile_open(int fd, uint64_t inflate_budget, objfile_want_fn want, void *ctx, struct objfile **ret)
{
        _cleanup_(objfile_free_cleanup) struct objfile *o = calloc(1, sizeof(*o));
        int r;

        if (!o)
                return -ENOMEM;
        o->inflate_budget = inflate_budget;
        o->want = want;
        o->ctx = ctx;
        r = elf_image_open(fd, inflate_budget, &o->image);
        if (r < 0)
                return r;
        elf_image_set_scratch(o->image, scratch, o);
        *ret = TAKE_PTR(o);
        return 0;
}

void objfile_drop(struct objfile *o)
{
        o->dwarf = dwarf_index_free(o->dwarf);
        o->cfi = cfi_table_free(o->cfi);
        o->go = gopclntab_free(o->go);
        o->plt = plt_free(o->plt);
        o->symtab = symtab_free(o->symtab);
        for (uint32_t i = 0; i < o->n_split; i++)
                elf_image_free(o->split[i]);
        free(o->split);
        o->split = NULL;
        o->n_split = 0;
        o->alt = elf_image_free(o->alt);
        o->dwp = elf_image_free(o->dwp);
        o->debug = elf_image_free(o->debug);
        o->mini = elf_image_free(o->mini);
        free(o->mini_bytes);
        o->mini_bytes = NULL;
        o->searched = o->symtab_tried = o->cfi_tried = o->go_tried = o->plt_tried = o->dwarf_tried = false;
        elf_image_drop_pages(o->image);
}

void objfile_drop_pages(struct objfile *o)
{
        struct elf_image *images[] = {o->image, o->debug, o->alt, o->dwp};

        for (size_t i = 0; i < ARRAY_SIZE(images); i++)
                if (images[i])
                        elf_image_drop_pages(images[i]);
        for (uint32_t i = 0; i < o->n_split; i++)
                elf_image_drop_pages(o->split[i]);
}

bool objfile_is_loaded(const struct objfile *o)
{
        return o->searched;
}

struct objfile *objfile_free(struct objfile *o)
{
        if (!o)
                return NULL;
        if (o->image)
                objfile_drop(o);
        elf_image_free(o->image);
        free(o);
        return NULL;
}
