/* Processes, their mappings, the objects mapped, and the unwind tables of those in the BPF maps.
 *
 * Follows the kernel's own records (PERF_RECORD_MMAP2, COMM, FORK, EXIT; per-CPU rings, sorted by time), so
 * the mappings of a process that has exited by the drain are known. Opens each object once, hands it to the
 * symbolizer's worker for its load segments and unwind table, and keeps the BPF maps under their ceiling.
 * Deferred samples are finished here by the user-space twin of the BPF walk. */
#ifndef DAEMON_TRACKER_H
#define DAEMON_TRACKER_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/sample.h"
#include "daemon/sampler.h"
#include "symbolizer/client.h"

struct tracker;

/* An object: one file's contents that code was mapped from. Reference-counted; the id is what frames carry
 * (ABI_FRAME_OBJECT) and is not given to another object while any frame that was drained may carry it. */
struct object {
        uint16_t id;
        const char *path; /* as the process saw it, "[vdso]" and the like; never NULL */
        uint8_t build_id[SYM_BUILD_ID_MAX];
        uint8_t build_id_len;          /* 0: none */
        bool address_is_offset;        /* not opened: frames carry file offsets, there is no name to find */
        uint32_t error;                /* why there is no table or no names: errno; 0 */
        struct symobj *symbols;        /* the worker's handle; NULL when the file was not opened */
        uint64_t text_start, text_end; /* ELF addresses of the executable segment(s) */
        uint64_t text_offset;          /* file offset of text_start */
        uint32_t rows;                 /* of its unwind table; 0: none */
};

/* A process, known by pid and start time. Kept after its exit until the drain after it. */
struct process {
        uint32_t pid, ppid;
        uint64_t start_ns;       /* boot time; 0 until known */
        char comm[ABI_COMM_LEN]; /* of the leader */
        bool exited;
        uint32_t marks;  /* of the tracker_follow()s that named it or an ancestor */
        uint32_t ns_pid; /* its pid in its own innermost pid namespace; 0 unknown */
};

/* memory: bytes that unwind tables may take; processes may take a quarter of that besides. */
int tracker_new(struct tracker **ret, const struct unwind_maps *maps, struct symclient *symbols,
                uint64_t memory);
struct tracker *tracker_free(struct tracker *t);

/* Opens the rings and reads the processes that exist. */
int tracker_start(struct tracker *t);

/* Readable when a ring has enough to read; call tracker_poll() then, and at least every 100 ms. */
int tracker_fd(const struct tracker *t);
int tracker_poll(struct tracker *t);
int tracker_follow_cpus(struct tracker *t);

/* Held, it throws the kernel's records away: processes that begin and mappings that are made meanwhile are
 * known when a sample of them asks for them, or when /proc is read after the hold. */
void tracker_hold(struct tracker *t, bool held);

/* Takes a deferred sample with its kernel frames (copies both; a sampler_raw_fn); its row comes out of a
 * later tracker_drain(), at the latest when its table has not come within a second. */
void tracker_defer(void *tracker, const struct abi_raw *raw, const uint64_t *kernel, uint32_t n_kernel);
int tracker_drain(struct tracker *t, sample_row_fn row, void *ctx);

/* Samples deferred from now on are of the window of this number, a rising one. The oldest window that a
 * deferred sample still waits of; UINT32_MAX: none waits. */
void tracker_window(struct tracker *t, uint32_t number);
uint32_t tracker_oldest_window(const struct tracker *t);

/* Called once per drain after its rows were taken: frees what exited and is not referred to any more. */
void tracker_drained(struct tracker *t);

/* What ids stand for, and which samples wait, is noted from here on, for a daemon after us; borrowed. Call
 * before tracker_start(). */
struct kept_objects;
struct kept_object;
struct kept_raws;
void tracker_keep(struct tracker *t, struct kept_objects *objects, struct kept_raws *raws);

/* Our id for an object that another daemon noted, which is opened for its names; 0: none can be had. */
uint16_t tracker_take_object(struct tracker *t, const struct kept_object *kept);

/* The object of a frame; NULL when the id is not known. object_ref() keeps it past the next drain. Asking
 * for an object or a process tells that samples of it were seen: what is not seen is put out first. */
struct object *tracker_object(struct tracker *t, uint32_t id);
struct object *object_ref(struct object *o);
struct object *object_unref(struct object *o);

/* start_ns 0: whichever has the pid now. */
const struct process *tracker_process(struct tracker *t, uint32_t pid, uint64_t start_ns);

/* The path of the mapping at an address of a process ("//anon", "[heap]", "/memfd:x (deleted)"), or NULL. */
const char *tracker_mapping_name(struct tracker *t, uint32_t pid, uint64_t address, uint64_t *ret_start);

/* Marks a process: it and all that it forks from now on carry `*ret_mark` (one bit). -ESRCH: there is no
 * such process; -EBUSY: all marks are in use. */
int tracker_follow(struct tracker *t, uint32_t pid, uint32_t *ret_mark);
void tracker_unfollow(struct tracker *t, uint32_t mark);

struct tracker_stats {
        uint64_t records, records_lost; /* of the kernel; lost ones are made up for by reading /proc */
        uint64_t records_skipped;       /* while held */
        uint64_t execs, forks, exits;
        uint64_t deferred;          /* samples taken */
        uint64_t deferred_complete; /* finished with a whole stack */
        uint64_t deferred_wait_ns;  /* of all, from sample to end of the walk */
        uint64_t deferred_hurried; /* finished before what they waited for had come: too long, or too many */
        uint64_t deferred_lost;    /* no memory for them: these samples are lost */
        uint32_t processes, published; /* known; of them with a list in the kernel half's maps */
        uint32_t mappings;             /* entries that these lists take */
        uint32_t objects, objects_open;
        uint32_t objects_past;   /* of the open ones: not mapped any more, but referred to, */
        uint32_t objects_stale;  /* and not sampled for long */
        uint64_t objects_failed; /* files that could not be opened or read */
        uint32_t objects_lacking, lacking_error; /* of those mapped now: for want of what the errno says */
        uint32_t objects_stuck; /* threads that wait for a file system that does not answer */
        uint32_t tables;        /* objects of which rows are loaded */
        uint32_t rules, shards;
        uint64_t rows;
        uint64_t evictions; /* pieces of tables put out for want of room */
        uint64_t no_room;   /* lists, tables, rules, mappings and ended processes for which none was found */
        uint64_t memory;    /* bytes of user-space state, shared maps not counted */
};
void tracker_stats(const struct tracker *t, struct tracker_stats *ret);

#endif
