/* The conversation with the workers.
 *
 * A worker is at one request at a time, so that when it dies or hangs it is known which file was the cause;
 * all other requests wait here and are given to its successor. What a worker has open is known by its
 * generation: an object is opened anew, before the request, in a worker that does not have it.
 *
 * Time: a request that takes long does not hold up the others. When there are others, the worker that is at
 * it becomes the slow one, with that object, and a fresh worker takes the rest. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/log.h"
#include "symbolizer/client_internal.h"

#define STEP_LONG_NS     (500 * NSEC_PER_MSEC) /* others are waiting: now they go elsewhere, */
#define STEP_LONG_CPU_NS (200 * NSEC_PER_MSEC) /* if it is work and not a busy machine, */
#define STEP_LATE_NS     (900 * NSEC_PER_MSEC) /* or in any case */
#define STEP_MAX_CPU_NS  (10 * NSEC_PER_SEC)   /* the budget of one request */
#define NAMES_BASE_NS    (10 * NSEC_PER_SEC)   /* the budget of an object's names: this once, */
#define NAME_MAX_NS      NSEC_PER_MSEC         /* and this for each address */
#define STEP_MAX_NS      (60 * NSEC_PER_SEC)
#define STEP_BLOCKED_NS  (3 * NSEC_PER_SEC) /* without work: a file that does not answer */
#define FIND_MAX_NS      NSEC_PER_SEC
#define SLOW_IDLE_NS     (30 * NSEC_PER_SEC) /* then the second worker is let go */
#define MAX_DEATHS       3                   /* by others' hands, at one request */
#define MAX_STARTS       5                   /* that fail in a row, then requests are refused, */
#define START_PAUSE_NS   (200 * NSEC_PER_MSEC)
#define REFUSE_NS        (5 * NSEC_PER_SEC) /* for so long before the next start */
#define BATCH            4096               /* addresses of one message */

void lanes_init(struct symclient *c)
{
        for (uint32_t i = 0; i < N_LANES; i++)
                lane_init(&c->lane[i]);
}

void lanes_free(struct symclient *c)
{
        for (uint32_t i = 0; i < N_LANES; i++) {
                lane_free(&c->lane[i]);
                free(c->work[i].to_close);
        }
}

bool lanes_busy(const struct symclient *c)
{
        return c->work[LANE_MAIN].step || c->lane[LANE_SLOW].pid || c->queue.first;
}

/* -- sending -- */

static void watch_lane(struct symclient *c, uint32_t i, int op)
{
        struct epoll_event e = {.events = EPOLLIN | (lane_is_sending(&c->lane[i]) ? EPOLLOUT : 0),
                                .data.u32 = i};

        epoll_ctl(c->epoll_fd, op, c->lane[i].fd, &e);
}

static int send_step(struct symclient *c, uint32_t i, uint32_t type, uint32_t object, const void *body,
                     size_t n, int fd)
{
        struct wire_header h = {.type = type, .object = object, .size = (uint32_t)n};
        struct lane_work *w = &c->work[i];
        int r = lane_send(&c->lane[i], &h, body, fd);

        if (r < 0)
                return r;
        w->step = type;
        w->object = object;
        w->start_ns = now_monotonic_ns();
        w->start_cpu_ns = lane_cpu_ns(&c->lane[i]);
        if (lane_is_sending(&c->lane[i]))
                watch_lane(c, i, EPOLL_CTL_MOD);
        return 0;
}

static int send_open(struct symclient *c, uint32_t i, struct symobj *o)
{
        struct wire_jit jit = {o->jit_kind, o->ns_pid};

        if (o->is_jit)
                return send_step(c, i, WIRE_OPEN_JIT, o->id, &jit, sizeof(jit), o->fd);
        return send_step(c, i, WIRE_OPEN, o->id, NULL, 0, o->fd);
}

