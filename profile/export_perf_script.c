/* The text of `perf script` (tools/perf/builtin-script.c), one record a sample, as the tools that read it
 * expect: stackcollapse-perf.pl, inferno, speedscope, FlameScope, the Firefox profiler.
 *
 * A profile does not know when within its time each sample was taken. Each stack's samples are spread evenly
 * over it, so that a reader that draws time shows none that is not there. */
#include "profile/export_formats.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/array.h"
#include "profile/symbols.h"
#include "profile/weight.h"

#define MAX_RECORDS 2000000 /* some GB of text; more than the readers take */

struct record {
        int64_t time_ns;
        uint32_t sample;
};

struct records {
        struct record *record;
        uint32_t n, cap;
};

static void records_done(struct records *r)
{
        free(r->record);
}

static int add_records(struct records *to, const struct profile *p, uint32_t sample, int64_t n)
{
        if (n > MAX_RECORDS - (int64_t)to->n)
                return -E2BIG;
        int r = ARRAY_ROOM(to->record, to->cap, (uint64_t)to->n + (uint64_t)n);
        if (r < 0)
                return r;
        /* Each stack begins at another place within its step: the golden ratio's multiples lie apart. */
        double phase = (double)sample * 0.6180339887498949, start = phase - (double)(uint64_t)phase;
        for (int64_t i = 0; i < n; i++)
                to->record[to->n++] = (struct record){
                                .time_ns = p->time_ns + (int64_t)((double)p->duration_ns *
                                                                  ((double)i + start) / (double)n),
                                .sample = sample,
                };
        return 0;
}

static int compare_records(const void *a, const void *b)
{
        const struct record *x = a, *y = b;

        if (x->time_ns != y->time_ns)
                return x->time_ns < y->time_ns ? -1 : 1;
        return x->sample < y->sample ? -1 : x->sample > y->sample;
}

static int64_t number_label(const struct profile *p, const struct profile_sample *s, const char *key,
                            int64_t otherwise)
{
        const struct profile_label *l = profile_find_label(p, s, key);

        return l && !l->str ? l->num : otherwise;
}

/* A name on a line of its own fields: no line ends, and not empty. */
static void add_text(struct buf *out, const char *text)
{
        if (!*text)
                text = "[unknown]";
        for (; *text; text++)
                buf_addc(out, *text == '\n' || *text == '\r' ? ' ' : *text);
}

static void add_frames(struct buf *out, const struct profile *p, const struct symbols *s,
                       const struct frame_list *frames)
{
        for (uint32_t i = 0; i < frames->n; i++) {
                const struct symbol_frame *f = &s->frame[frames->frame[i]];
                const struct symbol *symbol = &s->symbol[f->symbol];
                buf_addf(out, "\t%16" PRIx64 " ", p->location[frames->location[i]].address);
                add_text(out, symbol->named ? symbol->name : "");
                buf_adds(out, " (");
                add_text(out, f->inlined ? "inlined" : symbol->object);
                buf_adds(out, ")\n");
        }
        buf_addc(out, '\n');
}

static int write_records(const struct records *records, const struct profile *p,
                         const struct export_options *o, struct buf *out)
{
        _cleanup_symbols_ struct symbols *s = NULL;
        _cleanup_frame_list_ struct frame_list frames = {0};
        struct weight w = weight_of_type(p, o->type);
        const char *event = p->string[p->type[o->type].type];

        int r = symbols_new(&s, p, !o->no_inline);
        for (uint32_t i = 0; r == 0 && i < records->n; i++) {
                const struct record *record = &records->record[i];
                const struct profile_sample *sample = &p->sample[record->sample];
                const int64_t *values = profile_values(p, record->sample);
                const char *thread = export_label(p, sample, "thread_name"),
                           *comm = export_label(p, sample, "comm");
                int64_t pid = number_label(p, sample, "pid", 0),
                        tid = number_label(p, sample, "thread_id", pid);
                int64_t time = record->time_ns < 0 ? 0 : record->time_ns;

                r = symbols_frames(s, p, sample, &frames);
                if (r < 0)
                        return r;
                add_text(out, thread ? thread : comm ? comm : "");
                buf_addf(out,
                         " %" PRId64 "/%" PRId64 " [000] %" PRId64 ".%06" PRId64 ": %10" PRId64 " %s: \n",
                         pid, tid, time / 1000000000, time % 1000000000 / 1000,
                         values[o->type] / weight_samples(&w, values), event);
                add_frames(out, p, s, &frames);
                r = buf_error(out);
        }
        return r;
}

int export_perf_script(const struct profile *p, const struct export_options *o, struct buf *out)
{
        _cleanup_(records_done) struct records records = {0};
        struct weight w = weight_of_type(p, o->type);

        for (uint32_t i = 0; i < p->n_samples; i++) {
                int64_t n = weight_samples(&w, profile_values(p, i));
                if (n <= 0 || !profile_values(p, i)[o->type])
                        continue;
                int r = add_records(&records, p, i, n);
                if (r < 0)
                        return r;
        }
        if (records.n)
                qsort(records.record, records.n, sizeof(*records.record), compare_records);
        return write_records(&records, p, o, out);
}
