/* The stubs through which a program calls functions of shared objects. They have no symbols; their names are
 * those of the slots that they jump through. Runs in the worker.
 *
 * x86-64 (psABI, "Procedure Linkage Table": .plt, .plt.sec, .plt.got) and aarch64 (.plt). */
#ifndef SYMBOLIZER_PLT_H
#define SYMBOLIZER_PLT_H

#include "symbolizer/symtab.h"

struct plt;

/* -ENODATA: it has no stubs that can be read; -ENOMEM. The image must outlive it. */
int plt_new(struct plt **ret, struct elf_image *e);
struct plt *plt_free(struct plt *p);

/* The stub at an address: "write@plt". The name is valid until the next call. */
bool plt_find(struct plt *p, uint64_t address, struct symbol *ret);

#endif
