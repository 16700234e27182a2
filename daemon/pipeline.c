#include "daemon/pipeline.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/log.h"
#include "daemon/labels.h"
#include "daemon/window.h"

#define SETTLE_WINDOW_NS     (10 * NSEC_PER_SEC)
#define SETTLE_COLLECTION_NS (1500 * NSEC_PER_MSEC) /* collectors wait 3 s over what they asked for */
#define SETTLE_LEAST_NS      (200 * NSEC_PER_MSEC)  /* deferred samples wait for tables */
#define TICK_MS              50
#define FOLLOW_TICK_MS       20
#define MAX_GATHERINGS       256
#define MIN_STALE            256 /* objects, before they are worth a new book */

/* A stretch of samples: the current window, one that settles, or a collection. */
struct gathering {
        struct gathering *next;
        struct window *window;
        void *user;
        bool collection;
        uint32_t number; /* of a window of ours, 1 and up; 0: a collection, or of a daemon before us */
        struct api_collect what;                  /* of a collection */
        uint32_t mark;                            /* of the process tree it follows; 0: none */
        uint64_t start_real_ns, start_ns, end_ns; /* end 0: not known yet */
        uint64_t stop_ns;                         /* settling: when it ended; 0: still gathering */
};

struct pipeline {
        struct pipeline_parts parts;
        struct pipeline_ops ops;
        void *ctx;
        struct labels *labels;
        struct book *book;
        struct gathering *current;    /* the window */
        struct gathering *gatherings; /* the rest */
        uint32_t n_gatherings;
        bool deferred_only; /* rows are of deferred samples: settling gatherings take them too */
        struct pipeline_stats stats;
};

static void gathering_free(struct pipeline *p, struct gathering *g)
{
        if (!g)
                return;
        if (g->mark)
                tracker_unfollow(p->parts.tracker, g->mark);
        window_free(g->window);
        free(g);
}

static int gathering_new(struct pipeline *p, void *user, struct gathering **ret)
{
        struct gathering *g = calloc(1, sizeof(*g));

        if (!g)
                return -ENOMEM;
        int r = window_new(&g->window, p->book, p->parts.sampler);
        if (r < 0) {
                free(g);
                return r;
        }
        g->user = user;
        g->start_real_ns = now_realtime_ns();
        g->start_ns = now_monotonic_ns();
        *ret = g;
        return 0;
}

/* -- rows -- */

static bool wants(struct pipeline *p, const struct gathering *g, const struct sample_row *row)
{
        if (!g->collection || (g->stop_ns && !p->deferred_only))
                return false;
        if (!g->what.peer.all && row->key->uid != g->what.peer.uid)
                return false;
        if (g->what.selection.pid >= 0 && row->key->tgid != (uint64_t)g->what.selection.pid)
                return false;
        if (!g->mark)
                return true;
        const struct process *process =
                        tracker_process(p->parts.tracker, row->key->tgid, row->key->start_ns);
        return process && (process->marks & g->mark);
}

/* The one window that a row is of: a deferred sample may come out after the end of its own. */
static struct gathering *window_of_row(struct pipeline *p, const struct sample_row *row)
{
        for (struct gathering *g = p->gatherings; g && row->window; g = g->next)
                if (g->number == row->window)
                        return g;
        return p->current;
}

int pipeline_row(void *pipeline, const struct sample_row *row)
{
        struct pipeline *p = pipeline;
        struct gathering *window = window_of_row(p, row);
        const struct process_labels *labels = labels_of(p->labels, row->key);

        p->stats.rows++;
        p->stats.samples += row->samples;
        if (!labels || window_add(window->window, row, labels) < 0) {
                p->stats.lost_memory += row->samples;
                return 0;
        }
        if (p->ops.row)
                p->ops.row(p->ctx, window->user, row);
        for (struct gathering *g = p->gatherings; g; g = g->next)
                if (wants(p, g, row) && window_add(g->window, row, labels) < 0)
                        g->end_ns = g->start_ns; /* out of memory: end it early, with what it has */
        return 0;
}

