#include "tools/source.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "profile/pprof.h"
#include "tools/event.h"
#include "tools/http.h"
#include "tools/human.h"
#include "tools/say.h"

#define ANSWER_MAX    (1u << 30)
#define JSON_MAX      (64u << 20)
#define LONG_RANGE    (3600 * NSEC_PER_SEC)
#define QUERY_TIMEOUT (120 * NSEC_PER_SEC)

/* -- files -- */

static bool in_range(const struct query *q, const struct profile *p)
{
        if (q->when != WHEN_RANGE || p->time_ns <= 0)
                return true;
        uint64_t start = (uint64_t)p->time_ns, end = start + (uint64_t)MAX_OF(p->duration_ns, 1);
        return start < q->until_ns && end > q->since_ns;
}

/* What a file is that is no profile, and what reads it. NULL: not known. */
static const char *what_it_is(const char *path)
{
        static const struct {
                const char *magic, *what;
        } known[] = {
                        {"PERFILE2", "it is a perf.data file, which perf report reads"},
                        {"\177ELF", "it is a program or library; profctl record -- CMD profiles one"},
                        {"<!DOCTYPE", "it is a page for a browser"},
        };
        char head[16] = "";
        struct stat st;

        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
                return NULL;
        if (st.st_size == 0)
                return "it is empty";
        if (pread(fd, head, sizeof(head) - 1, 0) < 0)
                return NULL;
        for (size_t i = 0; i < ARRAY_SIZE(known); i++)
                if (!strncmp(head, known[i].magic, strlen(known[i].magic)))
                        return known[i].what;
        return NULL;
}

int source_file(const struct query *q, const char *path, struct profile **ret)
{
        _cleanup_profile_ struct profile *p = NULL;
        const char *why = NULL, *what;

        int r = pprof_read_file(path, &p, &why);
        if (r == -EBADMSG && (what = what_it_is(path)))
                return say_failed("cannot read %s: %s", path, what);
        if (r == -EBADMSG)
                return say_failed("cannot read %s: it is not a pprof file, or is damaged (%s)", path,
                                  why ? why : strerror(-r));
        if (r < 0)
                return say_failed("cannot read %s: %s", path, why ? why : strerror(-r));
        *ret = in_range(q, p) ? TAKE_PTR(p) : NULL;
        return STATUS_DONE;
}

static int merge_file(const struct query *q, const char *path, void *ctx)
{
        struct profile **into = ctx;
        _cleanup_profile_ struct profile *p = NULL;

        int r = source_file(q, path, &p);
        if (r != STATUS_DONE || !p)
                return r;
        if (!*into) {
                *into = TAKE_PTR(p);
                return STATUS_DONE;
        }
        r = profile_merge(*into, p);
        return r < 0 ? say_failed("cannot merge %s with the files before: %s", path, strerror(-r))
                     : STATUS_DONE;
}

static int is_window(const struct dirent *d)
{
        size_t n = strlen(d->d_name);

        return d->d_name[0] != '.' && n > 6 && !strcmp(d->d_name + n - 6, ".pb.gz");
}

static int each_in_directory(const struct query *q, const char *path, source_file_fn fn, void *ctx)
{
        struct dirent **entry;
        int r = 0, n = scandir(path, &entry, is_window, alphasort);

        if (n < 0)
                return say_failed("cannot read the directory %s: %s", path, strerror(errno));
        if (n == 0)
                r = say_failed("there is no profile (*.pb.gz) in the directory %s", path);
        for (int i = 0; i < n; i++) {
                _cleanup_buf_ struct buf file = {0};
                buf_addf(&file, "%s/%s", path, entry[i]->d_name);
                if (r == 0)
                        r = fn(q, buf_text(&file), ctx);
                free(entry[i]);
        }
        free(entry);
        return r;
}

int source_each_file(const struct query *q, source_file_fn fn, void *ctx)
{
        for (int i = 0; i < q->n_files; i++) {
                const char *path = strcmp(q->file[i], "-") ? q->file[i] : "/dev/stdin";
                struct stat st;
                if (stat(path, &st) < 0)
                        return say_failed("cannot open %s: %s", path, strerror(errno));
                int r = S_ISDIR(st.st_mode) ? each_in_directory(q, path, fn, ctx) : fn(q, path, ctx);
                if (r != STATUS_DONE)
                        return r;
        }
        return STATUS_DONE;
}

static int from_files(const struct query *q, struct profile **ret)
{
        _cleanup_profile_ struct profile *all = NULL;

        int r = source_each_file(q, merge_file, &all);
        if (r != STATUS_DONE)
                return r;
        r = all ? selection_apply(&q->selection, all, ret) : profile_new(ret);
        if (r == -ENOENT) {
                event_index(all, q->selection.event);
                return STATUS_FAILED;
        }
        return r < 0 ? say_failed("cannot select from %s: %s", q->file[0], strerror(-r)) : STATUS_DONE;
}

