#include "daemon/recorder.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/log.h"
#include "daemon/journal.h"
#include "daemon/ledger.h"

#define FLUSH_MS    3000
#define OVERLONG_NS (10 * NSEC_PER_SEC) /* past its width: the wall clock was set back */

/* A window or a live collection, while it gathers. */
struct stretch {
        struct stretch *next; /* of the collections */
        struct recorder *recorder;
        struct api_request *request; /* NULL: a window */
        struct selection selection;
        uint32_t lowest; /* rate in it, Hz */
        struct counters before, after;
        struct kept_window *kept; /* NULL: a collection, or nothing is kept */
};

/* A window that is not stored yet. */
struct kept_window {
        struct kept_window *next;      /* the next that began */
        struct journal *journal;       /* NULL: could not be had */
        uint64_t put;                  /* it was the so manieth that the writer got; 0: not yet */
        uint64_t before[ABI_STAT_MAX]; /* of sampler_stats(), when it began */
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

        struct keep *keep; /* NULL: nothing outlives us */
        struct kept_head *head;
        size_t journal_bytes;
        uint32_t n_journals;      /* ever */
        struct kept_window *kept; /* oldest first */
        uint64_t put;             /* windows that the writer got */
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
        s->lowest = r->budget->frequency;
        *ret = s;
        return 0;
}

/* -- what outlives us -- */

static void on_stack(void *ctx, uint64_t hash, const uint64_t *frame, uint32_t n)
{
        struct recorder *r = ctx;

        if (r->window->kept && r->window->kept->journal)
                journal_stack(r->window->kept->journal, hash, frame, n);
}

/* The samples of a window that begins now are journalled from here on, if that can be had. */
static void keep_window(struct recorder *r, struct stretch *s, uint64_t start_ns, uint64_t start_real_ns)
{
        struct kept_window *k, **end = &r->kept;

        if (!r->keep)
                return;
        k = calloc(1, sizeof(*k));
        if (!k)
                return;
        memcpy(k->before, s->before.stat, sizeof(k->before));
        if (journal_new(&k->journal, r->keep, ++r->n_journals, r->journal_bytes) ==
            0) { /* else said there */
                struct journal_head *h = journal_head(k->journal);
                memcpy(h->before, s->before.stat, sizeof(h->before));
                h->start_ns = start_ns;
                h->start_real_ns = start_real_ns;
        }
        while (*end)
                end = &(*end)->next;
        *end = s->kept = k;
}

/* Up to where all is stored. The samples taken go last: they tell that the rest is there. */
static void note_stored(struct recorder *r)
{
        const uint64_t *stored = r->kept ? r->kept->before : r->window->before.stat;

        if (!r->keep)
                return;
        for (int i = ABI_STAT_MAX - 1; i >= 0; i--)
                __atomic_store_n(&r->head->stored[i], stored[i], __ATOMIC_RELEASE);
        /* What was carried over came in before the kernel half's first, whenever it was added. */
        uint64_t carried = r->head->added[ABI_STAT_TAKEN];
        r->head->stored_taken = stored[ABI_STAT_TAKEN] - MIN_OF(stored[ABI_STAT_TAKEN], carried);
}

static void kept_window_free(struct kept_window *k, bool leave)
{
        if (leave)
                journal_leave(k->journal);
        else
                journal_free(k->journal);
        free(k);
}

/* Windows that the writer is through with need no journal. */
static void forget_stored(struct recorder *r)
{
        struct kept_window *gone = NULL;
        struct writer_stats w;

        if (!r->kept)
                return;
        writer_stats(r->writer, &w);
        for (struct kept_window **at = &r->kept; *at;) {
                struct kept_window *k = *at;
                if (k->put && k->put <= w.finished) {
                        *at = k->next;
                        k->next = gone;
                        gone = k;
                } else
                        at = &k->next;
        }
        note_stored(r);
        while (gone) {
                struct kept_window *k = gone;
                gone = k->next;
                kept_window_free(k, false);
        }
}

int recorder_keep(struct recorder *r, struct keep *keep, struct kept_head *head, size_t bytes)
{
        r->keep = keep;
        r->head = head;
        r->journal_bytes = bytes;
        sampler_on_stack(r->parts.sampler, on_stack, r);
        keep_window(r, r->window, now_monotonic_ns(), now_realtime_ns());
        note_stored(r);
        return 0;
}

void recorder_resume(struct recorder *r, uint64_t start_ns, uint64_t start_real_ns,
                     const uint64_t stat[ABI_STAT_MAX])
{
        sampler_carry(r->parts.sampler, stat);
        pipeline_resume(r->pipeline, start_ns, start_real_ns);
        if (r->window->kept && r->window->kept->journal) {
                struct journal_head *h = journal_head(r->window->kept->journal);
                h->start_ns = MIN_OF(h->start_ns, start_ns);
                h->start_real_ns = MIN_OF(h->start_real_ns, start_real_ns);
        }
}

