/* From drained rows to named profiles: the current window, the windows that wait for their last names, and
 * the live collections.
 *
 * A window or collection that has ended is "settling" until the names it asked for have come and deferred
 * samples are in, or its time is up; then its profile is handed over. */
#ifndef DAEMON_PIPELINE_H
#define DAEMON_PIPELINE_H

#include <stdint.h>

#include "daemon/api.h"
#include "daemon/sampler.h"
#include "daemon/tracker.h"
#include "symbolizer/client.h"
#include "symbolizer/kernel.h"
#include "symbolizer/kernel_debug.h"

struct pipeline;

struct pipeline_parts { /* borrowed; they outlive the pipeline */
        struct sampler *sampler;
        struct tracker *tracker;
        struct symclient *symbols;
        struct kernel_symbols *kernel;     /* NULL: no kernel names */
        struct kernel_debug *kernel_debug; /* NULL: without source lines */
        uint64_t memory;                   /* bytes that one book may take */
};

/* `user` is what the window or collection was begun with. */
struct pipeline_ops {
        /* A row that went into the window whose user it is; NULL: nobody asks. */
        void (*row)(void *ctx, void *user, const struct sample_row *row);
        /* It takes no more samples (but deferred ones). */
        void (*ended)(void *ctx, void *user);
        /* It has settled: takes over the profile, which has no time and no ledger yet but what the window
         * itself knows; NULL with -errno when it could not be made. start_ns is wall-clock time, duration_ns
         * is by the monotonic clock. `user` is the owner's again. */
        void (*done)(void *ctx, void *user, struct profile *p, int err, uint64_t start_ns,
                     uint64_t duration_ns, uint64_t samples);
};

int pipeline_new(struct pipeline **ret, const struct pipeline_parts *parts, const struct pipeline_ops *ops,
                 void *ctx, void *window_user);
struct pipeline *pipeline_free(struct pipeline *p);

/* Reads the rings that are filling up, between drains. */
int pipeline_poll(struct pipeline *p);

/* Takes what the kernel has counted, into the window and all collections. */
int pipeline_drain(struct pipeline *p);

/* Ends the window at the last drain and begins the next. */
int pipeline_end_window(struct pipeline *p, void *next_user);
uint64_t pipeline_window_start_ns(const struct pipeline *p); /* wall clock */
uint64_t pipeline_window_age_ns(const struct pipeline *p);   /* monotonic */

/* -- what a daemon before us had -- */

/* The window began earlier, with what will be added now. */
void pipeline_resume(struct pipeline *p, uint64_t start_ns, uint64_t start_real_ns);
/* A row and a deferred sample that go the way of those that were drained (sample_row_fn, sampler_raw_fn). */
int pipeline_row(void *pipeline, const struct sample_row *row);
void pipeline_raw(void *pipeline, const struct abi_raw *raw, const uint64_t *kernel, uint32_t n_kernel);
/* Begins a window that had ended and settles now; pipeline_past_row() adds to the last one begun. */
int pipeline_past(struct pipeline *p, void *user, uint64_t start_real_ns, uint64_t duration_ns);
int pipeline_past_row(void *pipeline, const struct sample_row *row);

/* Deferred samples that are finished, into the window; between drains. */
int pipeline_take_deferred(struct pipeline *p);

/* Begins a collection; its samples are those after a drain of now. */
int pipeline_collect(struct pipeline *p, const struct api_collect *what, void *user);
/* Forgets a collection; `user` is the caller's again. */
void pipeline_cancel(struct pipeline *p, void *user);

/* Hands over what has settled and ends collections that are due. Returns in how many ms to call it again,
 * -1: not before the next drain. */
int pipeline_tick(struct pipeline *p);

/* Waits for what is settling, then hands it over: before the end. */
void pipeline_flush(struct pipeline *p, int timeout_ms);

struct pipeline_stats {
        uint64_t rows, samples;
        uint64_t lost_memory; /* samples: no memory for their rows */
        uint32_t collections;
        uint64_t memory;
};
void pipeline_stats(const struct pipeline *p, struct pipeline_stats *ret);

#endif
