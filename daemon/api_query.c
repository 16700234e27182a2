/* The parameters of a request. What is not known is refused, so that a misspelt filter never means
 * "everything". */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/parse.h"
#include "daemon/api_internal.h"

#define MIN_COLLECT_NS   (100 * NSEC_PER_MSEC)
#define DEFAULT_SCRAPE_S 30 /* as Go's net/http/pprof */
#define MAX_WINDOWS      10000u
#define DEFAULT_WINDOWS  1000u

enum { ON_SCRAPE = 1 << ROUTE_SCRAPE, ON_PROFILE = 1 << ROUTE_PROFILE, ON_WINDOWS = 1 << ROUTE_WINDOWS };

struct seen {
        bool seconds, since, until, last, follow;
        uint64_t last_ns, now_ns;
};

typedef int (*read_fn)(struct api_query *q, struct seen *seen, const char *value);

/* RFC 3339 or seconds since the epoch: what means the same in every zone. */
static int read_time(const char *value, uint64_t now_ns, uint64_t *ret)
{
        char text[64];
        size_t n = strlen(value);

        if (n == 0 || n + 2 > sizeof(text))
                return -EINVAL;
        if (value[strspn(value, "0123456789.")] == 0)
                snprintf(text, sizeof(text), "@%s", value);
        else if (isdigit((unsigned char)value[0]) && n > 10 && value[10] == 'T')
                memcpy(text, value, n + 1);
        else
                return -EINVAL;
        /* A '+' that was not escaped arrives as a space. */
        char *space = strchr(text, ' ');
        if (space)
                *space = '+';
        return parse_time(text, now_ns, ret);
}

static int read_seconds(struct api_query *q, struct seen *seen, const char *value)
{
        int r = parse_duration(value, &q->duration_ns);

        seen->seconds = true;
        return r < 0                                                                    ? r
               : q->duration_ns < MIN_COLLECT_NS || q->duration_ns > API_MAX_COLLECT_NS ? -ERANGE
                                                                                        : 0;
}

static int read_since(struct api_query *q, struct seen *seen, const char *value)
{
        seen->since = true;
        return read_time(value, seen->now_ns, &q->since_ns);
}

static int read_until(struct api_query *q, struct seen *seen, const char *value)
{
        seen->until = true;
        return read_time(value, seen->now_ns, &q->until_ns);
}

static int read_last(struct api_query *q, struct seen *seen, const char *value)
{
        seen->last = true;
        return parse_duration(value, &seen->last_ns);
}

static int read_follow(struct api_query *q, struct seen *seen, const char *value)
{
        uint64_t pid;
        int r = parse_u64(value, 1, INT32_MAX, &pid);

        seen->follow = true;
        q->follow = r < 0 ? 0 : (uint32_t)pid;
        return r;
}

static int read_threads(struct api_query *q, struct seen *seen, const char *value)
{
        int r = parse_bool(value);

        q->threads = r > 0;
        return r < 0 ? r : 0;
}

static int read_labels(struct api_query *q, struct seen *seen, const char *value)
{
        q->labels = value;
        return 0;
}

static int read_max_samples(struct api_query *q, struct seen *seen, const char *value)
{
        uint64_t n;
        int r = parse_u64(value, 0, UINT32_MAX, &n);

        if (r == 0)
                q->max_samples = (uint32_t)n;
        return r;
}

static int read_max_bytes(struct api_query *q, struct seen *seen, const char *value)
{
        return parse_size(value, &q->max_bytes);
}

static int read_after(struct api_query *q, struct seen *seen, const char *value)
{
        q->after = *value ? value : NULL;
        return 0;
}

static int read_limit(struct api_query *q, struct seen *seen, const char *value)
{
        uint64_t n;
        int r = parse_u64(value, 1, MAX_WINDOWS, &n);

        if (r == 0)
                q->limit = (uint32_t)n;
        return r;
}

/* Go's clients send these to every profile; they have no meaning here. */
static int ignore(struct api_query *q, struct seen *seen, const char *value)
{
        return 0;
}

static const struct {
        const char *name;
        unsigned routes;
        read_fn read;
        const char *wants;
} known[] = {
                {"seconds", ON_SCRAPE | ON_PROFILE, read_seconds, "a time from 100ms to 1h"},
                {"since", ON_PROFILE | ON_WINDOWS, read_since,
                 "a time as 2026-12-01T02:10:00Z or in seconds since 1970"},
                {"until", ON_PROFILE | ON_WINDOWS, read_until,
                 "a time as 2026-12-01T02:10:00Z or in seconds since 1970"},
                {"last", ON_PROFILE | ON_WINDOWS, read_last, "a time span as 5min"},
                {"follow", ON_PROFILE, read_follow, "a process ID"},
                {"threads", ON_SCRAPE | ON_PROFILE, read_threads, "1 or 0"},
                {"labels", ON_SCRAPE | ON_PROFILE, read_labels,
                 "names of labels, separated by commas, or all"},
                {"max_samples", ON_SCRAPE | ON_PROFILE, read_max_samples, "a number, 0 for no limit"},
                {"max_bytes", ON_SCRAPE | ON_PROFILE, read_max_bytes, "a size as 4M, 0 for no limit"},
                {"after", ON_WINDOWS, read_after, "the ID of a window"},
                {"limit", ON_WINDOWS, read_limit, "a number from 1 to 10000"},
                {"debug", ON_SCRAPE, ignore, ""},
                {"gc", ON_SCRAPE, ignore, ""},
};

