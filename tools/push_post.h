/* One request to a receiver of OTLP over HTTP (opentelemetry-proto, docs/specification.md, "OTLP/HTTP"). */
#ifndef TOOLS_PUSH_POST_H
#define TOOLS_PUSH_POST_H

#include <stdint.h>

#include "base/buf.h"

struct push_receiver {
        const char *url;         /* whole, with the path */
        const char *header_file; /* lines "Name: value" sent with each request, read anew each time; NULL:
                                    none */
        const char *ca;          /* NULL: the system's */
        const char *certificate, *key;
};

enum push_answer {
        PUSH_TAKEN,     /* 2xx */
        PUSH_LATER,     /* not reached, or 429, 5xx, or not let in: to be sent again */
        PUSH_TOO_LARGE, /* 413 */
        PUSH_REFUSED,   /* the request is wrong: never to be sent again */
};

struct push_reply {
        enum push_answer answer;
        uint64_t wait_ns; /* what Retry-After says; 0: nothing */
        int64_t rejected; /* profiles that were not taken */
        char text[256];   /* why, for people; "" when all is well */
};

/* Sends it, compressed. STATUS_DONE with a reply, or STATUS_FAILED: cannot even be tried (said). */
int push_post(const struct push_receiver *to, const struct buf *request, struct push_reply *ret);

#endif
