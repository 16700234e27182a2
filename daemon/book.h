/* The book of locations: every (object, address) that samples have named, with its inline chain once the
 * symbolizer has answered.
 *
 * Windows and collections hold stacks as location ids of one book; equal code is one location whatever the
 * process. A book only grows; when it is over its size the manager begins a new one with the next window,
 * and the old one goes with its last user. Reference-counted: outstanding requests hold a reference too. */
#ifndef DAEMON_BOOK_H
#define DAEMON_BOOK_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/sample.h"
#include "daemon/tracker.h"
#include "profile/profile.h"
#include "symbolizer/client.h"
#include "symbolizer/kernel.h"
#include "symbolizer/kernel_debug.h"

struct book;

/* kernel NULL: kernel addresses stay without names; kernel_debug NULL: without source lines. */
int book_new(struct book **ret, struct tracker *tracker, struct symclient *symbols,
             const struct kernel_symbols *kernel, const struct kernel_debug *kernel_debug);
struct book *book_ref(struct book *b);
struct book *book_unref(struct book *b);

/* Ids (>= 0) of locations, or -ENOMEM. */
int64_t book_user_frame(struct book *b, const struct abi_key *key, uint64_t frame);
int64_t book_kernel_address(struct book *b, uint64_t address);
/* A frame that stands for no code: "[truncated: ...]". */
int64_t book_note(struct book *b, const char *text);

/* Interned text, an index below 2^32, or -ENOMEM. */
int64_t book_string(struct book *b, const char *s);
const char *book_text(const struct book *b, uint32_t string);

/* Sends for the names of locations that have none yet. */
int book_request_names(struct book *b);

/* Locations that may still get a name. */
uint32_t book_unnamed(const struct book *b);
/* Locations have stayed without names for want of memory or a worker: a later book may have them. */
bool book_is_poor(const struct book *b);

uint64_t book_memory(const struct book *b);

/* The location as one of `p`: its id there, or -errno. `*unknown` is set when it has no name. */
int64_t book_export(struct book *b, uint32_t location, struct profile *p, bool *unknown);

#endif