/* -- the daemon -- */

static int __attribute__((format(printf, 2, 3))) fail(const struct source_how *how, const char *fmt, ...)
{
        _cleanup_buf_ struct buf text = {0};
        va_list ap;

        va_start(ap, fmt);
        buf_vaddf(how->error ? how->error : &text, fmt, ap);
        va_end(ap);
        return how->error ? STATUS_FAILED : say_failed("%s", buf_text(&text));
}

static int decode(const struct http_reply *reply, const struct source_how *how, struct profile **ret)
{
        const char *why = NULL;

        int r = pprof_read(reply->body.data, reply->body.len, 0, ret, &why);
        if (r < 0)
                return fail(how, "what profd answered is not a profile: %s", why ? why : strerror(-r));
        return STATUS_DONE;
}

static void when_query(const struct query *q, struct buf *path)
{
        if (q->when == WHEN_FOR)
                buf_addf(path, "seconds=%.3f", (double)q->for_ns / NSEC_PER_SEC);
        else
                buf_addf(path, "since=%" PRIu64 ".%09u&until=%" PRIu64 ".%09u",
                         (uint64_t)(q->since_ns / NSEC_PER_SEC), (unsigned)(q->since_ns % NSEC_PER_SEC),
                         (uint64_t)(q->until_ns / NSEC_PER_SEC), (unsigned)(q->until_ns % NSEC_PER_SEC));
}

/* Over a long range the daemon has sums of all labels but those of single processes. */
static bool leaves_out_processes(const struct query *q)
{
        return q->no_processes && q->when != WHEN_FOR && q->until_ns - q->since_ns > LONG_RANGE;
}

/* The daemon bounds its answers, and says in the ledger what it did to them. */
static void say_bounds(const struct profile *p)
{
        int64_t stacks = profile_ledger_count(p, "folded.stacks", 0);
        const char *left_out = profile_ledger(p, "labels.left_out");

        if (left_out)
                say_note("left out: %s; ask for a shorter time to have them", left_out);
        if (stacks > 0)
                say_note("the %" PRId64
                         " rarest of the stacks are shown as one, [smaller stacks]; ask for a "
                         "shorter time, or for less of it, to have them apart",
                         stacks);
}

static void profile_path(const struct query *q, struct buf *path)
{
        _cleanup_buf_ struct buf selection = {0};

        buf_adds(path, "/api/v1/profile?");
        when_query(q, path);
        selection_query(&q->selection, &selection);
        if (selection.len > 0)
                buf_addf(path, "&%s", buf_text(&selection));
        if (leaves_out_processes(q))
                buf_adds(path, "&labels=comm,thread_name,unit,container_id,pod,user");
}

int source_profile_how(const struct query *q, const struct source_how *how, struct profile **ret)
{
        _cleanup_buf_ struct buf path = {0};
        struct http_reply reply;

        profile_path(q, &path);
        if (buf_error(&path))
                return fail(how, "%s", strerror(ENOMEM));
        if (q->when == WHEN_FOR && !how->quiet && isatty(STDERR_FILENO)) {
                char t[HUMAN_MAX];
                say_note("collecting for %s ...", human_duration(t, q->for_ns));
        }
        const struct http_request request = {
                        .path = buf_text(&path),
                        .timeout_ns = QUERY_TIMEOUT + (q->when == WHEN_FOR ? q->for_ns : 0),
                        .max_bytes = ANSWER_MAX,
                        .abort_fd = how->abort_fd,
                        .error = how->error,
        };
        int r = http_get(&q->target, &request, &reply);
        if (r != 0)
                return r;
        if (reply.status == 200) {
                r = decode(&reply, how, ret);
                if (r == STATUS_DONE && !how->quiet)
                        say_bounds(*ret);
        } else if (reply.status == 404 && q->when != WHEN_FOR) /* nothing is stored over this range */
                r = profile_new(ret) < 0 ? fail(how, "%s", strerror(ENOMEM)) : STATUS_DONE;
        else
                r = http_refused(&q->target, &request, &reply);
        buf_free(&reply.body);
        return r;
}

int source_profile(const struct query *q, struct profile **ret)
{
        return q->n_files > 0 ? from_files(q, ret) : source_profile_how(q, &(struct source_how){0}, ret);
}

int source_json_how(const struct query *q, const char *path, const struct source_how *how,
                    struct json_object **ret)
{
        const struct http_request request = {
                        .path = path,
                        .timeout_ns = QUERY_TIMEOUT,
                        .max_bytes = JSON_MAX,
                        .abort_fd = how->abort_fd,
                        .error = how->error,
        };
        struct http_reply reply;

