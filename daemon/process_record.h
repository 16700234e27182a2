/* The kernel's records of processes and mappings (perf_event_open(2), "MMAP layout"), parsed, and those of
 * all CPUs merged by time.
 *
 * A FORK on one CPU and the exec of the child on another are in different rings: applied in the wrong order
 * they would leave the child with its parent's mappings. */
#ifndef DAEMON_PROCESS_RECORD_H
#define DAEMON_PROCESS_RECORD_H

#include <stddef.h>
#include <stdint.h>

enum process_record_type {
        RECORD_MMAP = 0, /* an executable mapping was made */
        RECORD_EXEC = 1, /* a new program: all mappings are gone; `name` is its comm */
        RECORD_COMM = 2, /* a thread was renamed */
        RECORD_FORK = 3, /* pid != ppid: a process; else a thread */
        RECORD_EXIT = 4, /* of a thread */
        RECORD_LOST = 5, /* `lost` records did not fit into a ring */
};

struct process_record {
        enum process_record_type type;
        uint32_t pid, tid, ppid;
        uint64_t time;       /* CLOCK_MONOTONIC */
        uint64_t start, end; /* of a mapping */
        uint64_t offset;     /* in the file, bytes */
        uint64_t device;     /* major << 32 | minor of the file system; 0: not a file */
        uint64_t inode, generation;
        uint64_t lost;
        const char *name; /* of the mapped file, or a comm; "" when there is none */
};

/* Parses one record (`n` bytes, which begin with a perf_event_header and end with the time). 0: not one of
 * these, or malformed. The name points into it. */
int process_record_parse(const void *record, size_t n, struct process_record *ret);

struct record_batch;

int record_batch_new(struct record_batch **ret);
struct record_batch *record_batch_free(struct record_batch *b);

/* Appends whole records, in the order of one ring, of which the bytes are in two parts (the second may be
 * empty). Damaged lengths end the reading of this call. -ENOMEM; -EMSGSIZE over the bound of a batch, the
 * bytes are not taken then. */
int record_batch_add(struct record_batch *b, const void *part1, size_t n1, const void *part2, size_t n2);

/* Hands over the records up to and including a time, in order of time, and forgets them; younger ones stay.
 * Of equal times the one added first comes first. Returns the number handed over. */
typedef void (*process_record_fn)(void *ctx, const struct process_record *r);
uint32_t record_batch_run(struct record_batch *b, uint64_t until, process_record_fn fn, void *ctx);

#endif
