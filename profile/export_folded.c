/* Folded stacks: one line a stack, "process;root;...;leaf value", as Brendan Gregg's stackcollapse scripts
 * write them. The annotations are those of stackcollapse-perf.pl --all: _[k] a kernel frame, _[i] an inlined
 * one; flamegraph.pl and inferno take them off again and colour by them. Sorted, each stack once. */
#include "profile/export_formats.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "profile/symbols.h"

struct line {
        size_t at; /* of its text, NUL-ended */
        int64_t value;
};

struct lines {
        struct buf text;
        struct line *line;
        uint32_t n, cap;
};

static void lines_done(struct lines *l)
{
        buf_free(&l->text);
        free(l->line);
}

/* ';' separates frames and a line end samples, so a name has neither. */
static void add_name(struct buf *b, const char *name)
{
        for (; *name; name++)
                buf_addc(b, *name == ';' ? ':' : *name == '\n' || *name == '\r' ? ' ' : *name);
}

static void add_stack(struct buf *b, const struct symbols *s, const struct frame_list *frames)
{
        for (uint32_t i = frames->n; i-- > 0;) {
                const struct symbol_frame *f = &s->frame[frames->frame[i]];
                const struct symbol *symbol = &s->symbol[f->symbol];
                if (i + 1 < frames->n)
                        buf_addc(b, ';');
                add_name(b, symbol->name);
                if (symbol->kernel)
                        buf_adds(b, "_[k]");
                else if (f->inlined)
                        buf_adds(b, "_[i]");
        }
}

static int compare_lines(const void *a, const void *b, void *ctx)
{
        const struct lines *l = ctx;

        return strcmp(l->text.data + ((const struct line *)a)->at,
                      l->text.data + ((const struct line *)b)->at);
}

static void write_lines(struct lines *l, struct buf *out)
{
        if (l->n)
                qsort_r(l->line, l->n, sizeof(*l->line), compare_lines, l);
        for (uint32_t i = 0; i < l->n;) {
                const char *text = l->text.data + l->line[i].at;
                int64_t value = 0;
                for (; i < l->n && !strcmp(text, l->text.data + l->line[i].at); i++)
                        value += l->line[i].value;
                buf_addf(out, "%s %" PRId64 "\n", text, value);
        }
}

int export_folded(const struct profile *p, const struct export_options *o, struct buf *out)
{
        _cleanup_symbols_ struct symbols *s = NULL;
        _cleanup_frame_list_ struct frame_list frames = {0};
        _cleanup_(lines_done) struct lines lines = {0};

        int r = symbols_new(&s, p, !o->no_inline);
        if (r < 0)
                return r;
        for (uint32_t i = 0; i < p->n_samples; i++) {
                int64_t value = profile_values(p, i)[o->type];
                const char *comm = export_label(p, &p->sample[i], "comm");
                if (!value)
                        continue;
                if ((r = symbols_frames(s, p, &p->sample[i], &frames)) < 0 ||
                    (r = ARRAY_ROOM(lines.line, lines.cap, (uint64_t)lines.n + 1)) < 0)
                        return r;
                lines.line[lines.n++] = (struct line){.at = lines.text.len, .value = value};
                if (comm)
                        add_name(&lines.text, comm);
                if (comm && frames.n)
                        buf_addc(&lines.text, ';');
                add_stack(&lines.text, s, &frames);
                if (!comm && !frames.n)
                        buf_adds(&lines.text, s->symbol[s->no_stack].name);
                buf_addc(&lines.text, 0);
        }
        if (buf_error(&lines.text))
                return buf_error(&lines.text);
        write_lines(&lines, out);
        return buf_error(out);
}
