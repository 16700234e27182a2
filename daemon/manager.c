#include "daemon/manager.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-event.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/log.h"
#include "daemon/governor.h"
#include "daemon/keep.h"
#include "daemon/ledger.h"
#include "daemon/legacy.h"
#include "daemon/recorder.h"
#include "daemon/status.h"
#include "daemon/takeover.h"

#define DRAIN_NS          (5 * NSEC_PER_SEC) /* rows are aggregated in the kernel meanwhile */
#define TRACK_USEC        100000ull          /* mapping records are read at least this often */
#define HOUSEKEEPING_USEC 1000000ull
#define RECENT_NS         (60 * NSEC_PER_SEC)
#define MAINTAIN_NS       (60 * NSEC_PER_SEC)
#define NICE_LEVEL        (-10)
#define UNHEALTHY_NS      (4 * DRAIN_NS)
#define NAMES_CACHE_SHARE 8 /* of MaxSize= */
/* Of Memory=, for the journal of a window. Mostly far less of it is used. */
#define JOURNAL_SHARE 16
#define JOURNAL_MAX   (16u << 20)

struct manager {
        struct config *config;
        char *config_file;
        struct ledger_host host;
        sd_event *event;
        sd_event_source *drain_timer, *tick_timer, *track_timer, *house_timer;

        struct sampler *sampler;
        struct symclient *symbols;
        struct tracker *tracker;
        struct kernel_symbols *kernel;
        struct kernel_debug *kernel_debug;
        struct recorder *recorder;
        struct store *store;
        struct writer *writer;
        struct api *api;
        struct keep *keep;
        struct legacy *legacy;

        struct governor governor;
        struct counters recent[2]; /* [0] is between one and two minutes old, [1] younger */
        uint64_t start_real_ns, last_maintain_ns;
        uint32_t n_cpus;
        int exit_status; /* of the loop, 0 or -errno */
};

static void arm_drain(struct manager *m)
{
        sd_event_source_set_time_relative(m->drain_timer, recorder_next_drain(m->recorder, DRAIN_NS) / 1000);
        sd_event_source_set_enabled(m->drain_timer, SD_EVENT_ONESHOT);
}

static void arm_tick(struct manager *m)
{
        int ms = recorder_tick(m->recorder);

        if (ms < 0) {
                sd_event_source_set_enabled(m->tick_timer, SD_EVENT_OFF);
                return;
        }
        sd_event_source_set_time_relative(m->tick_timer, (uint64_t)ms * 1000);
        sd_event_source_set_enabled(m->tick_timer, SD_EVENT_ONESHOT);
}

static int fail(struct manager *m, int err, const char *what)
{
        log_error("%s: %s", what, strerror(-err));
        m->exit_status = err;
        return sd_event_exit(m->event, 1);
}

static int on_drain(sd_event_source *source, uint64_t usec, void *ctx)
{
        struct manager *m = ctx;

        int r = recorder_drain(m->recorder);
        if (r < 0)
                return fail(m, r, "cannot read samples back from the kernel");
        arm_drain(m);
        arm_tick(m);
        return 0;
}

static int on_tick(sd_event_source *source, uint64_t usec, void *ctx)
{
        arm_tick(ctx);
        return 0;
}