static int send_names(struct symclient *c, uint32_t i, const struct request *r)
{
        _cleanup_buf_ struct buf b = {};
        struct wire_names head = {.flags = r->obj->no_debug ? WIRE_NO_DEBUG : 0,
                                  .n = MIN_OF(r->n_miss - r->n_done, (uint32_t)BATCH)};

        buf_add(&b, &head, sizeof(head));
        for (uint32_t k = 0; k < head.n; k++)
                buf_add(&b, &r->address[r->miss[r->n_done + k]], sizeof(*r->address));
        if (buf_error(&b) < 0)
                return buf_error(&b);
        return send_step(c, i, WIRE_NAMES, r->obj->id, b.data, b.len, -1);
}

static int send_functions(struct symclient *c, uint32_t i, const struct request *r)
{
        struct wire_functions f = {.address = r->address[0]};

        if (r->name)
                strcpy(f.name, r->name); /* its length was checked when it was asked */
        return send_step(c, i, WIRE_FUNCTIONS, r->obj->id, &f, sizeof(f), -1);
}

static int send_request(struct symclient *c, uint32_t i, struct request *r)
{
        struct symobj *o = r->obj;

        if (o->open_in[i] != c->lane[i].generation)
                return send_open(c, i, o);
        switch (r->kind) {
        case REQUEST_TABLE:
                return send_step(c, i, WIRE_TABLE, o->id, NULL, 0, -1);
        case REQUEST_NAMES:
                return send_names(c, i, r);
        case REQUEST_FUNCTIONS:
                return send_functions(c, i, r);
        default:
                return -EINVAL;
        }
}

/* -- the end of a worker -- */

static void stop_lane(struct symclient *c, uint32_t i, int *ret_status)
{
        struct lane_work *w = &c->work[i];
        int status = lane_stop(&c->lane[i]);

        if (w->asked)
                files_abandon(c);
        w->step = 0;
        w->finding = w->asked = false;
        w->n_to_close = 0;
        if (w->request)
                w->request->active = false;
        w->request = NULL;
        if (ret_status)
                *ret_status = status;
}

/* A file has had its budget. contents: the fault is in it, and not in where it lies. */
static void blame(struct symclient *c, struct request *r, int error, bool contents, const char *did)
{
        struct symobj *o = r->obj;
        enum bad_part part = r->kind == REQUEST_NAMES && !o->no_debug ? BAD_DEBUG
                             : r->kind == REQUEST_TABLE               ? BAD_UNWIND
                                                                      : BAD_ALL;
        const char *path = bad_files_add(&c->bad, &o->st, o->ready && contents ? &o->info : NULL, o->path,
                                         error, part)
                                           ->path;

        snprintf(c->stats.last_bad, sizeof(c->stats.last_bad), "%s", path);
        switch (part) {
        case BAD_DEBUG:
                o->no_debug = true; /* once more, with its symbol table alone */
                log_warning("symbolizer: the debug information of %s %s; it is named by its symbols", path,
                            did);
                return;
        case BAD_UNWIND:
                o->table_error = error;
                log_warning("symbolizer: the unwind information of %s %s; it is not used", path, did);
                break;
        case BAD_ALL:
                o->error = error;
                log_warning("symbolizer: %s %s; its frames stay without names", path, did);
                break;
        }
        request_finish(c, r, error);
}

/* No file makes the worker send itself one of these: its parent's terminal or service manager, the kernel
 * for want of memory, or a person did. */
static bool is_from_outside(int status)
{
        if (!WIFSIGNALED(status))
                return false;
        switch (WTERMSIG(status)) {
        case SIGKILL:
        case SIGTERM:
        case SIGINT:
        case SIGHUP:
        case SIGQUIT:
                return true;
        default:
                return false;
        }
}

