/* profctl debuginfod: fetches, from debuginfod servers, the debug files of what was sampled and has no names
 * or lines yet, those with most samples first, into a directory in which profd looks. A program of its own,
 * so that nothing that talks to the network holds profd's privileges, and no sample waits for it. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/parse.h"
#include "tools/debug_cache.h"
#include "tools/debug_fetch.h"
#include "tools/debug_wanted.h"
#include "tools/object.h"
#include "tools/say.h"
#include "tools/source.h"
#include "tools/trouble.h"
#include "tools/verb.h"

#define MAX_SERVERS 8
#define DEFAULT_MAX (1ull << 30)
#define RANGE       (300 * NSEC_PER_SEC)  /* of the profile that is asked for, */
#define RANGE_ONCE  (3600 * NSEC_PER_SEC) /* and with --once */
#define POLL_S      60u

enum { OPT_SERVER, OPT_CACHE, OPT_MAX, OPT_CA, OPT_ONCE };

struct server {
        struct debug_server at;
        bool down; /* has not answered in this round */
        struct trouble trouble;
};

struct debuginfod {
        struct query q;
        struct server server[MAX_SERVERS];
        uint32_t n_servers;
        const char *directory, *ca;
        uint64_t max;
        bool once;

        struct debug_cache cache;
        struct symclient *symbols; /* what comes is looked at by the sandboxed worker */
        int64_t round_s;           /* when the round began */
        struct trouble trouble;    /* with profd */
        bool full;                 /* has been said */
        uint64_t fetched, missing, refused;
};

static int add_server(struct debuginfod *d, const char *url)
{
        if (!strstr(url, "://"))
                return -EINVAL;
        if (d->n_servers == MAX_SERVERS)
                return -E2BIG;
        d->server[d->n_servers++].at.url = url;
        return 0;
}

static int set(void *ctx, int id, const char *value)
{
        struct debuginfod *d = ctx;

        switch (id) {
        case OPT_SERVER:
                return add_server(d, value);
        case OPT_CACHE:
                d->directory = value;
                return 0;
        case OPT_MAX:
                return parse_size(value, &d->max);
        case OPT_CA:
                d->ca = value;
                return 0;
        default:
                d->once = true;
                return 0;
        }
}

static const struct option_spec options[] = {
                {"server", 's', "URL", "a server, again for more; else $DEBUGINFOD_URLS", OPT_SERVER},
                {"cache", 'd', "DIR", "else " SYM_FETCHED_DEBUG, OPT_CACHE},
                {"max-size", 0, "SIZE", "of all files together; else 1G", OPT_MAX},
                {"server-ca", 0, "FILE", "certificates that sign the servers'", OPT_CA},
                {"once", '1', NULL, "fetch what is wanted now, and end", OPT_ONCE},
};

static const struct command_spec spec = {
                .name = "debuginfod",
                .arguments = "[--server=URL] [OPTION...]",
                .summary = "Fetches the debug files of what was sampled without names or source lines,\n"
                           "from debuginfod servers, to where profd looks for them.",
                .options = options,
                .n_options = ARRAY_SIZE(options),
                .takes = TAKES_TARGET,
                .set = set,
};

/* -- one file -- */

static void server_trouble(struct server *s, const char *text)
{
        s->down = true;
        if (trouble_is_new(&s->trouble, text))
                say_note("%s: %s: tried again later", s->at.url, text);
}

/* Asks the servers in turn. DEBUG_UNREACHABLE: one that may have it has not answered. */
static enum debug_answer fetch(struct debuginfod *d, const char *id, const char *path)
{
        enum debug_answer answer = DEBUG_NOT_THERE;
        char text[256];

        for (uint32_t i = 0; i < d->n_servers; i++) {
                struct server *s = &d->server[i];

                if (s->down) {
                        answer = DEBUG_UNREACHABLE;
                        continue;
                }
                switch (debug_fetch(&s->at, id, path, d->max, text)) {
                case DEBUG_FETCHED:
                        trouble_ends(&s->trouble);
                        return DEBUG_FETCHED;
                case DEBUG_TOO_LARGE:
                        return DEBUG_TOO_LARGE;
                case DEBUG_UNREACHABLE:
                        server_trouble(s, text);
                        answer = DEBUG_UNREACHABLE;
                        break;
                case DEBUG_NOT_THERE:
                        trouble_ends(&s->trouble);
                        break;
                }
        }
        return answer;
}

