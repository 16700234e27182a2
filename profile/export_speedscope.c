/* speedscope's file format (github.com/jlfwong/speedscope, src/lib/file-format-spec.ts): one sampled
 * profile, the process name as the root of each stack. */
#include "profile/export_formats.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_out.h"
#include "profile/limit.h"
#include "profile/symbols.h"

/* The units it knows; all others are "none". */
static const char *unit_of(const struct profile *p, uint32_t type)
{
        static const char *const known[] = {"nanoseconds", "microseconds", "milliseconds", "seconds",
                                            "bytes"};
        const char *unit = p->string[p->type[type].unit];

        for (size_t i = 0; i < ARRAY_SIZE(known); i++)
                if (!strcmp(unit, known[i]))
                        return known[i];
        return "none";
}

/* Frames are the symbols' frames, then one for each string that is a process name. */
static void write_frames(struct json_out *j, const struct profile *p, const struct symbols *s,
                         const uint32_t *process, uint32_t n_processes)
{
        json_object_begin(j, "shared");
        json_array_begin(j, "frames");
        for (uint32_t i = 0; i < s->first[p->n_locations]; i++) {
                const struct symbol_frame *f = &s->frame[i];
                const char *file = f->function ? p->string[p->function[f->function].file] : "";
                json_object_begin(j, NULL);
                json_string(j, "name", s->symbol[f->symbol].name);
                if (*file)
                        json_string(j, "file", file);
                else if (*s->symbol[f->symbol].object)
                        json_string(j, "file", s->symbol[f->symbol].object);
                if (f->line > 0)
                        json_i64(j, "line", f->line);
                json_object_end(j);
        }
        for (uint32_t i = 0; i < n_processes; i++) {
                json_object_begin(j, NULL);
                json_string(j, "name", p->string[process[i]]);
                json_object_end(j);
        }
        json_array_end(j);
        json_object_end(j);
}

/* The process names: their strings, and by string the index among them. */
struct processes {
        uint32_t *string, *index;
        uint32_t n;
};

static void processes_done(struct processes *x)
{
        free(x->string);
        free(x->index);
}

static int find_processes(struct processes *x, const struct profile *p)
{
        x->string = calloc(p->n_strings, sizeof(*x->string));
        x->index = malloc(p->n_strings * sizeof(*x->index));
        if (!x->string || !x->index)
                return -ENOMEM;
        memset(x->index, 0xff, p->n_strings * sizeof(*x->index));
        for (uint32_t i = 0; i < p->n_samples; i++) {
                const struct profile_label *l = profile_find_label(p, &p->sample[i], "comm");
                if (l && l->str && x->index[l->str] == UINT32_MAX) {
                        x->index[l->str] = x->n;
                        x->string[x->n++] = l->str;
                }
        }
        return 0;
}

static int write_stacks(struct json_out *j, const struct profile *p, const struct symbols *s,
                        const struct processes *processes)
{
        _cleanup_frame_list_ struct frame_list frames = {0};

        json_array_begin(j, "samples");
        for (uint32_t i = 0; i < p->n_samples; i++) {
                const struct profile_label *comm = profile_find_label(p, &p->sample[i], "comm");
                int r = symbols_frames(s, p, &p->sample[i], &frames);
                if (r < 0)
                        return r;
                json_array_begin(j, NULL);
                if (comm && comm->str)
                        json_u64(j, NULL, s->first[p->n_locations] + (uint64_t)processes->index[comm->str]);
                for (uint32_t k = frames.n; k-- > 0;)
                        json_u64(j, NULL, frames.frame[k]);
                json_array_end(j);
        }
        json_array_end(j);
        return 0;
}

int export_speedscope(const struct profile *p, const struct export_options *o, struct buf *out)
{
        _cleanup_profile_ struct profile *merged = NULL;
        _cleanup_symbols_ struct symbols *s = NULL;
        _cleanup_(processes_done) struct processes processes = {0};
        struct json_out j = {.out = out};
        static const char *const keys[] = {"comm"};
        int64_t total = 0;

        int r = profile_reduce_labels(p, keys, 1, false, &merged);
        if (r < 0)
                return r;
        if ((r = symbols_new(&s, merged, !o->no_inline)) < 0 || (r = find_processes(&processes, merged)) < 0)
                return r;
        for (uint32_t i = 0; i < merged->n_samples; i++)
                total += profile_values(merged, i)[o->type];

        const char *type = p->string[p->type[o->type].type], *title = o->title ? o->title : type;
        json_object_begin(&j, NULL);
        json_string(&j, "$schema", "https://www.speedscope.app/file-format-schema.json");
        json_string(&j, "exporter", "profd " PROFD_VERSION);
        json_string(&j, "name", title);
        json_u64(&j, "activeProfileIndex", 0);
        write_frames(&j, merged, s, processes.string, processes.n);
        json_array_begin(&j, "profiles");
        json_object_begin(&j, NULL);
        json_string(&j, "type", "sampled");
        json_string(&j, "name", type);
        json_string(&j, "unit", unit_of(p, o->type));
        json_u64(&j, "startValue", 0);
        json_i64(&j, "endValue", total);
        r = write_stacks(&j, merged, s, &processes);
        if (r < 0)
                return r;
        json_array_begin(&j, "weights");
        for (uint32_t i = 0; i < merged->n_samples; i++)
                json_i64(&j, NULL, profile_values(merged, i)[o->type]);
        json_array_end(&j);
        json_object_end(&j);
        json_array_end(&j);
        json_object_end(&j);
        return buf_error(out);
}