void lanes_died(struct symclient *c, uint32_t i)
{
        struct request *r = c->work[i].request;
        char did[64];
        int status;

        bool greeted = c->work[i].greeted;

        stop_lane(c, i, &status);
        c->stats.restarts++;
        if (!r || !greeted) /* before its hello it has read nothing: that is a failed start */
                return;
        if (is_from_outside(status) && ++r->deaths < MAX_DEATHS)
                return; /* again; a file that is worked at each time is to blame all the same */
        if (WIFSIGNALED(status))
                snprintf(did, sizeof(did), "ended the worker by SIG%s", sigabbrev_np(WTERMSIG(status)));
        else
                snprintf(did, sizeof(did), "made the worker exit with status %d", WEXITSTATUS(status));
        blame(c, r, -EBADMSG, !WIFSIGNALED(status) || WTERMSIG(status) != SIGBUS, did);
}

static void kill_late(struct symclient *c, uint32_t i, bool contents, const char *did)
{
        struct request *r = c->work[i].request;
        bool greeted = c->work[i].greeted;

        stop_lane(c, i, NULL);
        c->stats.restarts++;
        if (r && greeted)
                blame(c, r, -ETIME, contents, did);
}

/* -- answers -- */

static bool info_is_sound(const struct wire_info *i)
{
        return i->info.build_id_len <= SYM_BUILD_ID_MAX && i->info.alt_build_id_len <= SYM_BUILD_ID_MAX &&
               i->info.n_segments <= SYM_MAX_SEGMENTS;
}

static void on_opened(struct symclient *c, uint32_t i, struct request *r)
{
        struct lane *l = &c->lane[i];
        struct symobj *o = r->obj;

        if (l->in.error < 0) {
                o->error = l->in.error;
                request_finish(c, r, o->error);
                return;
        }
        o->open_in[i] = l->generation;
        if (!o->is_jit) {
                struct wire_info info;

                memcpy(&info, l->body.data, sizeof(info));
                o->info = info.info;
        }
        if (!o->is_jit && !o->ready && !client_place_of(c, o, &o->place))
                o->place = 0; /* looked at again later */
        o->ready = true;
        if (!o->is_jit)
                symobj_recall(c, o);
        if (o->error < 0 || r->kind == REQUEST_OPEN)
                request_finish(c, r, o->error);
}

static int on_whole(struct symclient *c, uint32_t i, struct request *r)
{
        struct lane *l = &c->lane[i];

        if (l->in.error < 0) {
                request_finish(c, r, l->in.error);
                return 0;
        }
        if (!(r->kind == REQUEST_TABLE ? table_is_sound(&l->body) : functions_are_sound(&l->body)))
                return -EBADMSG;
        r->answer = l->body;
        l->body = (struct buf){};
        if (r->kind == REQUEST_TABLE)
                client_cache_add_table(c, r);
        request_finish(c, r, 0);
        return 0;
}

/* Takes over results for the addresses that were asked last. */
static int take_names(struct symclient *c, struct request *r, struct names *got, enum name_quality quality)
{
        uint32_t base = r->names.n_results;
        int e = 0;

        for (uint32_t k = 0; k < got->n_results; k++) {
                uint32_t at = r->miss[r->n_done + k];

                client_cache_add(c, r->obj, r->address[at], got, k, quality);
                r->slot[at] = base + k;
        }
        if (base == 0) {
                names_free(&r->names);
                r->names = *got;
                *got = (struct names){};
        } else {
                for (uint32_t k = 0; k < got->n_results && e == 0; k++)
                        e = names_copy(&r->names, got, k);
        }
        r->obj->n_asked += r->names.n_results - base;
        r->n_done += r->names.n_results - base;
        return e;
}

