/* Looks for the separate files of an object: debug files, dwz files, split units.
 *
 * In a thread of its own, because a path in a container may lead to a file system that never answers. A
 * search that takes too long is abandoned with its thread, which ends when the file system lets it. */
#ifndef SYMBOLIZER_FINDER_H
#define SYMBOLIZER_FINDER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "symbolizer/protocol.h"

struct finder;

/* `debug_dirs` must outlive the finder; `scratch_dir` is where files to write to are made. */
int finder_new(struct finder **ret, const char *const *debug_dirs, const char *scratch_dir);
struct finder *finder_free(struct finder *f);

/* Readable when a search has ended. */
int finder_fd(const struct finder *f);

/* path: of the object as its process saw it; owner: of its file; root: that process's root, or NULL. One
 * search at a time: -EBUSY. */
int finder_start(struct finder *f, const struct wire_want *want, const char *path, uid_t owner,
                 const char *root);

/* The JIT file of a process; ns_pid 0: found out. */
int finder_start_jit(struct finder *f, uint32_t pid, uint32_t ns_pid);

struct found {
        int fd;            /* the caller's; or -ENOENT and the like */
        uint32_t jit_kind; /* enum wire_jit_kind */
        uint32_t ns_pid;
};

/* True: the search has ended. */
bool finder_result(struct finder *f, struct found *ret);
bool finder_is_busy(const struct finder *f);

/* Forgets the search that runs. -EAGAIN: too many hang already, none can be started any more. */
int finder_abandon(struct finder *f);

/* -- what the thread runs; for it and for tests -- */

/* The n-th place where there is such a file (want->attempt). */
int find_file(const struct wire_want *want, const char *path, uid_t owner, const char *root,
              const char *const *debug_dirs);

/* A perf map or a jitdump, in the process's own root and under its own process number. It is believed only
 * if it is a regular file, not a link, of the process's user or root, and of a size that a JIT may reach. */
void find_jit(uint32_t pid, uint32_t ns_pid, struct found *ret);

/* Opens a regular file below a root without touching what is none. O_NOFOLLOW may be in flags. */
int open_regular(int root, const char *path, int flags);

#endif
