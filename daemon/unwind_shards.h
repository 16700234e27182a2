/* The maps that hold unwind rows: arrays of 1 MiB in an array of maps, made on demand and never given back.
 *
 * Putting a map into an array of maps makes the kernel wait for every program that may be reading it, some
 * 10 ms: a thread does it, ahead of need. The same wait serves as grace period. */
#ifndef DAEMON_UNWIND_SHARDS_H
#define DAEMON_UNWIND_SHARDS_H

#include <stdint.h>

struct unwind_shards;

/* shards_fd: the array of maps, of at least `max` entries; outlives the thread. The first shard is made. */
int unwind_shards_new(struct unwind_shards **ret, int shards_fd, uint32_t max);
struct unwind_shards *unwind_shards_free(struct unwind_shards *s);

/* Begins to make shards until there are n. */
void unwind_shards_prepare(struct unwind_shards *s, uint32_t n);
/* Waits until there are n, or no more can be made. Returns how many there are. */
uint32_t unwind_shards_wait(struct unwind_shards *s, uint32_t n);

uint32_t unwind_shards_ready(const struct unwind_shards *s);
uint32_t unwind_shards_max(const struct unwind_shards *s);
/* The rows of one that is ready. */
uint32_t *unwind_shards_rows(const struct unwind_shards *s, uint32_t i);

/* Returns when every program that was running has ended. 0 or -errno. */
int unwind_shards_grace(struct unwind_shards *s);

#endif
