/* Functions by name or address, with their code: what a view of instructions starts from. */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "symbolizer/demangle.h"
#include "symbolizer/objfile.h"
#include "symbolizer/symtab.h"

struct answer {
        struct wire_function function[SYM_MAX_FUNCTIONS];
        uint32_t n;
        struct buf bytes;
};

static uint32_t add_bytes(struct answer *a, const void *data, size_t n)
{
        uint32_t at = (uint32_t)a->bytes.len;

        if (n > 0)
                buf_add(&a->bytes, data, n);
        return at;
}

static void add_function(struct answer *a, const struct elf_image *e, const struct symbol *s,
                         const char *name)
{
        struct span code = elf_image_at(e, s->start, (size_t)MIN_OF(s->size, (uint64_t)SYM_MAX_CODE));

        a->function[a->n++] = (struct wire_function){
                        .start = s->start,
                        .size = s->size,
                        .name = add_bytes(a, name, strlen(name) + 1),
                        .linkage = add_bytes(a, s->name, strlen(s->name) + 1),
                        .code = add_bytes(a, code.data, code.size),
                        .code_size = (uint32_t)code.size,
        };
}

/* "f" is meant by "f", "f(int)", "f.cold" and "f(int) [clone .cold]". */
static bool is_called(const char *have, const char *name, size_t n)
{
        return strncmp(have, name, n) == 0 &&
               (have[n] == 0 || have[n] == '(' || have[n] == '.' || have[n] == ' ');
}

static void find_by_name(struct objfile *o, const char *name, struct answer *a)
{
        struct symtab *t = objfile_symtab(o);
        char text[DEMANGLE_MAX];
        size_t n = strlen(name);
        struct symbol s;
        uint64_t last = UINT64_MAX;

        for (uint32_t i = 0; t && a->n < SYM_MAX_FUNCTIONS && symtab_at(t, i, &s); i++) {
                const char *display = demangle(s.name, text) ? text : s.name;

                if (s.start == last || (!is_called(display, name, n) && !is_called(s.name, name, n)))
                        continue;
                add_function(a, objfile_image(o), &s, display);
                last = s.start; /* the next may be the rest of the same */
        }
}

int objfile_functions(struct objfile *o, const char *name, uint64_t address, struct buf *out)
{
        struct answer a = {};
        char text[DEMANGLE_MAX];
        struct symbol s;
        uint64_t n;

        if (name[0])
                find_by_name(o, name, &a);
        else if (objfile_symbol_at(o, address, &s))
                add_function(&a, objfile_image(o), &s, demangle(s.name, text) ? text : s.name);
        n = a.n;
        buf_add(out, &n, sizeof(n));
        buf_add(out, a.function, a.n * sizeof(a.function[0]));
        if (a.bytes.len > 0)
                buf_add(out, a.bytes.data, a.bytes.len);

        int r = buf_error(&a.bytes);

        buf_free(&a.bytes);
        return r;
}
