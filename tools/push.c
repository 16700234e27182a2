/* profctl push: sends the stored windows, each once and in order, to a receiver of OTLP profiles, as they
 * are stored. The store is the queue: a receiver that is away is tried again, and gets what it missed. A
 * program of its own, so that nothing that talks to the network holds profd's privileges. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/parse.h"
#include "profile/otlp.h"
#include "profile/pprof.h"
#include "tools/event.h"
#include "tools/http.h"
#include "tools/push_post.h"
#include "tools/push_state.h"
#include "tools/say.h"
#include "tools/source.h"
#include "tools/trouble.h"
#include "tools/verb.h"

#define PAGE_WINDOWS     100
#define REQUEST_SAMPLES  10000u /* a request of these is a few MB at most */
#define MAX_WINDOW_BYTES (1ull << 30)
#define WINDOW_TIMEOUT   (60 * NSEC_PER_SEC)
#define POLL             (10 * NSEC_PER_SEC)
#define FIRST_BACKOFF    (5 * NSEC_PER_SEC)
#define LAST_BACKOFF     (300 * NSEC_PER_SEC)

enum { OPT_URL, OPT_STATE, OPT_HEADERS, OPT_CA, OPT_CERT, OPT_KEY, OPT_SINCE, OPT_ONCE };

struct push {
        struct query q;
        struct push_receiver to;
        struct push_state state;
        char host[256];
        const char *directory;
        uint64_t since_ns;
        bool once;
        uint64_t wait_ns, backoff_ns; /* what the receiver asked for; what is waited without that */
        struct trouble trouble;
};

enum turn { TURN_DONE, TURN_LATER, TURN_FAILED };

static int set(void *ctx, int id, const char *value)
{
        struct push *p = ctx;

        switch (id) {
        case OPT_URL:
                p->to.url = value;
                return strstr(value, "://") ? 0 : -EINVAL;
        case OPT_STATE:
                p->directory = value;
                return 0;
        case OPT_HEADERS:
                p->to.header_file = value;
                return 0;
        case OPT_CA:
                p->to.ca = value;
                return 0;
        case OPT_CERT:
                p->to.certificate = value;
                return 0;
        case OPT_KEY:
                p->to.key = value;
                return 0;
        case OPT_SINCE:
                return parse_time(value, now_realtime_ns(), &p->since_ns);
        default:
                p->once = true;
                return 0;
        }
}

static const struct option_spec options[] = {
                {"to", 't', "URL", "receiver: https://host:4318" OTLP_PATH, OPT_URL},
                {"state", 's', "DIR", "where to remember how far it came", OPT_STATE},
                {"header-file", 0, "FILE", "lines 'Name: value' to send, as a token", OPT_HEADERS},
                {"to-ca", 0, "FILE", "certificates that sign the receiver's", OPT_CA},
                {"to-cert", 0, "FILE", "a certificate to show it", OPT_CERT},
                {"to-key", 0, "FILE", "and its key", OPT_KEY},
                {"from", 0, "TIME", "where to begin the first time; else with now", OPT_SINCE},
                {"once", '1', NULL, "send what there is, and end", OPT_ONCE},
};

static const struct command_spec spec = {
                .name = "push",
                .arguments = "--to=URL --state=DIR [OPTION...]",
                .summary = "Sends stored windows to a receiver of OTLP profiles "
                           "(opentelemetry " OTLP_VERSION
                           "),\neach once, in order. What it cannot take now it gets later.",
                .options = options,
                .n_options = ARRAY_SIZE(options),
                .takes = TAKES_TARGET,
                .set = set,
};

static enum turn later(struct push *p, const char *what)
{
        if (trouble_is_new(&p->trouble, what))
                say_note("%s: tried again until it is well", what);
        return TURN_LATER;
}

static void well(struct push *p)
{
        if (trouble_ends(&p->trouble))
                say_note("%s takes windows again", p->to.url);
}

/* A GET to profd. */
static enum turn ask(struct push *p, const char *path, struct http_reply *ret)
{
        _cleanup_buf_ struct buf error = {0};
        const struct http_request request = {.path = path,
                                             .timeout_ns = WINDOW_TIMEOUT,
                                             .max_bytes = MAX_WINDOW_BYTES,
                                             .error = &error};