int recorder_row(void *recorder, const struct sample_row *row)
{
        struct recorder *r = recorder;

        return pipeline_row(r->pipeline, row);
}

void recorder_raw(void *recorder, const struct abi_raw *raw, const uint64_t *kernel, uint32_t n_kernel)
{
        struct recorder *r = recorder;

        pipeline_raw(r->pipeline, raw, kernel, n_kernel);
}

int recorder_past(struct recorder *r, uint64_t start_real_ns, uint64_t duration_ns,
                  const uint64_t stat[ABI_STAT_MAX])
{
        struct stretch *s;

        int err = stretch_new(r, &s);
        if (err < 0)
                return err;
        err = recorder_counters(r, &s->before);
        if (err >= 0)
                err = pipeline_past(r->pipeline, s, start_real_ns, duration_ns);
        if (err < 0) {
                free(s);
                return err;
        }
        s->after = s->before;
        for (int i = 0; i < ABI_STAT_MAX; i++) {
                s->after.stat[i] += stat[i];
                r->window->before.stat[i] += stat[i]; /* they are not of the window that goes on */
        }
        sampler_carry(r->parts.sampler, stat);
        keep_window(r, s, now_monotonic_ns() - duration_ns, start_real_ns);
        if (s->kept && s->kept->journal) {
                struct journal_head *h = journal_head(s->kept->journal);
                memcpy(h->after, s->after.stat, sizeof(h->after));
                h->end_ns = h->start_ns + duration_ns;
        }
        return 0;
}

int recorder_past_row(void *recorder, const struct sample_row *row)
{
        struct recorder *r = recorder;

        return pipeline_past_row(r->pipeline, row);
}

int recorder_take_deferred(struct recorder *r)
{
        return r->keep ? pipeline_take_deferred(r->pipeline) : 0;
}

static void on_row(void *ctx, void *user, const struct sample_row *row)
{
        struct stretch *s = user;

        if (s->kept && s->kept->journal)
                journal_add(s->kept->journal, row);
}

/* -- what has ended -- */

static void on_ended(void *ctx, void *user)
{
        struct stretch *s = user;

        if (recorder_counters(s->recorder, &s->after) < 0)
                s->after = s->before;
        else
                sampler_stats_drained(s->recorder->parts.sampler, s->after.stat);
        if (s->kept && s->kept->journal) {
                struct journal_head *h = journal_head(s->kept->journal);
                memcpy(h->after, s->after.stat, sizeof(h->after));
                __atomic_store_n(&h->end_ns, now_monotonic_ns(), __ATOMIC_RELEASE);
        }
}

static void finish_window(struct recorder *r, struct stretch *s, struct profile *p, uint64_t samples)
{
        int err = writer_put(r->writer, p, samples);

        if (err < 0)
                log_error("the store has not kept up for minutes: a window of %" PRIu64 " samples is lost",
                          samples);
        else
                r->put++;
        if (s->kept)
                s->kept->put = r->put; /* of a lost one: goes with the one before */
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
        return ledger_add(p, &r->host, r->parts.sampler, r->budget, s->lowest, &s->before, &s->after);
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
                if (s->kept)
                        s->kept->put = MAX_OF(r->put, 1u); /* tried again it would fail again */
                if (s->request)
                        api_answer(r->api, s->request, NULL, err,
                                   "profd ran out of memory for this profile");
        } else if (s->request)
                finish_collection(r, s, p);
        else
                finish_window(r, s, p, samples);
}

static const struct pipeline_ops pipeline_ops = {.row = on_row, .ended = on_ended, .done = on_done};

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
        keep_window(r, next, now_monotonic_ns(), now_realtime_ns());
        sampler_each_stack(r->parts.sampler, on_stack, r);
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

static void note_rate(struct recorder *r)
{
        r->window->lowest = MIN_OF(r->window->lowest, r->budget->frequency);
        for (struct stretch *s = r->collections; s; s = s->next)
                s->lowest = MIN_OF(s->lowest, r->budget->frequency);
}

int recorder_drain(struct recorder *r)
{
        int err = pipeline_drain(r->pipeline);

        if (err < 0)
                return err;
        r->last_drain_ns = now_monotonic_ns();
        note_rate(r);
        forget_stored(r);
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
        if (r->keep) {
                writer_wait(r->writer);
                forget_stored(r);
        }
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
        if (r->kept)
                sampler_on_stack(r->parts.sampler, NULL, NULL);
        while (r->kept) {
                struct kept_window *k = r->kept;
                r->kept = k->next;
                kept_window_free(k, true);
        }
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