static uint64_t thread_cpu_ns(void)
{
        struct timespec t;

        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

static int follow(struct manager *m)
{
        uint64_t begin = thread_cpu_ns();
        int r = tracker_poll(m->tracker);

        m->governor.loop.following_ns += thread_cpu_ns() - begin;
        return r;
}

static int on_track(sd_event_source *source, uint64_t usec, void *ctx)
{
        struct manager *m = ctx;

        int r = follow(m);
        if (r >= 0)
                r = recorder_take_deferred(m->recorder);
        if (r < 0)
                return fail(m, r, "cannot read mapping records");
        sd_event_source_set_time_relative(m->track_timer, TRACK_USEC);
        return 0;
}

/* -- housekeeping -- */

static void follow_host(struct manager *m)
{
        int r = sampler_follow_cpus(m->sampler);

        if (r >= 0)
                r = tracker_follow_cpus(m->tracker);
        if (r < 0)
                log_warning("cannot follow the host's CPUs: %s", strerror(-r));
        long n = sysconf(_SC_NPROCESSORS_ONLN);
        m->n_cpus = n > 0 ? (uint32_t)n : 1;
}

static int on_housekeeping(sd_event_source *source, uint64_t usec, void *ctx)
{
        struct manager *m = ctx;
        struct counters now;

        follow_host(m);
        if (recorder_counters(m->recorder, &now) >= 0) {
                governor_look(&m->governor, &now, m->n_cpus);
                if (now.at_ns - m->recent[1].at_ns > RECENT_NS) {
                        m->recent[0] = m->recent[1];
                        m->recent[1] = now;
                }
        }
        if (now_monotonic_ns() - m->last_maintain_ns > MAINTAIN_NS) {
                writer_maintain(m->writer);
                m->last_maintain_ns = now_monotonic_ns();
        }
        sd_event_source_set_time_relative(m->house_timer, HOUSEKEEPING_USEC);
        return 0;
}

/* -- the API -- */

static void on_collect(void *ctx, struct api_request *request, const struct api_collect *what)
{
        struct manager *m = ctx;

        recorder_collect(m->recorder, request, what);
        arm_tick(m);
}

static void on_cancel(void *ctx, struct api_request *request)
{
        struct manager *m = ctx;

        recorder_cancel(m->recorder, request);
}

/* Objects that would have names if there were more of something. */
static void note_lacking(struct status *s)
{
        const struct tracker_stats *t = &s->now->tracker;

        if (!t->objects_lacking)
                return;
        snprintf(s->lacking, sizeof(s->lacking), "frames of %u object%s have no names now: %s%s",
                 t->objects_lacking, t->objects_lacking == 1 ? "" : "s",
                 t->lacking_error == ECHILD ? "the symbolizer's worker cannot be started; see the log"
                                            : strerror((int)t->lacking_error),
                 t->lacking_error == EMFILE   ? "; raise LimitNOFILE= of profd.service"
                 : t->lacking_error == ENFILE ? "; raise fs.file-max"
                                              : "");
        s->notes[s->n_notes++] = s->lacking;
}

static void fill_status(struct manager *m, struct status *s, const struct counters *now)
{
        *s = (struct status){
                        .host = &m->host,
                        .sampler = m->sampler,
                        .budget = &m->governor.budget,
                        .now = now,
                        .recent = m->recent[0].at_ns ? &m->recent[0] : &m->recent[1],
                        .store = m->store,
                        .store_directory = m->config->directory,
                        .start_real_ns = m->start_real_ns,
                        .n_cpus = m->n_cpus,
                        .memory_limit = m->config->memory,
                        .kernel_names = m->kernel != NULL,
        };
        if (m->governor.budget.names_wait)
                s->notes[s->n_notes++] = "names wait: the symbolizer has used its share of Cpu=";
        if (m->governor.budget.following_waits)
                s->notes[s->n_notes++] =
                                "more processes start than Cpu= lets profd follow: frames of those that "
                                "are not followed have no names";
        if (m->governor.budget.exceeded)
                s->notes[s->n_notes++] = "more than Cpu= is used at the lowest rate; see the log";
        note_lacking(s);
        if (!m->kernel)
                s->notes[s->n_notes++] = "kernel functions have no names: /proc/kallsyms is hidden (kernel."
                                         "kptr_restrict, lockdown, or no CAP_SYSLOG)";
}

static void on_status(void *ctx, struct buf *out)
{
        struct manager *m = ctx;
        struct counters now;
        struct status s;

        if (recorder_counters(m->recorder, &now) < 0)
                return;
        fill_status(m, &s, &now);
        status_json(&s, out);
}

static void on_metrics(void *ctx, struct buf *out)
{
        struct manager *m = ctx;
        struct counters now;
        struct status s;

        if (recorder_counters(m->recorder, &now) < 0)
                return;
        fill_status(m, &s, &now);
        status_metrics(&s, out);
}

static bool on_health(void *ctx, char *why, uint32_t size)
{
        struct manager *m = ctx;
        struct writer_stats writer;
        struct store_stats st;
        uint32_t cpus = 0;

        for (uint32_t i = 0; i < sampler_n_events(m->sampler); i++)
                cpus = MAX_OF(cpus, sampler_event(m->sampler, i)->cpus);
        writer_stats(m->writer, &writer);
        store_stats(m->store, &st);
        if (cpus == 0)
                snprintf(why, size, "no event could be opened on any CPU");
        else if (now_monotonic_ns() - recorder_last_drain_ns(m->recorder) > UNHEALTHY_NS)
                snprintf(why, size, "samples were last read %" PRIu64 " s ago",
                         (uint64_t)((now_monotonic_ns() - recorder_last_drain_ns(m->recorder)) /
                                    NSEC_PER_SEC));
        else if (writer.last_error < 0)
                snprintf(why, size, "windows cannot be stored: %s", strerror(-writer.last_error));
        else if (*st.error)
                snprintf(why, size, "%s", st.error);
        else
                return true;
        return false;
}

static const struct api_ops api_ops = {
                .collect = on_collect,
                .cancel = on_cancel,
                .status = on_status,
                .metrics = on_metrics,
                .health = on_health,
};

/* -- event sources -- */

static int on_sampler(sd_event_source *source, int fd, uint32_t events, void *ctx)
{
        struct manager *m = ctx;

        int r = recorder_poll(m->recorder);
        return r < 0 ? fail(m, r, "cannot read stacks back from the kernel") : 0;
}

static int on_tracker(sd_event_source *source, int fd, uint32_t events, void *ctx)
{
        struct manager *m = ctx;

        int r = follow(m);
        return r < 0 ? fail(m, r, "cannot read mapping records") : 0;
}

static int on_symbols(sd_event_source *source, int fd, uint32_t events, void *ctx)
{
        struct manager *m = ctx;

        uint64_t begin = thread_cpu_ns();
        int r = symclient_dispatch(m->symbols);

        m->governor.loop.naming_ns += thread_cpu_ns() - begin;
        return r < 0 ? fail(m, r, "the symbolizer cannot go on") : 0;
}

static int on_api(sd_event_source *source, int fd, uint32_t events, void *ctx)
{
        struct manager *m = ctx;

        int r = api_dispatch(m->api);
        return r < 0 ? fail(m, r, "the API cannot go on") : 0;
}

static int on_stop(sd_event_source *source, const struct signalfd_siginfo *si, void *ctx)
{
        struct manager *m = ctx;

        sd_notify(0, "STOPPING=1");
        return sd_event_exit(m->event, 0);
}

static struct store_config store_config_of(const struct config *c, uint64_t window_ns)
{
        return (struct store_config){
                        .directory = c->directory,
                        .max_size = c->max_size,
                        .max_age_ns = c->max_age_ns,
                        .window_ns = window_ns,
                        .merge_ns = {c->merge_ns[0], c->merge_ns[1]},
                        .merge_after_ns = {c->merge_after_ns[0], c->merge_after_ns[1]},
        };
}

/* Of the store all but where it is and how long a window lasts. */
static void reload_store(struct manager *m, const struct config *c)
{
        const struct store_config store = store_config_of(c, m->config->window_ns);

        store_configure(m->store, &store); /* its directory stays */
        m->config->max_size = c->max_size;
        m->config->max_age_ns = c->max_age_ns;
        memcpy(m->config->merge_ns, c->merge_ns, sizeof(c->merge_ns));
        memcpy(m->config->merge_after_ns, c->merge_after_ns, sizeof(c->merge_after_ns));
}

/* What can change in a running daemon does; the rest is said to need a restart. */
static int on_reload(sd_event_source *source, const struct signalfd_siginfo *si, void *ctx)
{
        struct manager *m = ctx;
        _cleanup_free_ char *error = NULL;
        struct config *c;

        sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64, (uint64_t)(now_monotonic_ns() / 1000));
        int r = config_load(&c, m->config_file, &error);
        if (r < 0)
                log_error("configuration not reloaded, the old one stays: %s", error ? error : strerror(-r));
        else {
                budget_init(&m->governor.budget, (uint32_t)c->frequency, c->cpu_ppm);
                r = sampler_set_frequency(m->sampler, (uint32_t)c->frequency);
                if (r < 0)
                        log_error("cannot change the sampling rate to %" PRIu64 " Hz: %s", c->frequency,
                                  strerror(-r));
                log_notice("configuration reloaded: Frequency=, Cpu=, MaxSize=, MaxAge=, Merge= and "
                           "MergeAfter= are in force; other keys are with the next start");
                reload_store(m, c);
                m->config->frequency = c->frequency;
                m->config->cpu_ppm = c->cpu_ppm;
                config_free(c);
        }
        sd_notify(0, "READY=1");
        return 0;
}

