/* Processes by pid, and in two rings: those that live, and those that have exited, in the order in which
 * they did. A pid may be in use again while its former processes are still asked for: the newest is found
 * first, the others hang on it. */
#ifndef DAEMON_PROCESS_INDEX_H
#define DAEMON_PROCESS_INDEX_H

#include <stdint.h>

struct process_entry;

struct process_ring {
        struct process_ring *next, *prev;
};

struct process_index {
        struct process_entry **bucket; /* the newest of each pid */
        uint32_t n_buckets;            /* a power of two */
        uint32_t n;                    /* processes */
        struct process_ring live, exited;
};

/* -ENOMEM. */
int process_index_init(struct process_index *x);
void process_index_done(struct process_index *x); /* the processes are the caller's */

/* Adds one that lives; it is the newest of its pid from now on. */
void process_index_add(struct process_index *x, struct process_entry *p);
void process_index_exited(struct process_index *x, struct process_entry *p);
void process_index_remove(struct process_index *x, struct process_entry *p);

/* The newest of a pid; NULL. */
struct process_entry *process_index_find(const struct process_index *x, uint32_t pid);

/* The one behind `p` in a ring of the index, the first where that is NULL; NULL at the end. */
struct process_entry *process_index_next(const struct process_ring *ring, const struct process_entry *p);

uint64_t process_index_memory(const struct process_index *x);

#endif
