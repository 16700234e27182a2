/* The processes, by pid and start time, each with its images: what it was between one exec and the next.
 *
 * Applies the kernel's records in the order of their time. What has exited, or was replaced by exec, stays
 * until samples of before can no longer come: a deferred sample is walked with the mappings of its time. */
#ifndef DAEMON_PROCESS_TABLE_H
#define DAEMON_PROCESS_TABLE_H

#include "daemon/object_table.h"
#include "daemon/process_index.h"
#include "daemon/process_map.h"
#include "daemon/process_record.h"
#include "daemon/tracker.h"

struct process_image {
        struct process_image *older;
        uint64_t from_ns;          /* monotonic */
        struct process_maps *maps; /* never NULL */
        uint32_t replaced_tick;    /* when the next image came */
};

struct process_entry {
        struct process process;      /* first: a struct process * of the tracker is one of these */
        struct process_entry *older; /* had the pid before */
        struct process_entry *next_in_bucket;
        struct process_ring ring; /* of those that live, or have exited */
        struct process_entry *next_dirty;
        struct process_image *image; /* newest; never NULL */
        uint64_t born_ns;            /* monotonic, as its records tell; 0: before we looked */
        uint64_t applied_ns;         /* records up to this time are in it (or came too late) */
        uint64_t used_ns;            /* a sample of it was last seen */
        uint32_t threads;
        bool leader_exited;
        bool dirty;  /* on the list of those whose mappings changed */
        bool rescan; /* its list filled up or something of it was lost */
        uint64_t rescanned_ns;
        uint32_t exited_tick;
        uint64_t stamp;                          /* in the map of the kernel half; 0: not there */
        const struct process_image *stamp_image; /* what is there */
        uint32_t flags;                          /* ABI_PROCESS_* there */
        uint64_t wanted_stamp;                   /* to be put there at the next turn; 0: none */
};

struct process_table;

/* memory: bytes for processes and lists; see process_table_trim(). */
int process_table_new(struct process_table **ret, struct object_table *objects, uint64_t memory,
                      void (*withdrawn)(void *ctx, uint32_t first, uint32_t n), void *ctx);
struct process_table *process_table_free(struct process_table *t);

/* Applies one record (a process_record_fn, in order of time). */
void process_table_apply(void *table, const struct process_record *r);

/* Reads one process, or all, from /proc. 0; -ESRCH: there is none. */
int process_table_scan(struct process_table *t, uint32_t pid);
int process_table_scan_all(struct process_table *t);

/* The newest process with a pid; NULL. */
struct process_entry *process_table_find(struct process_table *t, uint32_t pid);
/* The one that had it at a (monotonic) time, or nearest to a start time; NULL. */
struct process_entry *process_table_at(struct process_table *t, uint32_t pid, uint64_t time_ns);
struct process_entry *process_table_started(struct process_table *t, uint32_t pid, uint64_t start_ns);

/* The image of a process at a time. */
struct process_image *process_entry_image(struct process_entry *p, uint64_t time_ns);

/* Finds out its pid in its own namespace, while it lives. */
void process_table_find_ns_pid(struct process_table *t, struct process_entry *p);

/* Takes the processes whose mappings changed, exited or are wanted, one by one; NULL when there are no more.
 */
struct process_entry *process_table_next_dirty(struct process_table *t);
void process_table_mark(struct process_table *t, struct process_entry *p);

/* All processes that have not exited: p NULL gives the first. */
struct process_entry *process_table_next(struct process_table *t, struct process_entry *p);

/* Exchanges objects whose contents changed in the lists of all processes, and marks those processes that
 * refer to an object with `republish`. */
void process_table_refresh(struct process_table *t);

/* Called before a process is freed. */
typedef void (*process_gone_fn)(void *ctx, struct process_entry *p);

/* Once per drain: frees what samples can no longer refer to. */
void process_table_tick(struct process_table *t, process_gone_fn gone, void *ctx);

/* Frees those that exited first, as long as all take more than they may: samples of them that were not
 * drained yet keep their stacks and the name of the thread, and lose what else was known of the process. */
void process_table_trim(struct process_table *t, process_gone_fn gone, void *ctx);

/* Takes a mark from all that carry it. */
void process_table_unmark(struct process_table *t, uint32_t mark);

struct process_table_stats {
        uint64_t execs, forks, exits, lost, ignored;
        uint64_t forgotten; /* by process_table_trim() */
        uint32_t processes;
        uint64_t memory;
};
void process_table_stats(const struct process_table *t, struct process_table_stats *ret);

#endif