/* What is wrong with a file that came for a build ID; NULL: nothing. */
static const char *examine(struct debuginfod *d, const char *id, const char *path,
                           char alt[BUILD_ID_TEXT_MAX])
{
        char have[BUILD_ID_TEXT_MAX];
        struct object o;
        int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

        if (fd < 0)
                return "cannot be opened";
        int r = object_open_fd(d->symbols, fd, path, NULL, &o);
        build_id_text(o.info.build_id, o.info.build_id_len, have);
        build_id_text(o.info.alt_build_id, o.info.alt_build_id_len, alt);
        object_close(d->symbols, &o);
        if (r < 0)
                return "is not an ELF file";
        if (strcmp(have, id) != 0)
                return "has another build ID";
        return o.info.has_debug || o.info.has_symtab ? NULL : "has neither debug information nor symbols";
}

static int cannot_write(const struct debuginfod *d, int r)
{
        return say_failed("cannot write in %s: %s", d->directory, strerror(-r));
}

static int add(struct debuginfod *d, const char *id, const char *path)
{
        int r = debug_cache_add(&d->cache, id, path, d->round_s);

        if (r == -ENOSPC) {
                if (!d->full)
                        say_note("%s is full of files that are in use: give it more with --max-size",
                                 d->directory);
                d->full = true;
                return STATUS_DONE;
        }
        if (r < 0)
                return cannot_write(d, r);
        d->fetched++;
        return STATUS_DONE;
}

/* It will not be asked for again today. */
static int set_missing(struct debuginfod *d, const char *id)
{
        int r = debug_cache_set_missing(&d->cache, id);

        return r < 0 ? cannot_write(d, r) : STATUS_DONE;
}

static int refuse(struct debuginfod *d, const char *id, const char *path, const char *file, const char *why)
{
        unlink(path);
        d->refused++;
        say_note("what came for build ID %s (%s) %s: it is not used", id, file, why);
        return set_missing(d, id);
}

/* Whatever another file needs beside it comes first, so that it is there when that one is looked at. */
static int fetch_alt(struct debuginfod *d, const char *alt, const char *file)
{
        const char *path = d->cache.alt_temporary;
        char none[BUILD_ID_TEXT_MAX];

        if (debug_cache_look(&d->cache, alt) != DEBUG_UNKNOWN)
                return STATUS_DONE;
        if (fetch(d, alt, path) != DEBUG_FETCHED)
                return STATUS_DONE; /* the other is of some use without it */
        const char *why = examine(d, alt, path, none);
        return why ? refuse(d, alt, path, file, why) : add(d, alt, path);
}

static int fetch_one(struct debuginfod *d, const struct debug_object *o)
{
        const char *path = d->cache.temporary;
        char alt[BUILD_ID_TEXT_MAX];

        switch (fetch(d, o->build_id, path)) {
        case DEBUG_UNREACHABLE:
                return STATUS_DONE;
        case DEBUG_NOT_THERE:
                d->missing++;
                return set_missing(d, o->build_id);
        case DEBUG_TOO_LARGE:
                return refuse(d, o->build_id, path, o->file, "is larger than --max-size");
        case DEBUG_FETCHED:
                break;
        }
        const char *why = examine(d, o->build_id, path, alt);
        if (why)
                return refuse(d, o->build_id, path, o->file, why);
        int r = STATUS_DONE;
        if (alt[0] && debug_cache_link(&d->cache, o->build_id, alt) == 0)
                r = fetch_alt(d, alt, o->file);
        return r == STATUS_DONE ? add(d, o->build_id, path) : r;
}

/* -- rounds -- */

