/* Lists of mappings in the maps of the kernel half. */
#ifndef DAEMON_UNWIND_LISTS_H
#define DAEMON_UNWIND_LISTS_H

#include "daemon/process_table.h"

struct unwind_lists;

int unwind_lists_new(struct unwind_lists **ret, const struct unwind_maps *maps);
struct unwind_lists *unwind_lists_free(struct unwind_lists *l);

/* What the kernel half is told of a mapping; the twin of its walk reads the same. */
void unwind_mapping_of(const struct process_mapping *m, struct abi_mapping *ret);

/* Brings the kernel's map in line with a process: its list under its stamp when it is wanted there, nothing
 * when it has exited or was replaced. When there is no room the process goes without (its samples are
 * deferred) until those not sampled for longest made some. */
void unwind_lists_publish(struct unwind_lists *l, struct process_table *processes, struct process_entry *p,
                          uint64_t now_ns);
void unwind_lists_remove(struct unwind_lists *l, struct process_entry *p);

/* A published list is out of date; reused after the grace period. */
void unwind_lists_withdrawn(void *lists, uint32_t first, uint32_t n);

void unwind_lists_tick(struct unwind_lists *l); /* once per drain */

struct unwind_lists_stats {
        uint32_t processes, mappings;
        uint64_t published, no_room;
};
void unwind_lists_stats(const struct unwind_lists *l, struct unwind_lists_stats *ret);

#endif
