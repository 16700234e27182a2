/* One object with all that names its addresses: its symbol tables, its debug information wherever that is,
 * its call frame information. Runs in the worker.
 *
 * Each source is read on first need, and can be dropped again when memory is short. */
#ifndef SYMBOLIZER_OBJFILE_H
#define SYMBOLIZER_OBJFILE_H

#include "symbolizer/cache.h"
#include "symbolizer/cfi.h"
#include "symbolizer/names.h"
#include "symbolizer/protocol.h"

struct objfile;

/* Asks for a separate file; the descriptor is the caller's then. -ENOENT: there is none (any more). */
typedef int (*objfile_want_fn)(void *ctx, const struct wire_want *want);

/* `fd` is not taken over. */
int objfile_open(int fd, uint64_t inflate_budget, objfile_want_fn want, void *ctx, struct objfile **ret);
struct objfile *objfile_free(struct objfile *o);

void objfile_info(struct objfile *o, struct wire_info *ret);

/* The unwind table; the caller frees it. */
int objfile_table(struct objfile *o, struct cfi_table **ret);

/* Adds one result to `names`, with no frames when nothing covers the address. Errors are those of memory and
 * budgets; damage in one source leaves the others. */
int objfile_name(struct objfile *o, uint64_t address, bool no_debug, struct names *names);

/* What names are made from. */
enum name_quality objfile_quality(struct objfile *o, bool no_debug);

/* Appends the answer to WIRE_FUNCTIONS. */
int objfile_functions(struct objfile *o, const char *name, uint64_t address, struct buf *out);

/* -- for the above -- */

struct elf_image *objfile_image(struct objfile *o);
/* Loads it on need; NULL: there is none. */
struct symtab *objfile_symtab(struct objfile *o);
/* By symbol, by the bounds that call frame information gives, or as a stub ("write@plt"). The name is valid
 * until the next call. */
struct symbol;
bool objfile_symbol_at(struct objfile *o, uint64_t address, struct symbol *ret);

/* Gives back what can be read again. */
void objfile_drop(struct objfile *o);
void objfile_drop_pages(struct objfile *o);
bool objfile_is_loaded(const struct objfile *o);

#endif
