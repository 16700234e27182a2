/* Source lines. Samples are sorted into sections, one for each function that the innermost code was of: the
 * annotated function itself, and what was inlined into it under its own name. In the function's own section
 * a second column has what was inlined at a line too. */
#include "tools/annotate.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/io.h"

#define SOURCE_MAX (16u << 20)
#define CONTEXT    3       /* lines around those with samples */
#define FAR        1000000 /* a line number above is nonsense */

struct line {
        uint32_t section;
        int64_t number;
        int64_t self, all, other; /* other: self, of the second event */
};

struct section {
        uint32_t function; /* id */
        bool own;          /* the annotated function's */
        int64_t self;
};

struct sections {
        const struct focus *f;
        struct section *section;
        uint32_t n_sections;
        struct line *line;
        uint32_t n_lines;
};

static bool same_function(const struct profile *p, uint32_t a, uint32_t b)
{
        return p->function[a].name == p->function[b].name && p->function[a].file == p->function[b].file;
}

/* The arrays have room for all: at most two entries for each place. */
static uint32_t section_of(struct sections *s, uint32_t function, bool own)
{
        for (uint32_t i = 0; i < s->n_sections; i++)
                if (same_function(s->f->p, s->section[i].function, function))
                        return i;
        s->section[s->n_sections] = (struct section){.function = function, .own = own};
        return s->n_sections++;
}

static void add_line(struct sections *s, const struct profile_line *l, bool own, int64_t self, int64_t all,
                     int64_t other)
{
        uint32_t section = section_of(s, l->function, own);

        s->section[section].self += self;
        s->line[s->n_lines++] =
                        (struct line){section, l->line < 0 || l->line > FAR ? 0 : l->line, self, all, other};
}

static int by_section(const void *a, const void *b)
{
        const struct line *x = a, *y = b;

        if (x->section != y->section)
                return x->section < y->section ? -1 : 1;
        return (x->number > y->number) - (x->number < y->number);
}

static int sort_samples(struct sections *s)
{
        const struct profile *p = s->f->p;
        size_t room = (size_t)s->f->n_places * 2 + 1;

        s->section = calloc(room, sizeof(*s->section));
        s->line = calloc(room, sizeof(*s->line));
        if (!s->section || !s->line)
                return -ENOMEM;
        for (uint32_t i = 0; i < s->f->n_places; i++) {
                const struct place *at = &s->f->place[i];
                const struct profile_line *l = &p->line[p->location[at->location].first_line];
                add_line(s, &l[at->depth], true, at->depth == 0 ? at->value : 0, at->value,
                         at->depth == 0 ? at->other : 0);
                if (at->depth > 0)
                        add_line(s, &l[0], false, at->value, at->value, at->other);
        }
        qsort(s->line, s->n_lines, sizeof(*s->line), by_section);
        uint32_t n = 0;
        for (uint32_t i = 0; i < s->n_lines; i++) {
                struct line *last = n ? &s->line[n - 1] : NULL;
                if (last && last->section == s->line[i].section && last->number == s->line[i].number) {
                        last->self += s->line[i].self;
                        last->all += s->line[i].all;
                        last->other += s->line[i].other;
                } else {
                        s->line[n++] = s->line[i];
                }
        }
        s->n_lines = n;
        return 0;
}

/* -- the files -- */

/* Under its own path; under each directory by ever shorter ends of its path. */
static int open_source(const char *path, const char *const *dirs, struct buf *ret, struct buf *ret_path)
{
        buf_adds(ret_path, path);
        if (path[0] == '/' && read_file(path, SOURCE_MAX, ret) == 0)
                return 0;
        for (; dirs && *dirs; dirs++)
                for (const char *end = path; end; end = strchr(end, '/')) {
                        end += *end == '/';
                        buf_clear(ret_path);
                        buf_addf(ret_path, "%s/%s", *dirs, end);
                        buf_clear(ret);
                        if (*end && read_file(buf_text(ret_path), SOURCE_MAX, ret) == 0)
                                return 0;
                }
        buf_clear(ret);
        buf_clear(ret_path);
        return -ENOENT;
}

/* Splits in place; *ret has n pointers, the first line's at 0. */
static int split_lines(struct buf *b, const char ***ret, uint32_t *ret_n)
{
        uint32_t n = 0, cap = 0;
        const char **line = NULL;

        for (char *p = b->data; p && *p;) {
                if (n == cap) {
                        cap = cap ? cap * 2 : 256;
                        const char **more = reallocarray(line, cap, sizeof(*more));
                        if (!more) {
                                free(line);
                                return -ENOMEM;
                        }
                        line = more;
                }
                line[n++] = p;
                p += strcspn(p, "\n");
                if (*p)
                        *p++ = 0;
        }
        *ret = line;
        *ret_n = n;
        return 0;
}

static void put_expanded(struct buf *out, const char *text)
{
        for (int column = 0; *text; text++)
                if (*text == '\t')
                        do
                                buf_addc(out, ' ');
                        while (++column % 8);
                else {
                        buf_addc(out, *text);
                        column++;
                }
}

