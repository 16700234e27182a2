/* libmicrohttpd's side: connections, requests, routes. All of this runs in its polling thread and never
 * waits. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include "base/io.h"
#include "base/log.h"
#include "daemon/api_internal.h"

#define MAX_CERTIFICATE (256u << 10)

static const char index_page[] =
                "<!DOCTYPE html>\n<html><head><title>profd</title></head><body>\n<h1>profd</h1>\n<ul>\n"
                "<li><a href=\"profile?seconds=10\">profile</a>: CPU samples of the whole host, "
                "from now on for <code>seconds=</code></li>\n"
                "</ul>\n<p>Stored samples: <code>/api/v1/profile?last=5min</code>, "
                "<code>/api/v1/windows</code>. "
                "State: <code>/api/v1/status</code>, <code>/metrics</code>, "
                "<code>/healthz</code>.</p>\n</body></html>\n";

/* -- connections -- */

/* With the lock: makes room by dropping who has waited longest without a whole request; the newest when all
 * others are at work. */
static void drop_one(struct api *a)
{
        struct api_connection *oldest = NULL;

        for (struct api_connection *c = a->connections; c; c = c->next)
                if (!c->complete && c->deadline_ns)
                        oldest = c;
        if (!oldest)
                oldest = a->connections;
        shutdown(oldest->fd, SHUT_RDWR);
        oldest->deadline_ns = 0;
}

static void connection_started(struct api *a, struct MHD_Connection *mhd, void **context)
{
        const struct itimerspec every_second = {.it_interval.tv_sec = 1, .it_value.tv_sec = 1};
        const union MHD_ConnectionInfo *info =
                        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
        struct api_connection *c = calloc(1, sizeof(*c));

        if (!c || !info) {
                free(c);
                return; /* its requests are refused for want of a context */
        }
        api_identify(a, info->connect_fd, c);
        c->deadline_ns = now_monotonic_ns() + API_REQUEST_NS;
        atomic_fetch_add(&a->accepted, 1);
        pthread_mutex_lock(&a->lock);
        if (!a->connections)
                timerfd_settime(a->timer_fd, 0, &every_second, NULL);
        c->next = a->connections;
        if (c->next)
                c->next->prev = c;
        a->connections = c;
        if (++a->n_connections > API_CONNECTIONS)
                drop_one(a);
        pthread_mutex_unlock(&a->lock);
        *context = c;
}

static void connection_closed(struct api *a, struct api_connection *c)
{
        if (!c)
                return;
        pthread_mutex_lock(&a->lock);
        if (c->prev)
                c->prev->next = c->next;
        else
                a->connections = c->next;
        if (c->next)
                c->next->prev = c->prev;
        a->n_connections--;
        pthread_mutex_unlock(&a->lock);
        free(c);
}

static void on_connection(void *cls, struct MHD_Connection *mhd, void **context,
                          enum MHD_ConnectionNotificationCode what)
{
        if (what == MHD_CONNECTION_NOTIFY_STARTED)
                connection_started(cls, mhd, context);
        else {
                connection_closed(cls, *context);
                *context = NULL;
        }
}

static void set_deadline(struct api *a, struct api_connection *c, uint64_t after_ns, bool complete)
{
        pthread_mutex_lock(&a->lock);
        c->deadline_ns = after_ns ? now_monotonic_ns() + after_ns : 0;
        c->complete = complete;
        pthread_mutex_unlock(&a->lock);
}

/* -- requests -- */

static bool is_collection(const struct api_request *r)
{
        return (r->route == ROUTE_SCRAPE || r->route == ROUTE_PROFILE) && r->query.live;
}

static void stop_waiting(struct api *a, struct api_request *r)
{
        pthread_mutex_lock(&a->lock);
        if (r->waiting) {
                if (r->prev_live)
                        r->prev_live->next_live = r->next_live;
                else
                        a->live = r->next_live;
                if (r->next_live)
                        r->next_live->prev_live = r->prev_live;
                a->n_waiting--;
                if (is_collection(r))
                        a->n_collecting--;
                r->waiting = false;
        }
        pthread_mutex_unlock(&a->lock);
}

void api_request_free(struct api_request *r)
{
        stop_waiting(r->api, r);
        if (r->response)
                MHD_destroy_response(r->response);
        profile_free(r->profile);
        api_query_free(&r->query);
        free(r);
}

/* With the lock. NULL: there is room for this request. */
static const char *no_room(struct api *a, const struct api_request *r, unsigned *ret_status)
{
        uint32_t waiting = 0, collecting = 0;

        *ret_status = MHD_HTTP_SERVICE_UNAVAILABLE;
        if (a->stopping)
                return "profd stops";
        for (const struct api_request *l = a->live; l; l = l->next_live)
                if (l->connection->client == r->connection->client) {
                        waiting++;
                        collecting += is_collection(l);
                }
        if (a->n_waiting >= API_WAITING)
                return "too many requests are at work: try again later";
        if (is_collection(r) && a->n_collecting >= API_COLLECTIONS)
                return "too many collections are under way: try again later";
        *ret_status = MHD_HTTP_TOO_MANY_REQUESTS;
        if (waiting >= API_WAITING_CLIENT)
                return "too many of your requests are at work: try again later";
        if (is_collection(r) && collecting >= API_COLLECTIONS_CLIENT)
                return "too many of your collections are under way: try again later";
        return NULL;
}