        int r = http_get(&q->target, &request, &reply);
        if (r != 0)
                return r;
        if (reply.status == 200) {
                *ret = json_tokener_parse(buf_text(&reply.body));
                r = *ret ? STATUS_DONE
                         : fail(how, "the answer to %s is not JSON; is there a profd at %s?", path,
                                q->target.host ? q->target.host : q->target.socket);
        } else {
                r = http_refused(&q->target, &request, &reply);
        }
        buf_free(&reply.body);
        return r;
}

int source_json(const struct query *q, const char *path, struct json_object **ret)
{
        return source_json_how(q, path, &(struct source_how){0}, ret);
}

/* -- nothing found -- */

static void describe_selection(const struct selection *s, struct buf *out)
{
        static const char *const side[] = {"", " in the kernel", " in user space"};

        if (s->event)
                buf_addf(out, " of event %s", s->event);
        if (s->pid >= 0)
                buf_addf(out, " of pid %" PRId64, s->pid);
        if (s->comm)
                buf_addf(out, " of process %s", s->comm);
        if (s->thread_name)
                buf_addf(out, " of thread %s", s->thread_name);
        if (s->unit)
                buf_addf(out, " of unit %s", s->unit);
        if (s->container)
                buf_addf(out, " of container %s", s->container);
        if (s->user)
                buf_addf(out, " of user %s", s->user);
        buf_adds(out, side[s->side]);
}

/* Why there may be none: what the daemon has, and what of it this user sees. */
static void describe_stored(const struct query *q, struct buf *out)
{
        _cleanup_json_ struct json_object *status = NULL;
        _cleanup_buf_ struct buf why = {0};
        const struct source_how how = {.error = &why};

        if (q->n_files > 0) {
                buf_adds(out, "; the files have others: leave out a part of the selection");
                return;
        }
        if (source_json_how(q, "/api/v1/status", &how, &status) != STATUS_DONE)
                return;
        if (json_at(status, "restricted")) {
                buf_adds(out,
                         "; you see the samples of your own processes: use sudo, or join the group profd, "
                         "to see all");
                return;
        }
        if (q->when == WHEN_FOR)
                return;
        uint64_t oldest = json_at_u64(status, "store.oldest_ns", 0),
                 newest = json_at_u64(status, "store.newest_ns", 0);
        if (newest > 0) {
                buf_adds(out, "; stored is ");
                human_range(out, oldest, newest);
        } else {
                buf_adds(out, "; nothing is stored yet: collect from now on with --for 10s");
        }
}

int source_say_empty(const struct query *q)
{
        _cleanup_buf_ struct buf text = {0};
        char t[HUMAN_MAX];

        buf_adds(&text, "no samples");
        describe_selection(&q->selection, &text);
        if (q->when == WHEN_FOR) {
                buf_addf(&text, " in %s", human_duration(t, q->for_ns));
        } else if (q->since_ns == 0) {
                buf_addf(&text, " until %s", human_time(t, q->until_ns));
                buf_addf(&text, " %s", human_zone(t, q->until_ns));
        } else if (q->n_files == 0 || q->when == WHEN_RANGE) {
                buf_adds(&text, " from ");
                human_range(&text, q->since_ns, q->until_ns);
        }
        describe_stored(q, &text);
        if (q->when == WHEN_FOR && !q->target.host && q->selection.pid > 0 &&
            kill((pid_t)q->selection.pid, 0) < 0 && errno == ESRCH)
                buf_addf(&text, "; no process %" PRId64 " runs now", q->selection.pid);
        say_note("%s", buf_text(&text));
        return STATUS_DONE;
}

/* -- JSON -- */

struct json_object *json_at(struct json_object *j, const char *path)
{
        char name[64];

        while (j && *path) {
                size_t n = strcspn(path, ".");
                if (n >= sizeof(name))
                        return NULL;
                memcpy(name, path, n);
                name[n] = 0;
                if (!json_object_is_type(j, json_type_object) || !json_object_object_get_ex(j, name, &j))
                        return NULL;
                path += n + (path[n] == '.');
        }
        return j;
}

uint64_t json_at_u64(struct json_object *j, const char *path, uint64_t otherwise)
{
        j = json_at(j, path);
        return j ? json_object_get_uint64(j) : otherwise;
}

double json_at_double(struct json_object *j, const char *path, double otherwise)
{
        j = json_at(j, path);
        return j ? json_object_get_double(j) : otherwise;
}

const char *json_at_text(struct json_object *j, const char *path, const char *otherwise)
{
        j = json_at(j, path);
        return j && !json_object_is_type(j, json_type_null) ? json_object_get_string(j) : otherwise;
}
