#include "profile/pprof.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "profile/gzip.h"
#include "profile/pprof_format.h"
#include "profile/pprof_order.h"
#include "profile/wire_out.h"

struct writer {
        const struct profile *p;
        struct pprof_order order;
        struct buf message, inner, packed; /* one message being built, and messages in it */
        struct buf *plain;
};

static void writer_done(struct writer *w)
{
        pprof_order_done(&w->order);
        buf_free(&w->message);
        buf_free(&w->inner);
        buf_free(&w->packed);
}

/* Ends the message of a top-level field. */
static int end_message(struct writer *w, uint32_t field)
{
        wire_put_message(w->plain, field, &w->message);
        return buf_error(w->plain);
}

static int put_value_type(struct writer *w, uint32_t field, struct profile_value_type t)
{
        wire_put_number(&w->message, VALUE_TYPE_FIELD_TYPE, w->order.string.number[t.type]);
        wire_put_number(&w->message, VALUE_TYPE_FIELD_UNIT, w->order.string.number[t.unit]);
        return end_message(w, field);
}

static int put_sample(struct writer *w, uint32_t i)
{
        const struct profile *p = w->p;
        const struct profile_sample *s = &p->sample[i];
        const uint32_t *string = w->order.string.number;

        for (uint32_t k = 0; k < s->n_locations; k++)
                wire_put_varint(&w->packed,
                                w->order.location.number[p->sample_location[s->first_location + k]]);
        if (s->n_locations)
                wire_put_message(&w->message, SAMPLE_FIELD_LOCATION_ID, &w->packed);
        for (uint32_t k = 0; k < p->n_types; k++)
                wire_put_varint(&w->packed, (uint64_t)profile_values(p, i)[k]);
        if (p->n_types)
                wire_put_message(&w->message, SAMPLE_FIELD_VALUE, &w->packed);
        for (uint32_t k = 0; k < s->n_labels; k++) {
                const struct profile_label *l = &p->label[s->first_label + k];
                wire_put_number(&w->inner, LABEL_FIELD_KEY, string[l->key]);
                wire_put_number(&w->inner, LABEL_FIELD_STR, string[l->str]);
                wire_put_number(&w->inner, LABEL_FIELD_NUM, (uint64_t)l->num);
                wire_put_number(&w->inner, LABEL_FIELD_NUM_UNIT, string[l->unit]);
                wire_put_message(&w->message, SAMPLE_FIELD_LABEL, &w->inner);
        }
        return end_message(w, PROFILE_FIELD_SAMPLE);
}

static int put_mapping(struct writer *w, uint32_t id)
{
        const struct profile_mapping *m = &w->p->mapping[w->order.mapping.at[id]];
        struct buf *b = &w->message;

        wire_put_number(b, MAPPING_FIELD_ID, id);
        wire_put_number(b, MAPPING_FIELD_START, m->start);
        wire_put_number(b, MAPPING_FIELD_LIMIT, m->limit);
        wire_put_number(b, MAPPING_FIELD_OFFSET, m->offset);
        wire_put_number(b, MAPPING_FIELD_FILE, w->order.string.number[m->file]);
        wire_put_number(b, MAPPING_FIELD_BUILD_ID, w->order.string.number[m->build_id]);
        wire_put_number(b, MAPPING_FIELD_HAS_FUNCTIONS, m->has_functions);
        wire_put_number(b, MAPPING_FIELD_HAS_FILENAMES, m->has_filenames);
        wire_put_number(b, MAPPING_FIELD_HAS_LINES, m->has_lines);
        wire_put_number(b, MAPPING_FIELD_HAS_INLINE, m->has_inline);
        return end_message(w, PROFILE_FIELD_MAPPING);
}

static int put_location(struct writer *w, uint32_t id)
{
        const struct profile_location *l = &w->p->location[w->order.location.at[id]];
        struct buf *b = &w->message;

        wire_put_number(b, LOCATION_FIELD_ID, id);
        wire_put_number(b, LOCATION_FIELD_MAPPING_ID, w->order.mapping.number[l->mapping]);
        wire_put_number(b, LOCATION_FIELD_ADDRESS, l->address);
        for (uint32_t i = 0; i < l->n_lines; i++) {
                const struct profile_line *line = &w->p->line[l->first_line + i];
                wire_put_number(&w->inner, LINE_FIELD_FUNCTION_ID, w->order.function.number[line->function]);
                wire_put_number(&w->inner, LINE_FIELD_LINE, (uint64_t)line->line);
                wire_put_message(b, LOCATION_FIELD_LINE, &w->inner);
        }
        wire_put_number(b, LOCATION_FIELD_IS_FOLDED, l->folded);
        return end_message(w, PROFILE_FIELD_LOCATION);
}

