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

enum { OPT_JSON };

/* A window, or with a reason a gap. */
struct line {
        uint64_t start_ns, end_ns, samples, lost, size;
        const char *reason;
};

static int set(void *ctx, int id, const char *value)
{
        *(bool *)ctx = true;
        return 0;
}

static const struct option_spec options[] = {
                {"json", 'j', NULL, "the daemon's answer as it is, one JSON object", OPT_JSON},
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

/* The lines that overlap the range asked for; the caller frees *ret. */
static int collect(struct json_object *j, const struct query *q, struct line **ret, size_t *ret_n)
{
        struct json_object *windows = json_at(j, "windows"), *gaps = json_at(j, "gaps");
        size_t n_windows = windows ? json_object_array_length(windows) : 0;
        size_t n_gaps = gaps ? json_object_array_length(gaps) : 0, n = 0;

        struct line *lines = calloc(n_windows + n_gaps + 1, sizeof(*lines));
        if (!lines)
                return say_failed("%s", strerror(ENOMEM));
        for (size_t i = 0; i < n_windows + n_gaps; i++) {
                struct line l = i < n_windows ? window_line(json_object_array_get_idx(windows, i))
                                              : gap_line(json_object_array_get_idx(gaps, i - n_windows));
                if (q->when == WHEN_DEFAULT || (l.start_ns < q->until_ns && l.end_ns > q->since_ns))
                        lines[n++] = l;
        }
        qsort(lines, n, sizeof(*lines), by_start);
        *ret = lines;
        *ret_n = n;
        return STATUS_DONE;
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
        } else {
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
        char a[HUMAN_MAX], b[HUMAN_MAX], c[HUMAN_MAX], d[HUMAN_MAX];

        buf_adds(out, "start                        length      samples      lost        size\n");
        for (size_t i = 0; i < n; i++) {
                put_line(&lines[i], out);
                windows += lines[i].reason == NULL;
                sum.samples += lines[i].samples;
                sum.lost += lines[i].lost;
                sum.size += lines[i].size;
        }
        buf_addf(out, "%s windows, %s samples, %s lost, %s\n", human_count(a, windows),
                 human_count(b, sum.samples), human_count(c, sum.lost), human_bytes(d, sum.size));
}

int verb_list(int argc, char **argv)
{
        _cleanup_json_ struct json_object *j = NULL;
        _cleanup_free_ struct line *lines = NULL;
        _cleanup_buf_ struct buf out = {0};
        struct query q;
        bool json = false;
        int first;
        size_t n = 0;

        int r = options_parse(&spec, argc, argv, &q, &json, &first);
        if (r >= 0)
                return r;
        if (first < argc)
                return say_usage("list", "'%s' is one argument too many", argv[first]);
        r = source_json(&q, "/api/v1/windows", &j);
        if (r == STATUS_DONE && json) {
                buf_addf(&out, "%s\n", json_object_to_json_string_ext(j, JSON_C_TO_STRING_PRETTY));
                return say_out(&out);
        }
        r = r ? r : collect(j, &q, &lines, &n);
        if (r != STATUS_DONE)
                return r;
        if (n == 0)
                return source_say_empty(&q);
        put_all(lines, n, &out);
        return say_out(&out);
}
