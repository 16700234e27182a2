#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"

int write_all(int fd, const void *data, size_t n)
{
        const char *p = data;

        while (n > 0) {
                ssize_t k = write(fd, p, n);
                if (k < 0) {
                        if (errno == EINTR)
                                continue;
                        return -errno;
                }
                p += k;
                n -= (size_t)k;
        }
        return 0;
}

/* A new file; one of this name that a killed writer left behind is removed. */
static int create_new(const char *path, mode_t mode)
{
        int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
        int fd = open(path, flags, mode);

        if (fd < 0 && errno == EEXIST && unlink(path) == 0)
                fd = open(path, flags, mode);
        return fd < 0 ? -errno : fd;
}

/* The name of a file is durable only once its directory is. */
static int sync_directory_of(const char *path)
{
        const char *slash = strrchr(path, '/');
        _cleanup_free_ char *directory = NULL;

        if (slash)
                directory = slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
        else
                directory = strdup(".");
        if (!directory)
                return -ENOMEM;
        _cleanup_close_ int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return fd < 0 || fsync(fd) < 0 ? -errno : 0;
}

int replace_file(const char *path, const char *temporary, mode_t mode, const void *data, size_t n)
{
        _cleanup_close_ int fd = create_new(temporary, mode);

        if (fd < 0)
                return fd;
        int r = write_all(fd, data, n);
        if (r == 0 && (fsync(fd) < 0 || rename(temporary, path) < 0))
                r = -errno;
        if (r < 0) {
                unlink(temporary);
                return r;
        }
        return sync_directory_of(path);
}

int pread_all(int fd, void *data, size_t n, off_t offset)
{
        char *p = data;

        while (n > 0) {
                ssize_t k = pread(fd, p, n, offset);
                if (k < 0) {
                        if (errno == EINTR)
                                continue;
                        return -errno;
                }
                if (k == 0)
                        return -ENODATA;
                p += k;
                n -= (size_t)k;
                offset += k;
        }
        return 0;
}

int read_fd(int fd, size_t max, struct buf *b)
{
        size_t start = b->len;

        for (;;) {
                size_t have = b->len - start;
                size_t want = MIN_OF(max + 1 - have, have < 4096 ? (size_t)4096 : have);
                char *p = buf_reserve(b, want);
                if (!p)
                        return buf_error(b);
                ssize_t k = read(fd, p, want);
                if (k < 0) {
                        if (errno == EINTR)
                                continue;
                        return -errno;
                }
                if (k == 0)
                        return 0;
                buf_commit(b, (size_t)k);
                if (b->len - start > max)
                        return -EFBIG;
        }
}

int read_file(const char *path, size_t max, struct buf *b)
{
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);

        if (fd < 0)
                return -errno;
        return read_fd(fd, max, b);
}

int read_file_i64(const char *path, int64_t *ret)
{
        _cleanup_buf_ struct buf b = {0};
        char *end;

        int r = read_file(path, 64, &b);
        if (r < 0)
                return r;
        errno = 0;
        long long v = strtoll(buf_text(&b), &end, 10);
        if (errno || end == buf_text(&b) || (*end && *end != '\n'))
                return -EINVAL;
        *ret = v;
        return 0;
}

static uint64_t now_ns(clockid_t clock)
{
        struct timespec t;

        clock_gettime(clock, &t);
        return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

uint64_t now_realtime_ns(void)
{
        return now_ns(CLOCK_REALTIME);
}

uint64_t now_monotonic_ns(void)
{
        return now_ns(CLOCK_MONOTONIC);
}

uint64_t now_boottime_ns(void)
{
        return now_ns(CLOCK_BOOTTIME);
}
