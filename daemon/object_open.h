/* Opens files that other processes have mapped, in threads of its own: an open or a stat on a file system
 * that somebody else serves (FUSE, a dead NFS server) may block for ever.
 *
 * A job that takes too long is given up and its thread left behind until it comes back; their number is
 * bounded, and while all are stuck every job fails with -EBUSY. */
#ifndef DAEMON_OBJECT_OPEN_H
#define DAEMON_OBJECT_OPEN_H

#include <stdbool.h>
#include <stdint.h>

struct object_opener;

#define OBJECT_OPEN_PLACES 5

/* Where a mapped file may be found: through a live process that maps it at [start, end) (right for deleted
 * files and for other mount namespaces), or by path in the root of a live process (start 0), or by path in
 * ours (pid 0). */
struct object_place {
        uint32_t pid;
        uint64_t start, end;
};

struct object_job {
        uint64_t id;     /* the caller's */
        bool look_only;  /* only looks at size and times: ret fd -1 */
        uint64_t device; /* what the mapping record says; the file found must be this one */
        uint64_t inode;
        uint32_t n_places;
        struct object_place place[OBJECT_OPEN_PLACES]; /* tried in this order */
        const char *path;                              /* copied */
};

struct object_opened {
        uint64_t id;
        int error; /* 0 or -errno: -ENOENT found nowhere, -ESTALE only other files there, -ETIMEDOUT, -EBUSY
                    */
        int fd;    /* the receiver's; read-only, of a regular file; -1 when only looked at */
        uint64_t size;
        uint64_t modified_ns, changed_ns;
        uint32_t place; /* which of the job's places it was */
};

/* timeout_ms: of one job. */
int object_opener_new(struct object_opener **ret, uint32_t timeout_ms);
struct object_opener *object_opener_free(struct object_opener *o);

/* Readable when object_opener_dispatch() has results. */
int object_opener_fd(const struct object_opener *o);

int object_opener_submit(struct object_opener *o, const struct object_job *job);

/* Hands over results, and gives up jobs that took too long (call it now and then for that). */
typedef void (*object_opened_fn)(void *ctx, const struct object_opened *r);
void object_opener_dispatch(struct object_opener *o, object_opened_fn fn, void *ctx);

uint32_t object_opener_stuck(const struct object_opener *o); /* threads that have not come back */

#endif
