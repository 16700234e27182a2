#include "daemon/api.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/io.h"
#include "base/json_out.h"
#include "base/log.h"
#include "daemon/api_internal.h"

#define TICK_S 1

/* What an epoll event is about, when it is not a request's connection. */
static char tag_event, tag_timer;

/* -- queues -- */

static void queue_push(struct api_queue *q, struct api_request *r)
{
        r->next = NULL;
        *q->tail = r;
        q->tail = &r->next;
}

static struct api_request *queue_pop(struct api_queue *q)
{
        struct api_request *r = q->head;

        if (!r)
                return NULL;
        q->head = r->next;
        if (!q->head)
                q->tail = &q->head;
        return r;
}

void api_to_main(struct api *a, struct api_request *r)
{
        uint64_t one = 1;

        pthread_mutex_lock(&a->lock);
        queue_push(&a->main_queue, r);
        pthread_mutex_unlock(&a->lock);
        if (write(a->event_fd, &one, sizeof(one)) < 0) {
                /* full: it is readable already */
        }
}

void api_to_work(struct api *a, struct api_request *r)
{
        pthread_mutex_lock(&a->lock);
        queue_push(&a->work_queue, r);
        pthread_cond_signal(&a->work_ready);
        pthread_mutex_unlock(&a->lock);
}

/* A query of stored windows: the one kind of work that takes much memory. */
static bool is_query(const struct api_request *r)
{
        return r->route == ROUTE_PROFILE && !r->query.live;
}

/* With the lock: the next work; of queries one at a time, so that a day's profile is in memory once, and a
 * thread is left for what is short. */
static struct api_request *take_work(struct api *a)
{
        struct api_queue *q = &a->work_queue;

        for (struct api_request **at = &q->head; *at; at = &(*at)->next) {
                struct api_request *r = *at;
                if (is_query(r) && a->querying)
                        continue;
                *at = r->next;
                if (q->tail == &r->next)
                        q->tail = at;
                return r;
        }
        return NULL;
}

static void *work_thread(void *arg)
{
        struct api *a = arg;

        pthread_mutex_lock(&a->lock);
        while (!a->stopping) {
                struct api_request *r = take_work(a);
                if (!r) {
                        pthread_cond_wait(&a->work_ready, &a->lock);
                        continue;
                }
                bool query = is_query(r);
                a->querying = a->querying || query;
                pthread_mutex_unlock(&a->lock);
                api_work(r); /* the request is not ours after this */
                pthread_mutex_lock(&a->lock);
                if (query) {
                        a->querying = false;
                        pthread_cond_signal(&a->work_ready); /* one that was passed over */
                }
        }
        pthread_mutex_unlock(&a->lock);
        return NULL;
}

/* -- the main thread's side -- */

static void main_status(struct api *a, struct api_request *r)
{
        _cleanup_buf_ struct buf b = {0}, own = {0};
        struct json_out j = {.out = &own};
        struct api_stats st;

        a->ops->status(a->ctx, &b);
        while (b.len > 0 && strchr(" \n}", b.data[b.len - 1])) {
                char last = b.data[--b.len];
                if (last == '}')
                        break;
        }
        api_stats(a, &st);
        json_object_begin(&j, NULL);
        json_u64(&j, "requests", st.requests);
        json_u64(&j, "refused", st.refused);
        json_u64(&j, "errors", st.errors);
        json_u64(&j, "connections", st.connections);
        json_object_end(&j);
        buf_adds(&b, b.len <= 1 ? "{\"api\":" : ",\"api\":");
        buf_add(&b, own.data, own.len);
        buf_adds(&b, "}\n");
        api_reply_buf(r, MHD_HTTP_OK, "application/json", &b);
}

/* What anybody may know: that profd runs, and what they can ask it. */
static void main_status_restricted(struct api *a, struct api_request *r)
{
        _cleanup_buf_ struct buf b = {0};
        struct json_out j = {.out = &b};
        char why[256] = "";

        json_object_begin(&j, NULL);
        json_string(&j, "version", PROFD_VERSION);
        json_bool(&j, "healthy", a->ops->health(a->ctx, why, sizeof(why)));
        json_bool(&j, "restricted", true);
        json_u64(&j, "uid", r->peer.uid);
        json_string(&j, "note",
                    "You see the samples of your own processes. Members of profd's group see all.");
        json_object_end(&j);
        buf_addc(&b, '\n');
        api_reply_buf(r, MHD_HTTP_OK, "application/json", &b);
}

static void metric(struct buf *out, const char *name, const char *type, const char *help, uint64_t value)
{
        buf_addf(out, "# HELP profd_api_%s %s\n# TYPE profd_api_%s %s\nprofd_api_%s %" PRIu64 "\n", name,
                 help, name, type, name, value);
}

