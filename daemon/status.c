#include "daemon/status.h"

#include <inttypes.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/json_out.h"
#include "daemon/window.h"

static double share_of_cpus(const struct status *s)
{
        if (!s->recent || s->now->at_ns <= s->recent->at_ns || !s->n_cpus)
                return 0;
        uint64_t used = cost_cpu_ns(&s->now->cost) - cost_cpu_ns(&s->recent->cost);

        return (double)used / ((double)(s->now->at_ns - s->recent->at_ns) * s->n_cpus);
}

static uint64_t memory_used(const struct status *s)
{
        return s->now->cost.resident + s->now->cost.worker_resident + s->now->cost.maps;
}

static void json_events(const struct status *s, struct json_out *j)
{
        json_array_begin(j, "events");
        for (uint32_t i = 0; i < sampler_n_events(s->sampler); i++) {
                const struct sampler_event *e = sampler_event(s->sampler, i);
                json_object_begin(j, NULL);
                json_string(j, "name", e->name);
                json_string(j, "sampled", e->actual);
                json_string(j, "why", e->why);
                json_u64(j, "requested_hz", e->requested);
                json_u64(j, "frequency_hz", e->frequency);
                json_u64(j, "cpus", e->cpus);
                json_object_end(j);
        }
        json_array_end(j);
}

static void json_losses(const struct status *s, struct json_out *j)
{
        struct loss losses[COUNTERS_LOSSES];

        counters_losses(NULL, s->now, losses);
        json_array_begin(j, "losses");
        for (int i = 0; i < COUNTERS_LOSSES; i++) {
                json_object_begin(j, NULL);
                json_string(j, "cause", losses[i].cause);
                json_u64(j, "samples", losses[i].samples);
                json_string(j, "meaning", losses[i].meaning);
                json_object_end(j);
        }
        json_array_end(j);
}

static void json_cost(const struct status *s, struct json_out *j)
{
        const struct cost *c = &s->now->cost;

        json_object_begin(j, "cost");
        json_double(j, "cpu_share", share_of_cpus(s));
        json_double(j, "cpu_limit", s->budget->limit_ppm / 1e6);
        json_double(j, "over_cpu_limit_seconds", (double)s->budget->over_ns / 1e9);
        json_bool(j, "names_wait", s->budget->names_wait);
        json_bool(j, "following_waits", s->budget->following_waits);
        json_double(j, "daemon_cpu_seconds", (double)c->daemon_ns / 1e9);
        json_double(j, "worker_cpu_seconds", (double)c->worker_ns / 1e9);
        json_double(j, "kernel_cpu_seconds", (double)c->kernel_ns / 1e9);
        json_u64(j, "memory_bytes", memory_used(s));
        json_u64(j, "memory_limit_bytes", s->memory_limit);
        json_u64(j, "resident_bytes", c->resident);
        json_u64(j, "worker_resident_bytes", c->worker_resident);
        json_u64(j, "map_bytes", c->maps);
        json_object_end(j);
}

static void json_tracking(const struct status *s, struct json_out *j)
{
        const struct tracker_stats *t = &s->now->tracker;

        json_object_begin(j, "tracking");
        json_u64(j, "processes", t->processes);
        json_u64(j, "objects", t->objects);
        json_u64(j, "unwind_tables", t->tables);
        json_u64(j, "unwind_rows", t->rows);
        json_u64(j, "tables_evicted", t->evictions);
        json_u64(j, "records", t->records);
        json_u64(j, "records_lost", t->records_lost);
        json_u64(j, "records_skipped", t->records_skipped);
        json_u64(j, "execs", t->execs);
        json_u64(j, "samples_deferred", t->deferred);
        json_u64(j, "samples_deferred_complete", t->deferred_complete);
        json_u64(j, "samples_deferred_hurried", t->deferred_hurried);
        json_u64(j, "samples_not_deferred", s->now->stat[ABI_STAT_RAWS_FULL]);
        json_object_end(j);
}

/* What keeps the worker apart from the rest of the host, and what this kernel or container does not allow.
 */
static void json_sandbox(uint32_t parts, struct json_out *j)
{
        static const char *const name[] = {"limits", "namespaces", "root", "user", "landlock", "seccomp"};

        _Static_assert(SANDBOX_SECCOMP == 1 << 5, "a name for each part");
        json_object_begin(j, "sandbox");
        for (uint32_t i = 0; i < ARRAY_SIZE(name); i++)
                json_bool(j, name[i], parts >> i & 1);
        json_object_end(j);
}

