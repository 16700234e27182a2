/* What a later daemon must know of this one to read its samples: a page of figures, and what object ids in
 * frames stand for. Lives in memory that is kept (daemon/keep.h), so it is up to date also when the daemon
 * is killed. */
#ifndef DAEMON_KEPT_STATE_H
#define DAEMON_KEPT_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bpf/abi.h"
#include "symbolizer/client.h"

#define KEPT_MAGIC 0x6b657074u

/* The first page. The first line of members is the same in all versions. */
struct kept_head {
        uint32_t magic, version; /* KEPT_MAGIC, PROFD_ABI_VERSION */
        uint32_t complete; /* what was found at our start is in our journals and maps: do not look there
                            */
        uint32_t pad;
        uint64_t stored_taken; /* the kernel half's own ABI_STAT_TAKEN when the oldest window that is not
                                  stored began */
        /* Of this version: */
        uint64_t progress;              /* of the drain, see KEPT_PROGRESS; 0: none is under way */
        uint64_t added[ABI_STAT_MAX];   /* to the kernel half's sums gives those of sampler_stats() */
        uint64_t stored[ABI_STAT_MAX];  /* sampler_stats() when the oldest window that is not stored began */
        char event[ABI_MAX_EVENTS][64]; /* names of the events that are sampled; "": none */
};
_Static_assert(sizeof(struct kept_head) <= 4096, "one page");

/* Rows of a CPU's set that are in a journal already, while the drain is at them. */
#define KEPT_PROGRESS(set, cpu, n) ((uint64_t)(set) << 63 | (uint64_t)(cpu) << 32 | (uint64_t)(n))

#define KEPT_OBJECT_OFFSET 1 /* frames carry file offsets */
struct kept_object {
        uint16_t id; /* 0: free */
        uint8_t flags, build_id_len;
        uint32_t pad;
        uint64_t device, inode, generation;
        uint8_t build_id[SYM_BUILD_ID_MAX];
        char path[256 - 32 - SYM_BUILD_ID_MAX]; /* cut when longer */
};
_Static_assert(sizeof(struct kept_object) == 256, "16 in a page");

#define KEPT_OBJECTS 16383
struct kept_memory {
        struct kept_head head;
        uint8_t pad[4096 - sizeof(struct kept_head)];
        struct kept_object object[KEPT_OBJECTS];
};

/* The writer's side: places of objects. Memory borrowed; NULL: nothing is kept. */
struct kept_objects;

int kept_objects_new(struct kept_objects **ret, struct kept_memory *memory);
struct kept_objects *kept_objects_free(struct kept_objects *o);

/* Notes an object, in place of what was noted of its id. Without room it goes unnoted: its frames would have
 * no name after a restart. All take NULL. */
void kept_objects_put(struct kept_objects *o, const struct kept_object *object);
void kept_objects_remove(struct kept_objects *o, uint16_t id);

#endif
