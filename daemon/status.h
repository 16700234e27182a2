/* What `profctl status` and /metrics show: counters, turned into JSON and Prometheus text. */
#ifndef DAEMON_STATUS_H
#define DAEMON_STATUS_H

#include "base/buf.h"
#include "daemon/counters.h"
#include "daemon/ledger.h"

struct status {
        const struct ledger_host *host;
        const struct sampler *sampler;
        const struct budget *budget;
        const struct counters *now;
        const struct counters *recent; /* an earlier look, for shares over the last minute; NULL */
        struct store *store;
        const char *store_directory;
        const char *notes[8]; /* what is not as it should be, one line each */
        uint32_t n_notes;
        char lacking[160]; /* the text of one of them */
        uint64_t start_real_ns;
        uint32_t n_cpus;
        uint64_t memory_limit;
        bool kernel_names;
};

/* Appends one JSON object. */
void status_json(const struct status *s, struct buf *out);

/* Appends Prometheus text (exposition format 0.0.4). */
void status_metrics(const struct status *s, struct buf *out);

#endif