static int put_line(const struct sections *s, const struct line *l, int64_t number, const char *text,
                    bool own, struct annotated *a)
{
        _cleanup_buf_ struct buf out = {0};
        double whole = s->f->value ? (double)s->f->value : 1, self = l ? (double)l->self / whole : 0,
               all = l ? (double)l->all / whole : 0;

        if (l && l->self)
                buf_addf(&out, "%6.2f%%", 100 * self);
        else
                buf_addf(&out, "%7s", "");
        if (own && l && l->all)
                buf_addf(&out, " %6.2f%%", 100 * all);
        else
                buf_addf(&out, "%8s", "");
        focus_put_other(s->f, l ? l->other : 0, &out);
        if (number)
                buf_addf(&out, " %6" PRId64 "  ", number);
        else
                buf_addf(&out, " %6s  ", "?");
        put_expanded(&out, text);
        return buf_error(&out) ? -ENOMEM : annotated_add(a, l ? MAX_OF(self, 0.0) : 0, "%s", buf_text(&out));
}

/* Lines of the file from around the first to around the last with samples; gaps of more than twice the
 * context are left out. */
static int put_with_text(const struct sections *s, const struct line *line, uint32_t n, const char **text,
                         uint32_t n_text, int64_t function_line, bool own, struct annotated *a)
{
        int64_t shown = 0;
        int r = 0;

        for (uint32_t i = 0; i < n && r >= 0; i++) {
                int64_t at = line[i].number;
                if (at == 0 || at > n_text) {
                        r = put_line(s, &line[i], at, "", own, a);
                        continue;
                }
                int64_t from = MAX_OF(at - CONTEXT, (int64_t)1);
                if (shown == 0 && function_line > 0 && function_line < from && from - function_line < 40)
                        from = function_line;
                if (shown > 0 && from > shown + 1 && from - shown > CONTEXT + 1) {
                        r = annotated_add(a, -1, "%*s  ...", s->f->other >= 0 ? 30 : 22, "");
                        shown = from - 1;
                }
                from = MAX_OF(from, shown + 1);
                int64_t to = MIN_OF(at + CONTEXT, (int64_t)n_text);
                if (i + 1 < n && line[i + 1].number <= to)
                        to = line[i + 1].number - 1;
                for (int64_t k = from; k <= to && r >= 0; k++)
                        r = put_line(s, k == at ? &line[i] : NULL, k, text[k - 1], own, a);
                shown = MAX_OF(shown, to);
        }
        return r;
}

static int put_section(const struct sections *s, const struct section *section, const struct line *line,
                       uint32_t n, const struct annotate_options *o, struct annotated *a)
{
        const struct profile *p = s->f->p;
        const struct profile_function *f = &p->function[section->function];
        const char *path = p->string[f->file], **text = NULL;
        _cleanup_buf_ struct buf content = {0}, found = {0};
        uint32_t n_text = 0;

        bool have = *path && open_source(path, o->source_dir, &content, &found) == 0;
        int r = have ? split_lines(&content, &text, &n_text) : 0;
        if (r >= 0)
                r = annotated_add(a, -1, "%s%s  %s%s", p->string[f->name], section->own ? "" : " (inlined)",
                                  *path ? path : "source file not known",
                                  *path && !have ? " (not here; --source DIR tells where it is)" : "");
        if (r >= 0)
                r = annotated_add(a, -1, "   self%s%s   line", section->own ? "     all" : "        ",
                                  s->f->other >= 0 ? "   other" : "");
        if (r >= 0 && have)
                r = put_with_text(s, line, n, text, n_text, f->start_line, section->own, a);
        for (uint32_t i = 0; i < n && !have && r >= 0; i++)
                r = put_line(s, &line[i], line[i].number, "", section->own, a);
        if (r >= 0)
                r = annotated_add(a, -1, "%s", "");
        free(text);
        return r;
}

int annotate_source(const struct focus *f, const struct annotate_options *o, struct annotated *a)
{
        struct sections s = {.f = f};
        uint32_t done = 0;
        bool *put = NULL;

        int r = sort_samples(&s);
        if (r >= 0) {
                put = calloc((size_t)s.n_sections + 1, sizeof(*put));
                r = put ? 0 : -ENOMEM;
        }
        /* The function itself, then what was inlined, the hottest first. */
        for (; r >= 0 && done < s.n_sections; done++) {
                uint32_t best = UINT32_MAX, first = 0, n = 0;
                for (uint32_t i = 0; i < s.n_sections; i++)
                        if (!put[i] && (best == UINT32_MAX || s.section[i].own > s.section[best].own ||
                                        (s.section[i].own == s.section[best].own &&
                                         s.section[i].self > s.section[best].self)))
                                best = i;
                while (s.line[first].section != best)
                        first++;
                while (first + n < s.n_lines && s.line[first + n].section == best)
                        n++;
                put[best] = true;
                r = put_section(&s, &s.section[best], s.line + first, n, o, a);
        }
        free(put);
        free(s.section);
        free(s.line);
        return r;
}
