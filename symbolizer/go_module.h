/* Where a Go program keeps what its table of functions points to. Runs in the worker.
 *
 * Layout: type moduledata in runtime/symtab.go, Go 1.18 to 1.26. It has no symbol in a stripped program, and
 * is known by what it begins with: the addresses of the table of functions and of the names in it. */
#ifndef SYMBOLIZER_GO_MODULE_H
#define SYMBOLIZER_GO_MODULE_H

#include "symbolizer/elf_image.h"

struct go_table { /* that the module belongs to */
        uint64_t address, size;
        uint64_t names; /* address */
        uint32_t word;  /* bytes of a pointer */
        bool is_1_20;   /* or later */
};

struct go_module {
        uint64_t text;   /* what entries of functions are relative to */
        uint64_t gofunc; /* what functions' data is relative to */
};

/* -ENOENT. */
int go_module_find(struct elf_image *e, const struct go_table *table, struct go_module *ret);

#endif
