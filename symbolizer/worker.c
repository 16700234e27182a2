/* profd-worker: the process in which alone files of strangers are parsed.
 *
 * Started by the symbolizer's client with one end of a socket as descriptor 3. It goes into its sandbox,
 * says so, and answers one request after the other until the socket ends. It keeps what it has parsed,
 * within a memory target: the least used objects are dropped first, and when it rests it gives back all it
 * can. */
#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/parse.h"
#include "symbolizer/jit_file.h"
#include "symbolizer/objfile.h"
#include "symbolizer/protocol.h"
#include "symbolizer/sandbox.h"

#define BURST_TARGET    ((size_t)64 << 20) /* heap beyond which the least used objects are dropped, at work */
#define REST_TARGET     ((size_t)16 << 20)    /* and at rest */
#define REST_MS         300                   /* then the files' pages are given back, too */
#define LONG_REST_MS    60000                 /* then all that can be read again */
#define SLICE_NS        (100 * NSEC_PER_MSEC) /* of names, then the rest is left for another request */
#define MAX_WANTS       65536                 /* separate files asked for, over the life */
#define MAX_KEPT_ANSWER ((size_t)256 << 10)
#define NO_OBJECT       0 /* the client counts from 1 */
#define MIN_MEMORY      ((uint64_t)16 << 20)

struct object { /* one of: */
        uint32_t id;
        struct objfile *file;
        struct jit_file *jit;
        uint64_t used; /* request number */
};

struct worker {
        struct object *object;
        uint32_t n_objects, cap_objects;
        uint64_t n_requests;
        uint64_t inflate_budget;
        uint32_t wants;
        uint32_t asking; /* the object that a request is at */
        struct buf request;
        struct buf answer;
};

/* -- messages -- */

/* Everything, or death: without the client there is nothing to live for. */
static void send_all(const void *data, size_t n)
{
        struct iovec v = {(void *)(uintptr_t)data, n};

        while (v.iov_len > 0) {
                struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
                ssize_t k = sendmsg(WIRE_FD, &m, MSG_NOSIGNAL);

                if (k < 0 && errno == EINTR)
                        continue;
                if (k < 0)
                        _exit(0);
                v.iov_base = (char *)v.iov_base + k;
                v.iov_len -= (size_t)k;
        }
}

static void send_message(uint32_t type, uint32_t object, int error, const void *data, size_t n)
{
        struct wire_header h = {.type = type, .object = object, .error = error, .size = (uint32_t)n};

        send_all(&h, sizeof(h));
        send_all(data, n);
}

/* Reads n bytes, and a descriptor when one is with them. */
static int receive(void *data, size_t n)
{
        char control[CMSG_SPACE(sizeof(int))];
        int fd = -1;

        for (char *p = data; n > 0;) {
                struct iovec v = {p, n};
                struct msghdr m = {.msg_iov = &v,
                                   .msg_iovlen = 1,
                                   .msg_control = control,
                                   .msg_controllen = sizeof(control)};
                ssize_t k = recvmsg(WIRE_FD, &m, MSG_CMSG_CLOEXEC);
                struct cmsghdr *c = k > 0 ? CMSG_FIRSTHDR(&m) : NULL;

                if (k < 0 && errno == EINTR)
                        continue;
                if (k <= 0)
                        _exit(0);
                if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
                        memcpy(&fd, CMSG_DATA(c), sizeof(fd));
                p += k;
                n -= (size_t)k;
        }
        return fd;
}

static int want_file(void *ctx, const struct wire_want *want)
{
        struct worker *w = ctx;
        struct wire_header h;
        int fd;

        if (w->wants++ >= MAX_WANTS)
                return -ENOENT;
        send_message(WIRE_WANT, w->asking, 0, want, sizeof(*want));
        fd = receive(&h, sizeof(h));
        if (h.type != WIRE_WANT || h.size != 0)
                _exit(1);
        return fd >= 0 ? fd : h.error < 0 ? h.error : -ENOENT;
}

/* -- objects -- */

static struct object *find_object(struct worker *w, uint32_t id)
{
        for (uint32_t i = 0; i < w->n_objects; i++)
                if (w->object[i].id == id)
                        return &w->object[i];
        return NULL;
}

static int add_object(struct worker *w, uint32_t id, struct objfile *file, struct jit_file *jit)
{
        if (w->n_objects == w->cap_objects) {
                uint32_t cap = w->cap_objects ? 2 * w->cap_objects : 64;
                struct object *o = reallocarray(w->object, cap, sizeof(*o));

                if (!o)
                        return -ENOMEM;
                w->object = o;
                w->cap_objects = cap;
        }
        w->object[w->n_objects++] =
                        (struct object){.id = id, .file = file, .jit = jit, .used = w->n_requests};
        return 0;
}