static int put_function(struct writer *w, uint32_t id)
{
        const struct profile_function *f = &w->p->function[w->order.function.at[id]];
        struct buf *b = &w->message;

        wire_put_number(b, FUNCTION_FIELD_ID, id);
        wire_put_number(b, FUNCTION_FIELD_NAME, w->order.string.number[f->name]);
        if (f->system_name != f->name) /* what is not there reads as the name */
                wire_put_number(b, FUNCTION_FIELD_SYSTEM_NAME, w->order.string.number[f->system_name]);
        wire_put_number(b, FUNCTION_FIELD_FILE, w->order.string.number[f->file]);
        wire_put_number(b, FUNCTION_FIELD_START_LINE, (uint64_t)f->start_line);
        return end_message(w, PROFILE_FIELD_FUNCTION);
}

static int put_string(struct writer *w, uint32_t number)
{
        const char *s = w->p->string[w->order.string.at[number]];

        wire_put_bytes(w->plain, PROFILE_FIELD_STRING_TABLE, s, strlen(s));
        return buf_error(w->plain);
}

static int put_range(struct writer *w, int (*put)(struct writer *, uint32_t), uint32_t first, uint32_t n)
{
        for (uint32_t i = 0; i < n; i++) {
                int r = put(w, first + i);
                if (r < 0)
                        return r;
        }
        return 0;
}

static int put_samples(struct writer *w)
{
        for (uint32_t i = 0; i < w->p->n_samples; i++) {
                int r = put_sample(w, w->order.sample[i]);
                if (r < 0)
                        return r;
        }
        return 0;
}

static int put_header(struct writer *w)
{
        const struct profile *p = w->p;
        const uint32_t *string = w->order.string.number;

        wire_put_number(w->plain, PROFILE_FIELD_TIME_NANOS, (uint64_t)p->time_ns);
        wire_put_number(w->plain, PROFILE_FIELD_DURATION_NANOS, (uint64_t)p->duration_ns);
        if (p->period_type.type || p->period_type.unit) {
                int r = put_value_type(w, PROFILE_FIELD_PERIOD_TYPE, p->period_type);
                if (r < 0)
                        return r;
        }
        wire_put_number(w->plain, PROFILE_FIELD_PERIOD, (uint64_t)p->period);
        for (uint32_t i = 0; i < p->n_comments; i++)
                wire_put_varint(&w->packed, string[p->comment[i]]);
        if (p->n_comments)
                wire_put_message(w->plain, PROFILE_FIELD_COMMENT, &w->packed);
        wire_put_number(w->plain, PROFILE_FIELD_DEFAULT_SAMPLE_TYPE, string[p->default_type]);
        return 0;
}

static int put_profile(struct writer *w)
{
        int r;

        for (uint32_t i = 0; i < w->p->n_types; i++)
                if ((r = put_value_type(w, PROFILE_FIELD_SAMPLE_TYPE, w->p->type[i])) < 0)
                        return r;
        if ((r = put_samples(w)) < 0 || (r = put_range(w, put_mapping, 1, w->order.mapping.n)) < 0 ||
            (r = put_range(w, put_location, 1, w->order.location.n)) < 0 ||
            (r = put_range(w, put_function, 1, w->order.function.n)) < 0 ||
            (r = put_range(w, put_string, 0, w->order.string.n)) < 0)
                return r;
        return put_header(w);
}

static int write_plain(const struct profile *p, struct buf *out)
{
        _cleanup_(writer_done) struct writer w = {.p = p, .plain = out};

        int r = pprof_order_make(&w.order, p);
        if (r == 0)
                r = put_profile(&w);
        return r < 0 ? r : buf_error(out);
}

int pprof_write(const struct profile *p, bool compress, struct buf *out)
{
        _cleanup_buf_ struct buf plain = {0};

        if (!compress)
                return write_plain(p, out);
        int r = write_plain(p, &plain);
        return r < 0 ? r : gzip_deflate(plain.data, plain.len, GZIP_LEVEL, NULL, out);
}

int pprof_write_file(const struct profile *p, const char *path)
{
        _cleanup_buf_ struct buf bytes = {0};
        _cleanup_free_ char *temporary = NULL;

        int r = pprof_write(p, true, &bytes);
        if (r < 0)
                return r;
        if (asprintf(&temporary, "%s.tmp-%d", path, (int)gettid()) < 0)
                return -ENOMEM;
        return replace_file(path, temporary, 0666, bytes.data, bytes.len);
}
