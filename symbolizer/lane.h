/* One worker process and the conversation with it: start, messages out and in without blocking, end. */
#ifndef SYMBOLIZER_LANE_H
#define SYMBOLIZER_LANE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "symbolizer/protocol.h"

#define LANE_MAX_STUCK 4

struct lane {
        pid_t pid; /* 0: not running */
        int fd;
        uint64_t generation; /* of the process; what an earlier one was told is forgotten */
        struct buf out;
        size_t out_at;
        int out_fd; /* goes with the first byte of the message at out_at; -1 */
        struct wire_header in;
        size_t in_have;              /* bytes of header and body */
        struct buf body;             /* of the message that lane_receive() has completed */
        uint64_t ended_cpu_ns;       /* of the processes before */
        pid_t stuck[LANE_MAX_STUCK]; /* killed, but the kernel does not let them end yet */
        uint32_t n_stuck;
};

/* The worker's program, opened. -ENOENT, said in the log. */
int lane_open_worker(void);

void lane_init(struct lane *l);

/* Starts `exe_fd`, an executable. -EBUSY: too many of those before do not end. */
int lane_start(struct lane *l, int exe_fd, uint64_t memory, bool unsandboxed);

/* Kills what runs and takes leave of it; the wait status, 0 when nothing ran. One that is held by a file
 * system that does not answer cannot be waited for: lane_reap() does, later. */
int lane_stop(struct lane *l);
void lane_reap(struct lane *l);
void lane_free(struct lane *l);

/* Sends as much as goes at once; lane_flush() goes on when the socket is writable. `fd` may be -1; it is not
 * taken over and must stay open until lane_is_sending() is false. Only when nothing is being sent. */
int lane_send(struct lane *l, const struct wire_header *h, const void *body, int fd);
int lane_flush(struct lane *l);
bool lane_is_sending(const struct lane *l);

/* 1: a message is complete, in `in` and `body`; 0: not yet; -EPIPE: the worker has ended; -EMSGSIZE. */
int lane_receive(struct lane *l);

uint64_t lane_cpu_ns(const struct lane *l);  /* of the running process */
uint64_t lane_memory(const struct lane *l);  /* resident bytes */
bool lane_is_runnable(const struct lane *l); /* waits for a CPU, not for a file or a lock */

#endif