static void remove_object(struct worker *w, uint32_t id)
{
        struct object *o = find_object(w, id);

        if (!o)
                return;
        objfile_free(o->file);
        jit_file_free(o->jit);
        *o = w->object[--w->n_objects];
}

static size_t heap_used(void)
{
        struct mallinfo2 m = mallinfo2();

        return m.uordblks + m.hblkhd;
}

/* Drops the object that was not used for longest, other than `keep`. False: there is none. */
static bool drop_one(struct worker *w, uint32_t keep)
{
        struct object *oldest = NULL;

        for (uint32_t i = 0; i < w->n_objects; i++) {
                struct object *o = &w->object[i];

                if (o->id != keep && o->file && objfile_is_loaded(o->file) &&
                    (!oldest || o->used < oldest->used))
                        oldest = o;
        }
        if (!oldest)
                return false;
        objfile_drop(oldest->file);
        return true;
}

/* In a burst of requests for many objects each is parsed once, if there is room at all: an object dropped
 * between two of its requests costs more than anything else here. */
static void keep_within(struct worker *w, size_t target, uint32_t keep)
{
        bool dropped = false;

        while (heap_used() > target && drop_one(w, keep))
                dropped = true;
        if (dropped)
                malloc_trim(0);
}

/* Of the object before: or else the pages of all would gather while there is no rest. */
static void release_pages(struct worker *w, uint32_t id)
{
        struct object *o = find_object(w, id);

        if (o && o->file)
                objfile_drop_pages(o->file);
}

static void rest(struct worker *w, bool long_rest)
{
        for (uint32_t i = 0; i < w->n_objects; i++) {
                if (!w->object[i].file)
                        continue;
                if (long_rest && objfile_is_loaded(w->object[i].file))
                        objfile_drop(w->object[i].file);
                else
                        objfile_drop_pages(w->object[i].file);
        }
        buf_free(&w->request);
        buf_free(&w->answer);
        keep_within(w, REST_TARGET, NO_OBJECT);
        malloc_trim(0);
}

/* -- requests -- */

static int do_open(struct worker *w, uint32_t id, int fd, struct buf *out)
{
        struct objfile *file;
        struct wire_info info;
        int r;

        remove_object(w, id);
        r = objfile_open(fd, w->inflate_budget, want_file, w, &file);
        if (r < 0)
                return r;
        objfile_info(file, &info);
        r = add_object(w, id, file, NULL);
        if (r < 0) {
                objfile_free(file);
                return r;
        }
        buf_add(out, &info, sizeof(info));
        return 0;
}

static int do_open_jit(struct worker *w, uint32_t id, int fd)
{
        struct jit_file *jit;
        struct wire_jit head;
        int r;

        remove_object(w, id);
        if (w->request.len != sizeof(head)) {
                close(fd);
                return -EBADMSG;
        }
        memcpy(&head, w->request.data, sizeof(head));
        r = jit_file_open(fd, (enum wire_jit_kind)head.kind, head.pid, &jit);
        if (r < 0)
                return r;
        r = jit_file_refresh(jit);
        if (r == 0 || r == -E2BIG)
                r = add_object(w, id, NULL, jit);
        if (r < 0)
                jit_file_free(jit);
        return r;
}

static int do_table(struct worker *w, struct object *o, struct buf *out)
{
        struct cfi_table *t;
        struct wire_table head;
        int r = objfile_table(o->file, &t);

        if (r < 0)
                return r;
        head = (struct wire_table){t->first_page, t->n_pages, t->n_rows, t->n_rules};
        buf_add(out, &head, sizeof(head));
        buf_add(out, t->page_start, ((size_t)t->n_pages + 1) * sizeof(*t->page_start));
        buf_add(out, t->row, (size_t)t->n_rows * sizeof(*t->row));
        if (t->n_rules > 0)
                buf_add(out, t->rule, (size_t)t->n_rules * sizeof(*t->rule));
        cfi_table_free(t);
        objfile_drop_pages(o->file); /* read once, from end to end */
        return 0;
}

