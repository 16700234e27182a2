/* Which units of a fixed area are in use: runs are handed out first-fit from a moving hint, and come back
 * only after a grace period, because programs in the kernel may still be reading them.
 *
 * The grace period is two ticks: the caller ticks once per drain, and a drain waits for the programs that
 * began before it. */
#ifndef DAEMON_UNWIND_SPACE_H
#define DAEMON_UNWIND_SPACE_H

#include <stdbool.h>
#include <stdint.h>

struct unwind_space;

/* n units, of which `usable` (<= n) may be handed out at first. No run crosses a multiple of `border` units;
 * 0: no borders. */
int unwind_space_new(struct unwind_space **ret, uint32_t n, uint32_t usable, uint32_t border);
struct unwind_space *unwind_space_free(struct unwind_space *s);

/* A run of n units. -ENOSPC: there is none (now). */
int unwind_space_take(struct unwind_space *s, uint32_t n, uint32_t *ret_first);
/* Gives a run back, to be handed out again after the grace period. */
void unwind_space_give(struct unwind_space *s, uint32_t first, uint32_t n);

void unwind_space_tick(struct unwind_space *s);
/* All programs that began before this call have ended: nothing needs to wait. */
void unwind_space_quiet(struct unwind_space *s);

/* More units may be handed out. */
void unwind_space_grow(struct unwind_space *s, uint32_t usable);

uint32_t unwind_space_usable(const struct unwind_space *s);
uint32_t unwind_space_used(const struct unwind_space *s);    /* handed out */
uint32_t unwind_space_waiting(const struct unwind_space *s); /* given back, in their grace period */

#endif