static void json_symbols(const struct status *s, struct json_out *j)
{
        const struct symclient_stats *y = &s->now->symbols;

        json_object_begin(j, "symbols");
        json_bool(j, "kernel_names", s->kernel_names);
        json_u64(j, "requests", y->requests);
        json_u64(j, "worker_restarts", y->restarts);
        json_u64(j, "bad_objects", y->bad_objects);
        json_string(j, "last_bad_object", y->last_bad[0] ? y->last_bad : NULL);
        json_sandbox(y->sandbox, j);
        json_u64(j, "cache_hits", y->cache_hits);
        json_u64(j, "cache_misses", y->cache_misses);
        json_u64(j, "cache_bytes", y->cache_bytes);
        json_object_end(j);
}

static void json_store(const struct status *s, struct json_out *j)
{
        struct store_stats st;

        store_stats(s->store, &st);
        json_object_begin(j, "store");
        json_string(j, "directory", s->store_directory);
        json_u64(j, "windows", st.windows);
        json_u64(j, "bytes", st.size);
        json_u64(j, "oldest_ns", st.oldest_ns);
        json_u64(j, "newest_ns", st.newest_ns);
        json_u64(j, "bad_files", st.bad_files);
        json_u64(j, "merges", st.merges);
        json_u64(j, "deleted", st.deleted);
        json_string(j, "error", *st.error ? st.error : NULL);
        json_object_end(j);
}

void status_json(const struct status *s, struct buf *out)
{
        struct json_out j = {.out = out};
        const struct counters *c = s->now;

        json_object_begin(&j, NULL);
        json_string(&j, "version", PROFD_VERSION);
        json_string(&j, "host", s->host->host);
        json_string(&j, "kernel", s->host->kernel);
        json_u64(&j, "pid", (uint64_t)getpid());
        json_u64(&j, "start_ns", s->start_real_ns);
        json_u64(&j, "cpus", s->n_cpus);
        json_u64(&j, "requested_hz", s->budget->asked);
        json_u64(&j, "frequency_hz", s->budget->frequency);
        json_string(&j, "frequency_why", budget_why(s->budget));
        json_events(s, &j);
        json_u64(&j, "samples_taken", c->stat[ABI_STAT_TAKEN]);
        json_u64(&j, "samples_delivered", counters_delivered(c));
        json_u64(&j, "samples_waiting", counters_waiting(c));
        json_losses(s, &j);
        json_cost(s, &j);
        json_tracking(s, &j);
        json_symbols(s, &j);
        json_store(s, &j);
        json_u64(&j, "collections", c->pipeline.collections);
        json_array_begin(&j, "notes");
        for (uint32_t i = 0; i < s->n_notes; i++)
                json_string(&j, NULL, s->notes[i]);
        json_array_end(&j);
        json_object_end(&j);
}

static void metric_head(struct buf *out, const char *name, const char *type, const char *help)
{
        buf_addf(out, "# HELP profd_%s %s\n# TYPE profd_%s %s\n", name, help, name, type);
}

static void metric(struct buf *out, const char *name, const char *type, const char *help, double value)
{
        metric_head(out, name, type, help);
        buf_addf(out, "profd_%s %.15g\n", name, value);
}

static void metrics_losses(const struct status *s, struct buf *out)
{
        struct loss losses[COUNTERS_LOSSES];

        counters_losses(NULL, s->now, losses);
        metric_head(out, "samples_lost_total", "counter", "Samples taken and not delivered, by cause.");
        for (int i = 0; i < COUNTERS_LOSSES; i++)
                buf_addf(out, "profd_samples_lost_total{cause=\"%s\"} %" PRIu64 "\n", losses[i].cause,
                         losses[i].samples);
}

