/* GET requests to profd: over its Unix socket, or to a host by URL with token, CA and client certificate. */
#ifndef TOOLS_HTTP_H
#define TOOLS_HTTP_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "tools/query.h"

struct http_request {
        const char *path;    /* with its query: "/api/v1/status" */
        uint64_t timeout_ns; /* of the whole request */
        size_t max_bytes;    /* of the body; more is an error */
        /* Called once, in the caller's thread, when the request is on its way; may be NULL. */
        void (*on_sent)(void *ctx);
        void *ctx;
        int abort_fd;      /* the request is given up when this becomes readable; 0: none */
        struct buf *error; /* why it failed, instead of a line on stderr; NULL: stderr */
};

struct http_reply {
        long status;
        struct buf body; /* the caller frees it */
};

/* True when something accepts connections on the target's socket; says nothing. For a URL: always true. */
bool http_reachable(const struct target *t);

/* 0 with a reply of any HTTP status; STATUS_FAILED when there is none, which has been said, but for a
 * request that was given up. */
int http_get(const struct target *t, const struct http_request *request, struct http_reply *ret);

/* Says why a reply's status is not 200, in the words of its body where it has any. Returns STATUS_FAILED. */
int http_refused(const struct target *t, const struct http_request *request, const struct http_reply *reply);

#endif
