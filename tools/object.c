#include "tools/object.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

#define OPEN_TIMEOUT_MS  60000
#define NAMES_TIMEOUT_MS 120000

static void on_open(void *ctx, int err, struct symobj *obj, const struct sym_info *info)
{
        struct object *o = ctx;

        o->err = err;
        if (err >= 0)
                o->info = *info;
}

static int wait_open(struct symclient *c, struct object *o)
{
        int r = o->handle ? symclient_wait(c, OPEN_TIMEOUT_MS) : -ENOMEM;

        if (r < 0)
                o->err = r;
        return o->err;
}

int object_open_fd(struct symclient *c, int fd, const char *path, const char *root, struct object *ret)
{
        const struct sym_source source = {.path = path, .root = root};

        *ret = (struct object){.fd = fcntl(fd, F_DUPFD_CLOEXEC, 3), .err = -ETIMEDOUT};
        if (ret->fd < 0) {
                ret->err = -errno;
                close(fd);
                return ret->err;
        }
        ret->handle = symclient_open(c, fd, &source, on_open, ret);
        return wait_open(c, ret);
}

int object_open_jit(struct symclient *c, uint32_t pid, struct object *ret)
{
        *ret = (struct object){.fd = -1, .err = -ETIMEDOUT};
        ret->handle = symclient_open_jit(c, pid, 0, on_open, ret);
        return wait_open(c, ret);
}

void object_close(struct symclient *c, struct object *o)
{
        symobj_close(c, o->handle);
        o->handle = NULL;
        cleanup_close(&o->fd);
        o->fd = -1;
}

int object_names(struct symclient *c, struct object *o, const uint64_t *addresses, uint32_t n,
                 sym_names_fn fn, void *ctx)
{
        if (o->err < 0)
                return o->err;
        int r = symclient_names(c, o->handle, addresses, n, fn, ctx);
        return r < 0 ? r : symclient_wait(c, NAMES_TIMEOUT_MS);
}

bool object_address(const struct object *o, uint64_t offset, uint64_t *ret)
{
        for (uint32_t i = 0; i < o->info.n_segments; i++) {
                const struct sym_segment *s = &o->info.segment[i];
                if (offset >= s->offset && offset - s->offset < s->filesz) {
                        *ret = offset - s->offset + s->vaddr;
                        return true;
                }
        }
        return false;
}

bool object_offset(const struct object *o, uint64_t address, uint64_t *ret)
{
        for (uint32_t i = 0; i < o->info.n_segments; i++) {
                const struct sym_segment *s = &o->info.segment[i];
                if (address >= s->vaddr && address - s->vaddr < s->filesz) {
                        *ret = address - s->vaddr + s->offset;
                        return true;
                }
        }
        return false;
}
