/* profctl record -- CMD: the command is started stopped (a pipe before exec), the daemon asked to follow it,
 * and let go once the daemon has taken the request on, so that its first instruction is seen. The daemon
 * answers with the profile when the command has exited; that it has taken a request on is known when it
 * answers one for its status that was made later, because its main thread takes them in turn. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/parse.h"
#include "profile/pprof.h"
#include "tools/event.h"
#include "tools/http.h"
#include "tools/output.h"
#include "tools/report.h"
#include "tools/say.h"
#include "tools/session.h"
#include "tools/source.h"
#include "tools/verb.h"

#define PRIVATE_FREQUENCY 999
#define ANSWER_MAX        (1u << 30)
#define REPORT_LINES      25
/* As shells have it. */
#define CANNOT_EXEC 126
#define NOT_FOUND   127

enum { OPT_OUTPUT, OPT_FREQUENCY, OPT_EVENT };

struct record {
        const char *output;
        const char *event;
        uint64_t frequency;
};

static int set(void *ctx, int id, const char *value)
{
        struct record *r = ctx;

        switch (id) {
        case OPT_OUTPUT:
                r->output = value;
                return 0;
        case OPT_EVENT:
                r->event = value;
                return 0;
        default:
                return parse_u64(value, 1, 10000, &r->frequency);
        }
}

static const struct option_spec options[] = {
                {"output", 'o', "FILE", "keep the profile in FILE, a pprof file", OPT_OUTPUT},
                {"event", 'e', "NAME", "what the report counts: cpu, samples, cache-misses", OPT_EVENT},
                {"frequency", 'F', "HZ", "rate of a profd started for this command (999)", OPT_FREQUENCY},
};

static const struct command_spec spec = {
                .name = "record",
                .arguments = "[OPTION...] -- CMD [ARG...]",
                .summary = "Runs CMD, profiles it and its children from the first instruction, prints the\n"
                           "report, and passes CMD's exit status on. When no profd runs, one is started\n"
                           "for this command; that needs root.",
                .options = options,
                .n_options = ARRAY_SIZE(options),
                .takes = TAKES_TARGET | TAKES_COMMAND,
                .set = set,
};

/* -- the command -- */

struct child {
        pid_t pid;
        int go;     /* a byte written here lets it exec; closed without one: it ends */
        int failed; /* carries errno when exec failed */
};

static int child_start(struct child *c, char **argv)
{
        int go[2], failed[2];
        char byte;

        if (pipe2(go, O_CLOEXEC) < 0 || pipe2(failed, O_CLOEXEC) < 0)
                return say_failed("cannot make a pipe: %s", strerror(errno));
        fflush(NULL);
        c->pid = fork();
        if (c->pid < 0)
                return say_failed("cannot start %s: %s", argv[0], strerror(errno));
        if (c->pid == 0) {
                close(go[1]);
                signal(SIGPIPE, SIG_DFL);
                signal(SIGINT, SIG_DFL);
                signal(SIGQUIT, SIG_DFL);
                if (read(go[0], &byte, 1) != 1)
                        _exit(CANNOT_EXEC);
                execvp(argv[0], argv);
                int err = errno;
                write_all(failed[1], &err, sizeof(err));
                _exit(CANNOT_EXEC);
        }
        close(go[0]);
        close(failed[1]);
        c->go = go[1];
        c->failed = failed[0];
        return 0;
}

/* Lets the command exec, or end without. */
static void child_let_go(struct child *c, bool exec)
{
        if (c->go >= 0 && exec)
                write_all(c->go, "", 1);
        cleanup_close(&c->go);
        c->go = -1;
}

