/* Requests wait in one queue until a lane takes them (client_lane.c), and are called back out of
 * symclient_dispatch() alone: a caller is never called from within his own request. What the workers answer
 * has been checked (answers.c, names.c) before it is pointed into here. */
#include "symbolizer/client.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/log.h"
#include "symbolizer/client_internal.h"
#include "symbolizer/dir_times.h"

#define DEFAULT_MEMORY ((uint64_t)512 << 20)
#define TICK_MS        100 /* while a worker is at something: deadlines are checked */
#define MAX_ADDRESSES  65536

/* -- lists and life -- */

void request_append(struct request_list *l, struct request *r)
{
        r->next = NULL;
        r->prev = l->last;
        if (l->last)
                l->last->next = r;
        else
                l->first = r;
        l->last = r;
}

void request_remove(struct request_list *l, struct request *r)
{
        if (r->prev)
                r->prev->next = r->next;
        else
                l->first = r->next;
        if (r->next)
                r->next->prev = r->prev;
        else
                l->last = r->prev;
        r->prev = r->next = NULL;
}

void symobj_unref(struct symclient *c, struct symobj *o)
{
        if (--o->refs > 0)
                return;
        if (c->jit_sought == o)
                c->jit_sought = NULL; /* what is found is closed then */
        lanes_forget_object(c, o);
        client_cache_close(c, o);
        if (o->prev)
                o->prev->next = o->next;
        else
                c->objects = o->next;
        if (o->next)
                o->next->prev = o->prev;
        if (o->fd >= 0)
                close(o->fd);
        free(o->path);
        free(o->root);
        free(o);
}

