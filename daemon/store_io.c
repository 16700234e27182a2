/* The store's system calls. Order is what makes it safe against a crash: contents, fsync, rename, fsync of
 * the directory; only then is anything removed. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/log.h"
#include "daemon/store_internal.h"
#include "profile/pprof.h"

void store_fail(struct store *s, const char *what, const char *on, int err, const char *hint)
{
        char text[sizeof(s->error)];

        snprintf(text, sizeof(text), "%s %s/%s: %s%s%s", what, s->config.directory, on, strerror(-err),
                 hint ? "; " : "", hint ? hint : "");
        if (!s->error[0] || strcmp(what, s->failed_what) != 0 || err != s->failed_err)
                log_error("Store: %s", text); /* once, not every window */
        s->failed_what = what;
        s->failed_err = err;
        memcpy(s->error, text, sizeof(text));
}

static const char *hint_for(int err)
{
        switch (-err) {
        case ENOSPC:
        case EDQUOT:
                return "make room on that file system, or lower MaxSize=";
        case EROFS:
                return "mount it writable, or set Directory= to a place that is";
        case EACCES:
        case EPERM:
                return "give profd write access to it";
        case EBUSY:
                return "another profd writes to it: stop one of them, or give each a directory of its own";
        default:
                return NULL;
        }
}

int store_open_directory(struct store *s)
{
        struct stat open_one, now;

        if (s->dir_fd >= 0 && s->gone) {
                /* Windows are written where the path leads, not into a directory that was removed. */
                if (fstat(s->dir_fd, &open_one) < 0 || stat(s->config.directory, &now) < 0 ||
                    open_one.st_ino != now.st_ino || open_one.st_dev != now.st_dev) {
                        close(s->dir_fd);
                        s->dir_fd = -1;
                        s->writer = s->sums_known = false;
                        s->scan_again = true;
                }
                s->gone = false;
        }
        if (s->dir_fd >= 0)
                return 0;
        if (mkdir(s->config.directory, 0750) < 0 && errno != EEXIST && errno != EROFS && errno != EACCES) {
                int r = -errno;
                store_fail(s, "cannot make", "", r, hint_for(r));
                return r;
        }
        s->dir_fd = open(s->config.directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (s->dir_fd < 0) {
                int r = -errno;
                store_fail(s, "cannot open", "", r, hint_for(r));
                return r;
        }
        return 0;
}

static void remove_temps(struct store *s)
{
        _cleanup_close_ int fd = openat(s->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *d = fd >= 0 ? fdopendir(fd) : NULL;

        if (!d)
                return;
        fd = -1; /* now the stream's */
        for (struct dirent *e = readdir(d); e; e = readdir(d)) {
                size_t n = strlen(e->d_name);
                if ((strncmp(e->d_name, ".put-", 5) == 0 || strncmp(e->d_name, ".merge-", 7) == 0 ||
                     strncmp(e->d_name, ".sum-", 5) == 0) &&
                    n > 4 && strcmp(e->d_name + n - 4, ".tmp") == 0)
                        unlinkat(s->dir_fd, e->d_name, 0);
        }
        closedir(d);
}

int store_become_writer(struct store *s)
{
        int r = store_open_directory(s);

        if (r < 0 || s->writer)
                return r;
        if (flock(s->dir_fd, LOCK_EX | LOCK_NB) < 0) {
                r = errno == EWOULDBLOCK ? -EBUSY : -errno;
                store_fail(s, "cannot write to", "", r, hint_for(r));
                return r;
        }
        s->writer = true;
        remove_temps(s); /* a writer that was killed left them; nobody else writes now */
        return 0;
}

int store_write_temp(int dir_fd, const char *kind, uint64_t number, const struct buf *b, char *ret_name)
{
        snprintf(ret_name, 64, ".%s-%llu.tmp", kind, (unsigned long long)number);
        _cleanup_close_ int fd = openat(dir_fd, ret_name,
                                        O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0640);
        if (fd < 0)
                return -errno;
        int r = write_all(fd, b->data, b->len);
        if (r == 0 && fsync(fd) < 0)
                r = -errno;
        if (r == 0 && close(TAKE_FD(fd)) < 0)
                r = -errno; /* NFS tells of a full disk here */
        if (r < 0)
                unlinkat(dir_fd, ret_name, 0);
        return r;
}

int store_publish(int dir_fd, const char *temp, const char *id)
{
        char name[64];

        snprintf(name, sizeof(name), "%s" STORE_SUFFIX, id);
        if (renameat2(dir_fd, temp, dir_fd, name, RENAME_NOREPLACE) < 0) {
                if (errno != EINVAL && errno != ENOSYS)
                        return -errno;
                /* A file system without RENAME_NOREPLACE; the index said that the name is free. */
                if (faccessat(dir_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
                        return -EEXIST;
                if (renameat(dir_fd, temp, dir_fd, name) < 0)
                        return -errno;
        }
        return 0;
}

void store_sync_directory(int dir_fd)
{
        /* Names are there already; should this fail, a loss of power may take the newest, no other one. */
        if (fsync(dir_fd) < 0)
                log_warning("Store: fsync of the directory: %s", strerror(errno));
}

int store_unlink(int dir_fd, const char *id)
{
        char name[64];

        snprintf(name, sizeof(name), "%s" STORE_SUFFIX, id);
        return unlinkat(dir_fd, name, 0) < 0 && errno != ENOENT ? -errno : 0;
}

/* The bytes of a window; -EBADMSG: *ret_why says what is wrong. */
static int read_window_bytes(int dir_fd, const char *id, struct buf *b, const char **ret_why)
{
        char name[64];
        struct stat st;

        *ret_why = NULL;
        snprintf(name, sizeof(name), "%s" STORE_SUFFIX, id);
        _cleanup_close_ int fd =
                        openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW);
        if (fd < 0)
                return -errno;
        if (fstat(fd, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode)) {
                *ret_why = "not a regular file";
                return -EBADMSG;
        }
        if (!sums_is_own(fd, name, (uint64_t)st.st_size)) {
                *ret_why = "not the sum that its name says";
                return -EBADMSG;
        }
        return st.st_size > STORE_MAX_FILE ? -EFBIG : read_fd(fd, STORE_MAX_FILE, b);
}

static int too_large(int r, const char **ret_why)
{
        if (r != -EFBIG)
                return r;
        *ret_why = "larger than any window";
        return -EBADMSG;
}

int store_read_window(int dir_fd, const char *name, struct profile **ret, const char **ret_why)
{
        _cleanup_buf_ struct buf b = {0};

        int r = read_window_bytes(dir_fd, name, &b, ret_why);
        if (r == 0)
                r = pprof_read(buf_text(&b), b.len, STORE_MAX_PROFILE, ret, ret_why);
        return too_large(r, ret_why);
}

int store_merge_window(int dir_fd, const char *name, const struct pprof_choice *choice, struct profile *into,
                       const char **ret_why)
{
        _cleanup_buf_ struct buf b = {0};

        int r = read_window_bytes(dir_fd, name, &b, ret_why);
        if (r == 0)
                r = pprof_merge(buf_text(&b), b.len, STORE_MAX_PROFILE, choice, into, ret_why);
        return too_large(r, ret_why);
}
