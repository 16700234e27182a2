/* Samples of a stretch of time, gathered from drains, that become one profile: a window of the store, or a
 * live collection. Holds stacks as locations of a book, so that names may come later. */
#ifndef DAEMON_WINDOW_H
#define DAEMON_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/book.h"
#include "daemon/labels.h"
#include "daemon/sample.h"
#include "daemon/sampler.h"
#include "profile/profile.h"

struct window;

/* Takes a reference to the book. The events tell which sample types there are. */
int window_new(struct window **ret, struct book *book, const struct sampler *sampler);
struct window *window_free(struct window *w);

int window_add(struct window *w, const struct sample_row *row, const struct process_labels *labels);

/* What the ledger says of this stretch: how the walks ended and how many samples there are. */
struct window_totals {
        uint64_t samples[ABI_MAX_EVENTS]; /* by event */
        uint64_t walk[ABI_WALK_MAX];
};
const struct window_totals *window_totals(const struct window *w);

struct book *window_book(const struct window *w);

/* The profile so far: sample types, samples with labels, time unset. Adds `frames.unknown` and the like to
 * its comments. The window may go on. */
int window_profile(struct window *w, struct profile **ret);

uint64_t window_memory(const struct window *w);

/* Name of an end of a walk, as in the ledger: "complete", "no_table", ... */
const char *walk_name(enum abi_walk walk);

#endif
