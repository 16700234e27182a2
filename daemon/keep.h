/* Keeps descriptors and memory beyond our end, for the profd that comes after us: in systemd's file
 * descriptor store (sd_notify(3), FDSTORE=1), or, where Pin= names a directory of a BPF file system, pinned
 * there, with the memory in files of the state directory.
 *
 * What is kept has a name: "profd-<version>-<generation>-<what>". The version is PROFD_ABI_VERSION of who
 * wrote it; each daemon is a generation of its own, one above what it found. */
#ifndef DAEMON_KEEP_H
#define DAEMON_KEEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct keep;

/* Takes up what was kept, and the descriptors of socket activation. pin "" or NULL: no pinning. Call once,
 * before there are threads. -EINVAL: the directory is not fit for it (said). */
int keep_new(struct keep **ret, const char *pin, const char *state_dir);
struct keep *keep_free(struct keep *k); /* what is kept stays */

/* Whether anything we keep will outlive us. */
bool keep_is_on(const struct keep *k);
/* Whether it is by pinning, which knows maps and links but no perf events. */
bool keep_pins(const struct keep *k);

/* The socket that systemd listens on for us; -1. Stays ours. */
int keep_listen_fd(const struct keep *k);

/* Keeps a descriptor (the caller's stays its own) or memory (zeroed, mapped for good, `size` bytes set aside
 * for it, so that a full disk is no SIGBUS). Errors are the caller's to say. */
int keep_fd(struct keep *k, const char *what, int fd);
int keep_memory(struct keep *k, const char *what, size_t size, void **ret);
void keep_drop(struct keep *k, const char *what);

/* What was found. Descriptors belong to the keep. */
struct kept {
        uint32_t version, generation;
        char what[32];
        int fd;
};
uint32_t keep_n_found(const struct keep *k);
const struct kept *keep_found(const struct keep *k, uint32_t i);
/* That of a generation; -1: there is none. */
int keep_found_fd(const struct keep *k, uint32_t generation, const char *what);

/* Maps memory that was found, for reading; only if it is a file that nobody else could write.
 * -EBADF: it is not. */
int keep_found_memory(const struct keep *k, uint32_t generation, const char *what, void **ret,
                      size_t *ret_size);

/* Closes and forgets what was found of a generation, the whole of it or what begins with `prefix`. */
void keep_release(struct keep *k, uint32_t generation, const char *prefix);

#endif
