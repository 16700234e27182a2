/* One ring of process records per CPU: a perf event that counts nothing and reports MMAP2, COMM, FORK, EXIT.
 */
#ifndef DAEMON_PROCESS_RING_H
#define DAEMON_PROCESS_RING_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/process_record.h"

struct process_rings;

/* bytes: for all rings together; each gets a power of two between 32 and 512 KiB. */
int process_rings_new(struct process_rings **ret, uint64_t bytes);
struct process_rings *process_rings_free(struct process_rings *r);

/* Opens the rings of CPUs that are online and have none, closes those of CPUs that are gone or that went and
 * came back (their event stays dead). Returns 1 when records may have been missed, 0 when not, -errno when
 * no CPU has a ring. */
int process_rings_follow_cpus(struct process_rings *r);

/* An epoll descriptor, readable when a ring is a quarter full. */
int process_rings_fd(const struct process_rings *r);

/* Moves all that the rings hold into the batch. */
int process_rings_read(struct process_rings *r, struct record_batch *into);

/* Throws all that the rings hold away, and tells how many records that were. */
uint64_t process_rings_skip(struct process_rings *r);

uint64_t process_rings_memory(const struct process_rings *r);

#endif