static int on_names(struct symclient *c, uint32_t i, struct request *r)
{
        _cleanup_names_ struct names got = {};
        struct lane *l = &c->lane[i];
        struct wire_named head;
        int e;

        r->obj->spent_ns += lane_cpu_ns(l) - c->work[i].start_cpu_ns;
        if (l->in.error < 0) {
                blame(c, r, l->in.error, true,
                      l->in.error == -ENOMEM ? "needs too much memory" : "cannot be read");
                return 0;
        }
        if (r->obj->spent_ns > NAMES_BASE_NS + NAME_MAX_NS * r->obj->n_asked) {
                r->obj->spent_ns = 0; /* without the debug information it is another matter */
                blame(c, r, -ETIME, true, "takes too long");
                return 0;
        }
        if (l->body.len < sizeof(head))
                return -EBADMSG;
        memcpy(&head, l->body.data, sizeof(head));
        e = names_decode(l->body.data + sizeof(head), l->body.len - sizeof(head), &got);
        if (e < 0 || got.n_results == 0 || got.n_results > r->n_miss - r->n_done ||
            head.quality > NAMES_FROM_DWARF)
                return -EBADMSG;
        e = take_names(c, r, &got, (enum name_quality)head.quality);
        if (e < 0 || r->n_done == r->n_miss) {
                request_finish(c, r, e);
                return 0;
        }
        /* The others first. */
        request_remove(&c->queue, r);
        request_append(&c->queue, r);
        return 0;
}

/* -- messages -- */

static int on_hello(struct symclient *c, uint32_t i)
{
        struct wire_hello hello;

        if (c->lane[i].body.len != sizeof(hello))
                return -EBADMSG;
        memcpy(&hello, c->lane[i].body.data, sizeof(hello));
        if (hello.version != WIRE_VERSION)
                return -EBADMSG;
        if (c->failed_starts > MAX_STARTS)
                log_notice("symbolizer: profd-worker runs again");
        c->failed_starts = 0;
        c->work[i].greeted = true;
        c->stats.sandbox = hello.sandbox;
        if (!c->greeted && !c->unsandboxed && !(hello.sandbox & SANDBOX_SECCOMP))
                log_warning("symbolizer: the worker runs without a system call filter: this kernel or "
                            "container "
                            "does not allow one");
        c->greeted = true;
        return 0;
}

/* Whether the message is the answer that is waited for. */
static bool is_expected(const struct lane *l, const struct lane_work *w)
{
        struct wire_info info;

        if (w->step == 0 || w->finding || l->in.type != w->step || l->in.object != w->object ||
            l->in.error > 0)
                return false;
        if (w->step != WIRE_OPEN || l->in.error < 0)
                return true;
        if (l->body.len != sizeof(info))
                return false;
        memcpy(&info, l->body.data, sizeof(info));
        return info_is_sound(&info);
}

static int on_answer(struct symclient *c, uint32_t i)
{
        struct lane *l = &c->lane[i];
        struct lane_work *w = &c->work[i];
        struct request *r = w->request;
        uint32_t step = w->step;
        int e = 0;

        if (!is_expected(l, w))
                return -EBADMSG;
        w->step = 0;
        w->idle_ns = now_monotonic_ns();
        if (!r)
                return 0; /* cancelled, or an object closed */
        r->active = false;
        if (step == WIRE_OPEN || step == WIRE_OPEN_JIT)
                on_opened(c, i, r);
        else if (step == WIRE_NAMES)
                e = on_names(c, i, r);
        else
                e = on_whole(c, i, r);
        if (e == 0)
                w->request = NULL; /* else it is to blame for an answer that is none */
        return e;
}

static int on_message(struct symclient *c, uint32_t i)
{
        switch (c->lane[i].in.type) {
        case WIRE_HELLO:
                return on_hello(c, i);
        case WIRE_WANT:
                return files_want(c, i);
        default:
                return on_answer(c, i);
        }
}

void lanes_ready(struct symclient *c, uint32_t i)
{
        struct lane *l = &c->lane[i];
        int r = 0;

        if (l->pid == 0)
                return;
        if (lane_is_sending(l)) {
                r = lane_flush(l);
                if (r == 0 && !lane_is_sending(l))
                        watch_lane(c, i, EPOLL_CTL_MOD);
        }
        while (r >= 0 && l->pid != 0 && (r = lane_receive(l)) > 0)
                r = on_message(c, i);
        if (r < 0)
                lanes_died(c, i);
}

/* -- scheduling -- */