static void metrics_cost(const struct status *s, struct buf *out)
{
        const struct cost *c = &s->now->cost;

        metric_head(out, "cpu_seconds_total", "counter", "CPU time profd has used, by where.");
        buf_addf(out, "profd_cpu_seconds_total{part=\"daemon\"} %.9g\n", (double)c->daemon_ns / 1e9);
        buf_addf(out, "profd_cpu_seconds_total{part=\"worker\"} %.9g\n", (double)c->worker_ns / 1e9);
        buf_addf(out, "profd_cpu_seconds_total{part=\"kernel\"} %.9g\n", (double)c->kernel_ns / 1e9);
        metric_head(out, "memory_bytes", "gauge", "Memory profd holds, by where.");
        buf_addf(out, "profd_memory_bytes{part=\"daemon\"} %" PRIu64 "\n", c->resident);
        buf_addf(out, "profd_memory_bytes{part=\"worker\"} %" PRIu64 "\n", c->worker_resident);
        buf_addf(out, "profd_memory_bytes{part=\"maps\"} %" PRIu64 "\n", c->maps);
        metric(out, "cpu_limit_ratio", "gauge", "Share of all CPUs profd may use.",
               s->budget->limit_ppm / 1e6);
        metric(out, "cpu_over_limit_seconds_total", "counter",
               "Time in which profd used more than Cpu=, its first minute included.",
               (double)s->budget->over_ns / 1e9);
        metric(out, "names_wait", "gauge", "1 while names wait so that profd keeps to Cpu=.",
               s->budget->names_wait);
        metric(out, "following_waits", "gauge",
               "1 while starting processes are not followed so that profd keeps to Cpu=.",
               s->budget->following_waits);
        metric(out, "memory_limit_bytes", "gauge", "Memory profd may hold.", (double)s->memory_limit);
}

static void metrics_store(const struct status *s, struct buf *out)
{
        struct store_stats st;

        store_stats(s->store, &st);
        metric(out, "store_bytes", "gauge", "Bytes of stored windows.", (double)st.size);
        metric(out, "store_windows", "gauge", "Stored windows.", (double)st.windows);
        metric(out, "store_oldest_timestamp_seconds", "gauge", "Start of the oldest window.",
               (double)st.oldest_ns / 1e9);
        metric(out, "store_newest_timestamp_seconds", "gauge", "Start of the newest window.",
               (double)st.newest_ns / 1e9);
        metric(out, "store_write_errors_total", "counter", "Windows that could not be written.",
               (double)s->now->writer.lost_windows);
        metric(out, "store_bad_files", "gauge", "Files in the store that are damaged or not profd's.",
               (double)st.bad_files);
}

void status_metrics(const struct status *s, struct buf *out)
{
        const struct counters *c = s->now;

        metric_head(out, "build_info", "gauge", "Version of profd.");
        buf_addf(out, "profd_build_info{version=\"%s\"} 1\n", PROFD_VERSION);
        metric(out, "samples_taken_total", "counter", "Samples the kernel took.",
               (double)c->stat[ABI_STAT_TAKEN]);
        metric(out, "samples_delivered_total", "counter", "Samples that reached a profile.",
               (double)counters_delivered(c));
        metric(out, "samples_waiting", "gauge",
               "Samples taken that wait for the next drain or for an unwind table.",
               (double)counters_waiting(c));
        metrics_losses(s, out);
        metric(out, "frequency_hertz", "gauge", "Sampling rate in force.", s->budget->frequency);
        metric(out, "frequency_requested_hertz", "gauge", "Sampling rate asked for.", s->budget->asked);
        metrics_cost(s, out);
        metric(out, "processes", "gauge", "Processes followed.", c->tracker.processes);
        metric(out, "objects", "gauge", "Objects (files with code) known.", c->tracker.objects);
        metric(out, "unwind_rows", "gauge", "Rows of unwind tables loaded.", c->tracker.rows);
        metric(out, "tables_evicted_total", "counter", "Unwind tables dropped to keep to Memory=.",
               (double)c->tracker.evictions);
        metric(out, "records_lost_total", "counter",
               "Mapping records lost by the kernel; repaired from /proc.", (double)c->tracker.records_lost);
        metric(out, "records_skipped_total", "counter",
               "Mapping records not read so that profd keeps to Cpu=; repaired from /proc.",
               (double)c->tracker.records_skipped);
        metric(out, "samples_deferred_total", "counter", "Samples whose walk was finished in user space.",
               (double)c->tracker.deferred);
        metric(out, "samples_deferred_hurried_total", "counter",
               "Deferred samples that were finished before their unwind table had come: their stacks are "
               "cut.",
               (double)c->tracker.deferred_hurried);
        metric(out, "samples_not_deferred_total", "counter",
               "Samples that found the ring of deferred samples full: their stacks are cut.",
               (double)c->stat[ABI_STAT_RAWS_FULL]);
        metric(out, "symbolizer_restarts_total", "counter", "Workers that were replaced.",
               (double)c->symbols.restarts);
        metric(out, "symbolizer_bad_objects", "gauge", "Objects that were given up.",
               (double)c->symbols.bad_objects);
        metrics_store(s, out);
}
