/* Files that a worker asks for, and those that JITs write: found by the finder, one search at a time, and
 * handed on. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/log.h"
#include "symbolizer/client_internal.h"

void files_abandon(struct symclient *c)
{
        if (finder_abandon(c->finder) == -EAGAIN)
                log_warning("symbolizer: file systems of processes do not answer; their debug files are not "
                            "looked for any more");
}

void files_answer(struct symclient *c, uint32_t i, int fd)
{
        struct wire_header h = {.type = WIRE_WANT, .error = fd < 0 ? fd : 0};
        struct lane_work *w = &c->work[i];

        w->finding = w->asked = false;
        w->start_ns = now_monotonic_ns(); /* what was waited for is not the file's fault */
        if (lane_send(&c->lane[i], &h, NULL, fd) < 0 || lane_is_sending(&c->lane[i]))
                lanes_died(c, i); /* a few bytes to one that waits for them always go at once */
        if (fd >= 0)
                close(fd);
}

int files_want(struct symclient *c, uint32_t i)
{
        struct lane *l = &c->lane[i];
        struct lane_work *w = &c->work[i];
        struct wire_want want;

        if (!w->step || w->finding || l->body.len != sizeof(want))
                return -EBADMSG;
        memcpy(&want, l->body.data, sizeof(want));
        if (want.build_id_len > SYM_BUILD_ID_MAX || !memchr(want.name, 0, sizeof(want.name)) ||
            !memchr(want.directory, 0, sizeof(want.directory)))
                return -EBADMSG;
        w->want = want;
        w->finding = true;
        w->find_ns = now_monotonic_ns();
        files_seek(c);
        return 0;
}

/* The finder does one search at a time. */
void files_seek(struct symclient *c)
{
        for (uint32_t i = 0; i < N_LANES && !finder_is_busy(c->finder); i++) {
                struct lane_work *w = &c->work[i];

                if (!w->finding || w->asked)
                        continue;
                const struct symobj *o = w->request ? w->request->obj : NULL;
                if (o && finder_start(c->finder, &w->want, o->path, o->st.st_uid, o->root) == 0)
                        w->asked = true;
                else
                        files_answer(c, i, -ENOENT);
        }
        for (struct request *r = c->queue.first; r && !finder_is_busy(c->finder); r = r->next) {
                struct symobj *o = r->obj;
                int e;

                if (!o->is_jit || o->fd >= 0 || o->error < 0)
                        continue;
                e = finder_start_jit(c->finder, o->pid, o->ns_pid);
                if (e < 0) {
                        o->error = e;
                        continue;
                }
                c->jit_sought = o;
                c->jit_since_ns = now_monotonic_ns();
        }
}

static void jit_found(struct symclient *c, const struct found *found)
{
        struct symobj *o = TAKE_PTR(c->jit_sought);

        if (found->fd < 0) {
                o->error = found->fd;
                return;
        }
        o->fd = found->fd;
        o->jit_kind = found->jit_kind;
        o->ns_pid = found->ns_pid;
        if (fstat(o->fd, &o->st) < 0)
                o->error = -errno;
        else if (bad_files_distrusts(&c->bad, o->st.st_uid))
                o->error = -EPERM;
}

void files_found(struct symclient *c)
{
        struct found found;

        if (!finder_result(c->finder, &found))
                return;
        if (c->jit_sought) {
                jit_found(c, &found);
                found.fd = -1;
        }
        for (uint32_t i = 0; i < N_LANES; i++)
                if (c->work[i].asked)
                        files_answer(c, i, TAKE_FD(found.fd));
        if (found.fd >= 0) /* nobody wants it any more */
                close(found.fd);
}
