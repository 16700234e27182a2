/* Whole reads and writes, and small files of the kernel's. */
#ifndef BASE_IO_H
#define BASE_IO_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"

/* Writes all of it, through short writes and EINTR. 0 or -errno. */
int write_all(int fd, const void *data, size_t n);

/* Reads exactly n bytes at an offset; -ENODATA when the file ends before. */
int pread_all(int fd, void *data, size_t n, off_t offset);

/* Makes `path` a file with these bytes, whole or not at all, also over a crash: by `temporary`, a name in
 * the same directory that is nobody else's now, fsync and rename. 0 or -errno. */
int replace_file(const char *path, const char *temporary, mode_t mode, const void *data, size_t n);

/* Appends the rest of a file to `b`, at most `max` bytes (-EFBIG when there is more). Works on /proc. */
int read_fd(int fd, size_t max, struct buf *b);
int read_file(const char *path, size_t max, struct buf *b);

/* The decimal number in a file of one number (sysctl, sysfs). 0 or -errno; -EINVAL when it is none. */
int read_file_i64(const char *path, int64_t *ret);

/* The clocks in ns. */
uint64_t now_realtime_ns(void);
uint64_t now_monotonic_ns(void); /* what bpf_ktime_get_ns() reads */
uint64_t now_boottime_ns(void);

#endif