        if (http_get(&p->q.target, &request, ret) != 0)
                return later(p, buf_text(&error));
        if (ret->status == 200 || ret->status == 404)
                return TURN_DONE;
        http_refused(&p->q.target, &request, ret);
        buf_free(&ret->body);
        return later(p, buf_text(&error));
}

/* Sends the samples [first, first + n), by halves when they are too many for the receiver. */
static enum turn send_samples(struct push *p, const struct profile *profile, const char *id, uint32_t first,
                              uint32_t n, bool *ret_refused)
{
        const struct otlp_source source = {.host = p->host, .version = PROFD_VERSION, .id = id};
        _cleanup_buf_ struct buf request = {0}, what = {0};
        struct push_reply reply;

        int r = otlp_encode(profile, &source, first, n, &request);
        if (r < 0) {
                say_failed("cannot encode the window %s: %s", id, strerror(-r));
                return TURN_FAILED;
        }
        if (push_post(&p->to, &request, &reply) != STATUS_DONE)
                return TURN_FAILED;
        switch (reply.answer) {
        case PUSH_TAKEN:
                well(p);
                p->state.rejected += (uint64_t)MAX_OF(reply.rejected, (int64_t)0);
                if (reply.text[0])
                        say_note("%s on the window %s: %s (%" PRId64 " profiles rejected)", p->to.url, id,
                                 reply.text, reply.rejected);
                return TURN_DONE;
        case PUSH_TOO_LARGE:
                if (n > 1) {
                        enum turn t = send_samples(p, profile, id, first, n / 2, ret_refused);
                        return t == TURN_DONE ? send_samples(p, profile, id, first + n / 2, n - n / 2,
                                                             ret_refused)
                                              : t;
                }
                /* fall through */
        case PUSH_REFUSED:
                say_note("%s refuses the window %s: %s: it is not sent again", p->to.url, id, reply.text);
                *ret_refused = true;
                return TURN_DONE;
        default:
                p->wait_ns = reply.wait_ns;
                buf_addf(&what, "%s does not take windows: %s", p->to.url, reply.text);
                return later(p, buf_text(&what));
        }
}

/* -- windows -- */

static enum turn send_window(struct push *p, struct json_object *w)
{
        const char *id = json_at_text(w, "id", "");
        uint64_t first_seq = json_at_u64(w, "first_seq", 0), last_seq = json_at_u64(w, "last_seq", 0);
        bool overlaps = json_object_get_boolean(json_at(w, "overlaps")), refused = false;
        _cleanup_profile_ struct profile *profile = NULL;
        _cleanup_buf_ struct buf path = {0};
        struct http_reply reply = {0};
        const char *error = "";
        struct push_state *s = &p->state;

        buf_addf(&path, "/api/v1/windows/%s", id);
        enum turn t = ask(p, buf_text(&path), &reply);
        if (t != TURN_DONE)
                return t;
        _cleanup_buf_ struct buf body = reply.body;
        if (reply.status == 404) /* merged or deleted since the list was made: the next list tells */
                return TURN_LATER;
        int r = pprof_read(body.data, body.len, MAX_WINDOW_BYTES, &profile, &error);
        if (r < 0) {
                say_note("the window %s cannot be read (%s): it is not sent", id,
                         error ? error : strerror(-r));
                s->refused++;
        } else {
                r = overlaps ? push_state_subtract(s, profile) : 0;
                if (r < 0) {
                        say_failed("cannot take out of the window %s what was sent: %s", id, strerror(-r));
                        return TURN_FAILED;
                }
                for (uint32_t at = 0; at < profile->n_samples && t == TURN_DONE; at += REQUEST_SAMPLES)
                        t = send_samples(p, profile, id, at,
                                         MIN_OF(profile->n_samples - at, REQUEST_SAMPLES), &refused);
                if (t != TURN_DONE)
                        return t;
                s->windows++;
                s->samples += profile_samples(profile);
                s->refused += refused;
                if (push_state_keep(s, id, body.data, body.len) != STATUS_DONE)
                        return TURN_FAILED;
        }
        if (s->last_seq && first_seq > s->last_seq + 1) {
                say_note("%" PRIu64 " windows before %s were deleted before they could be sent",
                         first_seq - s->last_seq - 1, id);
                s->missed += first_seq - s->last_seq - 1;
        }
        snprintf(s->after, sizeof(s->after), "%s", id);
        s->last_seq = last_seq;
        return push_state_write(s) == STATUS_DONE ? TURN_DONE : TURN_FAILED;
}