/* Exit status as a shell gives it. */
static int child_wait(struct child *c, const char *name, bool *ret_ran)
{
        int status, err;

        *ret_ran = true;

        while (waitpid(c->pid, &status, 0) < 0)
                if (errno != EINTR)
                        return CANNOT_EXEC;
        if (read(c->failed, &err, sizeof(err)) == sizeof(err)) {
                say_failed("cannot run %s: %s", name, strerror(err));
                *ret_ran = false;
                return err == ENOENT ? NOT_FOUND : CANNOT_EXEC;
        }
        return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* -- the collection, in a thread of its own while the command runs -- */

struct collection {
        struct target target;
        struct http_request request;
        char path[64];
        int sent; /* a byte is written here when the request is on its way, and when it has ended */
        _Atomic bool ended;
        int result;
        struct http_reply reply;
};

static void on_sent(void *ctx)
{
        struct collection *c = ctx;

        write_all(c->sent, "", 1);
}

static void *collect(void *ctx)
{
        struct collection *c = ctx;
        c->request = (struct http_request){
                        .path = c->path,
                        .timeout_ns = 7 * 86400 * NSEC_PER_SEC,
                        .max_bytes = ANSWER_MAX,
                        .on_sent = on_sent,
                        .ctx = c,
        };

        c->result = http_get(&c->target, &c->request, &c->reply);
        c->ended = true;
        on_sent(c);
        return NULL;
}

/* Waits until the daemon has taken the collection on; false: it will not. */
static bool is_taken_on(struct collection *c, int sent)
{
        const struct http_request status = {
                        .path = "/api/v1/status", .timeout_ns = 10 * NSEC_PER_SEC, .max_bytes = 1 << 20};
        struct http_reply reply;
        char byte;

        while (read(sent, &byte, 1) < 0 && errno == EINTR)
                ;
        if (c->ended || http_get(&c->target, &status, &reply) != 0)
                return false;
        buf_free(&reply.body);
        return !c->ended;
}

static int profile_of(const struct collection *c, struct profile **ret)
{
        const char *why = NULL;

        if (c->result != 0)
                return c->result;
        if (c->reply.status != 200)
                return http_refused(&c->target, &c->request, &c->reply);
        int r = pprof_read(c->reply.body.data, c->reply.body.len, 0, ret, &why);
        return r < 0 ? say_failed("the profile that came is none: %s", why ? why : strerror(-r)) : 0;
}

/* Runs the command under a collection. The command's exit status is in `*ret_exit` whatever becomes of the
 * profile; -1 when the collection does not start, for then the command does not either. */
static int run(const struct target *target, char **argv, struct profile **ret, int *ret_exit)
{
        struct child child = {.pid = -1, .go = -1, .failed = -1};
        struct collection c = {.target = *target};
        int sent[2];
        pthread_t thread;

        *ret_exit = -1;
        if (pipe2(sent, O_CLOEXEC) < 0)
                return say_failed("cannot make a pipe: %s", strerror(errno));
        c.sent = sent[1];
        int r = child_start(&child, argv);
        if (r == 0) {
                snprintf(c.path, sizeof(c.path), "/api/v1/profile?follow=%d", child.pid);
                r = pthread_create(&thread, NULL, collect, &c);
                if (r != 0)
                        say_failed("cannot start a thread: %s", strerror(r));
        }
        if (r == 0) {
                /* An interrupt at the terminal reaches the command too: it ends, and its profile is wanted.
                 */
                signal(SIGINT, SIG_IGN);
                signal(SIGQUIT, SIG_IGN);
                bool taken_on = is_taken_on(&c, sent[0]);
                child_let_go(&child, taken_on);
                bool ran;
                int status = child_wait(&child, argv[0], &ran);
                pthread_join(thread, NULL);
                *ret_exit = taken_on ? status : -1;
                r = ran || !taken_on ? profile_of(&c, ret) : STATUS_FAILED;
                buf_free(&c.reply.body);
        }
        child_let_go(&child, false);
        close(sent[0]);
        close(sent[1]);
        cleanup_close(&child.failed);
        return r == 0 ? STATUS_DONE : STATUS_FAILED;
}

static int keep(const char *path, const struct profile *p)
{
        _cleanup_buf_ struct buf out = {0};

        int r = pprof_write(p, true, &out);
        return r < 0 ? say_failed("cannot make a pprof file: %s", strerror(-r)) : output_file(path, &out);
}

/* The command has run and will not run again: whatever cannot be done, the rest is. */
static int finish(const struct record *rec, struct profile *p)
{
        struct report_options o = report_defaults();
        int r = rec->output ? keep(rec->output, p) : STATUS_DONE;
        bool kept = rec->output && r == STATUS_DONE;

        if (p->n_samples == 0) {
                say_note("no samples: the command used less CPU time than one sampling period");
                return r;
        }
        if (event_index(p, rec->event) >= 0)
                o.event = rec->event;
        else
                r = STATUS_FAILED;
        o.max_rows = REPORT_LINES;
        o.only_self = true;
        if (report_text(p, &o, STDOUT_FILENO) != STATUS_DONE)
                return STATUS_FAILED;
        if (kept && isatty(STDOUT_FILENO))
                say_note("more: profctl report %s; profctl flamegraph -o FILE.html %s", rec->output,
                         rec->output);
        return r;
}

int verb_record(int argc, char **argv)
{
        struct record rec = {0};
        struct query q;
        _cleanup_(session_stop_cleanup) struct session *session = NULL;
        _cleanup_profile_ struct profile *p = NULL;
        int first, exit_status;

        int r = options_parse(&spec, argc, argv, &q, &rec, &first);
        if (r >= 0)
                return r;
        if (first >= argc)
                return say_usage("record", "no command given");
        r = output_check(rec.output);
        if (r != STATUS_DONE)
                return r;
        if (!q.target_given && !http_reachable(&q.target)) {
                r = session_start(&session, (uint32_t)(rec.frequency ? rec.frequency : PRIVATE_FREQUENCY));
                if (r != 0)
                        return r;
                q.target.socket = session_socket(session);
        } else if (rec.frequency) {
                say_note("profd runs already, at a rate of its own; --frequency is for one started by "
                         "record");
        }
        r = run(&q.target, argv + first, &p, &exit_status);
        if (r == STATUS_DONE)
                r = finish(&rec, p);
        return exit_status > 0 ? exit_status : exit_status == 0 ? r : STATUS_FAILED;
}