static int add_sources(struct manager *m)
{
        const struct {
                int fd;
                sd_event_io_handler_t handler;
        } fds[] = {
                        {sampler_fd(m->sampler), on_sampler},
                        {tracker_fd(m->tracker), on_tracker},
                        {symclient_fd(m->symbols), on_symbols},
                        {api_fd(m->api), on_api},
        };
        const struct {
                sd_event_source **source;
                sd_event_time_handler_t handler;
                uint64_t first_usec, accuracy_usec;
        } timers[] = {
                        {&m->drain_timer, on_drain, DRAIN_NS / 1000, 1000},
                        {&m->tick_timer, on_tick, 1000, 1000},
                        {&m->track_timer, on_track, TRACK_USEC, TRACK_USEC / 2},
                        {&m->house_timer, on_housekeeping, HOUSEKEEPING_USEC, HOUSEKEEPING_USEC / 4},
        };
        int r = 0;

        for (size_t i = 0; i < ARRAY_SIZE(fds) && r >= 0; i++)
                r = sd_event_add_io(m->event, NULL, fds[i].fd, EPOLLIN, fds[i].handler, m);
        for (size_t i = 0; i < ARRAY_SIZE(timers) && r >= 0; i++)
                r = sd_event_add_time_relative(m->event, timers[i].source, CLOCK_MONOTONIC,
                                               timers[i].first_usec, timers[i].accuracy_usec,
                                               timers[i].handler, m);
        if (r >= 0)
                r = sd_event_source_set_enabled(m->track_timer, SD_EVENT_ON);
        if (r >= 0)
                r = sd_event_source_set_enabled(m->house_timer, SD_EVENT_ON);
        if (r >= 0)
                r = sd_event_add_signal(m->event, NULL, SIGTERM, on_stop, m);
        if (r >= 0)
                r = sd_event_add_signal(m->event, NULL, SIGINT, on_stop, m);
        if (r >= 0)
                r = sd_event_add_signal(m->event, NULL, SIGHUP, on_reload, m);
        if (r >= 0)
                r = sd_event_set_watchdog(m->event, true);
        return r;
}

