/* profctl dump: the selected profile in any format that it can be written in. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "profile/export.h"
#include "tools/event.h"
#include "tools/output.h"
#include "tools/say.h"
#include "tools/source.h"
#include "tools/verb.h"

enum { OPT_OUTPUT, OPT_FORMAT, OPT_NO_INLINE };

struct dump {
        const char *output;
        enum export_format format;
        bool format_given, no_inline;
};

static int set(void *ctx, int id, const char *value)
{
        struct dump *d = ctx;

        switch (id) {
        case OPT_OUTPUT:
                d->output = strcmp(value, "-") ? value : NULL;
                return 0;
        case OPT_NO_INLINE:
                d->no_inline = true;
                return 0;
        default:
                d->format_given = true;
                return export_format_by_name(value, &d->format);
        }
}

static const struct option_spec options[] = {
                {"output", 'o', "FILE", "where to, instead of the standard output", OPT_OUTPUT},
                {"format", 'f', "FORMAT", "pprof folded perf-script speedscope callgrind json", OPT_FORMAT},
                {"no-inline", 0, NULL, "count inlined functions to what they are inlined into",
                 OPT_NO_INLINE},
};

static const struct command_spec spec = {
                .name = "dump",
                .arguments = "[-o FILE] [OPTION...] [FILE...]",
                .summary = "Writes a profile. Without --format the ending of FILE chooses: .pb.gz, "
                           ".folded,\n"
                           ".perf, .speedscope.json, .callgrind, .json.",
                .options = options,
                .n_options = ARRAY_SIZE(options),
                .takes = TAKES_READING,
                .set = set,
};

int verb_dump(int argc, char **argv)
{
        struct dump d = {.format = EXPORT_PPROF};
        struct query q;
        _cleanup_profile_ struct profile *p = NULL;
        _cleanup_buf_ struct buf out = {0};
        int first, type = 0;

        int r = options_parse(&spec, argc, argv, &q, &d, &first);
        if (r >= 0)
                return r;
        if (d.output && !d.format_given && export_format_by_path(d.output, &d.format) < 0)
                return say_usage("dump", "the ending of '%s' names no format: give one with --format",
                                 d.output);
        if (!d.output && isatty(STDOUT_FILENO) && (d.format == EXPORT_PPROF))
                return say_usage("dump", "a profile is binary and is not written to a terminal: give -o "
                                         "FILE, or --format folded");
        r = query_take_files(&q, "dump", argc, argv, first);
        if (r >= 0)
                return r;
        r = output_check(d.output);
        if (r == STATUS_DONE)
                r = source_profile(&q, &p);
        if (r != STATUS_DONE)
                return r;
        if (p->n_samples == 0)
                return source_say_empty(&q);
        if (d.format != EXPORT_PPROF) {
                type = event_index(p, q.selection.event);
                if (type < 0)
                        return STATUS_FAILED;
        }
        const struct export_options o = {.type = (uint32_t)type, .no_inline = d.no_inline};
        r = export_profile(d.format, p, &o, &out);
        if (r < 0)
                return say_failed("cannot write the profile as %s: %s", export_format_name(d.format),
                                  strerror(-r));
        return d.output ? output_file(d.output, &out) : say_out(&out);
}