static bool read_profile(struct debuginfod *d, struct profile **ret)
{
        _cleanup_buf_ struct buf why = {0};
        const struct source_how how = {.error = &why, .quiet = true};
        struct query q = d->q;

        q.when = WHEN_RANGE;
        q.until_ns = now_realtime_ns();
        q.since_ns = q.until_ns - (d->once ? RANGE_ONCE : RANGE);
        if (source_profile_how(&q, &how, ret) == STATUS_DONE) {
                trouble_ends(&d->trouble);
                return true;
        }
        if (trouble_is_new(&d->trouble, buf_text(&why)))
                say_note("%s%s", buf_text(&why), d->once ? "" : ": tried again until it is well");
        return false;
}

static int fetch_all(struct debuginfod *d, const struct debug_object *object, uint32_t n)
{
        int r = STATUS_DONE;

        for (uint32_t i = 0; i < n; i++) /* what is in use is not to make room for what will be */
                debug_cache_look(&d->cache, object[i].build_id);
        for (uint32_t i = 0; i < n && object[i].lacking > 0 && r == STATUS_DONE; i++)
                if (debug_cache_look(&d->cache, object[i].build_id) == DEBUG_UNKNOWN)
                        r = fetch_one(d, &object[i]);
        return r;
}

/* `*ret_whole`: all that was wanted was asked for. */
static int run_round(struct debuginfod *d, bool *ret_whole)
{
        _cleanup_profile_ struct profile *p = NULL;
        _cleanup_free_ struct debug_object *object = NULL;
        uint32_t n;

        d->round_s = (int64_t)time(NULL);
        debug_cache_tidy(&d->cache);
        *ret_whole = read_profile(d, &p);
        if (!*ret_whole)
                return STATUS_DONE;
        int r = debug_wanted(p, &object, &n);
        if (r < 0)
                return say_failed("%s", strerror(-r));
        for (uint32_t i = 0; i < d->n_servers; i++)
                d->server[i].down = false;
        r = fetch_all(d, object, n);
        for (uint32_t i = 0; i < d->n_servers; i++)
                *ret_whole &= !d->server[i].down;
        return r;
}

static int serve(struct debuginfod *d)
{
        bool whole;

        for (;;) {
                int r = run_round(d, &whole);
                if (r != STATUS_DONE)
                        return r;
                if (d->once)
                        return whole ? STATUS_DONE : STATUS_FAILED;
                sleep(POLL_S);
        }
}

/* The variable of the other clients of debuginfod: URLs, and words that are none. */
static void take_environment(struct debuginfod *d, char *urls)
{
        char *save = NULL;

        for (char *w = strtok_r(urls, " \t", &save); w; w = strtok_r(NULL, " \t", &save))
                add_server(d, w);
}

int verb_debuginfod(int argc, char **argv)
{
        struct debuginfod d = {.directory = SYM_FETCHED_DEBUG, .max = DEFAULT_MAX};
        const char *variable = getenv("DEBUGINFOD_URLS");
        _cleanup_free_ char *urls = variable ? strdup(variable) : NULL;
        int first;

        int r = options_parse(&spec, argc, argv, &d.q, &d, &first);
        if (r >= 0)
                return r;
        if (first < argc)
                return say_usage(spec.name, "unexpected argument '%s'", argv[first]);
        if (d.n_servers == 0 && urls)
                take_environment(&d, urls);
        if (d.n_servers == 0)
                return say_usage(spec.name, "--server is needed, or a URL in DEBUGINFOD_URLS");
        for (uint32_t i = 0; i < d.n_servers; i++)
                d.server[i].at.ca = d.ca;
        r = symclient_new(&d.symbols, &(struct symclient_options){0});
        if (r < 0)
                return say_failed("cannot start the symbolizer: %s", strerror(-r));
        r = debug_cache_open(&d.cache, d.directory, d.max);
        if (r == STATUS_DONE)
                r = serve(&d);
        if (d.once && r != STATUS_USAGE)
                say_note("%" PRIu64 " files fetched, %" PRIu64 " not known to any server, %" PRIu64
                         " refused",
                         d.fetched, d.missing, d.refused);
        debug_cache_close(&d.cache);
        symclient_free(d.symbols);
        return r;
}
