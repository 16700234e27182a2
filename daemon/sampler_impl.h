/* Inside the sampler: its state, and what its files do for each other. */
#ifndef DAEMON_SAMPLER_IMPL_H
#define DAEMON_SAMPLER_IMPL_H

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/perf_event.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/idtable.h"
#include "daemon/events.h"
#include "daemon/keep.h"
#include "daemon/kept_state.h"
#include "daemon/sampler.h"

struct profd_bpf;

/* How large the maps are made. */
struct sampler_sizes {
        uint32_t cpus, rows_per_cpu, index_lines, seen_lines; /* lines per CPU and epoch; per epoch */
        uint32_t stacks_ring, raws_ring;                      /* bytes, powers of two */
        uint32_t processes, mappings, pages, shards;
};

/* Stacks received in one epoch. */
struct stack_store {
        struct stack_entry *entry;
        uint32_t n, cap;
        uint64_t *frames;
        size_t n_frames, cap_frames;
        struct idtable index;
};

/* Cycles that a CPU makes in a second of work. */
struct cycle_rate {
        double rate;
        bool measured;
        uint64_t cycles, busy_ns; /* since the last new rate */
        uint64_t last_count, last_idle_samples, last_idle_ns, last_ns, last_taken;
};

/* What an open event had done when it was last looked at. */
struct event_watch {
        uint64_t ticks, ticked_ns, last_ns, enabled_ns, running_ns;
        uint64_t since_ns, since_ticks, missed;     /* of the clock, since its rate was set */
        uint64_t base_ns, base_idle_ns, base_taken; /* at the first look after that; 0: not yet */
        uint64_t ticked_idle_ns;                    /* at ticked_ns */
        bool starved;                               /* enabled at the last look, and did not run */
};

/* Of read(2) on an event, by the read_format that it is opened with. */
struct counter {
        uint64_t count, enabled_ns, running_ns;
};

/* Deferred samples of which not all records have come, by CPU; NULL: none. */
struct raw_parts {
        struct abi_raw **sample;
        uint32_t cpus;
};

/* An event as it is opened, on all CPUs. */
struct sampler_open_event {
        struct sampler_event info;
        struct event_kind kind;
        char name[64], why[160];
        int *fd;                   /* by CPU; -1: not open */
        uint64_t *period;          /* by CPU: ns or cycles; 0: by frequency */
        struct cycle_rate *rate;   /* by CPU */
        struct event_watch *watch; /* by CPU */
        int open_error;            /* the last one said, so that it is said once */
        bool off;
        bool held;                  /* cycles whose counters another user holds: `kind` is the clock */
        struct event_kind hardware; /* what it was before */
        uint64_t retry_ns;          /* when it is tried again */
        bool in_trial;
        int *trial; /* by CPU; -1: none */
};

/* A map that is mapped into memory. */
struct mapped {
        void *data;
        size_t size;
};

struct sampler {
        struct profd_bpf *skel;
        struct sampler_sizes sizes;
        uint32_t frequency; /* asked */
        uint64_t memory;

        struct mapped cpus_map, counts_map, index_map, seen_map, mappings_map, pages_map, rules_map;
        struct abi_cpu *cpus;
        struct abi_row *rows;

        struct ring_buffer *stacks_ring, *raws_ring;
        int epoll_fd;
        int grace_inner_fd;
        struct raw_parts parts;
        struct stack_store store[2];
        size_t store_limit;              /* frames in both stores */
        uint64_t missed;                 /* ticks, besides those in event_watch */
        uint64_t lost[ABI_STAT_MAX];     /* found lost after the kernel half had counted it delivered */
        bool stacks_lost;                /* the store was full */
        uint64_t at_drain[ABI_STAT_MAX]; /* the kernel half's sums when the epoch was flipped last */
        uint64_t carried[ABI_STAT_MAX];  /* taken over from daemons before */
        struct keep *keep;               /* NULL: nothing outlives us */
        struct kept_head *kept;          /* NULL: likewise */
        bool leaving;                    /* what is kept stays when events are closed */
        sampler_stack_fn on_stack;
        void *stack_ctx;
        sampler_raw_fn raw; /* during a poll */
        void *raw_ctx;

