/* The HTTP API on the Unix socket and, when configured, on TCP with TLS.
 *
 * Runs in threads of its own (libmicrohttpd); what concerns live sampling is handed to the main thread by a
 * queue and an eventfd, and answered by api_answer(). Encoding and store queries run in the API's threads.
 *
 * Who sees what. Unix socket: root and the members of the group see all. Who connected is told by the kernel
 * (SO_PEERCRED, and SO_PEERGROUPS for the supplementary groups), both fixed at connect(), so a process that
 * ends, changes its user or passes the socket on changes nothing. Anybody else gets the samples whose
 * numeric label "uid" is their own, with only those ledger lines that are the same on an idle host, and no
 * totals of the host. TCP: TLS always, and a bearer token or a client certificate; who has one sees all.
 *
 * Limits: connections, requests at work (for all and for one client), bytes of answers held for slow
 * readers; a request must be complete, and an answer taken, within a time. See the constants in
 * daemon/api_internal.h. */
#ifndef DAEMON_API_H
#define DAEMON_API_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "daemon/store.h"
#include "profile/profile.h"
#include "profile/selection.h"

struct api;
struct api_request; /* a request that waits for the main thread */

struct api_config {
        const char *socket; /* path; used when no descriptor was passed */
        int listen_fd;      /* from socket activation; -1: none */
        const char *listen; /* "host:port"; NULL or "": no TCP */
        const char *tls_certificate, *tls_key, *token_file;
        const char *client_ca; /* certificates of clients are checked against it; NULL: none asked */
        const char *group;     /* members see everything on the Unix socket */
};

/* Who asks: `all`, or only the samples of `uid`. */
struct api_peer {
        bool all;
        uid_t uid;
};

/* A wish for live samples. */
struct api_collect {
        struct api_peer peer;
        struct selection selection; /* event, pid, ...; strings live as long as the request */
        uint64_t duration_ns;       /* 0: until the followed process exits */
        uint32_t follow_pid;        /* 0, or the root of a process tree to which the samples are confined */
        bool threads;
};

/* Called on the main thread, from api_dispatch(). */
struct api_ops {
        /* Takes on a live collection; later api_answer(). */
        void (*collect)(void *ctx, struct api_request *r, const struct api_collect *what);
        /* The client went away: forget the request (api_answer() must not be called any more). */
        void (*cancel)(void *ctx, struct api_request *r);
        /* Appends the JSON object of /api/v1/status, or the Prometheus text of /metrics; the API adds a
         * member "api" and profd_api_* metrics. */
        void (*status)(void *ctx, struct buf *out);
        void (*metrics)(void *ctx, struct buf *out);
        /* true: healthy; false: `why` says what is wrong. */
        bool (*health)(void *ctx, char *why, uint32_t size);
};

/* 0, or -errno after one logged line that says what cannot be listened on, and why. */
int api_new(struct api **ret, const struct api_config *config, struct store *store,
            const struct api_ops *ops, void *ctx);
/* Collections under way are cancelled. Main thread. */
struct api *api_free(struct api *a);

int api_fd(const struct api *a); /* readable: call api_dispatch() on the main thread */
int api_dispatch(struct api *a);

/* Ends a request: with a profile (taken over; the API confines it to what the peer may see and to its
 * limits), or with an error (-errno) and a text for people. Main thread. */
void api_answer(struct api *a, struct api_request *r, struct profile *p, int err, const char *text);

struct api_stats {
        uint64_t requests, refused, errors, connections;
};
void api_stats(const struct api *a, struct api_stats *ret);

#endif
