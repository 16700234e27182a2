/* profctl doctor: the host, the running profd, and the profile of the last hour, each thing with what to do.
 */
#include "tools/doctor.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "tools/http.h"
#include "tools/human.h"
#include "tools/say.h"
#include "tools/source.h"
#include "tools/text.h"
#include "tools/verb.h"

#define SUBJECT_COLUMNS   20
#define LOSS_WORTH_SAYING 0.001
#define NEARLY_ALL        0.95

static const struct command_spec spec = {
                .name = "doctor",
                .arguments = "[OPTION...]",
                .summary = "Checks this host, the running profd, and the profile of the last hour, and\n"
                           "says what to do about each thing that hinders profiling.",
                .takes = TAKES_TARGET | TAKES_TIME,
};

void doctor_say(struct doctor *d, enum finding how, const char *subject, const char *fmt, ...)
{
        static const char *const mark[] = {"ok    ", "note  ", "BAD   "};
        va_list ap;

        d->bad += how == FINDING_BAD;
        d->notes += how == FINDING_NOTE;
        buf_adds(d->out, mark[how]);
        text_fit(d->out, subject, SUBJECT_COLUMNS, true);
        buf_addc(d->out, ' ');
        va_start(ap, fmt);
        buf_vaddf(d->out, fmt, ap);
        va_end(ap);
        buf_addc(d->out, '\n');
}

static void check_events(struct doctor *d, struct json_object *s)
{
        struct json_object *events = json_at(s, "events");
        uint64_t asked = json_at_u64(s, "requested_hz", 0), reached = json_at_u64(s, "frequency_hz", 0),
                 cpus = json_at_u64(s, "cpus", 0), most_cpus = 0;

        for (size_t i = 0; events && i < json_object_array_length(events); i++) {
                struct json_object *e = json_object_array_get_idx(events, i);
                const char *sampled = json_at_text(e, "sampled", NULL), *why = json_at_text(e, "why", NULL);
                uint64_t rate = json_at_u64(e, "frequency_hz", 0);
                doctor_say(d, why ? FINDING_NOTE : FINDING_GOOD, json_at_text(e, "name", "event"), "%s%s%s",
                           sampled ? sampled : "off", why ? ": " : "", why ? why : "");
                if (sampled && rate < reached)
                        doctor_say(d, FINDING_NOTE, json_at_text(e, "name", "event"),
                                   "at %" PRIu64 " Hz, the most that the kernel allows; sysctl "
                                   "kernel.perf_event_max_sample_rate=100000, then systemctl reload profd",
                                   rate);
                if (sampled)
                        most_cpus = MAX_OF(most_cpus, json_at_u64(e, "cpus", 0));
        }
        doctor_say(d, most_cpus < cpus ? FINDING_BAD : FINDING_GOOD, "CPUs",
                   "%" PRIu64 " of %" PRIu64 " sampled%s", most_cpus, cpus,
                   most_cpus < cpus ? ": profd's log says why" : "");
        if (reached < asked)
                doctor_say(d, FINDING_NOTE, "rate",
                           "%" PRIu64 " Hz, lowered from %" PRIu64
                           " Hz to keep to its budget; raise Cpu= in /etc/profd/profd.conf to have more",
                           reached, asked);
}

static void check_losses(struct doctor *d, struct json_object *s)
{
        struct json_object *losses = json_at(s, "losses");
        double taken = (double)json_at_u64(s, "samples_taken", 0);
        bool any = false;

        for (size_t i = 0; losses && i < json_object_array_length(losses); i++) {
                struct json_object *l = json_object_array_get_idx(losses, i);
                double lost = (double)json_at_u64(l, "samples", 0);
                if (lost <= LOSS_WORTH_SAYING * taken || lost == 0)
                        continue;
                const char *cause = json_at_text(l, "cause", "?");
                any = true;
                /* Ticks that the kernel left out are nobody's fault here, and nothing helps. */
                doctor_say(d, strcmp(cause, "missed") ? FINDING_BAD : FINDING_NOTE, "samples lost",
                           "%.2f%% by %s: %s", taken ? 100 * lost / taken : 100, cause,
                           json_at_text(l, "meaning", "?"));
        }
        if (!any)
                doctor_say(d, FINDING_GOOD, "samples lost", "less than %g%%", 100 * LOSS_WORTH_SAYING);
}

