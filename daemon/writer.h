/* The thread that writes finished windows to the store and keeps the store tidy, so that no disk, however
 * slow, holds up the drain. */
#ifndef DAEMON_WRITER_H
#define DAEMON_WRITER_H

#include <stdint.h>

#include "daemon/store.h"

struct writer;

int writer_new(struct writer **ret, struct store *store);
/* Writes what is queued, then ends the thread. */
struct writer *writer_free(struct writer *w);

/* Takes over the profile. -ENOBUFS: the queue is full since the disk does not keep up; the profile was freed
 * and its samples are counted as lost. */
int writer_put(struct writer *w, struct profile *p, uint64_t samples);

/* Waits until all that was put is written or lost. */
void writer_wait(struct writer *w);

/* Wakes the thread to merge and delete what is due. */
void writer_maintain(struct writer *w);

struct writer_stats {
        uint64_t windows;      /* written */
        uint64_t lost_windows; /* not written: disk full, read-only, too slow */
        uint64_t lost_samples; /* in those */
        uint64_t finished;     /* of those put, in their order: written or lost */
        int last_error;        /* of the newest attempt: 0 or -errno */
};
void writer_stats(struct writer *w, struct writer_stats *ret);

#endif
