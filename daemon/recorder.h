/* Windows and live collections: when they begin and end, what their ledgers say, and where their profiles
 * go, to the store or to the API. */
#ifndef DAEMON_RECORDER_H
#define DAEMON_RECORDER_H

#include <stdint.h>

#include "daemon/api.h"
#include "daemon/budget.h"
#include "daemon/counters.h"
#include "daemon/pipeline.h"
#include "daemon/writer.h"

struct recorder;

/* api NULL until recorder_set_api(). `budget` tells the rate in force. */
int recorder_new(struct recorder **ret, const struct pipeline_parts *parts, struct writer *writer,
                 const struct budget *budget, uint64_t window_ns);
struct recorder *recorder_free(struct recorder *r);
void recorder_set_api(struct recorder *r, struct api *api);

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