/* Names the first addresses of a batch, as many as a slice of time allows, at least one. */
static int do_names(struct worker *w, struct object *o, const struct buf *in, struct buf *out)
{
        _cleanup_names_ struct names names = {};
        uint64_t start = now_monotonic_ns(), address;
        struct wire_named named = {};
        struct wire_names head;
        int r;

        if (in->len < sizeof(head))
                return -EBADMSG;
        memcpy(&head, in->data, sizeof(head));
        if (head.n == 0 || in->len != sizeof(head) + (size_t)head.n * sizeof(address))
                return -EBADMSG;
        if (o->jit) {
                r = jit_file_refresh(o->jit);
                if (r < 0 && r != -E2BIG)
                        return r;
        }
        for (uint32_t i = 0; i < head.n; i++) {
                if (i > 0 && now_monotonic_ns() - start > SLICE_NS)
                        break;
                memcpy(&address, in->data + sizeof(head) + (size_t)i * sizeof(address), sizeof(address));
                r = o->jit ? jit_file_name(o->jit, address, &names)
                           : objfile_name(o->file, address, head.flags & WIRE_NO_DEBUG, &names);
                if (r < 0)
                        return r;
        }
        if (o->file)
                named.quality = objfile_quality(o->file, head.flags & WIRE_NO_DEBUG);
        buf_add(out, &named, sizeof(named));
        return names_encode(&names, out);
}

static int do_functions(struct object *o, const struct buf *in, struct buf *out)
{
        struct wire_functions head;

        if (in->len != sizeof(head))
                return -EBADMSG;
        memcpy(&head, in->data, sizeof(head));
        if (!memchr(head.name, 0, sizeof(head.name)))
                return -EBADMSG;
        return objfile_functions(o->file, head.name, head.address, out);
}

static int answer_request(struct worker *w, const struct wire_header *h, int *fd, struct buf *out)
{
        struct object *o = find_object(w, h->object);

        if (o)
                o->used = w->n_requests;
        if (w->asking != h->object)
                release_pages(w, w->asking);
        w->asking = h->object;
        switch (h->type) {
        case WIRE_OPEN:
                return *fd < 0 ? -EBADF : do_open(w, h->object, *fd, out);
        case WIRE_OPEN_JIT:
                return *fd < 0 ? -EBADF : do_open_jit(w, h->object, TAKE_FD(*fd));
        case WIRE_CLOSE:
                remove_object(w, h->object);
                return 0;
        case WIRE_TABLE:
                return o && o->file ? do_table(w, o, out) : -ENOENT;
        case WIRE_NAMES:
                return o ? do_names(w, o, &w->request, out) : -ENOENT;
        case WIRE_FUNCTIONS:
                return o && o->file ? do_functions(o, &w->request, out) : -ENOENT;
        default:
                return -EOPNOTSUPP;
        }
}

static void serve_one(struct worker *w)
{
        struct wire_header h;
        _cleanup_close_ int fd = receive(&h, sizeof(h));
        void *p;
        int r;

        if (h.size > WIRE_MAX_REQUEST)
                _exit(1);
        buf_clear(&w->request);
        p = buf_reserve(&w->request, h.size);
        if (!p)
                _exit(1);
        if (h.size > 0)
                receive(p, h.size);
        buf_commit(&w->request, h.size);

        w->n_requests++;
        do {
                buf_clear(&w->answer);
                r = answer_request(w, &h, &fd, &w->answer);
                if (r == 0)
                        r = buf_error(&w->answer);
        } while (r == -ENOMEM && h.type != WIRE_OPEN_JIT && drop_one(w, h.object));
        send_message(h.type, h.object, r, w->answer.data, r < 0 ? 0 : w->answer.len);
        if (w->answer.cap > MAX_KEPT_ANSWER)
                buf_free(&w->answer);
        keep_within(w, BURST_TARGET, h.object);
}

static void serve(struct worker *w)
{
        int rested = 0;

        for (;;) {
                struct pollfd p = {.fd = WIRE_FD, .events = POLLIN};
                int timeout = rested == 0 ? REST_MS : rested == 1 ? LONG_REST_MS : -1;
                int n = poll(&p, 1, timeout);

                if (n < 0 && errno != EINTR)
                        _exit(1);
                if (n > 0) {
                        serve_one(w);
                        rested = 0;
                } else if (n == 0) {
                        rest(w, rested++ > 0);
                }
        }
}

int main(int argc, char **argv)
{
        struct worker w = {};
        struct wire_hello hello = {.version = WIRE_VERSION};
        uint64_t memory;

        if (argc < 2 || argc > 3 || parse_u64(argv[1], MIN_MEMORY, UINT64_MAX / 2, &memory) < 0) {
                fprintf(stderr, "profd-worker is started by profd and profctl, not by hand\n");
                return 2;
        }
        sandbox_basics();
        mallopt(M_ARENA_MAX, 1);
        if (argc == 2)
                hello.sandbox = sandbox_enter(memory);
        w.inflate_budget = memory / 2;
        send_message(WIRE_HELLO, 0, 0, &hello, sizeof(hello));
        serve(&w);
        return 0;
}
