/* profctl report: the options; the table is made in report_text.c and report_browse.c. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/parse.h"
#include "tools/report.h"
#include "tools/say.h"
#include "tools/source.h"
#include "tools/timeline.h"
#include "tools/verb.h"

enum { OPT_CALLERS, OPT_CALLEES, OPT_SORT, OPT_NO_INLINE, OPT_LINES, OPT_STDIO, OPT_TIMELINE };

struct report {
        struct report_options options;
        bool stdio, timeline;
};

static int set(void *ctx, int id, const char *value)
{
        struct report *r = ctx;
        uint64_t lines;

        switch (id) {
        case OPT_CALLERS:
                r->options.callers = true;
                return 0;
        case OPT_CALLEES:
                r->options.callees = true;
                return 0;
        case OPT_SORT:
                return layout_parse_keys(value, &r->options.keys, &r->options.order);
        case OPT_NO_INLINE:
                r->options.no_inline = true;
                return 0;
        case OPT_STDIO:
                r->stdio = true;
                return 0;
        case OPT_TIMELINE:
                r->timeline = true;
                return 0;
        default: {
                int e = parse_u64(value, 1, UINT32_MAX, &lines);
                if (e == 0)
                        r->options.max_rows = (uint32_t)lines;
                return e;
        }
        }
}

static const struct option_spec options[] = {
                {"callers", 0, NULL, "below each function, what called it", OPT_CALLERS},
                {"callees", 0, NULL, "below each function, what it called", OPT_CALLEES},
                {"sort", 's', "KEY,...", "process,pid,thread,unit,container,user,object,symbol", OPT_SORT},
                {"no-inline", 0, NULL, "count inlined functions to what they are inlined into",
                 OPT_NO_INLINE},
                {"lines", 'n', "N", "at most N lines", OPT_LINES},
                {"timeline", 0, NULL, "each line's share over time, as a text chart", OPT_TIMELINE},
                {"stdio", 0, NULL, "plain text on a terminal too", OPT_STDIO},
};

static const struct command_spec spec = {
                .name = "report",
                .arguments = "[OPTION...] [FILE...]",
                .summary = "Functions by their share of time, with the 95 % interval that sampling leaves.\n"
                           "On a terminal a browser (Enter: callers and callees); else plain text.",
                .options = options,
                .n_options = ARRAY_SIZE(options),
                .takes = TAKES_READING,
                .set = set,
};

int verb_report(int argc, char **argv)
{
        struct report report = {.options = report_defaults()};
        struct query q;
        _cleanup_profile_ struct profile *p = NULL;
        int first;

        int r = options_parse(&spec, argc, argv, &q, &report, &first);
        if (r >= 0)
                return r;
        r = query_take_files(&q, "report", argc, argv, first);
        if (r >= 0)
                return r;
        report.options.event = q.selection.event;
        if (report.timeline)
                return timeline_text(&q, &report.options, STDOUT_FILENO);
        q.no_processes = !(report.options.keys & (TABLE_PID | TABLE_TID));
        r = source_profile(&q, &p);
        if (r != STATUS_DONE)
                return r;
        if (p->n_samples == 0)
                return source_say_empty(&q);
        if (!report.stdio && isatty(STDOUT_FILENO) && isatty(STDIN_FILENO))
                return report_browse(p, &report.options);
        return report_text(p, &report.options, STDOUT_FILENO);
}