/* -- start and end -- */

/* Objects are kept open so that deleted files keep their names, and perf events are one per CPU and event.
 */
static void raise_limits(void)
{
        struct rlimit l;

        if (getrlimit(RLIMIT_NOFILE, &l) == 0 && l.rlim_cur < l.rlim_max) {
                l.rlim_cur = l.rlim_max;
                setrlimit(RLIMIT_NOFILE, &l);
        }
        /* Kernels before 5.11 count BPF memory here. */
        setrlimit(RLIMIT_MEMLOCK, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY});
}

/* On a host with more work than CPUs the samples of new processes wait for their unwind tables, which wait
 * for a CPU: with 40 runnable processes a fifth of the stacks was cut at nice 0, none at -10. What profd
 * uses in all is bounded by Cpu=. An operator's own choice (Nice= of the unit) stays. */
static void go_first(void)
{
        errno = 0;
        if (getpriority(PRIO_PROCESS, 0) == 0 && errno == 0)
                setpriority(PRIO_PROCESS, 0, NICE_LEVEL);
}

static int start_sampling(struct manager *m)
{
        const struct config *c = m->config;
        const struct sampler_config sampling = {
                        .events = (const char *const *)c->events,
                        .n_events = c->n_events,
                        .frequency = (uint32_t)c->frequency,
                        .memory = c->memory / 4,
                        .drain_ms = DRAIN_NS / NSEC_PER_MSEC,
                        .threads = c->threads,
        };
        _cleanup_free_ char *names = NULL;
        struct unwind_maps maps;

        int r = sampler_new(&m->sampler, &sampling);
        if (r < 0)
                return r; /* said by the sampler */
        const char *cache = getenv("CACHE_DIRECTORY");
        if (asprintf(&names, "%s%s", cache ? cache : c->directory, cache ? "" : "/names") < 0)
                return -ENOMEM;
        if (!cache) {
                mkdir(c->directory, 0750); /* the store has not been there yet, at the first start */
                mkdir(names, 0700);
        }
        const struct symclient_options symbols = {
                        .cache_dir = names,
                        .cache_max = c->max_size / NAMES_CACHE_SHARE,
                        .memory = 0,
                        .debug_dirs = (const char *const *)c->debug_dirs,
        };
        r = symclient_new(&m->symbols, &symbols);
        if (r < 0) {
                log_error("cannot start the symbolizer's worker: %s", strerror(-r));
                return r;
        }
        sampler_unwind_maps(m->sampler, &maps);
        r = tracker_new(&m->tracker, &maps, m->symbols, c->memory / 4);
        if (r < 0) {
                log_error("cannot follow processes: %s", strerror(-r));
                return r;
        }
        r = kernel_symbols_new(&m->kernel);
        if (r == -ENOMEM)
                return r;
        if (r < 0)
                log_warning("kernel functions will have no names: %s: allow CAP_SYSLOG, or set "
                            "kernel.kptr_restrict to 1 or 0",
                            strerror(-r));
        if (r < 0)
                return 0;
        r = kernel_debug_new(&m->kernel_debug, m->symbols, m->kernel, symbols.debug_dirs);
        if (r >= 0)
                kernel_debug_seek(m->kernel_debug);
        return r;
}