void pipeline_raw(void *pipeline, const struct abi_raw *raw, const uint64_t *kernel, uint32_t n_kernel)
{
        struct pipeline *p = pipeline;

        tracker_defer(p->parts.tracker, raw, kernel, n_kernel);
}

int pipeline_poll(struct pipeline *p)
{
        return sampler_poll(p->parts.sampler, pipeline_raw, p);
}

int pipeline_take_deferred(struct pipeline *p)
{
        p->deferred_only = true;
        int r = tracker_drain(p->parts.tracker, pipeline_row, p);
        p->deferred_only = false;
        return r;
}

int pipeline_drain(struct pipeline *p)
{
        int r;

        if (p->parts.kernel) {
                r = kernel_symbols_refresh(p->parts.kernel);
                if (r < 0)
                        log_warning("cannot read the kernel's symbols again: %s", strerror(-r));
        }
        r = tracker_poll(p->parts.tracker);
        if (r < 0)
                return r;
        r = sampler_drain(p->parts.sampler, pipeline_row, pipeline_raw, p);
        if (r < 0)
                return r;
        r = pipeline_take_deferred(p);
        if (r < 0)
                return r;
        tracker_drained(p->parts.tracker);
        labels_drained(p->labels);
        return book_request_names(p->book);
}

/* -- what a daemon before us had -- */

void pipeline_resume(struct pipeline *p, uint64_t start_ns, uint64_t start_real_ns)
{
        p->current->start_ns = MIN_OF(p->current->start_ns, start_ns);
        p->current->start_real_ns = MIN_OF(p->current->start_real_ns, start_real_ns);
}

int pipeline_past(struct pipeline *p, void *user, uint64_t start_real_ns, uint64_t duration_ns)
{
        struct gathering *g;

        int r = gathering_new(p, user, &g);
        if (r < 0)
                return r;
        g->start_real_ns = start_real_ns;
        g->stop_ns = g->end_ns = g->start_ns;
        g->start_ns -= MIN_OF(g->start_ns, duration_ns);
        g->next = p->gatherings;
        p->gatherings = g;
        return 0;
}

int pipeline_past_row(void *pipeline, const struct sample_row *row)
{
        struct pipeline *p = pipeline;
        const struct process_labels *labels = labels_of(p->labels, row->key);

        p->stats.rows++;
        p->stats.samples += row->samples;
        if (!labels || window_add(p->gatherings->window, row, labels) < 0)
                p->stats.lost_memory += row->samples;
        return 0;
}

/* -- windows -- */

/* Objects that are open for the book's sake alone: many that are of the past, or new ones lack descriptors.
 */
static bool is_in_the_way(const struct pipeline *p)
{
        struct tracker_stats t;

        tracker_stats(p->parts.tracker, &t);
        return (t.objects_lacking && t.objects_past > t.objects_open / 8) ||
               (t.objects_stale > MIN_STALE && t.objects_stale > t.objects_open / 4);
}

/* A book that has grown over its share, or whose names were made before debug information came or when they
 * could not be made, or that keeps too much open, is left to those that still use it. */
static int renew_book(struct pipeline *p)
{
        bool poor = book_is_poor(p->book) || symclient_look_again(p->parts.symbols) > 0;

        poor |= p->parts.kernel_debug && kernel_debug_seek(p->parts.kernel_debug) > 0;
        poor |= is_in_the_way(p);
        struct book *book;

        if (!poor && book_memory(p->book) <= p->parts.memory)
                return 0;
        int r = book_new(&book, p->parts.tracker, p->parts.symbols, p->parts.kernel, p->parts.kernel_debug);
        if (r < 0)
                return r;
        book_unref(p->book);
        p->book = book;
        return 0;
}

