/* The windows that a source has, one by one, and the gaps between them: what list, report --timeline and
 * changes go through. */
#ifndef TOOLS_WINDOWS_H
#define TOOLS_WINDOWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <json-c/json.h>

#include "profile/profile.h"
#include "tools/query.h"

struct window {
        uint64_t start_ns, end_ns;
        char reason[32]; /* "" for a window; of a gap, why there is none */
        bool counted;    /* samples, lost and size are known: they are for those who may see all */
        uint64_t samples, lost, size;
        char *file; /* owned; NULL: the daemon's */
};

struct windows {
        struct window *window; /* by start */
        size_t n;
        struct json_object *pages; /* the daemon's answers; NULL: from files */
};

/* Those that overlap the query's range; with WHEN_DEFAULT all. STATUS_DONE, or STATUS_FAILED (said). */
int windows_read(const struct query *q, struct windows *ret);
void windows_free(struct windows *w);

/* The selected samples of one window. */
int windows_profile(const struct query *q, const struct window *w, struct profile **ret);

#endif
