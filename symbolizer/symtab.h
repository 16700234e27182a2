/* ELF symbol tables → the function at an address. Runs in the worker.
 *
 * Only a symbol that says how long it is names the addresses it covers: in stripped libraries the nearest
 * symbol below is usually some other function. Symbols without a size are kept apart as labels, for a caller
 * that knows a function's bounds from elsewhere (call frame information).
 *
 * Of several symbols at one address the first of this order counts: global or weak before local, fewer
 * leading underscores, the shorter, the lesser by bytes: `write`, not `__GI___libc_write`.
 *
 * Names are not copied: they are those of the images' string tables, which must outlive the table. */
#ifndef SYMBOLIZER_SYMTAB_H
#define SYMBOLIZER_SYMTAB_H

#include "symbolizer/elf_image.h"

#define SYMTAB_MAX_IMAGES 4

struct symtab;

struct symbol {
        const char *name; /* as the linker knows it */
        uint64_t start;   /* ELF address */
        uint64_t size;    /* 0: a label */
};

/* From the images' .symtab, or .dynsym where there is none; all describe one program, the first best.
 * -ENODATA: no functions in any; -ENOMEM. */
int symtab_new(struct symtab **ret, struct elf_image *const *images, uint32_t n_images);
struct symtab *symtab_free(struct symtab *t);

/* The innermost sized symbol that covers the address; false when none does. */
bool symtab_find(const struct symtab *t, uint64_t address, struct symbol *ret);

/* The last label in [low, address], if no sized symbol lies between. */
bool symtab_find_label(const struct symtab *t, uint64_t low, uint64_t address, struct symbol *ret);

/* By linker name: *at is 0 at first, and is moved on to find the next of the same name. */
bool symtab_find_name(const struct symtab *t, const char *name, uint32_t *at, struct symbol *ret);

/* Symbol by number, for enumeration. False past the last. */
bool symtab_at(const struct symtab *t, uint32_t i, struct symbol *ret);

size_t symtab_memory(const struct symtab *t); /* bytes of heap */

#endif
