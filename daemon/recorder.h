/* Windows and live collections: when they begin and end, what their ledgers say, and where their profiles
 * go, to the store or to the API. */
#ifndef DAEMON_RECORDER_H
#define DAEMON_RECORDER_H

#include <stdint.h>

#include "daemon/api.h"
#include "daemon/budget.h"
#include "daemon/counters.h"
#include "daemon/keep.h"
#include "daemon/kept_state.h"
#include "daemon/pipeline.h"
#include "daemon/writer.h"

struct recorder;

/* api NULL until recorder_set_api(). `budget` tells the rate in force. */
int recorder_new(struct recorder **ret, const struct pipeline_parts *parts, struct writer *writer,
                 const struct budget *budget, uint64_t window_ns);
struct recorder *recorder_free(struct recorder *r);
void recorder_set_api(struct recorder *r, struct api *api);

/* -- what outlives us -- */

/* From here on the samples of windows that are not stored are in journals of at most `bytes`, too; what of
 * them is stored is noted in `head`. Borrowed. */
int recorder_keep(struct recorder *r, struct keep *keep, struct kept_head *head, size_t bytes);

/* The window goes on that began then in a daemon before us, which had counted `stat` since. */
void recorder_resume(struct recorder *r, uint64_t start_ns, uint64_t start_real_ns,
                     const uint64_t stat[ABI_STAT_MAX]);
/* Rows and deferred samples of it. */
int recorder_row(void *recorder, const struct sample_row *row);
void recorder_raw(void *recorder, const struct abi_raw *raw, const uint64_t *kernel, uint32_t n_kernel);
/* A window that had ended, of which `stat` was counted, and its rows. */
int recorder_past(struct recorder *r, uint64_t start_real_ns, uint64_t duration_ns,
                  const uint64_t stat[ABI_STAT_MAX]);
int recorder_past_row(void *recorder, const struct sample_row *row);

/* Deferred samples that are finished: into the window and its journal, between drains. */
int recorder_take_deferred(struct recorder *r);

/* Reads rings that are filling up, between drains. */
int recorder_poll(struct recorder *r);

/* Drains, and ends the window when it is over. */
int recorder_drain(struct recorder *r);

/* ns until the next drain is due: the end of the window, at most `most_ns`. */
uint64_t recorder_next_drain(const struct recorder *r, uint64_t most_ns);
uint64_t recorder_last_drain_ns(const struct recorder *r); /* monotonic */

/* Hands over what is ready; ms until it wants to be called again, -1: not before the next drain. */
int recorder_tick(struct recorder *r);

/* Begins a live collection; a failure is answered to the API. */
void recorder_collect(struct recorder *r, struct api_request *request, const struct api_collect *what);
void recorder_cancel(struct recorder *r, struct api_request *request);

int recorder_counters(struct recorder *r, struct counters *ret);

/* Ends the last window and waits, some seconds at most, for its names. */
void recorder_finish(struct recorder *r);

#endif
