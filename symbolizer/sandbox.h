/* What the worker gives up before it reads a byte of a stranger's. */
#ifndef SYMBOLIZER_SANDBOX_H
#define SYMBOLIZER_SANDBOX_H

#include <stdint.h>

/* Gives up all it can, and says what that was: a set of enum sandbox_part. Each part is kept when another is
 * not to be had. `memory`: bytes of private memory at most. */
uint32_t sandbox_enter(uint64_t memory);

/* The parent's death, core dumps and open descriptors above WIRE_FD: for the unsandboxed worker too. */
void sandbox_basics(void);

#endif
