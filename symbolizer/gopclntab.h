/* Go's own table of functions, files and lines, which a Go program needs at run time and keeps when it is
 * stripped. Runs in the worker.
 *
 * Layout: runtime/symtab.go and runtime/runtime2.go of Go 1.18 (magic 0xfffffff0) and 1.20 (0xfffffff1),
 * which is the same but for a line number; of 1.16 (0xfffffffa). Older ones are not read. */
#ifndef SYMBOLIZER_GOPCLNTAB_H
#define SYMBOLIZER_GOPCLNTAB_H

#include "symbolizer/elf_image.h"

struct gopclntab;

struct go_function {
        const char *name, *file; /* in the image; file NULL: unknown */
        uint32_t line;           /* of the address; 0: unknown */
        uint32_t function_line;  /* 0: unknown */
        uint64_t start, end;
};

/* -ENODATA: it has none; -EBADMSG. The image must outlive it. */
int gopclntab_new(struct gopclntab **ret, struct elf_image *e);
struct gopclntab *gopclntab_free(struct gopclntab *t);
bool gopclntab_find(const struct gopclntab *t, uint64_t address, struct go_function *ret);

#endif
