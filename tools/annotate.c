/* profctl annotate: options, output and the browser. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "tools/annotate.h"
#include "tools/event.h"
#include "tools/human.h"
#include "tools/say.h"
#include "tools/screen.h"
#include "tools/source.h"
#include "tools/text.h"
#include "tools/verb.h"

#define MAX_DIRS 16
#define HOT      0.05
#define WARM     0.005

enum { OPT_SOURCE, OPT_OBJECT, OPT_NO_SOURCE, OPT_NO_ASM, OPT_STDIO };

struct annotate {
        const char *dir[MAX_DIRS + 1];
        uint32_t n_dirs;
        struct annotate_options options;
        bool stdio;
};

static int set(void *ctx, int id, const char *value)
{
        struct annotate *a = ctx;

        switch (id) {
        case OPT_SOURCE:
                if (a->n_dirs == MAX_DIRS)
                        return -E2BIG;
                a->dir[a->n_dirs++] = value;
                return 0;
        case OPT_OBJECT:
                a->options.object = value;
                return 0;
        case OPT_NO_SOURCE:
                a->options.no_source = true;
                return 0;
        case OPT_NO_ASM:
                a->options.no_asm = true;
                return 0;
        default:
                a->stdio = true;
                return 0;
        }
}

static const struct option_spec options[] = {
                {"source", 'd', "DIR", "look for source files under DIR too", OPT_SOURCE},
                {"object", 0, "PATH", "the object, when it is elsewhere now", OPT_OBJECT},
                {"no-source", 0, NULL, "leave out source lines", OPT_NO_SOURCE},
                {"no-asm", 0, NULL, "leave out instructions", OPT_NO_ASM},
                {"stdio", 0, NULL, "plain text on a terminal too", OPT_STDIO},
};

static const struct command_spec spec = {
                .name = "annotate",
                .arguments = "FUNCTION [OPTION...] [FILE...]",
                .summary = "A function's source lines and instructions, each with its share of the\n"
                           "function's samples; inlined code under its own name.",
                .options = options,
                .n_options = ARRAY_SIZE(options),
                .takes = TAKES_READING,
                .set = set,
};

static int put_head(const struct focus *f, struct annotated *a)
{
        _cleanup_buf_ struct buf out = {0};
        char t[HUMAN_MAX];
        const struct profile_value_type *type = &f->p->type[f->type];

        buf_addf(&out, "%s: %s, %.2f%% of all", f->function,
                 human_value(t, profile_str(f->p, type->unit), f->value),
                 f->whole ? 100.0 * (double)f->value / (double)f->whole : 0);
        if (!strcmp(profile_str(f->p, type->type), "cpu") && f->samples)
                buf_addf(&out, ", %s samples", human_count(t, f->samples));
        else
                buf_addf(&out, " %s", profile_str(f->p, type->type));
        if (f->other >= 0)
                buf_addf(&out, "; other: %s, %s", profile_str(f->p, f->p->type[f->other].type),
                         human_value(t, profile_str(f->p, f->p->type[f->other].unit), f->other_value));
        int r = annotated_add(a, -1, "%s", buf_text(&out));
        return r < 0 ? r : annotated_add(a, -1, "%s", "");
}

static int make_lines(const struct focus *f, const struct annotate_options *o, struct annotated *a)
{
        int r = put_head(f, a);

        if (r >= 0 && !o->no_source)
                r = annotate_source(f, o, a);
        if (r >= 0 && !o->no_asm)
                r = annotate_instructions(f, o, a);
        return r;
}

static int print_lines(const struct annotated *a)
{
        _cleanup_buf_ struct buf out = {0};
        int columns = isatty(STDOUT_FILENO) ? text_columns(STDOUT_FILENO, 80) : -1;

        for (uint32_t i = 0; i < a->n; i++) {
                text_fit(&out, a->line[i].text, columns, false);
                buf_addc(&out, '\n');
        }
        return say_out(&out);
}

/* -- the browser -- */

static const char *const help[] = {
                "profctl annotate",
                "",
                "Each line with its share of the function's samples; in the function's own source",
                "lines the second column has what was inlined there too.",
                "",
                "Up Down PgUp PgDn Home End   move",
                "n  p                         to the next hotter line of the list, and back",
                "h  F1  ?                     this help",
                "q  Escape                    quit",
                "",
                "Any key goes back.",
                NULL,
};

/* The lines that put_head() writes are the title, the rest can be scrolled below it. */
#define HEAD_LINES 2

struct listing {
        const char *title;
        struct annotated body; /* the lines below the head, borrowed */
};

static void draw_title(void *ctx, int columns, struct buf *out)
{
        buf_adds(out, ((const struct listing *)ctx)->title);
}

static enum screen_style draw_row(void *ctx, uint32_t i, int columns, struct buf *out)
{
        const struct annotated_line *l = &((const struct listing *)ctx)->body.line[i];

        buf_adds(out, l->text);
        return l->share < 0       ? STYLE_STRONG
               : l->share >= HOT  ? STYLE_HOT
               : l->share >= WARM ? STYLE_WARM
                                  : STYLE_NORMAL;
}