static void wake_dispatch(struct symclient *c)
{
        uint64_t one = 1;

        if (write(c->ready_fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
                log_warning("symbolizer: cannot wake the event loop: %m");
}

void request_finish(struct symclient *c, struct request *r, int error)
{
        request_remove(&c->queue, r);
        r->error = error;
        request_append(&c->finished, r);
        wake_dispatch(c);
}

static void request_free(struct symclient *c, struct request *r)
{
        struct symobj *o = r->obj;

        c->stats.outstanding--;
        names_free(&r->names);
        buf_free(&r->answer);
        free(r->address);
        free(r->slot);
        free(r->miss);
        free(r->name);
        free(r);
        symobj_unref(c, o);
}

static struct request *request_new(struct symclient *c, struct symobj *o, enum request_kind kind, void *ctx)
{
        struct request *r = calloc(1, sizeof(*r));

        if (!r)
                return NULL;
        r->kind = kind;
        r->obj = o;
        r->ctx = ctx;
        o->refs++;
        request_append(&c->queue, r);
        c->stats.requests++;
        c->stats.outstanding++;
        wake_dispatch(c);
        return r;
}

/* -- results -- */

static void call_table(struct request *r)
{
        const struct wire_table *head = (const struct wire_table *)r->answer.data;
        const uint32_t *p = (const uint32_t *)(head + 1);
        struct sym_table t = {.first_page = head->first_page,
                              .n_pages = head->n_pages,
                              .n_rows = head->n_rows,
                              .n_rules = head->n_rules,
                              .page_start = p,
                              .row = p + head->n_pages + 1,
                              .rule = (const struct unwind_rule *)(p + head->n_pages + 1 + head->n_rows)};

        r->fn.table(r->ctx, 0, &t);
}

static void call_functions(struct request *r)
{
        const uint64_t n = *(const uint64_t *)r->answer.data;
        const struct wire_function *f = (const struct wire_function *)(r->answer.data + sizeof(n));
        const char *bytes = (const char *)(f + n);
        struct sym_function functions[SYM_MAX_FUNCTIONS];

        for (uint64_t i = 0; i < n; i++)
                functions[i] = (struct sym_function){
                                .name = bytes + f[i].name,
                                .linkage = bytes + f[i].linkage,
                                .start = f[i].start,
                                .size = f[i].size,
                                .code = (const uint8_t *)bytes + f[i].code,
                                .code_size = f[i].code_size,
                };
        r->fn.functions(r->ctx, 0, functions, (uint32_t)n);
}

/* A result is where its address was answered: those known from the cache come before those asked for. */
static void call_names(struct request *r)
{
        const struct names *b = &r->names;
        _cleanup_free_ struct sym_frame *frame = malloc(((size_t)b->n_frames + 1) * sizeof(*frame));
        _cleanup_free_ struct sym_result *result = malloc((size_t)r->n * sizeof(*result));

        if (!frame || !result) {
                r->fn.names(r->ctx, -ENOMEM, NULL, 0);
                return;
        }
        for (uint32_t i = 0; i < b->n_frames; i++)
                names_frame(b, i, &frame[i]);
        for (uint32_t i = 0; i < r->n; i++) {
                const struct name_result *at = &b->result[r->slot[i]];

                result[i] = (struct sym_result){at->n, frame + at->first};
        }
        r->fn.names(r->ctx, 0, result, r->n);
}

static void call_back(struct symclient *c, struct request *r)
{
        switch (r->kind) {
        case REQUEST_OPEN:
                r->fn.open(r->ctx, r->error, r->obj, r->error < 0 ? NULL : &r->obj->info);
                break;
        case REQUEST_TABLE:
                if (r->error < 0)
                        r->fn.table(r->ctx, r->error, NULL);
                else
                        call_table(r);
                break;
        case REQUEST_NAMES:
                if (r->error < 0)
                        r->fn.names(r->ctx, r->error, NULL, 0);
                else
                        call_names(r);
                break;
        case REQUEST_FUNCTIONS:
                if (r->error < 0)
                        r->fn.functions(r->ctx, r->error, NULL, 0);
                else
                        call_functions(r);
                break;
        }
        request_free(c, r);
}

static void call_finished(struct symclient *c)
{
        struct request *r;

        while ((r = c->finished.first)) {
                request_remove(&c->finished, r);
                call_back(c, r);
        }
}

/* -- objects -- */

static struct symobj *symobj_new(struct symclient *c, int fd, const char *path, const char *root)
{
        struct symobj *o = calloc(1, sizeof(*o));

        if (!o)
                return NULL;
        o->path = strdup(path ? path : "");
        o->root = root ? strdup(root) : NULL;
        if (!o->path || (root && !o->root)) {
                free(o->path);
                free(o->root);
                free(o);
                return NULL;
        }
        o->fd = fd;
        o->refs = 1;
        o->id = ++c->last_id;
        o->next = c->objects;
        if (o->next)
                o->next->prev = o;
        c->objects = o;
        return o;
}

void symobj_recall(struct symclient *c, struct symobj *o)
{
        const struct bad_file *f = bad_files_find(&c->bad, &o->st, o->ready ? &o->info : NULL);

        if (f && f->part == BAD_DEBUG)
                o->no_debug = true;
        else if (f && f->part == BAD_UNWIND)
                o->table_error = f->error;
        else if (f)
                o->error = f->error;
        else if (bad_files_distrusts(&c->bad, o->st.st_uid))
                o->error = -EPERM;
}

struct symobj *symclient_open(struct symclient *c, int fd, const struct sym_source *source, sym_open_fn fn,
                              void *ctx)
{
        struct symobj *o = symobj_new(c, fd, source ? source->path : NULL, source ? source->root : NULL);
        struct request *r;

        if (!o) {
                close(fd);
                return NULL;
        }
        r = request_new(c, o, REQUEST_OPEN, ctx);
        if (!r) {
                symobj_unref(c, o);
                return NULL;
        }
        r->fn.open = fn;
        if (fstat(fd, &o->st) < 0)
                o->error = -errno;
        else if (!S_ISREG(o->st.st_mode))
                o->error = -ENOEXEC;
        else
                symobj_recall(c, o);
        o->root_place = client_root_of(o);
        return o;
}

struct symobj *symclient_open_jit(struct symclient *c, uint32_t pid, uint32_t ns_pid, sym_open_fn fn,
                                  void *ctx)
{
        char path[64];
        struct symobj *o;
        struct request *r;

        snprintf(path, sizeof(path), "JIT of process %u", pid);
        o = symobj_new(c, -1, path, NULL);
        if (!o)
                return NULL;
        o->is_jit = true;
        o->pid = pid;
        o->ns_pid = ns_pid;
        r = request_new(c, o, REQUEST_OPEN, ctx);
        if (!r) {
                symobj_unref(c, o);
                return NULL;
        }
        r->fn.open = fn;
        return o;
}

/* A request of a closed object must not be called back later, so now. */
static void cancel(struct symclient *c, struct request_list *l, const struct symobj *o)
{
        for (struct request *r = l->first, *next; r; r = next) {
                next = r->next;
                if (o && r->obj != o)
                        continue;
                request_remove(l, r);
                for (uint32_t i = 0; i < N_LANES; i++)
                        if (c->work[i].request == r)
                                c->work[i].request = NULL; /* its answer will be dropped */
                r->error = -ECANCELED;
                call_back(c, r);
                next = l->first; /* the callback may have changed the list */
        }
}

void symobj_close(struct symclient *c, struct symobj *o)
{
        if (!o || o->closed)
                return;
        o->closed = true;
        cancel(c, &c->finished, o);
        cancel(c, &c->queue, o);
        symobj_unref(c, o);
}

const struct sym_info *symobj_info(const struct symobj *o)
{
        return o->ready ? &o->info : NULL;
}

int symclient_table(struct symclient *c, struct symobj *o, sym_table_fn fn, void *ctx)
{
        struct request *r = request_new(c, o, REQUEST_TABLE, ctx);

        if (!r)
                return -ENOMEM;
        r->fn.table = fn;
        return 0;
}

int symclient_names(struct symclient *c, struct symobj *o, const uint64_t *addresses, uint32_t n,
                    sym_names_fn fn, void *ctx)
{
        _cleanup_free_ uint64_t *copy = NULL;
        _cleanup_free_ uint32_t *slot = NULL, *miss = NULL;
        struct request *r;

        if (n == 0 || n > MAX_ADDRESSES)
                return -EINVAL;
        copy = reallocarray(NULL, n, sizeof(*copy));
        slot = reallocarray(NULL, n, sizeof(*slot));
        miss = reallocarray(NULL, n, sizeof(*miss));
        r = copy && slot && miss ? request_new(c, o, REQUEST_NAMES, ctx) : NULL;
        if (!r)
                return -ENOMEM;
        for (uint32_t i = 0; i < n; i++)
                miss[i] = i;
        r->slot = TAKE_PTR(slot);
        r->miss = TAKE_PTR(miss);
        r->n_miss = n;
        memcpy(copy, addresses, n * sizeof(*copy));
        r->fn.names = fn;
        r->address = TAKE_PTR(copy);
        r->n = n;
        return 0;
}

int symclient_functions(struct symclient *c, struct symobj *o, const char *name, uint64_t address,
                        sym_functions_fn fn, void *ctx)
{
        _cleanup_free_ char *copy = name ? strdup(name) : NULL;
        _cleanup_free_ uint64_t *at = malloc(sizeof(*at));
        struct request *r;

        if (name && (!*name || strlen(name) >= sizeof(((struct wire_functions *)0)->name)))
                return -EINVAL;
        r = at && (copy || !name) ? request_new(c, o, REQUEST_FUNCTIONS, ctx) : NULL;
        if (!r)
                return -ENOMEM;
        *at = address;
        r->fn.functions = fn;
        r->name = TAKE_PTR(copy);
        r->address = TAKE_PTR(at);
        return 0;
}

/* -- the client -- */

static void arm_timer(struct symclient *c)
{
        bool want = lanes_busy(c);
        struct itimerspec t = {};

        if (want == c->timer_armed)
                return;
        if (want)
                t.it_value.tv_nsec = t.it_interval.tv_nsec = TICK_MS * (long)NSEC_PER_MSEC;
        if (timerfd_settime(c->timer_fd, 0, &t, NULL) == 0)
                c->timer_armed = want;
}

static void drain(int fd)
{
        uint64_t count;

        while (read(fd, &count, sizeof(count)) < 0 && errno == EINTR)
                ;
}

int symclient_fd(const struct symclient *c)
{
        return c->epoll_fd;
}

enum { EVENT_LANE_MAIN = LANE_MAIN, EVENT_LANE_SLOW = LANE_SLOW, EVENT_FINDER, EVENT_TIMER, EVENT_READY };

int symclient_dispatch(struct symclient *c)
{
        struct epoll_event event[8];
        int n = epoll_wait(c->epoll_fd, event, ARRAY_SIZE(event), 0);

        if (n < 0 && errno != EINTR)
                return -errno;
        for (int i = 0; i < n; i++) {
                switch (event[i].data.u32) {
                case EVENT_LANE_MAIN:
                case EVENT_LANE_SLOW:
                        lanes_ready(c, event[i].data.u32);
                        break;
                case EVENT_FINDER:
                        files_found(c);
                        break;
                case EVENT_TIMER:
                        drain(c->timer_fd);
                        lanes_tick(c);
                        break;
                case EVENT_READY:
                        drain(c->ready_fd);
                        break;
                }
        }
        lanes_pump(c);
        call_finished(c);
        lanes_pump(c); /* what the callbacks have asked for */
        arm_timer(c);
        return 0;
}

int symclient_wait(struct symclient *c, int timeout_ms)
{
        uint64_t end = now_monotonic_ns() + (uint64_t)MAX_OF(timeout_ms, 0) * NSEC_PER_MSEC;

        for (;;) {
                int r = symclient_dispatch(c);
                struct pollfd p = {.fd = c->epoll_fd, .events = POLLIN};
                uint64_t now = now_monotonic_ns();

                if (r < 0)
                        return r;
                if (c->stats.outstanding == 0)
                        return 0;
                if (now >= end)
                        return -ETIMEDOUT;
                if (poll(&p, 1, (int)MIN_OF((end - now) / NSEC_PER_MSEC + 1, (uint64_t)INT_MAX)) < 0 &&
                    errno != EINTR)
                        return -errno;
        }
}

static int copy_dirs(struct symclient *c, const char *const *dirs)
{
        static const char *const standard[] = {SYM_PACKAGED_DEBUG, SYM_FETCHED_DEBUG, NULL};
        size_t n = 0;

        if (!dirs)
                dirs = standard;
        while (dirs[n])
                n++;
        c->debug_dirs = calloc(n + 1, sizeof(*c->debug_dirs));
        if (!c->debug_dirs)
                return -ENOMEM;
        for (size_t i = 0; i < n; i++) {
                c->debug_dirs[i] = strdup(dirs[i]);
                if (!c->debug_dirs[i])
                        return -ENOMEM;
        }
        return 0;
}

static int watch(struct symclient *c, int fd, uint32_t event)
{
        struct epoll_event e = {.events = EPOLLIN, .data.u32 = event};

        if (fd < 0 || epoll_ctl(c->epoll_fd, EPOLL_CTL_ADD, fd, &e) < 0)
                return -errno;
        return 0;
}

static int open_events(struct symclient *c)
{
        int r;

        c->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        c->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
        c->ready_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (c->epoll_fd < 0 || c->timer_fd < 0 || c->ready_fd < 0)
                return -errno;
        r = watch(c, c->timer_fd, EVENT_TIMER);
        if (r == 0)
                r = watch(c, c->ready_fd, EVENT_READY);
        if (r == 0)
                r = watch(c, finder_fd(c->finder), EVENT_FINDER);
        return r;
}

DEFINE_CLEANUP(struct symclient, symclient_free);

int symclient_new(struct symclient **ret, const struct symclient_options *options)
{
        _cleanup_(symclient_free_cleanup) struct symclient *c = calloc(1, sizeof(*c));
        int r;

        if (!c)
                return -ENOMEM;
        c->exe_fd = c->epoll_fd = c->timer_fd = c->ready_fd = -1;
        c->memory = options && options->memory ? options->memory : DEFAULT_MEMORY;
        c->unsandboxed = options && options->unsandboxed;
        lanes_init(c);
        r = copy_dirs(c, options ? options->debug_dirs : NULL);
        if (r == 0)
                r = finder_new(&c->finder, (const char *const *)c->debug_dirs,
                               options && options->cache_dir ? options->cache_dir : "/var/tmp");
        if (r == 0)
                r = dir_times_new(&c->dir_times);
        if (r == 0)
                r = open_events(c);
        if (r < 0)
                return r;
        c->exe_fd = lane_open_worker();
        if (c->exe_fd < 0)
                return c->exe_fd;
        r = client_cache_new(c, options);
        if (r < 0)
                log_warning("symbolizer: no cache of names in %s: %s; names are looked up anew after each "
                            "start",
                            options->cache_dir, strerror(-r));
        *ret = TAKE_PTR(c);
        return 0;
}

struct symclient *symclient_free(struct symclient *c)
{
        if (!c)
                return NULL;
        cancel(c, &c->finished, NULL);
        cancel(c, &c->queue, NULL);
        while (c->objects) {
                c->objects->refs = 1;
                symobj_unref(c, c->objects);
        }
        lanes_free(c);
        client_cache_free(c);
        finder_free(c->finder);
        dir_times_free(c->dir_times);
        for (char **d = c->debug_dirs; d && *d; d++)
                free(*d);
        free(c->debug_dirs);

        int fds[] = {c->exe_fd, c->epoll_fd, c->timer_fd, c->ready_fd};

        for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
                if (fds[i] >= 0)
                        close(fds[i]);
        free(c);
        return NULL;
}

void symclient_hold_names(struct symclient *c, bool held)
{
        if (c->names_held == held)
                return;
        c->names_held = held;
        if (held)
                return;
        for (struct request *r = c->queue.first; r; r = r->next)
                r->held = false;
        wake_dispatch(c);
}

void symclient_stats(struct symclient *c, struct symclient_stats *ret)
{
        *ret = c->stats;
        ret->bad_objects = c->bad.n;
        ret->cpu_ns = ret->memory = 0;
        if (c->cache)
                ret->cache_bytes = cache_bytes(c->cache);
        for (uint32_t i = 0; i < N_LANES; i++) {
                ret->cpu_ns += c->lane[i].ended_cpu_ns + lane_cpu_ns(&c->lane[i]);
                ret->memory += lane_memory(&c->lane[i]);
        }
}
