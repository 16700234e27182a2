/* Results of a batch of addresses in one flat form: what the worker sends, what the cache keeps, and what a
 * caller's sym_result arrays point into. Strings are offsets into a block of NUL-terminated ones, each kept
 * once; offset 0 stands for none. */
#ifndef SYMBOLIZER_NAMES_H
#define SYMBOLIZER_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/idtable.h"
#include "symbolizer/client.h"

struct name_frame {
        uint32_t function, linkage, file; /* strings */
        uint32_t line, function_line;
        uint32_t inlined; /* 0 or 1 */
};

struct name_result {
        uint32_t first, n; /* frames, innermost first */
};

/* A zeroed struct is empty. */
struct names {
        struct name_result *result;
        uint32_t n_results, cap_results;
        struct name_frame *frame;
        uint32_t n_frames, cap_frames;
        struct buf strings;
        struct idtable interned;
        struct name_string *string; /* what `interned` counts */
        uint32_t n_strings, cap_strings;
};

void names_free(struct names *b);
#define _cleanup_names_ __attribute__((cleanup(names_free)))

/* Begins the result of the next address. The frames added until the next one are its. */
int names_begin(struct names *b);
/* `function` is demangled when it is a linker's name, which then becomes `linkage`. All may be NULL. */
int names_add_raw(struct names *b, const char *function, const char *file, uint32_t line,
                  uint32_t function_line, bool inlined);
/* Copies a result out of another batch as the next one of this. */
int names_copy(struct names *b, const struct names *from, uint32_t result);
int names_copy_frames(struct names *b, const struct names *from, uint32_t first, uint32_t n);

/* Appends the batch to `out`; what names_decode() reads. */
int names_encode(const struct names *b, struct buf *out);

/* Copies an encoded batch, all of it checked: -EBADMSG. `ret` is empty before; without its interning tables,
 * so that nothing can be added to it. */
int names_decode(const void *data, size_t size, struct names *ret);

/* Whether all frames' strings are within the block, and that ends with a NUL. */
bool names_are_sound(const struct names *b);

/* Points one frame's strings into the batch; valid until it changes. */
void names_frame(const struct names *b, uint32_t frame, struct sym_frame *ret);

#endif