static uint32_t lane_of(const struct request *r)
{
        return r->obj->slow ? LANE_SLOW : LANE_MAIN;
}

/* Its file is not found yet. */
static bool is_sought(const struct symobj *o)
{
        return o->is_jit && o->fd < 0 && o->error == 0;
}

static struct request *next_request(struct symclient *c, uint32_t i)
{
        struct request *r = c->queue.first;

        while (r && (r->active || lane_of(r) != i || is_sought(r->obj) || r->held))
                r = r->next;
        return r;
}

/* Whether the answer is known without a worker. */
static bool finish_known(struct symclient *c, struct request *r)
{
        struct symobj *o = r->obj;

        if (o->error < 0)
                request_finish(c, r, o->error);
        else if (r->kind == REQUEST_TABLE && o->table_error < 0)
                request_finish(c, r, o->table_error);
        else if (r->kind == REQUEST_OPEN && o->ready)
                request_finish(c, r, 0);
        else
                return o->ready && client_cache_look_up(c, r);
        return true;
}

/* Starts have failed, and it is not yet time for another: who asks would wait for nothing. */
static bool is_refused(const struct symclient *c, uint32_t i)
{
        return c->lane[i].pid <= 0 && c->failed_starts > MAX_STARTS && now_monotonic_ns() < c->next_start_ns;
}

static bool start_lane(struct symclient *c, uint32_t i)
{
        uint64_t now = now_monotonic_ns();
        int r;

        if (c->lane[i].pid > 0)
                return true;
        if (now < c->next_start_ns)
                return false;
        if (++c->failed_starts > 1) /* none has said hello since the last start */
                c->next_start_ns = now + (c->failed_starts > MAX_STARTS ? REFUSE_NS : START_PAUSE_NS);
        c->work[i].greeted = false;
        r = lane_start(&c->lane[i], c->exe_fd, c->memory, c->unsandboxed);
        if (r < 0 && c->failed_starts == 1)
                log_error("symbolizer: cannot start profd-worker: %s; it is tried again", strerror(-r));
        if (c->failed_starts == MAX_STARTS + 1)
                log_error("symbolizer: profd-worker does not start: %s; new frames stay without names until "
                          "it "
                          "does, which is tried every %llu s",
                          r < 0 ? strerror(-r) : "it ends at once",
                          (unsigned long long)(REFUSE_NS / NSEC_PER_SEC));
        if (r < 0)
                return false;
        watch_lane(c, i, EPOLL_CTL_ADD);
        return true;
}

static void close_one(struct symclient *c, uint32_t i)
{
        struct lane_work *w = &c->work[i];

        if (c->lane[i].pid > 0 && w->n_to_close > 0 &&
            send_step(c, i, WIRE_CLOSE, w->to_close[--w->n_to_close], NULL, 0, -1) < 0)
                lanes_died(c, i);
}

static void pump_lane(struct symclient *c, uint32_t i)
{
        struct lane_work *w = &c->work[i];
        struct request *r;

        while (!w->step && (r = next_request(c, i))) {
                if (finish_known(c, r))
                        continue;
                if (c->names_held && r->kind == REQUEST_NAMES) {
                        r->held = true;
                        continue;
                }
                if (is_refused(c, i)) {
                        request_finish(c, r, -ECHILD);
                        continue;
                }
                if (!start_lane(c, i))
                        return;
                w->request = r;
                r->active = true;
                if (send_request(c, i, r) < 0)
                        lanes_died(c, i);
        }
        if (!w->step)
                close_one(c, i);
}

void lanes_pump(struct symclient *c)
{
        files_seek(c);
        for (uint32_t i = 0; i < N_LANES; i++)
                pump_lane(c, i);
}