/* Sends one page of windows; `*ret_more`: there are more. */
static enum turn send_page(struct push *p, bool *ret_more)
{
        _cleanup_json_ struct json_object *page = NULL;
        _cleanup_buf_ struct buf path = {0};
        struct http_reply reply = {0};

        buf_addf(&path, "/api/v1/windows?limit=%d", PAGE_WINDOWS);
        if (p->state.after[0])
                buf_addf(&path, "&after=%s", p->state.after);
        else
                buf_addf(&path, "&since=%" PRIu64, (uint64_t)(p->state.since_ns / NSEC_PER_SEC));
        enum turn t = ask(p, buf_text(&path), &reply);
        if (t != TURN_DONE)
                return t;
        page = json_tokener_parse(buf_text(&reply.body));
        buf_free(&reply.body);
        if (!page)
                return later(p, "profd's list of windows is not JSON");
        struct json_object *windows = json_at(page, "windows");
        size_t n = windows ? json_object_array_length(windows) : 0;
        for (size_t i = 0; i < n && t == TURN_DONE; i++) {
                struct json_object *w = json_object_array_get_idx(windows, i);
                if (!json_at(w, "first_seq")) {
                        say_failed("this user sees windows in part only: push as root or as a member of the "
                                   "group "
                                   "profd");
                        return TURN_FAILED;
                }
                t = send_window(p, w);
        }
        *ret_more = n > 0 && json_object_get_boolean(json_at(page, "more"));
        return t;
}

static enum turn send_all(struct push *p)
{
        bool more = true;
        enum turn t = TURN_DONE;

        while (t == TURN_DONE && more)
                t = send_page(p, &more);
        return t;
}

static void sleep_ns(uint64_t ns)
{
        struct timespec left = {.tv_sec = (time_t)(ns / NSEC_PER_SEC), .tv_nsec = (long)(ns % NSEC_PER_SEC)};

        while (nanosleep(&left, &left) < 0 && errno == EINTR)
                ;
}

/* Doubles from one try to the next; a quarter of it by chance, so that a fleet does not come back as one. */
static uint64_t next_wait(struct push *p)
{
        uint64_t wait = p->backoff_ns ? MIN_OF(p->backoff_ns * 2, LAST_BACKOFF) : FIRST_BACKOFF;

        p->backoff_ns = wait;
        wait += (uint64_t)((double)wait / 4 * drand48());
        wait = MAX_OF(wait, p->wait_ns);
        p->wait_ns = 0;
        return wait;
}

static int serve(struct push *p)
{
        for (;;) {
                enum turn t = send_all(p);
                if (t == TURN_FAILED)
                        return STATUS_FAILED;
                if (p->once)
                        return t == TURN_DONE ? STATUS_DONE : STATUS_FAILED;
                if (t == TURN_DONE)
                        p->backoff_ns = 0;
                sleep_ns(t == TURN_DONE ? POLL : next_wait(p));
        }
}

int verb_push(int argc, char **argv)
{
        struct push p = {.since_ns = now_realtime_ns()};
        int first;

        int r = options_parse(&spec, argc, argv, &p.q, &p, &first);
        if (r >= 0)
                return r;
        if (first < argc)
                return say_usage(spec.name, "unexpected argument '%s'", argv[first]);
        if (!p.to.url || !p.directory)
                return say_usage(spec.name, "--to and --state are needed");
        if (gethostname(p.host, sizeof(p.host) - 1) < 0)
                return say_failed("cannot read the host's name: %s", strerror(errno));
        srand48((long)(now_monotonic_ns() ^ (uint64_t)getpid()));
        r = push_state_read(&p.state, p.directory, p.since_ns);
        if (r != STATUS_DONE)
                return r;
        r = push_state_write(&p.state); /* a first start is where it begins, even if killed at once */
        if (r != STATUS_DONE)
                return r;
        r = serve(&p);
        if (p.once)
                say_note("%" PRIu64 " windows sent in all, %" PRIu64 " samples; %" PRIu64
                         " profiles rejected, %" PRIu64 " windows refused, %" PRIu64
                         " deleted before they were sent",
                         p.state.windows, p.state.samples, p.state.rejected, p.state.refused,
                         p.state.missed);
        return r;
}
