/* Unwind rows for x86-64 code that has no call frame information (musl, the start files of compilers),
 * inferred from the instructions.
 *
 * From each known entry of a function every path is followed, with what is known about the stack. Rows are
 * made only for instructions that are reached, and only where nothing contradicts: two paths that meet
 * agree, and a function returns with the stack that it was called with. The rest gets none. */
#ifndef SYMBOLIZER_CFI_INFER_H
#define SYMBOLIZER_CFI_INFER_H

#include <stdbool.h>
#include <stdint.h>

#include "symbolizer/elf_image.h"
#include "symbolizer/unwind_format.h"

#define CFI_INFER_MAX (1u << 20) /* bytes of code */

struct cfi_infer;

/* Called for each place from which on a rule holds, in ascending order; address `end` of the code with kind
 * NONE comes last. */
typedef void (*cfi_infer_row_fn)(void *ctx, uint64_t address, const struct unwind_rule *rule);

/* Takes a function's entry that was found in this code and is not in it. */
typedef void (*cfi_infer_entry_fn)(void *ctx, uint64_t address);

/* Code at [start, start + code.size) without CFI, at most CFI_INFER_MAX. -ENOMEM, -E2BIG. */
int cfi_infer_new(struct cfi_infer **ret, uint64_t start, struct span code, cfi_infer_entry_fn outside,
                  void *ctx);
struct cfi_infer *cfi_infer_free(struct cfi_infer *x);

/* A function begins here. False: this is outside, or known. */
bool cfi_infer_entry(struct cfi_infer *x, uint64_t address);

/* Follows all entries there are by now. 0 or -ENOMEM. */
int cfi_infer_run(struct cfi_infer *x);
/* After the last run. */
void cfi_infer_rows(struct cfi_infer *x, cfi_infer_row_fn fn, void *ctx);

#endif
