#include "tools/windows.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "profile/pprof.h"
#include "tools/event.h"
#include "tools/say.h"
#include "tools/source.h"

#define PAGE_WINDOWS 10000

static int add(struct windows *w, const struct window *window)
{
        if ((w->n & (w->n - 1)) == 0) {
                struct window *more = reallocarray(w->window, w->n ? w->n * 2 : 1, sizeof(*more));
                if (!more)
                        return say_failed("%s", strerror(ENOMEM));
                w->window = more;
        }
        w->window[w->n++] = *window;
        return STATUS_DONE;
}

/* -- the daemon's -- */

static struct window window_of(struct json_object *j)
{
        uint64_t start = json_at_u64(j, "start_ns", 0);

        return (struct window){
                        .start_ns = start,
                        .end_ns = start + json_at_u64(j, "duration_ns", 0),
                        .counted = json_at(j, "samples") != NULL,
                        .samples = json_at_u64(j, "samples", 0),
                        .lost = json_at_u64(j, "lost", 0),
                        .size = json_at_u64(j, "size", 0),
        };
}

static struct window gap_of(struct json_object *j)
{
        struct window w = {.start_ns = json_at_u64(j, "start_ns", 0), .end_ns = json_at_u64(j, "end_ns", 0)};

        snprintf(w.reason, sizeof(w.reason), "%s", json_at_text(j, "reason", "unknown"));
        return w;
}

static int add_page(struct windows *w, struct json_object *page)
{
        struct json_object *windows = json_at(page, "windows"), *gaps = json_at(page, "gaps");
        size_t n_windows = windows ? json_object_array_length(windows) : 0;
        size_t n_gaps = gaps ? json_object_array_length(gaps) : 0;

        for (size_t i = 0; i < n_windows + n_gaps; i++) {
                const struct window window =
                                i < n_windows ? window_of(json_object_array_get_idx(windows, i))
                                              : gap_of(json_object_array_get_idx(gaps, i - n_windows));
                int r = add(w, &window);
                if (r != STATUS_DONE)
                        return r;
        }
        return STATUS_DONE;
}

static int read_daemon(const struct query *q, struct windows *w)
{
        char after[64] = "";

        w->pages = json_object_new_array();
        if (!w->pages)
                return say_failed("%s", strerror(ENOMEM));
        for (;;) {
                _cleanup_buf_ struct buf path = {0};
                struct json_object *page;
                buf_addf(&path, "/api/v1/windows?limit=%d", PAGE_WINDOWS);
                if (after[0])
                        buf_addf(&path, "&after=%s", after);
                if (q->when != WHEN_DEFAULT)
                        buf_addf(&path, "&since=%" PRIu64 "&until=%" PRIu64,
                                 (uint64_t)(q->since_ns / NSEC_PER_SEC),
                                 (uint64_t)(q->until_ns / NSEC_PER_SEC + 1));
                int r = source_json(q, buf_text(&path), &page);
                if (r != STATUS_DONE)
                        return r;
                json_object_array_add(w->pages, page);
                r = add_page(w, page);
                struct json_object *windows = json_at(page, "windows");
                size_t n = windows ? json_object_array_length(windows) : 0;
                if (r != STATUS_DONE || n == 0 || !json_object_get_boolean(json_at(page, "more")))
                        return r;
                snprintf(after, sizeof(after), "%s",
                         json_at_text(json_object_array_get_idx(windows, n - 1), "id", ""));
        }
}

/* -- files -- */

static int read_one(const struct query *q, const char *path, void *ctx)
{
        struct windows *w = ctx;
        _cleanup_profile_ struct profile *p = NULL;
        struct stat st;

        int r = source_file(q, path, &p);
        if (r != STATUS_DONE || !p)
                return r;
        struct window window = {
                        .start_ns = (uint64_t)MAX_OF(p->time_ns, (int64_t)0),
                        .end_ns = (uint64_t)MAX_OF(p->time_ns + p->duration_ns, (int64_t)0),
                        .counted = true,
                        .samples = profile_samples(p),
                        .lost = profile_lost(p),
                        .size = stat(path, &st) == 0 ? (uint64_t)st.st_size : 0,
                        .file = strdup(path),
        };
        if (!window.file)
                return say_failed("%s", strerror(ENOMEM));
        r = add(w, &window);
        if (r != STATUS_DONE)
                free(window.file);
        return r;
}

static int by_start(const void *a, const void *b)
{
        const struct window *x = a, *y = b;

        return (x->start_ns > y->start_ns) - (x->start_ns < y->start_ns);
}

int windows_read(const struct query *q, struct windows *ret)
{
        struct windows w = {0};

        int r = q->n_files > 0 ? source_each_file(q, read_one, &w) : read_daemon(q, &w);
        if (r != STATUS_DONE) {
                windows_free(&w);
                return r;
        }
        if (w.n)
                qsort(w.window, w.n, sizeof(*w.window), by_start);
        *ret = w;
        return STATUS_DONE;
}

void windows_free(struct windows *w)
{
        for (size_t i = 0; i < w->n; i++)
                free(w->window[i].file);
        free(w->window);
        json_object_put(w->pages);
        *w = (struct windows){0};
}

int windows_profile(const struct query *q, const struct window *w, struct profile **ret)
{
        struct query one = *q;
        char *file = w->file;

        if (file) {
                one.file = &file;
                one.n_files = 1;
                one.when = WHEN_DEFAULT;
        } else {
                /* A range takes all windows that it touches: an instant in the middle touches this one only.
                 */
                one.when = WHEN_RANGE;
                one.since_ns = w->start_ns + (w->end_ns - w->start_ns) / 2;
                one.until_ns = one.since_ns + 1;
        }
        return source_profile(&one, ret);
}
