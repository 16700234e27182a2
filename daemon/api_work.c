/* The pool's work: a profile from the store or from the sampler, confined, shaped and encoded. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "daemon/api_internal.h"
#include "profile/pprof.h"

/* Collectors make a series of each set of string labels; pid and thread ID are numbers and make none. */
#define SCRAPE_LABELS "comm,unit,container_id,pid,thread_id"
#define MIN_SAMPLES   16u

static const char *labels_of(const struct api_request *r)
{
        if (r->query.labels)
                return strcmp(r->query.labels, "all") == 0 ? NULL : r->query.labels;
        return r->route == ROUTE_SCRAPE ? SCRAPE_LABELS : NULL;
}

static int measure(const struct profile *p, uint64_t *ret)
{
        _cleanup_buf_ struct buf b = {0};
        int r = pprof_write(p, false, &b);

        *ret = b.len;
        return r;
}

/* Confines the profile to the peer and shapes it; fewer samples until it is small enough. */
static int shape(struct api_request *r, const struct profile *p, struct profile **ret)
{
        struct api_shape how = {
                        .peer = &r->peer, .labels = labels_of(r), .max_samples = r->query.max_samples};

        for (;;) {
                _cleanup_profile_ struct profile *shaped = NULL;
                uint64_t size = 0, max = r->query.max_bytes;
                int e = api_shape(p, &how, &shaped);
                if (e >= 0 && max)
                        e = measure(shaped, &size);
                if (e < 0)
                        return e;
                uint32_t n = shaped->n_samples;
                if (size <= max || n <= MIN_SAMPLES) {
                        *ret = TAKE_PTR(shaped);
                        return 0;
                }
                /* Stacks share functions and strings, so the size falls more slowly than the samples. */
                n = (uint32_t)MIN_OF((uint64_t)n * 9 / 10,
                                     (uint64_t)((double)n * (double)max / (double)size));
                how.max_samples = MAX_OF(n, MIN_SAMPLES);
        }
}

static bool is_shaped(const struct api_request *r)
{
        return !r->peer.all || labels_of(r) || r->query.max_samples || r->query.max_bytes;
}

static void reply_profile(struct api_request *r, const struct profile *p)
{
        _cleanup_profile_ struct profile *shaped = NULL;
        _cleanup_buf_ struct buf b = {0};

        int e = is_shaped(r) ? shape(r, p, &shaped) : 0;
        if (e >= 0)
                e = pprof_write(shaped ? shaped : p, true, &b);
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

        int e = store_query(r->api->store, r->query.since_ns, r->query.until_ns, &r->query.selection, &p);
        if (e == -ENODATA)
                reply_no_window(r);
        else if (e < 0)
                api_reply_error(r, e, NULL);
        else
                reply_profile(r, p);
}

void api_work(struct api_request *r)
{
        _cleanup_profile_ struct profile *live = TAKE_PTR(r->profile);

        if (live)
                reply_profile(r, live);
        else if (r->route == ROUTE_WINDOWS)
                api_windows(r);
        else if (r->route == ROUTE_WINDOW)
                api_window(r);
        else
                query(r);
}