int pipeline_end_window(struct pipeline *p, void *next_user)
{
        struct gathering *next;

        symclient_make_room(p->parts.symbols); /* for the window */
        int r = renew_book(p);
        if (r >= 0)
                r = gathering_new(p, next_user, &next);
        if (r < 0)
                return r;
        p->current->stop_ns = next->start_ns;
        p->current->end_ns = next->start_ns;
        p->current->next = p->gatherings;
        p->gatherings = p->current;
        next->number = p->current->number + 1;
        p->current = next;
        tracker_window(p->parts.tracker, next->number);
        p->ops.ended(p->ctx, p->gatherings->user);
        return 0;
}

uint64_t pipeline_window_start_ns(const struct pipeline *p)
{
        return p->current->start_real_ns;
}

uint64_t pipeline_window_age_ns(const struct pipeline *p)
{
        return now_monotonic_ns() - p->current->start_ns;
}

/* -- collections -- */

int pipeline_collect(struct pipeline *p, const struct api_collect *what, void *user)
{
        struct gathering *g;

        if (p->n_gatherings >= MAX_GATHERINGS)
                return -EBUSY;
        int r = pipeline_drain(p);
        if (r >= 0)
                r = gathering_new(p, user, &g);
        if (r < 0)
                return r;
        if (what->follow_pid)
                r = tracker_follow(p->parts.tracker, what->follow_pid, &g->mark);
        if (r < 0) {
                gathering_free(p, g);
                return r;
        }
        g->collection = true;
        g->what = *what;
        g->end_ns = what->duration_ns ? g->start_ns + what->duration_ns : 0;
        g->next = p->gatherings;
        p->gatherings = g;
        p->n_gatherings++;
        return 0;
}

void pipeline_cancel(struct pipeline *p, void *user)
{
        for (struct gathering **at = &p->gatherings; *at; at = &(*at)->next) {
                struct gathering *g = *at;
                if (g->user != user)
                        continue;
                *at = g->next;
                p->n_gatherings--;
                gathering_free(p, g);
                return;
        }
}

static bool is_due(struct pipeline *p, const struct gathering *g, uint64_t now)
{
        if (g->stop_ns)
                return false;
        if (g->end_ns)
                return now >= g->end_ns;
        const struct process *root = tracker_process(p->parts.tracker, g->what.follow_pid, 0);
        return !root || root->exited;
}

static bool is_settled(struct pipeline *p, const struct gathering *g, uint64_t now)
{
        if (!g->stop_ns)
                return false;
        uint64_t waited = now - g->stop_ns, most = g->collection ? SETTLE_COLLECTION_NS : SETTLE_WINDOW_NS;

        return waited >= most || (waited >= SETTLE_LEAST_NS && book_unnamed(window_book(g->window)) == 0 &&
                                  tracker_oldest_window(p->parts.tracker) > g->number);
}

static void hand_over(struct pipeline *p, struct gathering *g)
{
        const struct window_totals *totals = window_totals(g->window);
        struct profile *profile = NULL;
        uint64_t samples = 0;

        for (int i = 0; i < ABI_MAX_EVENTS; i++)
                samples += totals->samples[i];
        int r = window_profile(g->window, &profile);
        if (g->collection)
                p->n_gatherings--;
        p->ops.done(p->ctx, g->user, profile, r, g->start_real_ns, g->stop_ns - g->start_ns, samples);
        gathering_free(p, g);
}

/* Takes off the list what is settled, oldest (last in the list) first. */
static void hand_over_settled(struct pipeline *p, uint64_t now)
{
        struct gathering *ready = NULL;

        for (struct gathering **at = &p->gatherings; *at;) {
                struct gathering *g = *at;
                if (is_settled(p, g, now)) {
                        *at = g->next;
                        g->next = ready;
                        ready = g;
                } else
                        at = &g->next;
        }
        while (ready) {
                struct gathering *g = ready;
                ready = g->next;
                hand_over(p, g);
        }
}

