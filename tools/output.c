#include "tools/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "tools/say.h"

/* /dev/stdout and the like, under any name. */
static bool is_stdout(const struct stat *st)
{
        struct stat out;

        return fstat(STDOUT_FILENO, &out) == 0 && out.st_dev == st->st_dev && out.st_ino == st->st_ino;
}

/* Opens a new file beside `real`, or what is there when it is a device or pipe: then `beside` stays empty.
 * The descriptor, or a negative errno. */
static int open_output(const char *real, struct buf *beside)
{
        struct stat st;
        bool exists = stat(real, &st) == 0;

        if (!real[0]) /* what is beside it would be in the working directory */
                return -ENOENT;
        if (exists && !S_ISREG(st.st_mode)) {
                int fd = open(real, O_WRONLY | O_CLOEXEC | O_NOCTTY);
                return fd < 0 ? -errno : fd;
        }
        buf_addf(beside, "%s.%d.tmp", real, getpid());
        if (buf_error(beside))
                return buf_error(beside);
        _cleanup_close_ int fd = open(buf_text(beside), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0)
                return -errno;
        if (exists && fchmod(fd, st.st_mode & 0777) < 0) {
                int r = -errno;
                unlink(buf_text(beside));
                return r;
        }
        return TAKE_FD(fd);
}

int output_check(const char *path)
{
        _cleanup_buf_ struct buf beside = {0};
        _cleanup_free_ char *real = path ? realpath(path, NULL) : NULL;
        struct stat st;

        /* To open a pipe would wait for its reader. */
        if (!path || (stat(path, &st) == 0 && (is_stdout(&st) || S_ISFIFO(st.st_mode))))
                return STATUS_DONE;
        _cleanup_close_ int fd = open_output(real ? real : path, &beside);
        if (fd < 0)
                return say_failed("cannot write %s: %s", path, strerror(-fd));
        if (beside.len > 0)
                unlink(buf_text(&beside));
        return STATUS_DONE;
}

int output_file(const char *path, const struct buf *content)
{
        _cleanup_buf_ struct buf beside = {0};
        _cleanup_free_ char *real = realpath(path, NULL);
        const char *to = real ? real : path;
        struct stat st;

        if (buf_error(content))
                return say_failed("cannot put %s together: %s", path, strerror(-buf_error(content)));
        if (stat(path, &st) == 0 && is_stdout(&st))
                return say_out(content);
        _cleanup_close_ int fd = open_output(to, &beside);
        int r = fd < 0 ? fd : write_all(fd, content->data, content->len);
        if (r >= 0 && beside.len > 0 && rename(buf_text(&beside), to) < 0)
                r = -errno;
        if (r >= 0)
                return STATUS_DONE;
        if (fd >= 0 && beside.len > 0)
                unlink(buf_text(&beside));
        return say_failed("cannot write %s: %s", path, strerror(-r));
}
