/* One file from a debuginfod server: GET SERVER/buildid/ID/debuginfo (debuginfod(8), "WEBAPI"). */
#ifndef TOOLS_DEBUG_FETCH_H
#define TOOLS_DEBUG_FETCH_H

#include <stdint.h>

struct debug_server {
        const char *url; /* with or without a '/' at the end */
        const char *ca;  /* NULL: the system's */
};

enum debug_answer {
        DEBUG_FETCHED,     /* the file is there, whole */
        DEBUG_NOT_THERE,   /* the server says that it has none */
        DEBUG_TOO_LARGE,   /* more than max_bytes */
        DEBUG_UNREACHABLE, /* anything else: `text` says why */
};

/* Writes to `path`, which is made anew; without DEBUG_FETCHED nothing is left there. The size, the time
 * without progress and the whole time are bounded. `text` is only for people. */
enum debug_answer debug_fetch(const struct debug_server *s, const char *build_id, const char *path,
                              uint64_t max_bytes, char text[256]);

#endif
