#include "silent_fuse.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_NODE 2
#define FILE_SIZE 1048576

struct silent_fuse {
        int fd;
        char *dir;
        pthread_t thread;
};

static void reply(int fd, uint64_t unique, int error, const void *data, size_t n)
{
        char b[4096];
        struct fuse_out_header h = {.len = (uint32_t)(sizeof(h) + n), .error = error, .unique = unique};

        memcpy(b, &h, sizeof(h));
        if (n > 0)
                memcpy(b + sizeof(h), data, n);
        if (write(fd, b, h.len) < 0 && errno != ENOENT)
                perror("fuse");
}

static struct fuse_attr attr_of(uint64_t node)
{
        return (struct fuse_attr){
                        .ino = node,
                        .size = node == FILE_NODE ? FILE_SIZE : 0,
                        .mode = node == FILE_NODE ? S_IFREG | 0755 : S_IFDIR | 0755,
                        .nlink = 1,
                        .blksize = 4096,
        };
}

static void look_up(int fd, const struct fuse_in_header *h, const char *name)
{
        struct fuse_entry_out e = {.nodeid = FILE_NODE, .attr_valid = 1000, .attr = attr_of(FILE_NODE)};

        if (strcmp(name, "never") == 0)
                return;
        if (strcmp(name, "file") == 0)
                reply(fd, h->unique, 0, &e, sizeof(e));
        else
                reply(fd, h->unique, -ENOENT, NULL, 0);
}

static void serve(int fd, const struct fuse_in_header *h)
{
        struct fuse_init_out init = {.major = FUSE_KERNEL_VERSION, .minor = 31, .max_write = 65536};
        struct fuse_attr_out attr = {.attr_valid = 1000, .attr = attr_of(h->nodeid)};
        struct fuse_open_out opened = {.fh = 1};

        switch (h->opcode) {
        case FUSE_INIT:
                reply(fd, h->unique, 0, &init, sizeof(init));
                break;
        case FUSE_LOOKUP:
                look_up(fd, h, (const char *)(h + 1));
                break;
        case FUSE_GETATTR:
                reply(fd, h->unique, 0, &attr, sizeof(attr));
                break;
        case FUSE_OPEN:
                reply(fd, h->unique, 0, &opened, sizeof(opened));
                break;
        case FUSE_READ:
        case FUSE_FORGET:
        case FUSE_BATCH_FORGET:
        case FUSE_INTERRUPT:
                break;
        default:
                reply(fd, h->unique, -ENOSYS, NULL, 0);
        }
}

static void *serve_all(void *arg)
{
        struct silent_fuse *f = arg;
        static char request[1 << 17] __attribute__((aligned(8)));

        for (;;) {
                ssize_t n = read(f->fd, request, sizeof(request));

                if (n < 0 && (errno == EINTR || errno == ENOENT || errno == EAGAIN))
                        continue;
                if (n < (ssize_t)sizeof(struct fuse_in_header))
                        return NULL; /* unmounted */
                request[n < (ssize_t)sizeof(request) ? n : n - 1] = 0;
                serve(f->fd, (const struct fuse_in_header *)request);
        }
}

struct silent_fuse *silent_fuse_new(const char *dir)
{
        struct silent_fuse *f = calloc(1, sizeof(*f));
        char options[128];

        if (!f)
                return NULL;
        f->fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
        f->dir = strdup(dir);
        snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", f->fd);
        if (f->fd < 0 || !f->dir || mount("silent", dir, "fuse", MS_NOSUID | MS_NODEV, options) < 0 ||
            pthread_create(&f->thread, NULL, serve_all, f) != 0) {
                if (f->fd >= 0)
                        close(f->fd);
                free(f->dir);
                free(f);
                return NULL;
        }
        return f;
}

void silent_fuse_free(struct silent_fuse *f)
{
        umount2(f->dir, MNT_FORCE); /* ends what waits */
        umount2(f->dir, MNT_DETACH);
        pthread_join(f->thread, NULL);
        close(f->fd);
        free(f->dir);
        free(f);
}
