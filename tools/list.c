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
#include "tools/windows.h"

enum { OPT_JSON };

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
                .arguments = "[OPTION...] [FILE...]",
                .summary = "The stored windows: time, samples, losses, size; and gaps with their reason.",
                .options = options,
                .n_options = ARRAY_SIZE(options),
                .takes = TAKES_TARGET | TAKES_TIME,
                .set = set,
};

static void put_line(const struct window *l, struct buf *out)
{
        char t[HUMAN_MAX], d[HUMAN_MAX], n[HUMAN_MAX];

        text_fit(out, human_time(t, l->start_ns), 19, true);
        buf_addc(out, ' ');
        text_fit(out, human_zone(t, l->start_ns), 5, true);
        text_right(out, human_duration(d, l->end_ns - l->start_ns), 12);
        if (l->reason[0]) {
                buf_adds(out, "  no data: ");
                text_fit(out, l->reason, -1, false);
        } else if (l->counted) {
                text_right(out, human_count(n, l->samples), 13);
                text_right(out, human_count(n, l->lost), 10);
                text_right(out, human_bytes(n, l->size), 12);
        }
        buf_addc(out, '\n');
}

static void put_all(const struct windows *w, struct buf *out)
{
        struct window sum = {0};
        size_t windows = 0;
        bool counted = false;
        char a[HUMAN_MAX], b[HUMAN_MAX], c[HUMAN_MAX], d[HUMAN_MAX];

        buf_adds(out, "start                          length      samples      lost        size\n");
        for (size_t i = 0; i < w->n; i++) {
                put_line(&w->window[i], out);
                windows += !w->window[i].reason[0];
                counted |= w->window[i].counted;
                sum.samples += w->window[i].samples;
                sum.lost += w->window[i].lost;
                sum.size += w->window[i].size;
        }
        if (!counted)
                return;
        buf_addf(out, "%s window%s, %s samples, %s lost, %s\n", human_count(a, windows),
                 windows == 1 ? "" : "s", human_count(b, sum.samples), human_count(c, sum.lost),
                 human_bytes(d, sum.size));
}

static int show(const struct query *q, bool json, const struct windows *w)
{
        _cleanup_buf_ struct buf out = {0};

        if (json)
                buf_addf(&out, "%s\n", json_object_to_json_string_ext(w->pages, JSON_C_TO_STRING_PRETTY));
        else if (w->n == 0)
                return source_say_empty(q);
        else
                put_all(w, &out);
        return say_out(&out);
}

int verb_list(int argc, char **argv)
{
        struct windows w;
        struct query q;
        bool json = false;
        int first;

        int r = options_parse(&spec, argc, argv, &q, &json, &first);
        if (r >= 0)
                return r;
        r = query_take_files(&q, "list", argc, argv, first);
        if (r >= 0)
                return r;
        if (json && q.n_files > 0)
                return say_usage("list", "--json is the daemon's answer; it goes with no FILE");
        r = windows_read(&q, &w);
        if (r != STATUS_DONE)
                return r;
        r = show(&q, json, &w);
        windows_free(&w);
        return r;
}