static void main_metrics(struct api *a, struct api_request *r)
{
        _cleanup_buf_ struct buf b = {0};
        struct api_stats st;

        a->ops->metrics(a->ctx, &b);
        api_stats(a, &st);
        metric(&b, "requests_total", "counter", "HTTP requests.", st.requests);
        metric(&b, "refused_total", "counter", "HTTP requests answered with 4xx.", st.refused);
        metric(&b, "errors_total", "counter", "HTTP requests answered with 5xx.", st.errors);
        metric(&b, "connections", "gauge", "Open HTTP connections.", st.connections);
        api_reply_buf(r, MHD_HTTP_OK, "text/plain; version=0.0.4; charset=utf-8", &b);
}

static void main_health(struct api *a, struct api_request *r)
{
        char why[256] = "";

        if (a->ops->health(a->ctx, why, sizeof(why)))
                api_reply_text(r, MHD_HTTP_OK, "ok");
        else
                api_reply_text(r, MHD_HTTP_SERVICE_UNAVAILABLE, "%s", r->peer.all ? why : "not healthy");
}

static void main_collect(struct api *a, struct api_request *r)
{
        struct epoll_event ev = {.events = EPOLLRDHUP | EPOLLHUP, .data.ptr = r};

        r->collect = (struct api_collect){
                        .peer = r->peer,
                        .selection = r->query.selection,
                        .duration_ns = r->query.duration_ns,
                        .follow_pid = r->query.follow,
                        .threads = r->query.threads,
        };
        /* A suspended connection is watched by nobody else. Without the watch it ends by itself. */
        epoll_ctl(a->epoll_fd, EPOLL_CTL_ADD, r->connection->fd, &ev);
        r->collecting = true;
        a->ops->collect(a->ctx, r, &r->collect);
}

static void serve_main(struct api *a, struct api_request *r)
{
        switch (r->route) {
        case ROUTE_STATUS:
                if (r->peer.all)
                        main_status(a, r);
                else
                        main_status_restricted(a, r);
                break;
        case ROUTE_METRICS:
                main_metrics(a, r);
                break;
        case ROUTE_HEALTH:
                main_health(a, r);
                break;
        default:
                main_collect(a, r);
        }
}

static void unwatch(struct api *a, struct api_request *r)
{
        r->collecting = false;
        epoll_ctl(a->epoll_fd, EPOLL_CTL_DEL, r->connection->fd, NULL);
}

static void cancel(struct api *a, struct api_request *r, const char *why)
{
        unwatch(a, r);
        a->ops->cancel(a->ctx, r);
        api_reply_text(r, MHD_HTTP_SERVICE_UNAVAILABLE, "%s", why);
}

void api_answer(struct api *a, struct api_request *r, struct profile *p, int err, const char *text)
{
        unwatch(a, r);
        if (err < 0) {
                profile_free(p);
                api_reply_error(r, err, text);
                return;
        }
        r->profile = p;
        api_to_work(a, r);
}

/* Drops connections that take too long to ask or to read. */
static void tick(struct api *a)
{
        uint64_t now = now_monotonic_ns(), expirations;

        if (read(a->timer_fd, &expirations, sizeof(expirations)) < 0)
                return;
        pthread_mutex_lock(&a->lock);
        for (struct api_connection *c = a->connections; c; c = c->next)
                if (c->deadline_ns && c->deadline_ns < now) {
                        shutdown(c->fd, SHUT_RDWR); /* libmicrohttpd sees it and closes */
                        c->deadline_ns = 0;
                }
        if (!a->connections) {
                const struct itimerspec off = {0};
                timerfd_settime(a->timer_fd, 0, &off, NULL);
        }
        pthread_mutex_unlock(&a->lock);
}

static void drain_queue(struct api *a)
{
        uint64_t n;

        if (read(a->event_fd, &n, sizeof(n)) < 0)
                return;
        for (;;) {
                pthread_mutex_lock(&a->lock);
                struct api_request *r = queue_pop(&a->main_queue);
                pthread_mutex_unlock(&a->lock);
                if (!r)
                        return;
                serve_main(a, r);
        }
}

int api_fd(const struct api *a)
{
        return a->epoll_fd;
}

int api_dispatch(struct api *a)
{
        /* One at a time: handling one may end the request that a later event is about. */
        for (int i = 0; i < API_CONNECTIONS; i++) {
                struct epoll_event ev;
                int n = epoll_wait(a->epoll_fd, &ev, 1, 0);
                if (n < 0)
                        return errno == EINTR ? 0 : -errno;
                if (n == 0)
                        return 0;
                if (ev.data.ptr == &tag_event)
                        drain_queue(a);
                else if (ev.data.ptr == &tag_timer)
                        tick(a);
                else
                        cancel(a, ev.data.ptr, "the client went away");
        }
        return 0;
}

void api_stats(const struct api *a, struct api_stats *ret)
{
        struct api *m = (struct api *)(uintptr_t)a;

        *ret = (struct api_stats){
                        .requests = atomic_load(&m->requests),
                        .refused = atomic_load(&m->refused),
                        .errors = atomic_load(&m->errors),
        };
        pthread_mutex_lock(&m->lock);
        ret->connections = a->n_connections;
        pthread_mutex_unlock(&m->lock);
}