static int start_serving(struct manager *m)
{
        const struct config *c = m->config;
        const struct store_config store = store_config_of(c, c->window_ns);
        int r = store_open(&m->store, &store);

        if (r < 0) {
                log_error("cannot open the store %s: %s", c->directory, strerror(-r));
                return r;
        }
        r = writer_new(&m->writer, m->store);
        if (r < 0) {
                log_error("cannot start the writer thread: %s", strerror(-r));
                return r;
        }
        const struct api_config api = {
                        .socket = c->socket,
                        .listen_fd = keep_listen_fd(m->keep),
                        .listen = c->listen,
                        .tls_certificate = c->tls_certificate,
                        .tls_key = c->tls_key,
                        .token_file = c->token_file,
                        .client_ca = *c->client_ca ? c->client_ca : NULL,
                        .group = c->group,
        };
        return api_new(&m->api, &api, m->store, &api_ops, m); /* said by the API */
}

static int take_over(struct manager *m)
{
        const struct takeover_parts parts = {
                        .keep = m->keep,
                        .sampler = m->sampler,
                        .tracker = m->tracker,
                        .recorder = m->recorder,
                        .store = m->store,
                        .own = legacy_head(m->legacy),
        };
        int r = 0;

        if (parts.own)
                r = recorder_keep(m->recorder, m->keep, parts.own,
                                  MIN_OF(m->config->memory / JOURNAL_SHARE, (uint64_t)JOURNAL_MAX));
        return r < 0 ? r : takeover_run(&parts);
}

