/* profctl changes: what was upgraded or restarted in a range, and what that did.
 *
 * The windows are gone through once. An object was upgraded when its path comes with a build ID that it had
 * not before. A unit was restarted when there is an instant that none of its lasting processes outlived: all
 * that were seen in several windows before it are gone after it, and such that began after it are there. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/parse.h"
#include "profile/diff.h"
#include "profile/symbols.h"
#include "tools/change_find.h"
#include "tools/diff_text.h"
#include "tools/event.h"
#include "tools/human.h"
#include "tools/say.h"
#include "tools/source.h"
#include "tools/text.h"
#include "tools/verb.h"
#include "tools/windows.h"

#define MAX_CHANGES   20 /* that are compared */
#define DEFAULT_LINES 10
#define DAY           (86400 * NSEC_PER_SEC)

enum { OPT_LINES };

static int set(void *ctx, int id, const char *value)
{
        return parse_u64(value, 1, UINT32_MAX, ctx);
}

static const struct option_spec options[] = {
                {"lines", 'n', "N", "at most N lines for each change (10)", OPT_LINES},
};

static const struct command_spec spec = {
                .name = "changes",
                .arguments = "[OPTION...] [FILE...]",
                .summary = "Units that were restarted and objects that were upgraded, in the last 24 hours\n"
                           "or another range, and what changed significantly from before to after.",
                .options = options,
                .n_options = ARRAY_SIZE(options),
                .takes = TAKES_TARGET | TAKES_TIME,
                .set = set,
};

static void put_title(const struct change *c, struct buf *out)
{
        char t[HUMAN_MAX], z[HUMAN_MAX];

        buf_addf(out, "%s %s  ", human_time(t, c->at_ns), human_zone(z, c->at_ns));
        text_fit(out, c->name, -1, false);
        if (c->unit)
                buf_adds(out, " was restarted\n");
        else
                buf_addf(out, " was replaced: build ID %.12s became %.12s\n", c->before, c->after);
}

static int side(const struct query *q, const struct change *c, uint64_t since, uint64_t until,
                struct profile **ret)
{
        struct query one = *q;

        one.when = WHEN_RANGE;
        one.since_ns = since;
        one.until_ns = until;
        if (c->unit)
                one.selection.unit = c->name;
        return source_profile(&one, ret);
}

/* Of an upgraded object only its own functions. */
static void keep_object(struct diff *d, const char *path)
{
        uint32_t n = 0, changed = 0;

        for (uint32_t i = 0; i < d->n; i++) {
                if (strcmp(object_base_name(d->row[i].object), object_base_name(path)) != 0)
                        continue;
                changed += i < d->n_changed;
                d->row[n++] = d->row[i];
        }
        d->n = n;
        d->n_changed = changed;
}

static int compare(const struct query *q, const struct change *c, uint32_t lines, struct buf *out)
{
        _cleanup_profile_ struct profile *before = NULL, *after = NULL;
        _cleanup_diff_ struct diff *d = NULL;
        bool tty = isatty(STDOUT_FILENO);

        int r = side(q, c, c->from_ns, c->at_ns, &before);
        if (r == STATUS_DONE)
                /* The window of the change has some of both; it will do where there is no later one. */
                r = side(q, c, c->after_ns < c->until_ns ? c->after_ns : c->at_ns, c->until_ns, &after);
        if (r != STATUS_DONE)
                return r;
        if (before->n_samples == 0 || after->n_samples == 0) {
                buf_addf(out, "  no samples %s\n", before->n_samples == 0 ? "before" : "after");
                return STATUS_DONE;
        }
        const struct diff_options o = {.by = DIFF_FUNCTION};
        r = diff_new(&d, before, after, &o);
        if (r < 0)
                return say_failed("cannot compare: %s", strerror(-r));
        if (!c->unit)
                keep_object(d, c->name);
        const struct diff_text how = {
                        .columns = tty ? text_columns(STDOUT_FILENO, 80) : -1,
                        .by = DIFF_FUNCTION,
                        .max_changed = lines,
        };
        diff_text_rows(d, &how, out);
        return STATUS_DONE;
}

static int show(const struct query *q, const struct changes *found, uint32_t lines)
{
        _cleanup_buf_ struct buf out = {0};

        for (size_t i = 0; i < found->n; i++) {
                put_title(&found->change[i], &out);
                int r = i < MAX_CHANGES ? compare(q, &found->change[i], lines, &out) : STATUS_DONE;
                if (r != STATUS_DONE)
                        return r;
                if (i < MAX_CHANGES)
                        buf_addc(&out, '\n');
        }
        if (found->n > MAX_CHANGES)
                buf_addf(&out, "Only the first %d were compared; a shorter range has fewer.\n", MAX_CHANGES);
        return say_out(&out);
}

int verb_changes(int argc, char **argv)
{
        uint64_t lines = DEFAULT_LINES;
        struct changes found = {0};
        struct query q;
        int first;

        int r = options_parse(&spec, argc, argv, &q, &lines, &first);
        if (r >= 0)
                return r;
        r = query_take_files(&q, "changes", argc, argv, first);
        if (r >= 0)
                return r;
        if (q.when == WHEN_DEFAULT && q.n_files == 0) {
                q.when = WHEN_RANGE;
                q.since_ns = q.until_ns - DAY;
        }
        r = changes_find(&q, &found);
        if (r == STATUS_DONE && found.n == 0) {
                _cleanup_buf_ struct buf text = {0};
                human_range(&text, found.start_ns, found.end_ns);
                if (found.windows == 0)
                        r = source_say_empty(&q);
                else
                        say_note("nothing was seen to be upgraded or restarted from %s", buf_text(&text));
        } else if (r == STATUS_DONE) {
                r = show(&q, &found, (uint32_t)lines);
        }
        changes_free(&found);
        return r;
}
