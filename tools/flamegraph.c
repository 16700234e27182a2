/* profctl flamegraph: the selected profile as one page. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "profile/export.h"
#include "tools/event.h"
#include "tools/output.h"
#include "tools/say.h"
#include "tools/source.h"
#include "tools/verb.h"

enum { OPT_OUTPUT, OPT_TITLE, OPT_NO_INLINE };

struct flamegraph {
        const char *output, *title;
        bool no_inline;
};

static int set(void *ctx, int id, const char *value)
{
        struct flamegraph *f = ctx;

        if (id == OPT_OUTPUT)
                f->output = value;
        else if (id == OPT_TITLE)
                f->title = value;
        else
                f->no_inline = true;
        return 0;
}

static const struct option_spec options[] = {
                {"output", 'o', "FILE.html", "where to, instead of the standard output", OPT_OUTPUT},
                {"title", 't', "TEXT", "the page's title; default: host and time", OPT_TITLE},
                {"no-inline", 0, NULL, "count inlined functions to what they are inlined into",
                 OPT_NO_INLINE},
};

static const struct command_spec spec = {
                .name = "flamegraph",
                .arguments = "-o FILE.html [OPTION...] [FILE...]",
                .summary = "Writes one self-contained interactive page: zoom, search, inverted, by object.",
                .options = options,
                .n_options = ARRAY_SIZE(options),
                .takes = TAKES_READING,
                .set = set,
};

int verb_flamegraph(int argc, char **argv)
{
        struct flamegraph f = {0};
        struct query q;
        _cleanup_profile_ struct profile *p = NULL;
        _cleanup_buf_ struct buf out = {0};
        int first;

        int r = options_parse(&spec, argc, argv, &q, &f, &first);
        if (r >= 0)
                return r;
        if (!f.output && isatty(STDOUT_FILENO))
                return say_usage("flamegraph", "a page is nothing for a terminal: give -o FILE.html");
        query_take_files(&q, argc, argv, first);
        q.no_processes = true;
        r = source_profile(&q, &p);
        if (r != STATUS_DONE)
                return r;
        if (p->n_samples == 0)
                return source_say_empty(&q);
        int type = event_index(p, q.selection.event);
        if (type < 0)
                return STATUS_FAILED;
        const struct export_options o = {.type = (uint32_t)type, .no_inline = f.no_inline, .title = f.title};
        r = export_profile(EXPORT_FLAMEGRAPH, p, &o, &out);
        if (r < 0)
                return say_failed("cannot make the page: %s", strerror(-r));
        return f.output ? output_file(f.output, &out) : say_out(&out);
}
