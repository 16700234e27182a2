/* The pool's work: a profile from the store or from the sampler, confined, shaped and encoded. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "daemon/api_internal.h"
#include "profile/limit.h"
#include "profile/pprof.h"

/* Collectors make a series of each set of string labels; pid and thread ID are numbers and make none. */
#define SCRAPE_LABELS "comm,unit,container_id,pid,thread_id"

static const char *labels_of(const struct api_request *r)
{
        if (r->query.labels)
                return strcmp(r->query.labels, "all") == 0 ? NULL : r->query.labels;
        return r->route == ROUTE_SCRAPE ? SCRAPE_LABELS : NULL;
}

/* Whether the client wants to tell single processes apart. */
static bool wants_processes(const struct api_request *r)
{
        _cleanup_free_ char *copy = labels_of(r) ? strdup(labels_of(r)) : NULL;
        char *save = NULL;

        if (!copy)
                return true;
        for (char *k = strtok_r(copy, ",", &save); k; k = strtok_r(NULL, ",", &save))
                if (profile_is_process_label(k))
                        return true;
        return false;
}

static bool is_limited(const struct api_request *r)
{
        return r->query.max_samples || r->query.max_bytes;
}

/* Puts the profile that a step made in the place of the one it was made of. */
static int step(int r, struct profile **p, struct profile **made)
{
        if (r < 0)
                return r;
        profile_free(*p);
        *p = TAKE_PTR(*made);
        return 0;
}

/* What the client gets of a profile, in place: what it may see first. */
static int shape(struct api_request *r, struct profile **p)
{
        const char *labels = labels_of(r);
        struct profile *made = NULL;
        int e = 0;

        if (!r->peer.all)
                e = step(api_confine(*p, &r->peer, &made), p, &made);
        if (e == 0 && labels)
                e = step(api_reduce_labels(*p, labels, &made), p, &made);
        if (e == 0 && is_limited(r))
                e = step(profile_limit(*p, r->query.max_samples, r->query.max_bytes, &made), p, &made);
        return e;
}

static void reply_profile(struct api_request *r, struct profile **p)
{
        _cleanup_buf_ struct buf b = {0};

        int e = shape(r, p);
        if (e >= 0)
                e = pprof_write(*p, true, &b);
        if (e < 0)
                api_reply_error(r, e, "this profile cannot be made: not enough memory; ask for less");
        else
                api_reply_buf(r, MHD_HTTP_OK, "application/octet-stream", &b);
}

static void format_time(uint64_t ns, char ret[32])
{
        time_t t = (time_t)(ns / NSEC_PER_SEC);
        struct tm tm;

        if (!gmtime_r(&t, &tm) || strftime(ret, 32, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
                snprintf(ret, 32, "?");
}

static void reply_no_window(struct api_request *r)
{
        struct store_stats st;
        char oldest[32], newest[32];

        store_stats(r->api->store, &st);
        if (st.windows == 0) {
                api_reply_text(r, MHD_HTTP_NOT_FOUND, "there is no stored window yet");
                return;
        }
        format_time(st.oldest_ns, oldest);
        format_time(st.newest_ns, newest);
        api_reply_text(r, MHD_HTTP_NOT_FOUND,
                       "there is no stored window in this range; there are some from %s to %s", oldest,
                       newest);
}

static void query(struct api_request *r)
{
        _cleanup_profile_ struct profile *p = NULL;

        int e = store_query(r->api->store, r->query.since_ns, r->query.until_ns, &r->query.selection,
                            wants_processes(r), &p);
        if (e == -ENODATA)
                reply_no_window(r);
        else if (e == -ENOENT)
                api_reply_text(r, MHD_HTTP_NOT_FOUND,
                               "no stored window in this range has samples of %.100s; /api/v1/status names "
                               "the events that are sampled",
                               r->query.selection.event);
        else if (e < 0)
                api_reply_error(r, e, NULL);
        else
                reply_profile(r, &p);
}

void api_work(struct api_request *r)
{
        _cleanup_profile_ struct profile *live = TAKE_PTR(r->profile);

        if (live)
                reply_profile(r, &live);
        else if (r->route == ROUTE_WINDOWS)
                api_windows(r);
        else if (r->route == ROUTE_WINDOW)
                api_window(r);
        else
                query(r);
}