static int start(struct manager *m)
{
        raise_limits();
        go_first();
        int r = keep_new(&m->keep, m->config->pin, m->config->directory);
        if (r < 0)
                return r; /* said there */
        r = start_sampling(m);
        if (r >= 0)
                r = start_serving(m);
        if (r < 0)
                return r;
        const struct pipeline_parts parts = {
                        .sampler = m->sampler,
                        .tracker = m->tracker,
                        .symbols = m->symbols,
                        .kernel = m->kernel,
                        .kernel_debug = m->kernel_debug,
                        .memory = m->config->memory / 16,
        };
        m->governor.parts = (struct governor_parts){m->sampler, m->tracker, m->symbols};
        budget_init(&m->governor.budget, (uint32_t)m->config->frequency, m->config->cpu_ppm);
        r = legacy_new(&m->legacy, m->keep, m->sampler, m->tracker);
        if (r >= 0)
                r = tracker_start(m->tracker);
        if (r >= 0)
                r = sampler_start(m->sampler);
        if (r >= 0)
                r = recorder_new(&m->recorder, &parts, m->writer, &m->governor.budget, m->config->window_ns);
        if (r >= 0)
                r = take_over(m);
        if (r >= 0)
                r = sd_event_default(&m->event);
        if (r >= 0)
                r = add_sources(m);
        if (r < 0) {
                log_error("cannot start: %s", strerror(-r));
                return r;
        }
        recorder_set_api(m->recorder, m->api);
        follow_host(m);
        m->start_real_ns = now_realtime_ns();
        r = recorder_counters(m->recorder, &m->recent[1]);
        governor_begin(&m->governor, &m->recent[1]);
        return r;
}

static int replace_text(char **text, const char *with)
{
        if (!with)
                return 0;
        char *copy = strdup(with);
        if (!copy)
                return -ENOMEM;
        free(*text);
        *text = copy;
        return 0;
}

int manager_new(struct manager **ret, struct config *config, const char *config_file, const char *state_dir,
                const char *socket)
{
        struct manager *m = calloc(1, sizeof(*m));
        int r;

        if (!m) {
                config_free(config);
                return -ENOMEM;
        }
        m->config = config;
        ledger_host(&m->host);
        r = replace_text(&m->config_file, config_file);
        if (r >= 0)
                r = replace_text(&m->config->directory, state_dir);
        if (r >= 0)
                r = replace_text(&m->config->socket, socket);
        if (r >= 0)
                r = start(m);
        if (r < 0) {
                manager_free(m);
                return r;
        }
        *ret = m;
        return 0;
}

int manager_run(struct manager *m)
{
        arm_drain(m);
        log_info("sampling %u CPUs at %u Hz; windows of %" PRIu64 " s in %s", m->n_cpus,
                 m->governor.budget.frequency, (uint64_t)(m->config->window_ns / NSEC_PER_SEC),
                 m->config->directory);
        sd_notify(0, "READY=1\nSTATUS=sampling");
        int r = sd_event_loop(m->event);
        if (r < 0)
                return r;
        symclient_hold_names(m->symbols, false); /* the last names are worth it */
        recorder_finish(m->recorder);
        sampler_leave(m->sampler);
        if (legacy_head(m->legacy) && keep_pins(m->keep))
                log_notice("sampling goes on in %s for the next profd; remove that directory to end it",
                           m->config->pin);
        return m->exit_status;
}

struct manager *manager_free(struct manager *m)
{
        if (!m)
                return NULL;
        sd_event_source_unref(m->drain_timer);
        sd_event_source_unref(m->tick_timer);
        sd_event_source_unref(m->track_timer);
        sd_event_source_unref(m->house_timer);
        sd_event_unref(m->event);
        api_free(m->api);
        recorder_free(m->recorder);
        writer_free(m->writer);
        store_free(m->store);
        kernel_debug_free(m->kernel_debug);
        kernel_symbols_free(m->kernel);
        tracker_free(m->tracker);
        symclient_free(m->symbols);
        sampler_free(m->sampler);
        legacy_free(m->legacy);
        keep_free(m->keep);
        config_free(m->config);
        free(m->config_file);
        free(m);
        return NULL;
}
