#include "daemon/recorder.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/log.h"
#include "daemon/ledger.h"

#define FLUSH_MS    3000
#define OVERLONG_NS (10 * NSEC_PER_SEC) /* past its width: the wall clock was set back */

/* A window or a live collection, while it gathers. */
struct stretch {
        struct stretch *next; /* of the collections */
        struct recorder *recorder;
        struct api_request *request; /* NULL: a window */
        struct selection selection;
        struct counters before, after;
};

struct recorder {
        struct pipeline_parts parts;
        struct pipeline *pipeline;
        struct writer *writer;
        struct api *api;
        const struct budget *budget;
        struct ledger_host host;
        struct stretch *window, *collections;
        uint64_t window_ns;
        uint64_t window_end_ns; /* wall clock: a multiple of the window's width */
        uint64_t last_drain_ns;
};

int recorder_counters(struct recorder *r, struct counters *ret)
{
        return counters_read(ret, r->parts.sampler, r->parts.tracker, r->pipeline, r->parts.symbols,
                             r->writer);
}

static int stretch_new(struct recorder *r, struct stretch **ret)
{
        struct stretch *s = calloc(1, sizeof(*s));

        if (!s)
                return -ENOMEM;
        s->recorder = r;
        *ret = s;
        return 0;
}

/* -- what has ended -- */

static void on_ended(void *ctx, void *user)
{
        struct stretch *s = user;

        if (recorder_counters(s->recorder, &s->after) < 0)
                s->after = s->before;
}

static void finish_window(struct recorder *r, struct profile *p, uint64_t samples)
{
        if (writer_put(r->writer, p, samples) < 0)
                log_error("the store has not kept up for minutes: a window of %" PRIu64 " samples is lost",
                          samples);
}

static void forget_collection(struct recorder *r, struct stretch *gone)
{
        for (struct stretch **at = &r->collections; *at; at = &(*at)->next)
                if (*at == gone) {
                        *at = gone->next;
                        return;
                }
}

static void finish_collection(struct recorder *r, struct stretch *s, struct profile *p)
{
        struct profile *selected = NULL;

        int err = selection_apply(&s->selection, p, &selected);
        profile_free(p);
        api_answer(r->api, s->request, selected, err,
                   err == -ENOENT ? "this event is not sampled; /api/v1/status names those that are"
                   : err < 0      ? "profd ran out of memory for this profile"
                                  : NULL);
}

static int complete(struct recorder *r, const struct stretch *s, struct profile *p, uint64_t start_ns,
                    uint64_t duration_ns)
{
        int64_t type = profile_string(p, "cpu"), unit = profile_string(p, "nanoseconds");

        if (type < 0 || unit < 0)
                return -ENOMEM;
        p->time_ns = (int64_t)start_ns;
        p->duration_ns = (int64_t)duration_ns;
        p->period = (int64_t)(NSEC_PER_SEC / r->budget->frequency);
        p->period_type = (struct profile_value_type){(uint32_t)type, (uint32_t)unit};
        return ledger_add(p, &r->host, r->parts.sampler, r->budget, &s->before, &s->after);
}

static void on_done(void *ctx, void *user, struct profile *p, int err, uint64_t start_ns,
                    uint64_t duration_ns, uint64_t samples)
{
        struct recorder *r = ctx;
        _cleanup_free_ struct stretch *s = user;

        if (s->request)
                forget_collection(r, s);
        if (err >= 0) {
                err = complete(r, s, p, start_ns, duration_ns);
                if (err < 0)
                        p = profile_free(p);
        }
        if (err < 0) {
                log_error("cannot make a profile of %" PRIu64 " samples: %s", samples, strerror(-err));
                if (s->request)
                        api_answer(r->api, s->request, NULL, err,
                                   "profd ran out of memory for this profile");
        } else if (s->request)
                finish_collection(r, s, p);
        else
                finish_window(r, p, samples);
}

static const struct pipeline_ops pipeline_ops = {.ended = on_ended, .done = on_done};

/* -- windows -- */

static uint64_t next_boundary(uint64_t now_ns, uint64_t width_ns)
{
        return (now_ns / width_ns + 1) * width_ns;
}

static int end_window(struct recorder *r)
{
        struct stretch *next, *ended = r->window;

        int err = stretch_new(r, &next);
        if (err < 0)
                return err;
        err = pipeline_end_window(r->pipeline, next);
        if (err < 0) {
                free(next);
                return err;
        }
        next->before = ended->after;
        r->window = next;
        r->window_end_ns = next_boundary(now_realtime_ns(), r->window_ns);
        return 0;
}

