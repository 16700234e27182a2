/* profctl status: the daemon's own account, for people or as the JSON that it is. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "tools/human.h"
#include "tools/say.h"
#include "tools/source.h"
#include "tools/text.h"
#include "tools/verb.h"

#define LABEL_COLUMNS 12

enum { OPT_JSON };

static int set(void *ctx, int id, const char *value)
{
        *(bool *)ctx = true;
        return 0;
}

static const struct option_spec options[] = {
                {"json", 'j', NULL, "the daemon's answer as it is, one JSON object", OPT_JSON},
};

static const struct command_spec spec = {
                .name = "status",
                .arguments = "[OPTION...]",
                .summary = "What is sampled, at which rate asked and reached, what that costs, every loss "
                           "by\n"
                           "its cause, and what is stored.",
                .options = options,
                .n_options = ARRAY_SIZE(options),
                .takes = TAKES_TARGET,
                .set = set,
};

static void label(struct buf *out, const char *name)
{
        text_right(out, name, LABEL_COLUMNS);
        buf_adds(out, *name ? ": " : "  ");
}

static void show_daemon(struct json_object *j, struct buf *out)
{
        char t[HUMAN_MAX], d[HUMAN_MAX];
        uint64_t start = json_at_u64(j, "start_ns", 0), now = now_realtime_ns();

        label(out, "profd");
        buf_addf(out, "%s on %s, Linux %s, %" PRIu64 " CPUs\n", json_at_text(j, "version", "?"),
                 json_at_text(j, "host", "?"), json_at_text(j, "kernel", "?"), json_at_u64(j, "cpus", 0));
        label(out, "since");
        buf_addf(out, "%s, for %s\n", human_time(t, start),
                 human_duration(d, now > start ? now - start : 0));
}

static void show_events(struct json_object *j, struct buf *out)
{
        struct json_object *events = json_at(j, "events");
        size_t n = events ? json_object_array_length(events) : 0;

        label(out, "rate");
        uint64_t asked = json_at_u64(j, "requested_hz", 0), reached = json_at_u64(j, "frequency_hz", 0);
        buf_addf(out, "%" PRIu64 " Hz a CPU", reached);
        if (reached != asked)
                buf_addf(out, "; %" PRIu64 " Hz asked, %s", asked,
                         json_at_text(j, "frequency_why", "lowered to keep to its budget"));
        buf_addc(out, '\n');
        for (size_t i = 0; i < n; i++) {
                struct json_object *e = json_object_array_get_idx(events, i);
                const char *name = json_at_text(e, "name", "?"), *sampled = json_at_text(e, "sampled", NULL),
                           *why = json_at_text(e, "why", NULL);
                label(out, i == 0 ? "events" : "");
                buf_adds(out, name);
                if (!sampled)
                        buf_adds(out, " is off");
                else if (strcmp(sampled, name) != 0)
                        buf_addf(out, " as %s", sampled);
                if (sampled)
                        buf_addf(out, " on %" PRIu64 " CPUs", json_at_u64(e, "cpus", 0));
                uint64_t rate = json_at_u64(e, "frequency_hz", 0);
                if (sampled && rate < reached)
                        buf_addf(out, " at %" PRIu64 " Hz, the most that the kernel allows", rate);
                if (why)
                        buf_addf(out, ": %s", why);
                buf_addc(out, '\n');
        }
}

static void show_samples(struct json_object *j, struct buf *out)
{
        char n[HUMAN_MAX];
        struct json_object *losses = json_at(j, "losses");
        size_t count = losses ? json_object_array_length(losses) : 0;
        uint64_t taken = json_at_u64(j, "samples_taken", 0), lost = 0;

        label(out, "samples");
        buf_addf(out, "%s taken, ", human_count(n, taken));
        buf_addf(out, "%s delivered", human_count(n, json_at_u64(j, "samples_delivered", 0)));
        uint64_t waiting = json_at_u64(j, "samples_waiting", 0);
        if (waiting > 0)
                buf_addf(out, ", %s waiting for the next drain", human_count(n, waiting));
        buf_addc(out, '\n');
        for (size_t i = 0; i < count; i++) {
                struct json_object *l = json_object_array_get_idx(losses, i);
                uint64_t samples = json_at_u64(l, "samples", 0);
                if (samples == 0)
                        continue;
                label(out, lost == 0 ? "lost" : "");
                buf_addf(out, "%s by %s: %s\n", human_count(n, samples), json_at_text(l, "cause", "?"),
                         json_at_text(l, "meaning", "?"));
                lost += samples;
        }
        if (lost == 0) {
                label(out, "lost");
                buf_adds(out, "none\n");
        }
}

static void show_cost(struct json_object *j, struct buf *out)
{
        char a[HUMAN_MAX], b[HUMAN_MAX], c[HUMAN_MAX];

        label(out, "CPU");
        buf_addf(out, "%.3f %% of all CPUs; at most %.3g %%", json_at_double(j, "cost.cpu_share", 0) * 100,
                 json_at_double(j, "cost.cpu_limit", 0) * 100);
        buf_addf(out, "; in all %.1f s kernel part, %.1f s daemon, %.1f s symbolizer\n",
                 json_at_double(j, "cost.kernel_cpu_seconds", 0),
                 json_at_double(j, "cost.daemon_cpu_seconds", 0),
                 json_at_double(j, "cost.worker_cpu_seconds", 0));
        label(out, "memory");
        buf_addf(out, "%s; at most %s", human_bytes(a, json_at_u64(j, "cost.memory_bytes", 0)),
                 human_bytes(b, json_at_u64(j, "cost.memory_limit_bytes", 0)));
        buf_addf(out, " (daemon %s, symbolizer %s, kernel maps %s)\n",
                 human_bytes(a, json_at_u64(j, "cost.resident_bytes", 0)),
                 human_bytes(b, json_at_u64(j, "cost.worker_resident_bytes", 0)),
                 human_bytes(c, json_at_u64(j, "cost.map_bytes", 0)));
}

static void show_store(struct json_object *j, struct buf *out)
{
        char a[HUMAN_MAX], b[HUMAN_MAX];
        uint64_t oldest = json_at_u64(j, "store.oldest_ns", 0),
                 newest = json_at_u64(j, "store.newest_ns", 0);
        const char *error = json_at_text(j, "store.error", NULL);

        label(out, "stored");
        buf_addf(out, "%s windows, %s", human_count(a, json_at_u64(j, "store.windows", 0)),
                 human_bytes(b, json_at_u64(j, "store.bytes", 0)));
        if (newest > 0) {
                buf_adds(out, ", ");
                human_range(out, oldest, newest);
        }
        buf_addf(out, " in %s\n", json_at_text(j, "store.directory", "?"));
        uint64_t bad = json_at_u64(j, "store.bad_files", 0);
        if (bad > 0) {
                label(out, "");
                buf_addf(out, "%" PRIu64 " file%s there %s damaged or not profd's, and left alone\n", bad,
                         bad == 1 ? "" : "s", bad == 1 ? "is" : "are");
        }
        if (error) {
                label(out, "");
                buf_addf(out, "trouble: %s\n", error);
        }
}

static void show_names(struct json_object *j, struct buf *out)
{
        char n[HUMAN_MAX];
        uint64_t bad = json_at_u64(j, "symbols.bad_objects", 0);

        label(out, "tracks");
        buf_addf(out, "%s processes, ", human_count(n, json_at_u64(j, "tracking.processes", 0)));
        buf_addf(out, "%s objects, ", human_count(n, json_at_u64(j, "tracking.objects", 0)));
        buf_addf(out, "%s unwind tables", human_count(n, json_at_u64(j, "tracking.unwind_tables", 0)));
        if (bad > 0) {
                const char *last = json_object_get_string(json_at(j, "symbols.last_bad_object"));

                buf_addf(out, "; %" PRIu64 " object%s could not be read", bad, bad == 1 ? "" : "s");
                if (last)
                        buf_addf(out, ", the last %s", last);
        }
        buf_addc(out, '\n');
}

static void show_notes(struct json_object *j, struct buf *out)
{
        struct json_object *notes = json_at(j, "notes");
        size_t n = notes ? json_object_array_length(notes) : 0;

        for (size_t i = 0; i < n; i++) {
                label(out, i == 0 ? "note" : "");
                buf_addf(out, "%s\n", json_object_get_string(json_object_array_get_idx(notes, i)));
        }
}

int verb_status(int argc, char **argv)
{
        _cleanup_json_ struct json_object *j = NULL;
        _cleanup_buf_ struct buf out = {0};
        struct query q;
        bool json = false;
        int first;

        int r = options_parse(&spec, argc, argv, &q, &json, &first);
        if (r >= 0)
                return r;
        if (first < argc)
                return say_usage("status", "unexpected argument '%s'", argv[first]);
        r = source_json(&q, "/api/v1/status", &j);
        if (r != STATUS_DONE)
                return r;
        if (json) {
                buf_addf(&out, "%s\n", json_object_to_json_string_ext(j, JSON_C_TO_STRING_PRETTY));
        } else if (json_at(j, "restricted")) {
                label(&out, "profd");
                buf_addf(&out, "%s, %s\n", json_at_text(j, "version", "?"),
                         json_object_get_boolean(json_at(j, "healthy")) ? "sampling" : "not healthy");
                label(&out, "note");
                buf_addf(&out, "%s\n", json_at_text(j, "note", ""));
        } else {
                show_daemon(j, &out);
                show_events(j, &out);
                show_samples(j, &out);
                show_cost(j, &out);
                show_names(j, &out);
                show_store(j, &out);
                show_notes(j, &out);
        }
        return say_out(&out);
}
