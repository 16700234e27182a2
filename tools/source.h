/* Where a command's profile comes from: the daemon or files, always through the same selection. */
#ifndef TOOLS_SOURCE_H
#define TOOLS_SOURCE_H

#include <json-c/json.h>

#include "profile/profile.h"
#include "tools/query.h"

/* The selected profile, perhaps without any sample. STATUS_DONE, or STATUS_FAILED (said). */
int source_profile(const struct query *q, struct profile **ret);

/* Goes through the query's files, and those in its directories. Stops at a status that is not STATUS_DONE.
 */
typedef int (*source_file_fn)(const struct query *q, const char *path, void *ctx);
int source_each_file(const struct query *q, source_file_fn fn, void *ctx);
/* One file's profile, all of it; NULL when it lies outside the query's range. */
int source_file(const struct query *q, const char *path, struct profile **ret);

/* For a program that has a screen: a request that can be given up, and that says nothing on stderr. */
struct source_how {
        int abort_fd;      /* 0: none */
        struct buf *error; /* NULL: stderr */
        bool quiet;        /* does not say that it collects */
};
int source_profile_how(const struct query *q, const struct source_how *how, struct profile **ret);
int source_json_how(const struct query *q, const char *path, const struct source_how *how,
                    struct json_object **ret);

/* Says that the selection has no samples, and what range has some. Returns STATUS_DONE: that is no failure.
 */
int source_say_empty(const struct query *q);

/* A JSON document of the daemon's; released with json_object_put(). */
int source_json(const struct query *q, const char *path, struct json_object **ret);

static inline void json_put_cleanup(struct json_object **j)
{
        json_object_put(*j);
}
#define _cleanup_json_ _cleanup_(json_put_cleanup)

/* A member as a number or text; `otherwise` when there is none. A path of members: "store.oldest_ns". */
struct json_object *json_at(struct json_object *j, const char *path);
uint64_t json_at_u64(struct json_object *j, const char *path, uint64_t otherwise);
double json_at_double(struct json_object *j, const char *path, double otherwise);
const char *json_at_text(struct json_object *j, const char *path, const char *otherwise);

#endif