        struct core_pmus pmus;
        double probed_rate; /* of cycles, where we ran at the start; 0: not probed */
        struct cpu_set online;
        uint32_t n_events;
        struct sampler_open_event event[ABI_MAX_EVENTS];
};

/* sampler_maps.c */
void sampler_plan(struct sampler_sizes *ret, const struct sampler_config *config, uint32_t cpus);
int sampler_load(struct sampler *s, const struct sampler_config *config);
void sampler_unload(struct sampler *s);
uint64_t sampler_fixed_bytes(const struct sampler_sizes *z); /* of all maps but shards */

/* sampler_events.c */
int sampler_events_init(struct sampler *s, const struct sampler_config *config);
int sampler_events_open(struct sampler *s);
void sampler_events_close(struct sampler *s);
int sampler_online(const struct sampler *s, struct cpu_set *ret);
/* Opens an event on the CPUs that are on line and on which it is not open. 0 when it is open on any, else
 * the first error. */
int sampler_event_open(struct sampler *s, uint32_t event);
void sampler_event_close(struct sampler *s, uint32_t event, uint32_t cpu);

/* sampler_cycles.c */
double sampler_cycles_probe(const struct perf_event_attr *sampled);
bool cycle_rate_update(struct cycle_rate *r, uint64_t cycles, uint64_t busy_ns);
void parse_idle_times(const char *stat, uint32_t n_cpus, uint64_t *ret_idle_ns);
void sampler_cycles_calibrate(struct sampler *s, uint32_t event, uint32_t cpu, uint64_t count,
                              uint64_t idle_ns, uint64_t now);

/* sampler_counters.c */
#define COUNTERS_HELD "another user holds the hardware counters"
bool counter_starved(uint64_t enabled_ns, uint64_t running_ns);
void counters_say_held(struct sampler_open_event *e);
/* Whether an event that was opened runs on all its CPUs; waits for some 50 ms when it does not at once. */
bool counters_granted(const struct sampler *s, uint32_t event);
/* Samples the clock in place of cycles; 0 or -errno. */
int counters_fall_back(struct sampler *s, uint32_t event);
/* Looks whether the counters are free again; call about once a second. */
void counters_follow(struct sampler *s, uint32_t event, uint64_t now);
/* An open event does not run on the CPUs whose watch says so. */
void counters_starved(struct sampler *s, uint32_t event, const uint64_t *idle_ns, uint64_t now);
void counters_end_trial(struct sampler *s, uint32_t event);

/* sampler_watch.c */
void watch_begin(struct sampler *s, uint32_t event,
                 uint32_t cpu); /* when opened, and when the rate was set */
void watch_end(struct sampler *s, uint32_t event, uint32_t cpu);
uint64_t missed_ticks(const struct event_watch *w, uint64_t ticks, uint64_t most, uint64_t period_ns,
                      uint64_t now);
uint64_t missed_at_most(struct event_watch *w, uint64_t taken, uint64_t idle_ns, uint64_t period_ns,
                        uint64_t now);
uint32_t watch_scale(uint64_t enabled_ns, uint64_t running_ns);

/* sampler_drain.c */
int sampler_rings_open(struct sampler *s);
void sampler_rings_close(struct sampler *s);

/* sampler_raws.c */
int raw_parts_init(struct raw_parts *p, uint32_t cpus);
void raw_parts_done(struct raw_parts *p);
/* Takes a record whose pieces are within it. The whole sample when this was the last of its records (valid
 * until the next call), else NULL. */
const struct abi_raw *raw_parts_add(struct raw_parts *p, const struct abi_raw *raw);

/* sampler_stacks.c */
int stack_store_add(struct stack_store *st, uint64_t hash, const uint64_t *frame, uint32_t n, size_t limit);
const uint64_t *stack_store_find(const struct stack_store *st, uint64_t hash, uint32_t *ret_n);
void stack_store_clear(struct stack_store *st);
void stack_store_free(struct stack_store *st);
/* A row with its frames; false when they are not there. */
bool sample_row_fill(struct sample_row *ret, const struct stack_store *st, const struct abi_row *row);
/* Sums over CPUs, by enum abi_stat. */
void abi_cpu_sums(const struct abi_cpu *cpus, uint32_t n, uint64_t stat[ABI_STAT_MAX]);

#endif