/* Hands the request on and suspends its connection, in one step: nobody can resume it before. True: it is
 * another thread's now, which may have ended it already. */
static bool hand_on(struct api *a, struct api_request *r, bool to_main)
{
        unsigned status;

        pthread_mutex_lock(&a->lock);
        const char *why = no_room(a, r, &status);
        if (!why) {
                r->next_live = a->live;
                if (a->live)
                        a->live->prev_live = r;
                a->live = r;
                a->n_waiting++;
                a->n_collecting += is_collection(r);
                r->waiting = r->suspended = true;
                MHD_suspend_connection(r->mhd);
        }
        pthread_mutex_unlock(&a->lock);
        if (why)
                api_reply_text(r, status, "%s", why);
        else if (to_main)
                api_to_main(a, r);
        else
                api_to_work(a, r);
        return !why;
}

static void reply_index(struct api_request *r)
{
        struct MHD_Response *response = MHD_create_response_from_buffer(
                        sizeof(index_page) - 1, (void *)(uintptr_t)index_page, MHD_RESPMEM_PERSISTENT);

        if (response)
                MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "text/html; charset=utf-8");
        api_reply(r, MHD_HTTP_OK, response);
}

static enum api_route find_route(const char *url, char window[STORE_ID_SIZE])
{
        static const struct {
                const char *path;
                enum api_route route;
        } routes[] = {
                        {"/healthz", ROUTE_HEALTH},         {"/metrics", ROUTE_METRICS},
                        {"/api/v1/status", ROUTE_STATUS},   {"/api/v1/profile", ROUTE_PROFILE},
                        {"/api/v1/windows", ROUTE_WINDOWS}, {"/debug/pprof/profile", ROUTE_SCRAPE},
                        {"/debug/pprof/", ROUTE_INDEX},
        };
        static const char prefix[] = "/api/v1/windows/";

        for (size_t i = 0; i < ARRAY_SIZE(routes); i++)
                if (strcmp(url, routes[i].path) == 0)
                        return routes[i].route;
        if (strncmp(url, prefix, sizeof(prefix) - 1) == 0 &&
            strlen(url + sizeof(prefix) - 1) < STORE_ID_SIZE) {
                strcpy(window, url + sizeof(prefix) - 1);
                return ROUTE_WINDOW;
        }
        return ROUTE_NONE;
}

/* The first step: who asks, and what. True: handed on; false: answered. */
static bool begin(struct api *a, struct api_request *r, const char *url)
{
        char why[256];

        if (r->connection->tcp && !api_authorized(a, r->mhd)) {
                api_reply_text(r, MHD_HTTP_UNAUTHORIZED,
                               "send \"Authorization: Bearer TOKEN\" with a token of "
                               "TokenFile=, or a client certificate");
                return false;
        }
        r->peer = r->connection->tcp ? (struct api_peer){.all = true} : r->connection->peer;
        r->route = find_route(url, r->window);
        if (r->route == ROUTE_NONE) {
                api_reply_text(r, MHD_HTTP_NOT_FOUND,
                               "there is no such path; there are /debug/pprof/profile, "
                               "/api/v1/profile, /api/v1/windows, /api/v1/status, /metrics and "
                               "/healthz");
                return false;
        }
        if (r->route == ROUTE_SCRAPE || r->route == ROUTE_PROFILE || r->route == ROUTE_WINDOWS) {
                if (api_query_read(r, r->mhd, why, sizeof(why)) < 0) {
                        api_reply_text(r, MHD_HTTP_BAD_REQUEST, "%s", why);
                        return false;
                }
        }
        if (!r->peer.all && (r->route == ROUTE_METRICS || r->route == ROUTE_WINDOW)) {
                api_reply_text(r, MHD_HTTP_FORBIDDEN,
                               "this is about all users' processes: ask as root or as a member of profd's "
                               "group; "
                               "the samples of your own are at /api/v1/profile");
                return false;
        }
        switch (r->route) {
        case ROUTE_INDEX:
                reply_index(r);
                return false;
        case ROUTE_HEALTH:
        case ROUTE_METRICS:
        case ROUTE_STATUS:
                return hand_on(a, r, true);
        default:
                return hand_on(a, r, is_collection(r));
        }
}

static bool has_body(struct MHD_Connection *c)
{
        const char *length = MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);

        return (length && strcmp(length, "0") != 0) ||
               MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_TRANSFER_ENCODING);
}