int pipeline_tick(struct pipeline *p)
{
        uint64_t now = now_monotonic_ns();
        bool due = false, settling = false, following = false;
        uint64_t soonest = UINT64_MAX;

        for (struct gathering *g = p->gatherings; g; g = g->next) {
                following |= !g->stop_ns && !g->end_ns;
                settling |= g->stop_ns != 0;
        }
        if (following)
                tracker_poll(p->parts.tracker);
        for (struct gathering *g = p->gatherings; g; g = g->next)
                due |= is_due(p, g, now);
        if (due && pipeline_drain(p) < 0)
                log_error("cannot drain the samples of a collection that ended");
        if (due) {
                now = now_monotonic_ns();
                for (struct gathering *g = p->gatherings; g; g = g->next)
                        if (is_due(p, g, now)) {
                                g->stop_ns = now;
                                settling = true;
                                p->ops.ended(p->ctx, g->user);
                        }
        }
        if (settling) {
                pipeline_take_deferred(p);
                book_request_names(p->book);
                hand_over_settled(p, now);
        }
        for (struct gathering *g = p->gatherings; g; g = g->next)
                if (g->stop_ns)
                        return TICK_MS;
                else if (!g->end_ns)
                        soonest = MIN_OF(soonest, FOLLOW_TICK_MS * NSEC_PER_MSEC);
                else
                        soonest = MIN_OF(soonest, g->end_ns > now ? g->end_ns - now : 0);
        return soonest == UINT64_MAX ? -1 : (int)(soonest / NSEC_PER_MSEC) + 1;
}

void pipeline_flush(struct pipeline *p, int timeout_ms)
{
        uint64_t deadline = now_monotonic_ns() + (uint64_t)timeout_ms * NSEC_PER_MSEC;

        do {
                if (tracker_poll(p->parts.tracker) < 0)
                        break;
                pipeline_take_deferred(p);
                book_request_names(p->book);
                if (!book_unnamed(p->book) && tracker_oldest_window(p->parts.tracker) == UINT32_MAX)
                        break;
                (void)symclient_wait(p->parts.symbols, TICK_MS); /* gone: what has come is what there is */
        } while (now_monotonic_ns() < deadline);
        hand_over_settled(p, UINT64_MAX);
}

void pipeline_stats(const struct pipeline *p, struct pipeline_stats *ret)
{
        *ret = p->stats;
        ret->collections = p->n_gatherings;
        ret->memory = book_memory(p->book) + window_memory(p->current->window);
        for (const struct gathering *g = p->gatherings; g; g = g->next)
                ret->memory += window_memory(g->window);
}

int pipeline_new(struct pipeline **ret, const struct pipeline_parts *parts, const struct pipeline_ops *ops,
                 void *ctx, void *window_user)
{
        struct pipeline *p = calloc(1, sizeof(*p));
        int r;

        if (!p)
                return -ENOMEM;
        *p = (struct pipeline){.parts = *parts, .ops = *ops, .ctx = ctx};
        r = labels_new(&p->labels, parts->tracker);
        if (r >= 0)
                r = book_new(&p->book, parts->tracker, parts->symbols, parts->kernel, parts->kernel_debug);
        if (r >= 0)
                r = gathering_new(p, window_user, &p->current);
        if (r < 0) {
                pipeline_free(p);
                return r;
        }
        p->current->number = 1;
        tracker_window(parts->tracker, 1);
        *ret = p;
        return 0;
}

struct pipeline *pipeline_free(struct pipeline *p)
{
        if (!p)
                return NULL;
        while (p->gatherings) {
                struct gathering *g = p->gatherings;
                p->gatherings = g->next;
                gathering_free(p, g);
        }
        gathering_free(p, p->current);
        labels_free(p->labels);
        book_unref(p->book);
        free(p);
        return NULL;
}
