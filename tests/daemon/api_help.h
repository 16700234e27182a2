/* A server for tests of the API: a store with two windows, sampler and status replaced by ones that answer
 * with known data, on a thread that stands for the daemon's main thread; and an HTTP client that can also
 * misbehave. */
#ifndef TESTS_API_HELP_H
#define TESTS_API_HELP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "daemon/api.h"
#include "store_help.h"

#define HELP_MAX_LIVE 64

struct help_live {
        struct api_request *request;
        uint64_t due_ns; /* monotonic */
};

struct help_server {
        char dir[64], socket[96], state[96];
        struct store_config store_config;
        struct api_config config;
        struct store *store;
        struct api *api;
        pthread_t thread;
        atomic_bool stop, unhealthy;
        struct help_live live[HELP_MAX_LIVE]; /* the thread's own */
        atomic_uint n_live, collected, cancelled;
        atomic_uint live_samples; /* of the profile a collection is answered with */
        atomic_uint status_bytes; /* more of them in the status */
        atomic_bool hold;         /* the main thread does nothing meanwhile */
        struct api_collect last;  /* the newest collection, see help_last() */
};

void help_server_open(struct help_server *h); /* directory and store, with windows at T0 and T0 + 60 */
int help_server_start(struct help_server *h); /* config may be changed between the two */
void help_server_close(struct help_server *h);

/* cmocka's fixtures: a server as it is by default, `*state` being its help_server. */
int help_set_up(void **state);
int help_tear_down(void **state);

/* The newest collection asked for; its texts are gone. */
const struct api_collect *help_last(const struct help_server *h);

struct help_reply {
        unsigned status; /* 0: no HTTP answer */
        char head[4096];
        struct buf body; /* after chunks were joined is not needed: answers have lengths */
};

void help_reply_free(struct help_reply *r);
#define _cleanup_reply_ __attribute__((cleanup(help_reply_free)))

int help_connect(const char *socket_path);
/* As another user, whom the kernel names to the server; needs root. */
int help_connect_as(const char *socket_path, uid_t uid);

/* Sends `text` as it is and reads to the end of the connection. */
void help_raw(const char *socket_path, const char *text, size_t n, struct help_reply *ret);

/* GET, with further header lines ("Range: bytes=0-1\r\n") or "". */
void help_get(const char *socket_path, const char *target, const char *headers, struct help_reply *ret);

/* The same as another user: in a child process that has become uid and gid, with one more group when not -1.
 */
void help_get_as(const char *socket_path, const char *target, uid_t uid, gid_t gid, int group,
                 struct help_reply *ret);

/* What a command prints, and its exit status. */
int help_run(const char *command, struct buf *out);

/* Resident bytes of this process. */
uint64_t help_resident(void);

#endif
