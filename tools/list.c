/* profctl list: the stored windows and the gaps between them, oldest first. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "tools/human.h"
#include "tools/say.h"
#include "tools/source.h"
#include "tools/text.h"
#include "tools/verb.h"

#define PAGE_WINDOWS 10000

enum { OPT_JSON };

/* A window, or with a reason a gap. */
struct line {
        uint64_t start_ns, end_ns, samples, lost, size;
        bool counted; /* samples, losses and size are known: they are for those who may see all */
        const char *reason;
};

static int set(void *ctx, int id, const char *value)
{
        *(bool *)ctx = true;
        return 0;
}

static const struct option_spec options[] = {
                {"json", 'j', NULL, "the daemon's answers as they are: an array of pages", OPT_JSON},
};

static const struct command_spec spec = {
                .name = "list",
                .arguments = "[OPTION...]",
                .summary = "The stored windows: time, samples, losses, size; and gaps with their reason.",
                .options = options,
                .n_options = ARRAY_SIZE(options),
                .takes = TAKES_TARGET | TAKES_TIME,
                .set = set,
};

static int by_start(const void *a, const void *b)
{
        const struct line *x = a, *y = b;

        return x->start_ns < y->start_ns ? -1 : x->start_ns > y->start_ns;
}

static struct line window_line(struct json_object *w)
{
        uint64_t start = json_at_u64(w, "start_ns", 0);

        return (struct line){
                        .start_ns = start,
                        .end_ns = start + json_at_u64(w, "duration_ns", 0),
                        .counted = json_at(w, "samples") != NULL,
                        .samples = json_at_u64(w, "samples", 0),
                        .lost = json_at_u64(w, "lost", 0),
                        .size = json_at_u64(w, "size", 0),
        };
}

static struct line gap_line(struct json_object *g)
{
        return (struct line){
                        .start_ns = json_at_u64(g, "start_ns", 0),
                        .end_ns = json_at_u64(g, "end_ns", 0),
                        .reason = json_at_text(g, "reason", "unknown"),
        };
}

struct lines {
        struct line *line;
        size_t n;
};

static int add(struct lines *l, const struct line *line)
{
        if ((l->n & (l->n - 1)) == 0) {
                struct line *more = reallocarray(l->line, l->n ? l->n * 2 : 1, sizeof(*more));
                if (!more)
                        return say_failed("%s", strerror(ENOMEM));
                l->line = more;
        }
        l->line[l->n++] = *line;
        return STATUS_DONE;
}

static int add_page(struct lines *l, struct json_object *j)
{
        struct json_object *windows = json_at(j, "windows"), *gaps = json_at(j, "gaps");
        size_t n_windows = windows ? json_object_array_length(windows) : 0;
        size_t n_gaps = gaps ? json_object_array_length(gaps) : 0;

        for (size_t i = 0; i < n_windows + n_gaps; i++) {
                const struct line line =
                                i < n_windows ? window_line(json_object_array_get_idx(windows, i))
                                              : gap_line(json_object_array_get_idx(gaps, i - n_windows));
                int r = add(l, &line);
                if (r != STATUS_DONE)
                        return r;
        }
        return STATUS_DONE;
}

/* All pages of the list; the pages are kept in `pages`, for the texts in the lines are theirs. */
static int collect(const struct query *q, struct json_object *pages, struct lines *lines)
{
        char after[64] = "";

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
                json_object_array_add(pages, page);
                r = add_page(lines, page);
                struct json_object *windows = json_at(page, "windows");
                size_t n = windows ? json_object_array_length(windows) : 0;
                if (r != STATUS_DONE || n == 0 || !json_object_get_boolean(json_at(page, "more")))
                        return r;
                snprintf(after, sizeof(after), "%s",
                         json_at_text(json_object_array_get_idx(windows, n - 1), "id", ""));
        }
}

static void put_line(const struct line *l, struct buf *out)
{
        char t[HUMAN_MAX], d[HUMAN_MAX], n[HUMAN_MAX];

        text_fit(out, human_time(t, l->start_ns), 19, true);
        buf_addc(out, ' ');
        text_fit(out, human_zone(t, l->start_ns), 5, true);
        text_right(out, human_duration(d, l->end_ns - l->start_ns), 12);
        if (l->reason) {
                buf_adds(out, "  no data: ");
                text_fit(out, l->reason, -1, false);
        } else if (l->counted) {
                text_right(out, human_count(n, l->samples), 13);
                text_right(out, human_count(n, l->lost), 10);
                text_right(out, human_bytes(n, l->size), 12);
        }
        buf_addc(out, '\n');
}

static void put_all(const struct line *lines, size_t n, struct buf *out)
{
        struct line sum = {0};
        size_t windows = 0;
        bool counted = false;
        char a[HUMAN_MAX], b[HUMAN_MAX], c[HUMAN_MAX], d[HUMAN_MAX];

        buf_adds(out, "start                          length      samples      lost        size\n");
        for (size_t i = 0; i < n; i++) {
                put_line(&lines[i], out);
                windows += lines[i].reason == NULL;
                counted |= lines[i].counted;
                sum.samples += lines[i].samples;
                sum.lost += lines[i].lost;
                sum.size += lines[i].size;
        }
        if (!counted)
                return;
        buf_addf(out, "%s windows, %s samples, %s lost, %s\n", human_count(a, windows),
                 human_count(b, sum.samples), human_count(c, sum.lost), human_bytes(d, sum.size));
}

static int list(const struct query *q, bool json, struct json_object *pages, struct lines *lines)
{
        _cleanup_buf_ struct buf out = {0};

        int r = collect(q, pages, lines);
        if (r != STATUS_DONE)
                return r;
        if (json)
                buf_addf(&out, "%s\n", json_object_to_json_string_ext(pages, JSON_C_TO_STRING_PRETTY));
        else if (lines->n == 0)
                return source_say_empty(q);
        else {
                qsort(lines->line, lines->n, sizeof(*lines->line), by_start);
                put_all(lines->line, lines->n, &out);
        }
        return say_out(&out);
}

int verb_list(int argc, char **argv)
{
        struct lines lines = {0};
        struct query q;
        bool json = false;
        int first;

        int r = options_parse(&spec, argc, argv, &q, &json, &first);
        if (r >= 0)
                return r;
        if (first < argc)
                return say_usage("list", "'%s' is one argument too many", argv[first]);
        struct json_object *pages = json_object_new_array();
        r = pages ? list(&q, json, pages, &lines) : say_failed("%s", strerror(ENOMEM));
        json_object_put(pages);
        free(lines.line);
        return r;
}
