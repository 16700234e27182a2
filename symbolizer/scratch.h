/* Room on disk for what large compressed sections inflate to.
 *
 * A debug package of 100 MB may hold 500 MB of DWARF, more than the worker may have of memory. So the client
 * gives it a file without a name to inflate into: its pages are the kernel's to write out and take back, and
 * with the worker it is gone. The room is reserved before it is used, a full disk cannot surprise the
 * writer. */
#ifndef SYMBOLIZER_SCRATCH_H
#define SYMBOLIZER_SCRATCH_H

#include <stdint.h>

#define SCRATCH_MIN ((uint64_t)16 << 20) /* smaller sections are inflated in memory */
#define SCRATCH_MAX ((uint64_t)2 << 30)

/* In the client: a descriptor of a file of this size in a directory. -E2BIG above SCRATCH_MAX; -ENOSPC when
 * it would take more than a quarter of what is free, or the directory is in memory; -errno. */
int scratch_create(const char *directory, uint64_t size);

/* In the worker: maps it and closes the descriptor, also on failure. NULL: cannot be. munmap() it. */
void *scratch_map(int fd, uint64_t size);

#endif