void lanes_forget_object(struct symclient *c, const struct symobj *o)
{
        for (uint32_t i = 0; i < N_LANES; i++) {
                struct lane_work *w = &c->work[i];

                if (c->lane[i].pid == 0)
                        continue;
                if (w->step && w->object == o->id && lane_is_sending(&c->lane[i])) {
                        stop_lane(c, i, NULL); /* its descriptor may not have gone yet */
                        continue;
                }
                if (o->open_in[i] != c->lane[i].generation && !(w->step && w->object == o->id))
                        continue;
                if (w->n_to_close == w->cap_to_close) {
                        uint32_t cap = w->cap_to_close ? 2 * w->cap_to_close : 32;
                        uint32_t *p = reallocarray(w->to_close, cap, sizeof(*p));

                        if (!p)
                                continue; /* it stays open there, for the life of the worker */
                        w->to_close = p;
                        w->cap_to_close = cap;
                }
                w->to_close[w->n_to_close++] = o->id;
        }
}

/* -- time -- */

/* The worker and the object it is at change places with the slow one. */
static void swap_lanes(struct symclient *c)
{
        struct lane lane = c->lane[LANE_MAIN];
        struct lane_work work = c->work[LANE_MAIN];

        c->lane[LANE_MAIN] = c->lane[LANE_SLOW];
        c->work[LANE_MAIN] = c->work[LANE_SLOW];
        c->lane[LANE_SLOW] = lane;
        c->work[LANE_SLOW] = work;
        for (struct symobj *o = c->objects; o; o = o->next) {
                uint64_t open = o->open_in[LANE_MAIN];

                o->open_in[LANE_MAIN] = o->open_in[LANE_SLOW];
                o->open_in[LANE_SLOW] = open;
        }
        for (uint32_t i = 0; i < N_LANES; i++)
                if (c->lane[i].pid > 0)
                        watch_lane(c, i, EPOLL_CTL_MOD);
}

static void make_way(struct symclient *c)
{
        struct request *r = c->work[LANE_MAIN].request;

        if (r)
                r->obj->slow = true;
        if (c->work[LANE_SLOW].step) { /* the slow one has its hands full: later, then */
                stop_lane(c, LANE_MAIN, NULL);
                c->stats.restarts++;
                return;
        }
        stop_lane(c, LANE_SLOW, NULL);
        swap_lanes(c);
}

static void check_step(struct symclient *c, uint32_t i, uint64_t now)
{
        struct lane_work *w = &c->work[i];
        uint64_t wall = now - w->start_ns, cpu = lane_cpu_ns(&c->lane[i]) - w->start_cpu_ns;

        if (w->finding) {
                if (now - w->find_ns < FIND_MAX_NS)
                        return;
                if (w->asked)
                        files_abandon(c);
                files_answer(c, i, -ETIME);
        } else if (cpu > STEP_MAX_CPU_NS || wall > STEP_MAX_NS) {
                kill_late(c, i, cpu > STEP_MAX_CPU_NS, "takes too long");
        } else if (wall > STEP_BLOCKED_NS && cpu < wall / 50 && !lane_is_runnable(&c->lane[i])) {
                kill_late(c, i, false, "does not answer");
        } else if (i == LANE_MAIN && wall > STEP_LONG_NS &&
                   (cpu > STEP_LONG_CPU_NS || wall > STEP_LATE_NS) && next_request(c, LANE_MAIN)) {
                make_way(c);
        }
}

void lanes_tick(struct symclient *c)
{
        uint64_t now = now_monotonic_ns();

        for (uint32_t i = 0; i < N_LANES; i++) {
                lane_reap(&c->lane[i]);
                if (c->work[i].step)
                        check_step(c, i, now);
        }
        if (c->jit_sought && now - c->jit_since_ns > FIND_MAX_NS) {
                c->jit_sought->error = -ETIME;
                c->jit_sought = NULL;
                files_abandon(c);
        }
        if (c->lane[LANE_SLOW].pid > 0 && !c->work[LANE_SLOW].step && !next_request(c, LANE_SLOW) &&
            now - c->work[LANE_SLOW].idle_ns > SLOW_IDLE_NS)
                stop_lane(c, LANE_SLOW, NULL);
}
