#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "symbolizer/finder.h"

#define MAX_MAPS ((size_t)16 << 20)
#define MAX_FILE ((off_t)2 << 30)

struct process {
        uint32_t pid, ns_pid;
        uid_t uid;
        int root;
};

/* Effective user, and the number in the innermost process namespace. */
static int read_status(struct process *p)
{
        _cleanup_buf_ struct buf b = {};
        const char *line, *last;
        char path[64];
        int r;

        snprintf(path, sizeof(path), "/proc/%u/status", p->pid);
        r = read_file(path, 65536, &b);
        if (r < 0)
                return r == -ESRCH ? -ENOENT : r;
        line = strstr(buf_text(&b), "\nUid:");
        if (!line || sscanf(line, "\nUid: %*u %u", &p->uid) != 1)
                return -EBADMSG;
        line = strstr(buf_text(&b), "\nNSpid:");
        if (p->ns_pid == 0)
                p->ns_pid = p->pid;
        if (line) {
                last = strchrnul(line + 1, '\n');
                while (last > line && last[-1] != '\t' && last[-1] != ' ')
                        last--;
                sscanf(last, "%u", &p->ns_pid);
        }
        return 0;
}

static int believe(const struct process *p, int fd)
{
        struct stat st;

        if (fd < 0)
                return fd;
        if (fstat(fd, &st) < 0 || (st.st_uid != p->uid && st.st_uid != 0) || st.st_size > MAX_FILE) {
                close(fd);
                return -EPERM;
        }
        return fd;
}

static int open_in_root(const struct process *p, const char *path)
{
        return believe(p, open_regular(p->root, path, O_NOFOLLOW));
}

/* A dump shows itself by being mapped: its writer maps its first page executable for that purpose. */
static int open_dump(const struct process *p)
{
        _cleanup_buf_ struct buf maps = {};
        char path[64], name[64];
        const char *at;

        snprintf(path, sizeof(path), "/proc/%u/maps", p->pid);
        if (read_file(path, MAX_MAPS, &maps) < 0)
                return -ENOENT;
        snprintf(name, sizeof(name), "/jit-%u.dump\n", p->ns_pid);
        at = strstr(buf_text(&maps), name);
        if (!at)
                return -ENOENT;

        const char *line = at, *start;
        _cleanup_free_ char *file = NULL;

        while (line > maps.data && line[-1] != '\n')
                line--;
        start = memchr(line, '/', (size_t)(at - line) + 1); /* the only one: the path's first */
        if (!start)
                return -ENOENT;
        file = strndup(start, (size_t)(at - start) + strlen(name) - 1);
        return file ? open_in_root(p, file) : -ENOMEM;
}

void find_jit(uint32_t pid, uint32_t ns_pid, struct found *ret)
{
        struct process p = {.pid = pid, .ns_pid = ns_pid};
        _cleanup_close_ int root = -1;
        char path[64];

        *ret = (struct found){.fd = read_status(&p)};
        if (ret->fd < 0)
                return;
        snprintf(path, sizeof(path), "/proc/%u/root", pid);
        root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (root < 0) {
                ret->fd = -errno;
                return;
        }
        p.root = root;
        snprintf(path, sizeof(path), "/tmp/perf-%u.map", p.ns_pid);
        *ret = (struct found){open_in_root(&p, path), WIRE_JIT_MAP, p.ns_pid};
        if (ret->fd < 0)
                *ret = (struct found){open_dump(&p), WIRE_JIT_DUMP, p.ns_pid};
}
