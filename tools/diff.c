/* profctl diff: two profiles compared; what is noise is shown apart, in grey, without a rank. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/parse.h"
#include "profile/diff.h"
#include "profile/flamegraph.h"
#include "tools/diff_text.h"
#include "tools/event.h"
#include "tools/output.h"
#include "tools/say.h"
#include "tools/source.h"
#include "tools/text.h"
#include "tools/verb.h"

enum { OPT_BY, OPT_LINES, OPT_CHILDREN, OPT_NO_INLINE, OPT_ABSOLUTE, OPT_FLAMEGRAPH };

struct options {
        struct diff_options diff;
        uint64_t lines;
        const char *flamegraph;
};

static int set(void *ctx, int id, const char *value)
{
        struct options *o = ctx;
        int by;

        switch (id) {
        case OPT_BY:
                by = diff_by_name(value);
                if (by >= 0)
                        o->diff.by = (enum diff_by)by;
                return by < 0 ? by : 0;
        case OPT_LINES:
                return parse_u64(value, 1, UINT32_MAX, &o->lines);
        case OPT_CHILDREN:
                o->diff.children = true;
                return 0;
        case OPT_ABSOLUTE:
                o->diff.order = DIFF_BY_RATE;
                return 0;
        case OPT_NO_INLINE:
                o->diff.no_inline = true;
                return 0;
        default:
                o->flamegraph = value;
                return 0;
        }
}

static const struct option_spec options[] = {
                {"by", 'b', "KEY", "function, stack, process, unit or object", OPT_BY},
                {"lines", 'n', "N", "at most N lines of each kind", OPT_LINES},
                {"children", 0, NULL, "functions with all that they call", OPT_CHILDREN},
                {"absolute", 0, NULL, "compare CPUs used (or events a second), not shares", OPT_ABSOLUTE},
                {"no-inline", 0, NULL, "count inlined functions to what they are inlined into",
                 OPT_NO_INLINE},
                {"flamegraph", 0, "FILE", "write a flame graph of both: red grew, blue shrank",
                 OPT_FLAMEGRAPH},
};

static const struct command_spec spec = {
                .name = "diff",
                .arguments = "A B [OPTION...]",
                .summary = "What changed from A to B, and what is only the noise of sampling. A and B are\n"
                           "pprof files, or ranges of stored time: 02:00..02:10, yesterday..today.",
                .options = options,
                .n_options = ARRAY_SIZE(options),
                .takes = TAKES_TARGET | TAKES_SELECTION,
                .set = set,
};

/* One side: a file, or a range of the daemon's store. */
static int read_side(const struct query *common, char *const *what, struct profile **ret)
{
        struct query q = *common;

        if (access(*what, F_OK) == 0) {
                q.file = what;
                q.n_files = 1;
        } else if (query_parse_range(*what, now_realtime_ns(), &q.since_ns, &q.until_ns)) {
                q.when = WHEN_RANGE;
        } else {
                return say_usage("diff", "%s is neither a file nor a range of time as 02:00..02:10%s", *what,
                                 strstr(*what, "..")
                                                 ? ", whose begin is before its end and not in the future"
                                                 : "");
        }
        q.no_processes = true;
        int r = source_profile(&q, ret);
        if (r == STATUS_DONE && (*ret)->n_samples == 0) {
                source_say_empty(&q);
                return say_failed("there is nothing to compare with: %s has no samples", *what);
        }
        return r;
}

static int write_flamegraph(const struct options *o, const struct profile *a, const struct profile *b,
                            const struct diff *d)
{
        _cleanup_buf_ struct buf out = {0};
        int type = event_index(b, d->type);

        if (type < 0)
                return STATUS_FAILED;
        const struct export_options how = {.type = (uint32_t)type, .no_inline = o->diff.no_inline};
        int r = flamegraph_write(b, a, &how, &out);
        return r < 0 ? say_failed("cannot make the flame graph: %s", strerror(-r))
                     : output_file(o->flamegraph, &out);
}

static int compare(const struct options *o, const struct profile *a, const struct profile *b)
{
        _cleanup_diff_ struct diff *d = NULL;
        _cleanup_buf_ struct buf out = {0};
        bool tty = isatty(STDOUT_FILENO);

        int r = diff_new(&d, a, b, &o->diff);
        if (r < 0)
                return say_failed("cannot compare: %s",
                                  r == -ENOENT ? "the two have no event in common" : strerror(-r));
        if (o->flamegraph) {
                r = write_flamegraph(o, a, b, d);
                if (r != STATUS_DONE)
                        return r;
        }
        const struct diff_text how = {
                        .columns = tty ? text_columns(STDOUT_FILENO, 80) : -1,
                        .grey = tty,
                        .by = o->diff.by,
                        .absolute = o->diff.order == DIFF_BY_RATE,
                        .max_changed = o->lines ? (uint32_t)o->lines : UINT32_MAX,
                        .max_noise = o->lines ? (uint32_t)o->lines : 10,
        };
        diff_text_sides(a, b, d, &out);
        diff_text_rows(d, &how, &out);
        return say_out(&out);
}

int verb_diff(int argc, char **argv)
{
        struct options o = {.diff.by = DIFF_FUNCTION};
        struct query q;
        _cleanup_profile_ struct profile *a = NULL, *b = NULL;
        int first;

        int r = options_parse(&spec, argc, argv, &q, &o, &first);
        if (r >= 0)
                return r;
        if (argc - first != 2)
                return say_usage("diff", "two things to compare are wanted, A and B");
        o.diff.type = q.selection.event;
        r = output_check(o.flamegraph);
        if (r == STATUS_DONE)
                r = read_side(&q, &argv[first], &a);
        if (r == STATUS_DONE)
                r = read_side(&q, &argv[first + 1], &b);
        return r == STATUS_DONE ? compare(&o, a, b) : r;
}
