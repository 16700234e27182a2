/* The executable mappings of one address space: sorted, disjoint, shared by forks until one of them changes.
 *
 * Nobody reports munmap(): where mappings overlap, the newer one wins. */
#ifndef DAEMON_PROCESS_MAP_H
#define DAEMON_PROCESS_MAP_H

#include <stdbool.h>
#include <stdint.h>

struct object_entry;

struct process_mapping {
        uint64_t start, end;         /* addresses in the process */
        uint64_t offset;             /* file offset of start */
        struct object_entry *object; /* never NULL; what is no file has an object without id */
};

/* Most mappings of one list: what the kernel half searches in its fixed number of steps. */
#define PROCESS_MAX_MAPPINGS 4095

struct process_maps {
        uint32_t refs;
        uint32_t n, cap;
        struct process_mapping *mapping;
        /* Where the list stands in the map of the kernel half; published_n 0: nowhere, or out of date. */
        uint32_t published_first, published_n, published_version;
};

/* Told whenever a list begins or ends to refer to an object. */
struct process_map_ops {
        void (*mapped)(struct object_entry *o);
        void (*unmapped)(struct object_entry *o);
        /* A published list is out of date: [first, first + n) may be reused after a grace period. */
        void (*withdrawn)(void *ctx, uint32_t first, uint32_t n);
        void *ctx;
        uint64_t *bytes; /* what all lists take, kept up to date */
};

int process_maps_new(struct process_maps **ret, const struct process_map_ops *ops);
struct process_maps *process_maps_ref(struct process_maps *m);
struct process_maps *process_maps_unref(struct process_maps *m, const struct process_map_ops *ops);

/* Adds a mapping to *maps, which is copied first when it is shared. Returns 1 when the list changed, 0 when
 * it said so already; -ENOSPC when the list is full; -ENOMEM. */
int process_maps_add(struct process_maps **maps, const struct process_mapping *m,
                     const struct process_map_ops *ops);

const struct process_mapping *process_maps_find(const struct process_maps *m, uint64_t address);

#endif