static enum MHD_Result send_reply(struct api *a, struct api_request *r)
{
        if (!r->response)
                return MHD_NO;
        stop_waiting(a, r);
        set_deadline(a, r->connection, API_SEND_NS + r->body_size / API_SEND_RATE * NSEC_PER_SEC, true);
        enum MHD_Result ok = MHD_queue_response(r->mhd, r->status, r->response);
        MHD_destroy_response(r->response);
        r->response = NULL;
        return ok;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *mhd, const char *url, const char *method,
                                  const char *version, const char *data, size_t *data_size, void **context)
{
        struct api *a = cls;
        struct api_request *r = *context;

        if (r)
                return *data_size ? MHD_NO : send_reply(a, r); /* resumed: the answer is there */
        const union MHD_ConnectionInfo *info =
                        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
        if (!info || !info->socket_context)
                return MHD_NO;
        r = calloc(1, sizeof(*r));
        if (!r)
                return MHD_NO;
        *context = r;
        r->api = a;
        r->mhd = mhd;
        r->connection = info->socket_context;
        atomic_fetch_add(&a->requests, 1);
        set_deadline(a, r->connection, 0, true);
        if (strcmp(method, MHD_HTTP_METHOD_GET) != 0)
                api_reply_text(r, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET: nothing can be changed here");
        else if (has_body(mhd))
                api_reply_text(r, MHD_HTTP_CONTENT_TOO_LARGE, "a GET has no body here");
        else if (begin(a, r, url))
                return MHD_YES;
        return send_reply(a, r);
}

static void on_completed(void *cls, struct MHD_Connection *mhd, void **context,
                         enum MHD_RequestTerminationCode why)
{
        struct api *a = cls;
        struct api_request *r = *context;

        if (!r)
                return;
        set_deadline(a, r->connection, API_REQUEST_NS, false);
        api_request_free(r);
        *context = NULL;
}

/* -- begin -- */

static void on_log(void *cls, const char *fmt, va_list ap)
{
        char text[256];

        vsnprintf(text, sizeof(text), fmt, ap);
        text[strcspn(text, "\n")] = 0;
        log_debug("HTTP: %s", text);
}

static struct MHD_Daemon *start_daemon(struct api *a, unsigned flags, int fd,
                                       const struct MHD_OptionItem *more)
{
        return MHD_start_daemon(flags | MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME |
                                                MHD_USE_ERROR_LOG,
                                0, NULL, NULL, on_request, a, MHD_OPTION_EXTERNAL_LOGGER, on_log, a,
                                MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_NOTIFY_CONNECTION, on_connection, a,
                                MHD_OPTION_NOTIFY_COMPLETED, on_completed, a, MHD_OPTION_CONNECTION_LIMIT,
                                (unsigned)(2 * API_CONNECTIONS), MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                                (size_t)API_CONNECTION_MEMORY, MHD_OPTION_CONNECTION_TIMEOUT, 60u,
                                MHD_OPTION_ARRAY, more, MHD_OPTION_END);
}

static int read_pem(const char *key, const char *path, struct buf *b)
{
        int r = read_file(path, MAX_CERTIFICATE, b);

        if (r < 0)
                log_error("%s=%s: %s", key, path, strerror(-r));
        return r;
}

static int start_tls(struct api *a, int fd, const struct api_config *config)
{
        static const char priorities[] = "NORMAL:-VERS-TLS1.0:-VERS-TLS1.1";
        _cleanup_buf_ struct buf certificate = {0}, key = {0}, ca = {0};
        bool has_ca = config->client_ca && *config->client_ca;

        int r = read_pem("TlsCertificate", config->tls_certificate, &certificate);
        if (r == 0)
                r = read_pem("TlsKey", config->tls_key, &key);
        if (r == 0 && has_ca)
                r = read_pem("ClientCa", config->client_ca, &ca);
        if (r < 0)
                return r;
        struct MHD_OptionItem options[] = {
                        {MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)(uintptr_t)buf_text(&certificate)},
                        {MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)(uintptr_t)buf_text(&key)},
                        {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)(uintptr_t)priorities},
                        {has_ca ? MHD_OPTION_HTTPS_MEM_TRUST : MHD_OPTION_END, 0,
                         (void *)(uintptr_t)buf_text(&ca)},
                        {MHD_OPTION_END, 0, NULL},
        };
        a->has_client_ca = has_ca;
        a->tcp = start_daemon(a, MHD_USE_TLS, fd, options);
        if (!a->tcp) {
                log_error("Listen=%s: cannot serve TLS; are TlsCertificate=%s and TlsKey=%s a PEM pair?",
                          config->listen, config->tls_certificate, config->tls_key);
                return -EINVAL;
        }
        return 0;
}

int api_start_http(struct api *a, int *local_fd, int *tcp_fd, const struct api_config *config)
{
        const struct MHD_OptionItem none[] = {{MHD_OPTION_END, 0, NULL}};

        if (*tcp_fd >= 0) {
                int r = start_tls(a, *tcp_fd, config);
                if (r < 0)
                        return r;
                *tcp_fd = -1;
        }
        if (*local_fd >= 0) {
                a->local = start_daemon(a, 0, *local_fd, none);
                if (!a->local) {
                        log_error("Socket %s: libmicrohttpd does not start",
                                  config->socket ? config->socket : "");
                        return -EIO;
                }
                *local_fd = -1;
        }
        return 0;
}
