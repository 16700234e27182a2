/* Go's own table of functions, files, lines and inlined calls, which a Go program needs at run time and
 * keeps when it is stripped. Runs in the worker.
 *
 * Layout: runtime/symtab.go and runtime/runtime2.go of Go 1.16 (magic 0xfffffffa), 1.18 (0xfffffff0)
 * and 1.20 (0xfffffff1); of inlined calls, type inlinedCall there and in runtime/symtabinl.go. Older ones
 * are not read. */
#ifndef SYMBOLIZER_GOPCLNTAB_H
#define SYMBOLIZER_GOPCLNTAB_H

#include "symbolizer/elf_image.h"

struct gopclntab;

struct go_frame {
        const char *name, *file; /* in the image; file NULL: unknown */
        uint32_t line;           /* of the address, or of the call inlined here; 0: unknown */
        uint32_t function_line;  /* 0: unknown */
};

/* -ENODATA: it has none; -EBADMSG. The image must outlive it. */
int gopclntab_new(struct gopclntab **ret, struct elf_image *e);
struct gopclntab *gopclntab_free(struct gopclntab *t);

/* The frames at an address, innermost first, the last is the function itself; 0: none. Of a chain deeper
 * than `max` the outermost frames but the last are left out. */
uint32_t gopclntab_find(const struct gopclntab *t, uint64_t address, struct go_frame *ret, uint32_t max);

#endif