/* -- begin and end -- */

static int watch(struct api *a, int fd, void *tag)
{
        struct epoll_event ev = {.events = EPOLLIN, .data.ptr = tag};

        return epoll_ctl(a->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0 ? -errno : 0;
}

static int make_descriptors(struct api *a)
{
        a->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        a->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        a->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
        if (a->epoll_fd < 0 || a->event_fd < 0 || a->timer_fd < 0)
                return -errno;
        int r = watch(a, a->event_fd, &tag_event);
        return r < 0 ? r : watch(a, a->timer_fd, &tag_timer);
}

static bool is_set(const char *s)
{
        return s && *s;
}

/* What TCP must have, before anything is opened. */
static int check_tcp(struct api *a, const struct api_config *config)
{
        if (!is_set(config->listen))
                return 0;
        if (!is_set(config->tls_certificate) || !is_set(config->tls_key)) {
                log_error("Listen=%s: needs TlsCertificate= and TlsKey=; profiles are not sent in the clear",
                          config->listen);
                return -EINVAL;
        }
        if (!is_set(config->token_file) && !is_set(config->client_ca)) {
                log_error("Listen=%s: needs TokenFile= or ClientCa=, by which clients show that they may "
                          "see all",
                          config->listen);
                return -EINVAL;
        }
        return is_set(config->token_file) ? api_read_tokens(a, config->token_file) : 0;
}

static int start_threads(struct api *a)
{
        for (; a->n_threads < API_THREADS; a->n_threads++) {
                int e = pthread_create(&a->thread[a->n_threads], NULL, work_thread, a);
                if (e)
                        return -e;
        }
        return 0;
}

static int start(struct api *a, const struct api_config *config)
{
        _cleanup_close_ int local_fd = -1, tcp_fd = -1;
        sigset_t all, before;

        int r = make_descriptors(a);
        if (r < 0)
                log_error("cannot make the descriptors of the API: %s", strerror(-r));
        if (r == 0)
                r = check_tcp(a, config);
        if (r == 0)
                r = api_find_group(a, config->group);
        if (r == 0 && config->listen_fd >= 0)
                local_fd = fcntl(config->listen_fd, F_DUPFD_CLOEXEC, 0);
        else if (r == 0 && is_set(config->socket))
                r = api_listen_local(a, config->socket, &local_fd);
        if (r == 0 && is_set(config->listen))
                r = api_listen_tcp(config->listen, &tcp_fd);
        if (r < 0)
                return r;
        /* Signals are the main thread's. */
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        r = start_threads(a);
        if (r == 0)
                r = api_start_http(a, &local_fd, &tcp_fd, config);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        return r;
}

int api_new(struct api **ret, const struct api_config *config, struct store *store,
            const struct api_ops *ops, void *ctx)
{
        struct api *a = calloc(1, sizeof(*a));

        if (!a)
                return -ENOMEM;
        a->store = store;
        a->ops = ops;
        a->ctx = ctx;
        a->epoll_fd = a->event_fd = a->timer_fd = -1;
        a->main_queue.tail = &a->main_queue.head;
        a->work_queue.tail = &a->work_queue.head;
        pthread_mutex_init(&a->lock, NULL);
        pthread_cond_init(&a->work_ready, NULL);
        int r = start(a, config);
        if (r < 0) {
                api_free(a);
                return r;
        }
        *ret = a;
        return 0;
}

/* Ends every request that waits; libmicrohttpd must not be stopped while a connection is suspended. */
static void end_requests(struct api *a)
{
        struct api_request *r;

        pthread_mutex_lock(&a->lock);
        a->stopping = true;
        pthread_cond_broadcast(&a->work_ready);
        pthread_mutex_unlock(&a->lock);
        for (uint32_t i = 0; i < a->n_threads; i++)
                pthread_join(a->thread[i], NULL);
        for (;;) {
                pthread_mutex_lock(&a->lock);
                r = queue_pop(&a->main_queue);
                if (!r)
                        r = queue_pop(&a->work_queue);
                for (struct api_request *l = a->live; !r && l; l = l->next_live)
                        if (l->suspended)
                                r = l;
                pthread_mutex_unlock(&a->lock);
                if (!r)
                        return;
                if (r->collecting)
                        cancel(a, r, "profd stops");
                else
                        api_reply_text(r, MHD_HTTP_SERVICE_UNAVAILABLE, "profd stops");
        }
}

struct api *api_free(struct api *a)
{
        if (!a)
                return NULL;
        end_requests(a);
        if (a->local)
                MHD_stop_daemon(a->local);
        if (a->tcp)
                MHD_stop_daemon(a->tcp);
        if (a->socket_path) {
                unlink(a->socket_path);
                free(a->socket_path);
        }
        int fds[] = {a->epoll_fd, a->event_fd, a->timer_fd};
        for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
                if (fds[i] >= 0)
                        close(fds[i]);
        pthread_cond_destroy(&a->work_ready);
        pthread_mutex_destroy(&a->lock);
        free(a);
        return NULL;
}