/* The wall clock says when a window ends, so that windows of all hosts begin at the same instants; after a
 * clock step its age does. */
static bool window_is_over(const struct recorder *r)
{
        uint64_t now = now_realtime_ns();

        return now >= r->window_end_ns || now < pipeline_window_start_ns(r->pipeline) ||
               pipeline_window_age_ns(r->pipeline) >= r->window_ns + OVERLONG_NS;
}

uint64_t recorder_next_drain(const struct recorder *r, uint64_t most_ns)
{
        uint64_t now = now_realtime_ns();

        return MIN_OF(most_ns, r->window_end_ns > now ? r->window_end_ns - now : NSEC_PER_MSEC);
}

uint64_t recorder_last_drain_ns(const struct recorder *r)
{
        return r->last_drain_ns;
}

int recorder_poll(struct recorder *r)
{
        return pipeline_poll(r->pipeline);
}

int recorder_drain(struct recorder *r)
{
        int err = pipeline_drain(r->pipeline);

        if (err < 0)
                return err;
        r->last_drain_ns = now_monotonic_ns();
        if (!window_is_over(r))
                return 0;
        err = end_window(r);
        if (err < 0)
                log_error("cannot end the window: %s; it goes on", strerror(-err));
        return 0;
}

int recorder_tick(struct recorder *r)
{
        return pipeline_tick(r->pipeline);
}

/* -- collections -- */

static int begin_collection(struct recorder *r, struct api_request *request, const struct api_collect *what)
{
        struct stretch *s;

        int err = stretch_new(r, &s);
        if (err < 0)
                return err;
        s->request = request;
        s->selection = what->selection;
        err = pipeline_collect(r->pipeline, what, s);
        if (err < 0) {
                free(s);
                return err;
        }
        if (recorder_counters(r, &s->before) < 0)
                s->before = r->window->before;
        s->next = r->collections;
        r->collections = s;
        return 0;
}

void recorder_collect(struct recorder *r, struct api_request *request, const struct api_collect *what)
{
        int err = begin_collection(r, request, what);

        if (err < 0)
                api_answer(r->api, request, NULL, err,
                           err == -ESRCH   ? "there is no such process"
                           : err == -EBUSY ? "too many collections run already: try again later"
                                           : "profd cannot begin a collection now");
}

/* The API knows a collection by its request, the pipeline by its stretch. */
void recorder_cancel(struct recorder *r, struct api_request *request)
{
        for (struct stretch *s = r->collections; s; s = s->next)
                if (s->request == request) {
                        pipeline_cancel(r->pipeline, s);
                        forget_collection(r, s);
                        free(s);
                        return;
                }
}

/* -- begin and end -- */

void recorder_set_api(struct recorder *r, struct api *api)
{
        r->api = api;
}

void recorder_finish(struct recorder *r)
{
        int err = pipeline_drain(r->pipeline);

        if (err >= 0)
                err = end_window(r);
        if (err < 0)
                log_error("the last window is incomplete: %s", strerror(-err));
        pipeline_flush(r->pipeline, FLUSH_MS);
}

int recorder_new(struct recorder **ret, const struct pipeline_parts *parts, struct writer *writer,
                 const struct budget *budget, uint64_t window_ns)
{
        struct recorder *r = calloc(1, sizeof(*r));

        if (!r)
                return -ENOMEM;
        *r = (struct recorder){.parts = *parts, .writer = writer, .budget = budget, .window_ns = window_ns};
        ledger_host(&r->host);
        int err = stretch_new(r, &r->window);
        if (err >= 0)
                err = pipeline_new(&r->pipeline, parts, &pipeline_ops, r, r->window);
        if (err >= 0)
                err = recorder_counters(r, &r->window->before);
        if (err < 0) {
                recorder_free(r);
                return err;
        }
        r->last_drain_ns = now_monotonic_ns();
        r->window_end_ns = next_boundary(now_realtime_ns(), window_ns);
        *ret = r;
        return 0;
}

struct recorder *recorder_free(struct recorder *r)
{
        if (!r)
                return NULL;
        pipeline_free(r->pipeline);
        while (r->collections) {
                struct stretch *s = r->collections;
                r->collections = s->next;
                free(s);
        }
        free(r->window);
        free(r);
        return NULL;
}