static void check_memory(struct doctor *d, struct json_object *s)
{
        double used = json_at_double(s, "cost.memory_bytes", 0),
               limit = json_at_double(s, "cost.memory_limit_bytes", 0);
        uint64_t evicted = json_at_u64(s, "tracking.tables_evicted", 0);
        char a[HUMAN_MAX], b[HUMAN_MAX];
        bool tight = limit > 0 && used > NEARLY_ALL * limit;

        human_bytes(a, (uint64_t)used);
        human_bytes(b, (uint64_t)limit);
        doctor_say(d, tight || evicted ? FINDING_NOTE : FINDING_GOOD, "memory", "%s of %s%s", a, b,
                   tight     ? "; raise Memory= in /etc/profd/profd.conf, and MemoryMax= of the unit"
                   : evicted ? "; unwind tables had to be dropped: raise Memory= in /etc/profd/profd.conf, "
                               "and "
                               "MemoryMax= of the unit"
                             : "");
}

static void check_store(struct doctor *d, struct json_object *s, bool local)
{
        const char *error = json_at_text(s, "store.error", NULL),
                   *directory = json_at_text(s, "store.directory", "?");
        uint64_t bad = json_at_u64(s, "store.bad_files", 0);

        bool said = local && doctor_disk(d, directory);
        if (error)
                doctor_say(d, FINDING_BAD, "store", "%s: %s", directory, error);
        else if (!said)
                doctor_say(d, FINDING_GOOD, "store", "%s", directory);
        if (bad)
                doctor_say(d, FINDING_NOTE, "store",
                           "%" PRIu64 " file%s in %s %s damaged or not profd's: look at its log, then "
                           "remove what is not needed",
                           bad, bad == 1 ? "" : "s", directory, bad == 1 ? "is" : "are");
}

static void check_names(struct doctor *d, struct json_object *s)
{
        struct json_object *notes = json_at(s, "notes");
        uint64_t bad = json_at_u64(s, "symbols.bad_objects", 0);

        if (json_at(s, "symbols.kernel_names") &&
            !json_object_get_boolean(json_at(s, "symbols.kernel_names")))
                doctor_say(d, FINDING_BAD, "kernel names",
                           "hidden from profd: it needs CAP_SYSLOG, and kernel.kptr_restrict below 2");
        if (bad)
                doctor_say(d, FINDING_NOTE, "objects",
                           "%" PRIu64 " could not be read; profd's log names them", bad);
        for (size_t i = 0; notes && i < json_object_array_length(notes); i++)
                doctor_say(d, FINDING_NOTE, "profd says", "%s",
                           json_object_get_string(json_object_array_get_idx(notes, i)));
}

/* False: it cannot be asked. */
static bool check_daemon(struct doctor *d, const struct query *q)
{
        _cleanup_json_ struct json_object *s = NULL;
        _cleanup_buf_ struct buf why = {0};
        const struct source_how how = {.error = &why};

        if (source_json_how(q, "/api/v1/status", &how, &s) != STATUS_DONE) {
                doctor_say(d, FINDING_BAD, "profd", "%s", buf_text(&why));
                return false;
        }
        doctor_say(d, FINDING_GOOD, "profd", "%s runs", json_at_text(s, "version", "?"));
        if (json_at(s, "restricted")) {
                doctor_say(d, FINDING_NOTE, "profd", "%s", json_at_text(s, "note", ""));
                return true;
        }
        if (!q->target.host)
                doctor_process(d, json_at_u64(s, "pid", 0));
        check_events(d, s);
        check_losses(d, s);
        check_memory(d, s);
        check_store(d, s, !q->target.host);
        check_names(d, s);
        return true;
}

static void check_profile(struct doctor *d, const struct query *q)
{
        _cleanup_profile_ struct profile *p = NULL;
        _cleanup_buf_ struct buf why = {0};
        const struct source_how how = {.error = &why};
        struct query hour = *q;

        if (hour.when == WHEN_DEFAULT) {
                hour.when = WHEN_RANGE;
                hour.since_ns = hour.until_ns - 3600 * NSEC_PER_SEC;
        }
        if (source_profile_how(&hour, &how, &p) != STATUS_DONE)
                doctor_say(d, FINDING_BAD, "profile", "%s", buf_text(&why));
        else if (p->n_samples == 0)
                doctor_say(d, FINDING_NOTE, "profile", "nothing is stored yet: look again in a few minutes");
        else
                doctor_symbols(d, p);
}

int verb_doctor(int argc, char **argv)
{
        _cleanup_buf_ struct buf out = {0};
        struct doctor d = {.out = &out, .root = ""};
        struct query q;
        int first;

        int r = options_parse(&spec, argc, argv, &q, NULL, &first);
        if (r >= 0)
                return r;
        if (first < argc)
                return say_usage("doctor", "unexpected argument '%s'", argv[first]);
        if (!q.target.host)
                doctor_host(&d);
        if (check_daemon(&d, &q))
                check_profile(&d, &q);
        if (d.bad || d.notes)
                buf_addf(&out, "%u problem%s, %u note%s\n", d.bad, d.bad == 1 ? "" : "s", d.notes,
                         d.notes == 1 ? "" : "s");
        return say_out(&out);
}
