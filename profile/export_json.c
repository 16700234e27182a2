/* A profile as JSON, for scripts (jq): what the pprof file says, with names in place of ids. The fields are
 * described in docs/file-format.md; "version" changes when one changes its meaning. */
#include "profile/export_formats.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json_out.h"
#include "profile/symbols.h"

#define JSON_VERSION 1

static void write_frames(struct json_out *j, const struct profile *p, const struct symbols *s)
{
        json_array_begin(j, "frames");
        for (uint32_t l = 1; l < p->n_locations; l++)
                for (uint32_t i = s->first[l]; i < s->first[l + 1]; i++) {
                        const struct symbol_frame *f = &s->frame[i];
                        const struct symbol *symbol = &s->symbol[f->symbol];
                        const char *file = f->function ? p->string[p->function[f->function].file] : "";
                        const struct profile_mapping *m = &p->mapping[p->location[l].mapping];
                        char address[24];

                        snprintf(address, sizeof(address), "0x%" PRIx64, p->location[l].address);
                        json_object_begin(j, NULL);
                        json_string(j, "function", symbol->named ? symbol->name : NULL);
                        json_string(j, "object", *symbol->object ? symbol->object : NULL);
                        json_string(j, "build_id", m->build_id ? p->string[m->build_id] : NULL);
                        json_string(j, "address", address); /* text: a JSON number has 53 bits */
                        json_string(j, "file", *file ? file : NULL);
                        if (f->line > 0)
                                json_i64(j, "line", f->line);
                        json_bool(j, "inlined", f->inlined);
                        json_bool(j, "kernel", symbol->kernel);
                        json_object_end(j);
                }
        json_array_end(j);
}

static void write_labels(struct json_out *j, const struct profile *p, const struct profile_sample *s)
{
        json_object_begin(j, "labels");
        for (uint32_t k = 0; k < s->n_labels; k++) {
                const struct profile_label *l = &p->label[s->first_label + k];
                if (l->str)
                        json_string(j, p->string[l->key], p->string[l->str]);
                else
                        json_i64(j, p->string[l->key], l->num);
        }
        json_object_end(j);
}

static int write_samples(struct json_out *j, const struct profile *p, const struct symbols *s)
{
        _cleanup_frame_list_ struct frame_list frames = {0};

        json_array_begin(j, "samples");
        for (uint32_t i = 0; i < p->n_samples; i++) {
                const struct profile_sample *sample = &p->sample[i];
                int r = symbols_frames(s, p, sample, &frames);
                if (r < 0)
                        return r;
                json_object_begin(j, NULL);
                json_array_begin(j, "stack");
                for (uint32_t k = 0; k < frames.n; k++)
                        json_u64(j, NULL, frames.frame[k]);
                json_array_end(j);
                json_array_begin(j, "values");
                for (uint32_t k = 0; k < p->n_types; k++)
                        json_i64(j, NULL, profile_values(p, i)[k]);
                json_array_end(j);
                write_labels(j, p, sample);
                json_object_end(j);
        }
        json_array_end(j);
        return 0;
}

int export_json(const struct profile *p, const struct export_options *o, struct buf *out)
{
        _cleanup_symbols_ struct symbols *s = NULL;
        struct json_out j = {.out = out};

        int r = symbols_new(&s, p, !o->no_inline);
        if (r < 0)
                return r;
        json_object_begin(&j, NULL);
        json_string(&j, "format", "profd-profile");
        json_u64(&j, "version", JSON_VERSION);
        json_i64(&j, "time_ns", p->time_ns);
        json_i64(&j, "duration_ns", p->duration_ns);
        json_i64(&j, "observed_ns", profile_observed_ns(p));
        json_array_begin(&j, "types");
        for (uint32_t i = 0; i < p->n_types; i++) {
                json_object_begin(&j, NULL);
                json_string(&j, "type", p->string[p->type[i].type]);
                json_string(&j, "unit", p->string[p->type[i].unit]);
                json_object_end(&j);
        }
        json_array_end(&j);
        json_array_begin(&j, "comments");
        for (uint32_t i = 0; i < p->n_comments; i++)
                json_string(&j, NULL, p->string[p->comment[i]]);
        json_array_end(&j);
        write_frames(&j, p, s);
        r = write_samples(&j, p, s);
        if (r < 0)
                return r;
        json_object_end(&j);
        return buf_error(out);
}
