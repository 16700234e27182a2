/* Names as a person writes them, of those a linker knows: C++ (Itanium ABI), Rust legacy and v0, D.
 *
 * By libiberty, through its callback, into a buffer of fixed size that is left as soon as it is full: there
 * are names of 235 bytes that otherwise take minutes. It has no callback for D, of which names that could
 * grow too far are left as they are. Suffixes that compilers add (.cold, .constprop.0,
 * .llvm.123) are kept: in brackets after a C++ name, as binutils writes them, as they are after a Rust name.
 * The hash of a Rust legacy name is dropped, "@plt" behind any name kept. */
#ifndef SYMBOLIZER_DEMANGLE_H
#define SYMBOLIZER_DEMANGLE_H

#include <stdbool.h>
#include <stddef.h>

#define DEMANGLE_MAX 4096 /* bytes of a result with its NUL; longer ones end in "..." */

/* False: not a mangled name, or damaged; `ret` is then not to be used. */
bool demangle(const char *linkage, char ret[DEMANGLE_MAX]);

#endif