/* Of the lines from the hottest down, the one after (or before) the selected one. */
static uint32_t next_hot(const struct annotated *a, uint32_t selected, bool hotter)
{
        uint32_t best = selected;
        double at = a->line[selected].share;

        for (uint32_t i = 0; i < a->n; i++) {
                double s = a->line[i].share;
                bool beyond = hotter ? s > at || (s == at && i < selected)
                                     : s < at || (s == at && i > selected);
                if (s <= 0 || !beyond)
                        continue;
                double b = a->line[best].share;
                if (best == selected || (hotter ? s < b || (s == b && i > best) : s > b))
                        best = i;
        }
        return best;
}

static uint32_t hottest(const struct annotated *a)
{
        uint32_t best = 0;

        for (uint32_t i = 0; i < a->n; i++)
                if (a->line[i].share > a->line[best].share)
                        best = i;
        return best;
}

static void browse(struct annotated *a)
{
        struct listing listing = {
                        .title = a->line[0].text,
                        .body = {.line = a->line + HEAD_LINES, .n = a->n - HEAD_LINES},
        };
        const struct annotated *body = &listing.body;
        struct screen_view v = {
                        .ctx = &listing,
                        .titles = draw_title,
                        .row = draw_row,
                        .keys = "n colder  p hotter  h help  q quit",
                        .help = help,
                        .n_rows = body->n,
                        .selected = hottest(body),
                        .rows_selectable = true,
        };

        for (;;) {
                screen_draw(&v);
                int key = screen_key(-1);
                if (key == 'q' || key == SCREEN_KEY_ESCAPE || key == SCREEN_KEY_END)
                        return;
                if (key == 'h' || key == '?' || key == SCREEN_KEY_F1)
                        screen_help(&v);
                else if ((key == 'n' || key == 'p') && body->n > 0)
                        v.selected = next_hot(body, v.selected, key == 'p');
                else
                        screen_move(&v, key);
        }
}

/* The lines of a function. -ENOENT, with `why`: the profile has no such function, or it was never running
 * itself. */
static int annotate(const struct profile *p, uint32_t type, const char *function,
                    const struct annotate_options *o, struct annotated *ret, struct buf *why)
{
        struct annotated a = {0};
        struct focus f;

        int r = focus_find(p, type, function, &f, why);
        if (r < 0)
                return r;
        if (f.n_places == 0) {
                buf_addf(why, "%s was never running itself, only what it calls", f.function);
                r = -ENODATA;
        } else {
                r = make_lines(&f, o, &a);
        }
        focus_free(&f);
        if (r < 0)
                annotated_free(&a);
        else
                *ret = a;
        return r;
}

int annotate_browse(const struct profile *p, uint32_t type, const char *function, struct buf *why)
{
        struct annotated a;
        const char *const no_dirs[] = {NULL};
        const struct annotate_options o = {.source_dir = no_dirs};

        int r = annotate(p, type, function, &o, &a, why);
        if (r < 0)
                return r;
        browse(&a);
        annotated_free(&a);
        return 0;
}

static int show(struct annotated *a, bool stdio)
{
        if (stdio || !isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO))
                return print_lines(a);
        int r = screen_open();
        if (r < 0)
                return say_failed("cannot use this terminal: %s; --stdio prints plain text", strerror(-r));
        browse(a);
        screen_close();
        return STATUS_DONE;
}

static int annotate_profile(const struct annotate *o, const struct profile *p, const char *event,
                            const char *function)
{
        _cleanup_buf_ struct buf why = {0};
        struct annotated a;

        int type = event_index(p, event);
        if (type < 0)
                return STATUS_FAILED;
        int r = annotate(p, (uint32_t)type, function, &o->options, &a, &why);
        if (r == -ENODATA) {
                say_note("%s: see profctl report --callees", buf_text(&why));
                return STATUS_DONE;
        }
        if (r < 0)
                return say_failed("%s; profctl report lists functions",
                                  why.len ? buf_text(&why) : strerror(-r));
        r = show(&a, o->stdio);
        annotated_free(&a);
        return r;
}

int verb_annotate(int argc, char **argv)
{
        struct annotate a = {0};
        struct query q;
        _cleanup_profile_ struct profile *p = NULL;
        int first;

        int r = options_parse(&spec, argc, argv, &q, &a, &first);
        if (r >= 0)
                return r;
        if (first >= argc)
                return say_usage("annotate", "no FUNCTION given");
        if (first + 1 == argc && strchr(argv[first], '/') && access(argv[first], F_OK) == 0)
                return say_usage("annotate", "no FUNCTION given, only the file %s", argv[first]);
        a.options.source_dir = a.dir;
        r = query_take_files(&q, "annotate", argc, argv, first + 1);
        if (r >= 0)
                return r;
        r = source_profile(&q, &p);
        if (r != STATUS_DONE)
                return r;
        if (p->n_samples == 0)
                return source_say_empty(&q);
        return annotate_profile(&a, p, q.selection.event, argv[first]);
}
