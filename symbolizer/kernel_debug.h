/* Inlined functions and source lines of the running kernel itself, from a vmlinux with debug information
 * where distributions install it: DIR/.build-id/xx/yyyy.debug, DIR/boot/vmlinux-RELEASE,
 * DIR/lib/modules/RELEASE/vmlinux and DIR/lib/modules/RELEASE/build/vmlinux, for each directory of debug
 * files and for the root. It must have the build ID of /sys/kernel/notes; parsed in the worker, as any
 * object.
 *
 * The kernel's addresses differ from the file's by one number (KASLR), which is taken from two functions:
 * where functions were shuffled (FG-KASLR) the two disagree, and the file is not used. */
#ifndef SYMBOLIZER_KERNEL_DEBUG_H
#define SYMBOLIZER_KERNEL_DEBUG_H

#include <stdint.h>

#include "symbolizer/client.h"
#include "symbolizer/kernel.h"

struct kernel_debug;

/* What is passed is borrowed, and outlives it. debug_dirs is NULL-terminated. 0 or -ENOMEM. */
int kernel_debug_new(struct kernel_debug **ret, struct symclient *c, const struct kernel_symbols *k,
                     const char *const *debug_dirs);
struct kernel_debug *kernel_debug_free(struct kernel_debug *d);

/* Begins to look for the file, unless one is in use or those that are there were looked at before. Returns 1
 * when one has come into use since the last call, else 0. */
int kernel_debug_seek(struct kernel_debug *d);

/* The file; its address + *ret_slide is the kernel's. NULL: none is in use. */
struct symobj *kernel_debug_object(const struct kernel_debug *d, uint64_t *ret_slide);

#endif
