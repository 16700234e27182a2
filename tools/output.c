#include "tools/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "tools/say.h"

static int write_to(int fd, const char *path, const struct buf *content)
{
        int r = fd < 0 ? -errno : write_all(fd, content->data, content->len);

        return r < 0 ? say_failed("cannot write %s: %s", path, strerror(-r)) : STATUS_DONE;
}

int output_file(const char *path, const struct buf *content)
{
        _cleanup_buf_ struct buf beside = {0};
        struct stat st;

        if (buf_error(content))
                return say_failed("cannot put %s together: %s", path, strerror(-buf_error(content)));
        if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
                _cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
                return write_to(fd, path, content);
        }
        buf_addf(&beside, "%s.%d.tmp", path, getpid());
        if (buf_error(&beside))
                return say_failed("%s", strerror(ENOMEM));
        _cleanup_close_ int fd = open(buf_text(&beside), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        int r = write_to(fd, path, content);
        if (r == STATUS_DONE && rename(buf_text(&beside), path) < 0)
                r = say_failed("cannot write %s: %s", path, strerror(errno));
        if (r != STATUS_DONE)
                unlink(buf_text(&beside));
        return r;
}