static int add_param(struct api_query *q, const char *name, const char *value)
{
        struct api_param p = {.name = strdup(name), .value = strdup(value ? value : "")};

        if (q->n_params == API_MAX_PARAMS || !p.name || !p.value) {
                free(p.name);
                free(p.value);
                return -E2BIG;
        }
        q->param[q->n_params++] = p;
        return 0;
}

struct collect_params {
        struct api_query *query;
        int error;
};

static enum MHD_Result on_param(void *cls, enum MHD_ValueKind kind, const char *name, const char *value)
{
        struct collect_params *p = cls;

        p->error = add_param(p->query, name, value);
        return p->error < 0 ? MHD_NO : MHD_YES;
}

static int read_param(struct api_query *q, struct seen *seen, enum api_route route,
                      const struct api_param *p, char *why, size_t size)
{
        for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
                if (strcmp(p->name, known[i].name) != 0 || !(known[i].routes & 1u << route))
                        continue;
                if (known[i].read(q, seen, p->value) == 0)
                        return 0;
                snprintf(why, size, "%s=%.100s: not %s", p->name, p->value, known[i].wants);
                return -EINVAL;
        }
        int r = route == ROUTE_SCRAPE || route == ROUTE_PROFILE
                                ? selection_set(&q->selection, p->name, p->value)
                                : -ENOENT;
        if (r == -ENOENT)
                snprintf(why, size, "%.100s: there is no such parameter here", p->name);
        else if (r < 0)
                snprintf(why, size, "%s=%.100s: not a value for it", p->name, p->value);
        return r < 0 ? -EINVAL : 0;
}

/* What the parameters say together. */
static int check_times(struct api_query *q, const struct seen *seen, enum api_route route, char *why,
                       size_t size)
{
        bool stored = seen->since || seen->until || seen->last;

        if (seen->last) {
                q->since_ns = seen->now_ns - MIN_OF(seen->now_ns, seen->last_ns);
                q->until_ns = seen->now_ns;
        }
        if (stored && (seen->seconds || seen->follow)) {
                snprintf(why, size,
                         "seconds= and follow= are for samples from now on; since=, until= and last= for "
                         "stored ones; not both");
                return -EINVAL;
        }
        if (seen->last && (seen->since || seen->until)) {
                snprintf(why, size, "last= is instead of since= and until=");
                return -EINVAL;
        }
        if (q->since_ns >= q->until_ns) {
                snprintf(why, size, "since= is not before until=");
                return -EINVAL;
        }
        if (route == ROUTE_PROFILE && !stored && !seen->seconds && !seen->follow) {
                snprintf(why, size,
                         "say when: seconds=10 for samples from now on, last=5min or since= and until= for "
                         "stored ones");
                return -EINVAL;
        }
        q->live = route == ROUTE_SCRAPE || seen->seconds || seen->follow;
        return 0;
}

int api_query_read(struct api_request *r, struct MHD_Connection *c, char *why, size_t size)
{
        struct api_query *q = &r->query;
        struct seen seen = {.now_ns = now_realtime_ns()};
        struct collect_params p = {.query = q};

        q->selection = selection_any();
        q->until_ns = INT64_MAX;
        q->limit = DEFAULT_WINDOWS;
        if (r->route == ROUTE_SCRAPE) {
                q->duration_ns = DEFAULT_SCRAPE_S * NSEC_PER_SEC;
                q->max_samples = API_SCRAPE_SAMPLES;
                q->max_bytes = API_SCRAPE_BYTES;
        }
        MHD_get_connection_values(c, MHD_GET_ARGUMENT_KIND, on_param, &p);
        if (p.error < 0) {
                snprintf(why, size, "more than %d parameters", API_MAX_PARAMS);
                return -EINVAL;
        }
        for (uint32_t i = 0; i < q->n_params; i++)
                if (read_param(q, &seen, r->route, &q->param[i], why, size) < 0)
                        return -EINVAL;
        return check_times(q, &seen, r->route, why, size);
}

void api_query_free(struct api_query *q)
{
        for (uint32_t i = 0; i < q->n_params; i++) {
                free(q->param[i].name);
                free(q->param[i].value);
        }
}
