/* Perf events, the BPF programs on them, and the drain of what they counted.
 *
 * Owns the skeleton, the maps, one perf event per online CPU and configured event, and their following of
 * CPUs that come and go. */
#ifndef DAEMON_SAMPLER_H
#define DAEMON_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "bpf/abi.h"
#include "daemon/sample.h"

struct sampler;
struct keep;
struct kept_head;

struct sampler_config {
        const char *const *events; /* perf names: "cycles", "cache-misses", "page-faults", "r1a8", ... */
        uint32_t n_events;         /* 1..ABI_MAX_EVENTS */
        uint32_t frequency;        /* Hz asked, per CPU and event */
        uint64_t memory;           /* bytes that all maps together may take */
        uint32_t drain_ms;         /* sampler_drain() is called this often, which sizes the maps; 0: 1000 */
        bool threads;              /* keep samples by thread */
};

/* What became of a configured event; strings live as long as the sampler. */
struct sampler_event {
        const char *name;   /* as asked */
        const char *actual; /* what is sampled: the same, or "cpu-clock" for cycles without a PMU; NULL: off
                             */
        const char *why;    /* why it is not what was asked; NULL */
        bool time;          /* weights are ns of CPU time */
        uint32_t requested; /* Hz */
        uint32_t frequency; /* Hz in force */
        uint32_t cpus;      /* CPUs it is open on */
};

/* Maps that the mapping and table keeper (daemon/tracker.h) writes; they live as long as the sampler. */
struct unwind_maps {
        int processes_fd;             /* tgid -> abi_process */
        int shards_fd;                /* array of maps: index -> array of ABI_SHARD_ROWS rows */
        struct abi_mapping *mappings; /* mapped writable */
        uint64_t *pages;
        struct unwind_rule *rules;
        uint32_t n_processes, n_mappings, n_pages, n_shards; /* capacities */
};

/* 0, or -errno after one logged line that says what the kernel refused and what to do. */
int sampler_new(struct sampler **ret, const struct sampler_config *config);
struct sampler *sampler_free(struct sampler *s);

void sampler_unwind_maps(const struct sampler *s, struct unwind_maps *ret);

/* Opens the events and starts sampling. */
int sampler_start(struct sampler *s);

/* Takes no more samples; what was taken can still be drained. */
void sampler_stop(struct sampler *s);

/* Readable when a ring wants reading before the next drain: call sampler_poll(). */
int sampler_fd(const struct sampler *s);

/* Reads the rings: stacks are kept for the next drain, deferred samples are handed to raw() with the kernel
 * frames that raw->key.kernel_stack stands for (valid during the call). */
typedef void (*sampler_raw_fn)(void *ctx, const struct abi_raw *raw, const uint64_t *kernel,
                               uint32_t n_kernel);
int sampler_poll(struct sampler *s, sampler_raw_fn raw, void *ctx);

/* Flips the epoch, waits until no program is in the old one, reads it whole and hands over its rows.
 * Deferred samples go to raw() first. Every row taken is handed over or counted in the losses. */
int sampler_drain(struct sampler *s, sample_row_fn row, sampler_raw_fn raw, void *ctx);

/* Follows CPUs that came, went or came back, and what their cycles are worth (call about once a second). */
int sampler_follow_cpus(struct sampler *s);

/* Changes the rate of all events in place. */
int sampler_set_frequency(struct sampler *s, uint32_t frequency);

uint32_t sampler_n_events(const struct sampler *s);
const struct sampler_event *sampler_event(const struct sampler *s, uint32_t i);

/* Totals since start, by enum abi_stat, summed over CPUs, with what was carried over. */
int sampler_stats(struct sampler *s, uint64_t stats[ABI_STAT_MAX]);
/* The same of those samples alone that the last drain was for: on a busy host a drain takes as long as many
 * samples. */
void sampler_stats_drained(struct sampler *s, uint64_t stats[ABI_STAT_MAX]);

/* -- what outlives us: daemon/keep.h -- */

/* From here on maps and events are kept, and figures go to `head`. on_stack() is called with each stack that
 * is taken out of the ring. Call before sampler_start(); all borrowed. */
typedef void (*sampler_stack_fn)(void *ctx, uint64_t hash, const uint64_t *frame, uint32_t n);
int sampler_keep(struct sampler *s, struct keep *keep, struct kept_head *head);
void sampler_on_stack(struct sampler *s, sampler_stack_fn on_stack, void *ctx);

/* The stacks that wait for their rows. */
void sampler_each_stack(const struct sampler *s, sampler_stack_fn fn, void *ctx);

/* What is kept goes on sampling when the sampler is freed, for the next daemon. */
void sampler_leave(struct sampler *s);

/* Adds what was taken over to the totals. */
void sampler_carry(struct sampler *s, const uint64_t stat[ABI_STAT_MAX]);

/* Waits until every program has ended that ran when it was called. */
int sampler_wait(struct sampler *s);

/* Bytes of all maps but the tracker's shards (struct tracker_stats), and ns spent in the BPF programs (0
 * when the kernel does not tell). The map of shards is not looked at for the number of them: before
 * Linux 6.8 the kernel waits for a grace period, some 10 ms, also for each look. */
uint64_t sampler_memory(const struct sampler *s);
uint64_t sampler_run_time_ns(const struct sampler *s);

#endif
