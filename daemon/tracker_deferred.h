/* Samples whose walk waits: for the records of their time, for a file to be opened, for its table. */
#ifndef DAEMON_TRACKER_DEFERRED_H
#define DAEMON_TRACKER_DEFERRED_H

#include "daemon/object_table.h"
#include "daemon/process_table.h"
#include "daemon/tracker_rows.h"

struct deferred;

struct deferred_parts {
        struct process_table *processes;
        struct object_table *objects;
        struct unwind_tables *tables;
        struct tracker_rows *rows;
};

/* max_bytes: of waiting samples; one that comes on top is finished at once with what is there. */
int deferred_new(struct deferred **ret, const struct deferred_parts *parts, uint64_t max_bytes);
struct deferred *deferred_free(struct deferred *d);

/* From here on those that wait do it where a daemon after us finds them. Borrowed. */
struct kept_raws;
void deferred_keep(struct deferred *d, struct kept_raws *kept);

void deferred_add(struct deferred *d, const struct abi_raw *raw, const uint64_t *kernel, uint32_t n_kernel);

/* Finishes what can be finished: walks that miss nothing, and those that have waited for a second. Records
 * up to applied_ns have been applied. */
void deferred_run(struct deferred *d, uint64_t applied_ns, uint64_t now_ns);

/* The window that samples are of from now on; that of the one that waits longest, UINT32_MAX: none waits. */
void deferred_window(struct deferred *d, uint32_t number);
uint32_t deferred_oldest(const struct deferred *d);

bool deferred_waiting(const struct deferred *d);

struct deferred_stats {
        uint64_t taken, complete; /* finished with a whole stack */
        uint64_t waited_ns;       /* all of them together, from sample to end of the walk */
        uint64_t hurried;         /* finished before what they waited for had come */
        uint64_t lost;            /* no memory for them */
        uint64_t memory;
};
void deferred_stats(const struct deferred *d, struct deferred_stats *ret);

#endif
