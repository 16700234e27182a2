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
                f->output = strcmp(value, "-") ? value : NULL;
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

/* By its ending: an image, or what `profctl dump` writes. What opens such a file would not read a page. */
static bool is_of_another_kind(const char *path)
{
        static const char *const image[] = {".svg", ".png", ".pdf"};
        enum export_format format;
        size_t n = strlen(path);

        for (size_t i = 0; i < ARRAY_SIZE(image); i++)
                if (n >= 4 && !strcasecmp(path + n - 4, image[i]))
                        return true;
        return export_format_by_path(path, &format) == 0 && format != EXPORT_FLAMEGRAPH;
}

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
        if (f.output && is_of_another_kind(f.output))
                return say_usage("flamegraph",
                                 "the page is HTML: call it FILE.html, not %s; profctl dump writes other "
                                 "formats",
                                 f.output);
        if (!f.output && isatty(STDOUT_FILENO))
                return say_usage("flamegraph", "the page is not written to a terminal: give -o FILE.html");
        r = query_take_files(&q, "flamegraph", argc, argv, first);
        if (r >= 0)
                return r;
        q.no_processes = true;
        r = output_check(f.output);
        if (r == STATUS_DONE)
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
