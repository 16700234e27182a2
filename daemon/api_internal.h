/* What the files of the API share.
 *
 * A request lives from its headers to the end of its answer. libmicrohttpd's polling thread makes it,
 * suspends the connection and hands it on; exactly one holder at a time works on it: the main thread
 * (status, health, live collections) or a thread of the pool (queries, encoding). The last holder sets the
 * response and resumes the connection, and must not touch the request after that. */
#ifndef DAEMON_API_INTERNAL_H
#define DAEMON_API_INTERNAL_H

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/cleanup.h"
#include "daemon/api.h"

#define API_CONNECTIONS        512         /* one more, and the longest-waiting incomplete one is dropped */
#define API_CONNECTION_MEMORY  (16u << 10) /* request line and headers; more is refused */
#define API_WAITING            64          /* requests at work, of all clients */
#define API_WAITING_CLIENT     16          /* of one client: a user on the Unix socket, an address on TCP */
#define API_COLLECTIONS        16          /* live collections, of all clients */
#define API_COLLECTIONS_CLIENT 4
#define API_BODY_BYTES         (64u << 20)         /* of answers not yet taken */
#define API_THREADS            2                   /* for queries and encoding */
#define API_REQUEST_NS         (10 * NSEC_PER_SEC) /* from connect, or the last answer, to complete headers */
#define API_SEND_NS            (30 * NSEC_PER_SEC) /* for an answer, plus: */
#define API_SEND_RATE          (64u << 10)         /* bytes a second that a reader must take */
#define API_MAX_COLLECT_NS     (3600 * NSEC_PER_SEC)
#define API_SCRAPE_SAMPLES     16000u /* what Pyroscope takes in one profile */
#define API_SCRAPE_BYTES       (4u << 20)
#define API_MAX_PARAMS         32
#define API_MAX_TOKENS         16

enum api_route {
        ROUTE_NONE = 0,
        ROUTE_HEALTH,
        ROUTE_METRICS,
        ROUTE_STATUS,
        ROUTE_SCRAPE, /* /debug/pprof/profile */
        ROUTE_PROFILE,
        ROUTE_WINDOWS,
        ROUTE_WINDOW,
        ROUTE_INDEX,
};

struct api_param {
        char *name, *value; /* owned */
};

/* A request's parameters, checked. Texts belong to `param`. */
struct api_query {
        struct api_param param[API_MAX_PARAMS];
        uint32_t n_params;
        struct selection selection;
        bool live;
        uint64_t duration_ns; /* of a live collection; 0: until `follow` exits */
        uint32_t follow;
        bool threads;
        uint64_t since_ns, until_ns;
        const char *labels;   /* "comm,unit" or "all"; NULL: the route's default */
        uint32_t max_samples; /* 0: no limit */
        uint64_t max_bytes;   /* uncompressed; 0: no limit */
        const char *after;
        uint32_t limit;
};

/* Of a connection; libmicrohttpd's socket context. */
struct api_connection {
        int fd;
        bool tcp;
        struct api_peer peer;               /* Unix socket */
        uint64_t client;                    /* whom limits are counted for */
        uint64_t deadline_ns;               /* monotonic; 0: none */
        bool complete;                      /* a request is at work or being answered */
        struct api_connection *next, *prev; /* newest first */
};

struct api_request {
        struct api *api;
        struct MHD_Connection *mhd;
        struct api_connection *connection;
        enum api_route route;
        char window[STORE_ID_SIZE]; /* of ROUTE_WINDOW */
        struct api_peer peer;
        struct api_query query;
        struct api_collect collect;
        bool waiting; /* counted in api.n_waiting */
        bool suspended;
        bool collecting;         /* the main thread's ops know it */
        struct profile *profile; /* the answer of a collection, to be encoded */
        unsigned status;
        struct MHD_Response *response;
        uint64_t body_size;                        /* of the response */
        struct api_request *next;                  /* in the queue it waits in */
        struct api_request *next_live, *prev_live; /* all that wait */
};

struct api_queue {
        struct api_request *head, **tail;
};

struct api_token {
        uint8_t sha256[32];
};

struct api {
        struct store *store;
        const struct api_ops *ops;
        void *ctx;
        struct MHD_Daemon *local, *tcp;
        char *socket_path; /* made by us, to be removed; NULL */
        gid_t group;
        bool has_group, has_client_ca;
        struct api_token token[API_MAX_TOKENS];
        uint32_t n_tokens;

        int epoll_fd, event_fd, timer_fd;

        pthread_mutex_t lock; /* all below */
        pthread_cond_t work_ready;
        struct api_queue main_queue, work_queue;
        struct api_request *live;
        uint32_t n_waiting, n_collecting;
        struct api_connection *connections;
        uint32_t n_connections;
        bool stopping;
        bool querying; /* a query of stored windows is at work */
        pthread_t thread[API_THREADS];
        uint32_t n_threads;

        atomic_uint_least64_t requests, refused, errors, accepted;
        atomic_uint_least64_t body_bytes;
};

/* -- api.c -- */

/* Hands a request to the main thread, or to the pool; its connection must be suspended. */
void api_to_main(struct api *a, struct api_request *r);
void api_to_work(struct api *a, struct api_request *r);

/* -- api_answer.c: each ends the holder's work on the request -- */

void api_reply_text(struct api_request *r, unsigned status, const char *fmt, ...)
                __attribute__((format(printf, 3, 4)));
/* Takes the buffer's bytes. */
void api_reply_buf(struct api_request *r, unsigned status, const char *type, struct buf *body);
void api_reply(struct api_request *r, unsigned status, struct MHD_Response *response);
void api_reply_error(struct api_request *r, int err, const char *text);

/* -- api_http.c -- */

/* Takes over the descriptors that it serves, and sets them to -1. */
int api_start_http(struct api *a, int *local_fd, int *tcp_fd, const struct api_config *config);
void api_request_free(struct api_request *r);

/* -- api_socket.c -- */

int api_listen_local(struct api *a, const char *path, int *ret_fd);
int api_listen_tcp(const char *address, int *ret_fd);
/* Who connected; on failure nobody that sees anything. */
void api_identify(const struct api *a, int fd, struct api_connection *c);
int api_find_group(struct api *a, const char *name);

/* -- api_auth.c -- */

int api_read_tokens(struct api *a, const char *path);
/* Whether a TCP request may see all. */
bool api_authorized(const struct api *a, struct MHD_Connection *c);

/* -- api_query.c -- */

/* Checks and reads the parameters. 0, or -EINVAL with a text for people. */
int api_query_read(struct api_request *r, struct MHD_Connection *c, char *why, size_t size);
void api_query_free(struct api_query *q);

/* -- api_work.c -- */

/* Does a request's work in a thread of the pool. */
void api_work(struct api_request *r);

/* -- api_shape.c -- */

/* A new profile of the samples that the peer, who does not see all, may see. Nothing of the others is in it,
 * not in any table either. */
int api_confine(const struct profile *p, const struct api_peer *peer, struct profile **ret);

/* A new profile with the labels of a list "comm,unit" only; the numbers are kept when it names "pid" or
 * "thread_id". */
int api_reduce_labels(const struct profile *p, const char *list, struct profile **ret);

/* -- api_windows.c -- */

void api_windows(struct api_request *r);
void api_window(struct api_request *r);

#endif
