/* The reader of strangers' files.
 *
 * Strings, functions and locations may stand anywhere in the file, behind the samples that name them by ids
 * of the file's own choosing. So the file is passed over three times: to count the messages of each kind, to
 * note where each is, and, in order of what refers to what, to build the model. Only what a sample, directly
 * or not, refers to is built. All memory is in proportion to the bytes that are there. */
#include "profile/pprof.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "profile/inflate.h"
#include "profile/span_cache.h"
#include "profile/wire.h"

#define DEFAULT_MAX_BYTES ((size_t)1 << 30)
#define UNKNOWN           UINT32_MAX

/* Messages of one kind: where they are, their ids in the file, and those in the model. */
struct messages {
        struct wire *at;
        uint64_t *id;
        uint32_t *model; /* UNKNOWN: not built yet */
        uint32_t n, cap;
        uint32_t *by_id; /* of index by file id, when ids are dense; else `sorted` */
        uint64_t n_by_id;
        uint32_t *sorted; /* indices, by file id */
};

struct reader {
        struct profile *p;
        struct wire file;
        struct messages string, mapping, function, location;
        struct profile_line *lines; /* of the location being read */
        uint32_t cap_lines;
        const char *error;
};

static void messages_done(struct messages *m)
{
        free(m->at);
        free(m->id);
        free(m->model);
        free(m->by_id);
        free(m->sorted);
}

static void reader_done(struct reader *r)
{
        profile_free(r->p);
        messages_done(&r->string);
        messages_done(&r->mapping);
        messages_done(&r->function);
        messages_done(&r->location);
        free(r->lines);
}

static int bad(struct reader *r, const char *error)
{
        r->error = error;
        return -EBADMSG;
}

#define BAD_WIRE "it is not in the protocol buffers format, or cut short"

static int wire_error(struct reader *r)
{
        return bad(r, BAD_WIRE);
}

/* -- where everything is -- */

static struct messages *messages_of(struct reader *r, uint32_t field)
{
        switch (field) {
        case PROFILE_FIELD_STRING_TABLE:
                return &r->string;
        case PROFILE_FIELD_MAPPING:
                return &r->mapping;
        case PROFILE_FIELD_FUNCTION:
                return &r->function;
        case PROFILE_FIELD_LOCATION:
                return &r->location;
        default:
                return NULL;
        }
}

static int allocate(struct messages *m, bool with_ids)
{
        m->at = calloc((size_t)m->cap + 1, sizeof(*m->at));
        m->model = malloc(((size_t)m->cap + 1) * sizeof(*m->model));
        if (with_ids)
                m->id = calloc((size_t)m->cap + 1, sizeof(*m->id));
        if (!m->at || !m->model || (with_ids && !m->id))
                return -ENOMEM;
        memset(m->model, 0xff, ((size_t)m->cap + 1) * sizeof(*m->model));
        return 0;
}

static int count_messages(struct reader *r)
{
        struct wire w = r->file;
        struct wire_field f;
        int more;

        while ((more = wire_next(&w, &f)) > 0) {
                struct messages *m = messages_of(r, f.number);
                if (m && f.type != WIRE_BYTES)
                        return bad(r, "a field of the profile has the wrong wire type");
                if (m && ++m->cap == UNKNOWN)
                        return -EFBIG;
        }
        if (more < 0)
                return wire_error(r);
        int e = allocate(&r->string, false);
        if (e == 0)
                e = allocate(&r->mapping, true);
        if (e == 0)
                e = allocate(&r->function, true);
        if (e == 0)
                e = allocate(&r->location, true);
        return e;
}

/* Id is field 1 of a mapping, a function and a location alike. */
static int message_id(struct reader *r, struct wire w, uint64_t *ret)
{
        struct wire_field f;
        int more;

        *ret = 0;
        while ((more = wire_next(&w, &f)) > 0)
                if (f.number == LOCATION_FIELD_ID) {
                        if (f.type != WIRE_VARINT)
                                return bad(r, "an id has the wrong wire type");
                        *ret = f.value;
                        return 0;
                }
        if (more < 0)
                return wire_error(r);
        return 0;
}

static int compare_ids(const void *a, const void *b, void *ctx)
{
        const uint64_t *id = ctx;
        uint64_t x = id[*(const uint32_t *)a], y = id[*(const uint32_t *)b];

        return x < y ? -1 : x > y;
}

/* Makes the way from a file's id to a message: an array where ids are about 1..n, as they nearly always are,
 * a sorted list else. */
static int index_ids(struct reader *r, struct messages *m)
{
        uint64_t max = 0;

        for (uint32_t i = 0; i < m->n; i++) {
                if (m->id[i] == 0)
                        return bad(r, "a mapping, function or location has no id, or the id 0");
                max = MAX_OF(max, m->id[i]);
        }
        if (max <= (uint64_t)m->n * 2 + 16) {
                m->n_by_id = max + 1;
                m->by_id = malloc(m->n_by_id * sizeof(*m->by_id));
                if (!m->by_id)
                        return -ENOMEM;
                memset(m->by_id, 0xff, m->n_by_id * sizeof(*m->by_id));
                for (uint32_t i = 0; i < m->n; i++) {
                        if (m->by_id[m->id[i]] != UNKNOWN)
                                return bad(r, "two mappings, functions or locations have the same id");
                        m->by_id[m->id[i]] = i;
                }
                return 0;
        }
        m->sorted = malloc(((size_t)m->n + 1) * sizeof(*m->sorted));
        if (!m->sorted)
                return -ENOMEM;
        for (uint32_t i = 0; i < m->n; i++)
                m->sorted[i] = i;
        qsort_r(m->sorted, m->n, sizeof(*m->sorted), compare_ids, m->id);
        for (uint32_t i = 1; i < m->n; i++)
                if (m->id[m->sorted[i]] == m->id[m->sorted[i - 1]])
                        return bad(r, "two mappings, functions or locations have the same id");
        return 0;
}

/* The index of the message with a file's id; UNKNOWN. */
static uint32_t find_id(const struct messages *m, uint64_t id)
{
        if (m->by_id)
                return id < m->n_by_id ? m->by_id[id] : UNKNOWN;
        uint32_t low = 0, high = m->n;
        while (low < high) {
                uint32_t middle = low + (high - low) / 2;
                if (m->id[m->sorted[middle]] < id)
                        low = middle + 1;
                else
                        high = middle;
        }
        return low < m->n && m->id[m->sorted[low]] == id ? m->sorted[low] : UNKNOWN;
}

static int find_messages(struct reader *r)
{
        struct wire w = r->file;
        struct wire_field f;

        while (wire_next(&w, &f) > 0) {
                struct messages *m = messages_of(r, f.number);
                if (!m)
                        continue;
                if (m->id) {
                        int e = message_id(r, f.bytes, &m->id[m->n]);
                        if (e < 0)
                                return e;
                }
                m->at[m->n++] = f.bytes;
        }
        if (r->string.n == 0)
                return bad(r, "there is no string table");
        if (r->string.at[0].at != r->string.at[0].end)
                return bad(r, "the first string is not empty");
        int e = index_ids(r, &r->mapping);
        if (e == 0)
                e = index_ids(r, &r->function);
        if (e == 0)
                e = index_ids(r, &r->location);
        return e;
}

/* -- the model, built as it is asked for -- */

static int get_string(struct reader *r, uint64_t index, uint32_t *ret)
{
        struct messages *m = &r->string;

        if (index >= m->n)
                return bad(r, "a string index is past the end of the string table");
        if (m->model[index] == UNKNOWN) {
                int64_t id = profile_string_n(r->p, (const char *)m->at[index].at,
                                              (size_t)(m->at[index].end - m->at[index].at));
                if (id < 0)
                        return (int)id;
                m->model[index] = (uint32_t)id;
        }
        *ret = m->model[index];
        return 0;
}

/* A field that must be a varint; others of its number are damage. */
static int need_varint(struct reader *r, const struct wire_field *f)
{
        return f->type == WIRE_VARINT ? 0 : bad(r, "a number has the wrong wire type");
}

static int read_mapping(struct reader *r, struct wire w, struct profile_mapping *m)
{
        struct wire_field f;
        int more, e = 0;

        while (e == 0 && (more = wire_next(&w, &f)) > 0) {
                if (f.number > MAPPING_FIELD_HAS_INLINE)
                        continue;
                e = need_varint(r, &f);
                if (e < 0)
                        break;
                switch (f.number) {
                case MAPPING_FIELD_START:
                        m->start = f.value;
                        break;
                case MAPPING_FIELD_LIMIT:
                        m->limit = f.value;
                        break;
                case MAPPING_FIELD_OFFSET:
                        m->offset = f.value;
                        break;
                case MAPPING_FIELD_FILE:
                        e = get_string(r, f.value, &m->file);
                        break;
                case MAPPING_FIELD_BUILD_ID:
                        e = get_string(r, f.value, &m->build_id);
                        break;
                case MAPPING_FIELD_HAS_FUNCTIONS:
                        m->has_functions = f.value;
                        break;
                case MAPPING_FIELD_HAS_FILENAMES:
                        m->has_filenames = f.value;
                        break;
                case MAPPING_FIELD_HAS_LINES:
                        m->has_lines = f.value;
                        break;
                case MAPPING_FIELD_HAS_INLINE:
                        m->has_inline = f.value;
                        break;
                }
        }
        return e == 0 && more < 0 ? wire_error(r) : e;
}

static int get_mapping(struct reader *r, uint64_t file_id, uint32_t *ret)
{
        struct messages *m = &r->mapping;
        struct profile_mapping mapping = {0};

        if (file_id == 0) {
                *ret = 0;
                return 0;
        }
        uint32_t i = find_id(m, file_id);
        if (i == UNKNOWN)
                return bad(r, "a location names a mapping that is not there");
        if (m->model[i] == UNKNOWN) {
                int e = read_mapping(r, m->at[i], &mapping);
                if (e < 0)
                        return e;
                int64_t id = profile_mapping(r->p, &mapping);
                if (id < 0)
                        return (int)id;
                m->model[i] = (uint32_t)id;
        }
        *ret = m->model[i];
        return 0;
}

static int read_function(struct reader *r, struct wire w, struct profile_function *fn)
{
        struct wire_field f;
        int more, e = 0;

        while (e == 0 && (more = wire_next(&w, &f)) > 0) {
                if (f.number > FUNCTION_FIELD_START_LINE)
                        continue;
                e = need_varint(r, &f);
                if (e < 0)
                        break;
                switch (f.number) {
                case FUNCTION_FIELD_NAME:
                        e = get_string(r, f.value, &fn->name);
                        break;
                case FUNCTION_FIELD_SYSTEM_NAME:
                        e = get_string(r, f.value, &fn->system_name);
                        break;
                case FUNCTION_FIELD_FILE:
                        e = get_string(r, f.value, &fn->file);
                        break;
                case FUNCTION_FIELD_START_LINE:
                        fn->start_line = (int64_t)f.value;
                        break;
                }
        }
        return e == 0 && more < 0 ? wire_error(r) : e;
}

static int get_function(struct reader *r, uint64_t file_id, uint32_t *ret)
{
        struct messages *m = &r->function;
        struct profile_function function = {0};

        uint32_t i = find_id(m, file_id);
        if (i == UNKNOWN)
                return bad(r, "a line names a function that is not there");
        if (m->model[i] == UNKNOWN) {
                int e = read_function(r, m->at[i], &function);
                if (e < 0)
                        return e;
                int64_t id = profile_function(r->p, &function);
                if (id < 0)
                        return (int)id;
                m->model[i] = (uint32_t)id;
        }
        *ret = m->model[i];
        return 0;
}

static int read_line(struct reader *r, struct wire w, struct profile_line *line)
{
        struct wire_field f;
        uint64_t function = 0;
        int more;

        *line = (struct profile_line){0};
        while ((more = wire_next(&w, &f)) > 0) {
                if (f.number > LINE_FIELD_LINE)
                        continue;
                int e = need_varint(r, &f);
                if (e < 0)
                        return e;
                if (f.number == LINE_FIELD_FUNCTION_ID)
                        function = f.value;
                else
                        line->line = (int64_t)f.value;
        }
        return more < 0 ? wire_error(r) : get_function(r, function, &line->function);
}

struct read_location {
        uint64_t address, mapping;
        uint32_t n_lines;
        bool folded;
};

static int add_line(struct reader *r, struct read_location *l, struct wire w)
{
        if (l->n_lines == r->cap_lines) {
                uint32_t cap = r->cap_lines ? r->cap_lines * 2 : 16;
                struct profile_line *lines = reallocarray(r->lines, cap, sizeof(*lines));
                if (!lines)
                        return -ENOMEM;
                r->lines = lines;
                r->cap_lines = cap;
        }
        return read_line(r, w, &r->lines[l->n_lines++]);
}

static int read_location(struct reader *r, struct wire w, struct read_location *l)
{
        struct wire_field f;
        int more, e = 0;

        while (e == 0 && (more = wire_next(&w, &f)) > 0) {
                if (f.number == LOCATION_FIELD_LINE) {
                        e = f.type == WIRE_BYTES ? add_line(r, l, f.bytes)
                                                 : bad(r, "a line has the wrong wire type");
                        continue;
                }
                if (f.number > LOCATION_FIELD_IS_FOLDED)
                        continue;
                e = need_varint(r, &f);
                if (f.number == LOCATION_FIELD_MAPPING_ID)
                        l->mapping = f.value;
                else if (f.number == LOCATION_FIELD_ADDRESS)
                        l->address = f.value;
                else if (f.number == LOCATION_FIELD_IS_FOLDED)
                        l->folded = f.value;
        }
        return e == 0 && more < 0 ? wire_error(r) : e;
}

static int get_location(struct reader *r, uint64_t file_id, uint32_t *ret)
{
        struct messages *m = &r->location;
        struct read_location l = {0};
        uint32_t mapping = 0;

        uint32_t i = find_id(m, file_id);
        if (i == UNKNOWN)
                return bad(r, "a sample names a location that is not there");
        if (m->model[i] == UNKNOWN) {
                int e = read_location(r, m->at[i], &l);
                if (e == 0)
                        e = get_mapping(r, l.mapping, &mapping);
                if (e < 0)
                        return e;
                int64_t id = profile_location(r->p, mapping, l.address, r->lines, l.n_lines);
                if (id < 0)
                        return (int)id;
                r->p->location[id].folded |= l.folded;
                m->model[i] = (uint32_t)id;
        }
        *ret = m->model[i];
        return 0;
}

/* -- samples -- */

struct read_sample {
        uint32_t n_locations, n_values, n_labels;
        int64_t values[PROFILE_MAX_TYPES];
        struct profile_label labels[PROFILE_MAX_LABELS];
        uint32_t locations[PROFILE_MAX_FRAMES];
};

struct sample_reader {
        struct read_sample sample;
        struct span_cache stacks, label_sets;
};

static int add_location(struct reader *r, struct read_sample *s, uint64_t id)
{
        if (s->n_locations == PROFILE_MAX_FRAMES)
                return bad(r, "a sample has more than 4096 locations");
        return get_location(r, id, &s->locations[s->n_locations++]);
}

static int add_value(struct reader *r, struct read_sample *s, uint64_t value)
{
        if (s->n_values == r->p->n_types)
                return bad(r, "a sample has more values than the profile has types");
        s->values[s->n_values++] = (int64_t)value;
        return 0;
}

/* A repeated number: packed, or one of it. */
static int add_numbers(struct reader *r, struct read_sample *s, const struct wire_field *f,
                       int (*add)(struct reader *, struct read_sample *, uint64_t))
{
        struct wire w = f->bytes;
        uint64_t v;

        if (f->type == WIRE_VARINT)
                return add(r, s, f->value);
        if (f->type != WIRE_BYTES)
                return bad(r, "a sample's field has the wrong wire type");
        while (w.at < w.end) {
                if (!wire_varint(&w, &v))
                        return wire_error(r);
                int e = add(r, s, v);
                if (e < 0)
                        return e;
        }
        return 0;
}

static int add_label(struct reader *r, struct read_sample *s, const struct wire_field *field)
{
        struct wire w = field->bytes;
        struct wire_field f;
        int more, e = 0;

        if (field->type != WIRE_BYTES)
                return bad(r, "a label has the wrong wire type");
        if (s->n_labels == PROFILE_MAX_LABELS)
                return bad(r, "a sample has more than 64 labels");
        struct profile_label *l = &s->labels[s->n_labels++];
        *l = (struct profile_label){0};
        while (e == 0 && (more = wire_next(&w, &f)) > 0) {
                if (f.number > LABEL_FIELD_NUM_UNIT)
                        continue;
                e = need_varint(r, &f);
                if (e < 0)
                        break;
                if (f.number == LABEL_FIELD_KEY)
                        e = get_string(r, f.value, &l->key);
                else if (f.number == LABEL_FIELD_STR)
                        e = get_string(r, f.value, &l->str);
                else if (f.number == LABEL_FIELD_NUM)
                        l->num = (int64_t)f.value;
                else
                        e = get_string(r, f.value, &l->unit);
        }
        return e == 0 && more < 0 ? wire_error(r) : e;
}

/* Where a sample's stack and labels are. `spread`: not in one piece each, as writers are free to do. */
struct sample_spans {
        struct wire locations, labels;
        bool spread;
};

static void note_span(struct wire *span, struct wire piece, bool *spread)
{
        if (!span->at)
                *span = piece;
        else if (span->end == piece.at)
                span->end = piece.end;
        else
                *spread = true;
}

static int read_fields(struct reader *r, struct wire w, struct read_sample *s, struct sample_spans *ret)
{
        const unsigned char *at = w.at;
        struct wire_field f;
        int more, e = 0;

        *ret = (struct sample_spans){0};
        s->n_locations = s->n_values = s->n_labels = 0;
        while (e == 0 && (more = wire_next(&w, &f)) > 0) {
                if (f.number == SAMPLE_FIELD_VALUE)
                        e = add_numbers(r, s, &f, add_value);
                else if (f.number == SAMPLE_FIELD_LOCATION_ID)
                        note_span(&ret->locations, (struct wire){at, w.at}, &ret->spread);
                else if (f.number == SAMPLE_FIELD_LABEL)
                        note_span(&ret->labels, (struct wire){at, w.at}, &ret->spread);
                at = w.at;
        }
        return e == 0 && more < 0 ? wire_error(r) : e;
}

/* Reads the locations and labels among the fields of a sample, or of a part of one. */
static int read_stack_and_labels(struct reader *r, struct wire w, struct read_sample *s)
{
        struct wire_field f;
        int e = 0;

        while (e == 0 && wire_next(&w, &f) > 0) {
                if (f.number == SAMPLE_FIELD_LOCATION_ID)
                        e = add_numbers(r, s, &f, add_location);
                else if (f.number == SAMPLE_FIELD_LABEL)
                        e = add_label(r, s, &f);
        }
        return e;
}

static int64_t get_stack(struct reader *r, struct sample_reader *x, struct wire span)
{
        uint32_t slot = span_cache_slot(span);
        int64_t id = span_cache_find(&x->stacks, slot, span);

        if (id >= 0)
                return id;
        int e = read_stack_and_labels(r, span, &x->sample);
        if (e < 0)
                return e;
        id = profile_stack(r->p, x->sample.locations, x->sample.n_locations);
        if (id >= 0)
                span_cache_set(&x->stacks, slot, span, (uint32_t)id);
        return id;
}

static int64_t get_label_set(struct reader *r, struct sample_reader *x, struct wire span)
{
        uint32_t slot = span_cache_slot(span);
        int64_t id = span_cache_find(&x->label_sets, slot, span);

        if (id >= 0)
                return id;
        int e = read_stack_and_labels(r, span, &x->sample);
        if (e < 0)
                return e;
        id = profile_label_set(r->p, x->sample.labels, x->sample.n_labels);
        if (id >= 0)
                span_cache_set(&x->label_sets, slot, span, (uint32_t)id);
        return id;
}

static int read_sample(struct reader *r, struct wire w, struct sample_reader *x)
{
        struct read_sample *s = &x->sample;
        struct sample_spans spans;

        int e = read_fields(r, w, s, &spans);
        if (e < 0)
                return e;
        if (s->n_values != r->p->n_types)
                return bad(r, "a sample has fewer values than the profile has types");
        if (spans.spread) {
                e = read_stack_and_labels(r, w, s);
                return e < 0 ? e
                             : profile_sample(r->p, s->locations, s->n_locations, s->labels, s->n_labels,
                                              s->values);
        }
        int64_t stack = get_stack(r, x, spans.locations);
        int64_t labels = stack < 0 ? stack : get_label_set(r, x, spans.labels);
        return labels < 0 ? (int)labels
                          : profile_sample_at(r->p, (uint32_t)stack, (uint32_t)labels, s->values);
}

static int read_samples(struct reader *r)
{
        _cleanup_free_ struct sample_reader *s = calloc(1, sizeof(*s));
        struct wire w = r->file;
        struct wire_field f;

        if (!s)
                return -ENOMEM;
        while (wire_next(&w, &f) > 0) {
                if (f.number != PROFILE_FIELD_SAMPLE)
                        continue;
                if (f.type != WIRE_BYTES)
                        return bad(r, "a sample has the wrong wire type");
                int e = read_sample(r, f.bytes, s);
                if (e < 0)
                        return e;
        }
        return 0;
}

/* -- what is said once -- */

static int read_value_type(struct reader *r, const struct wire_field *field, struct profile_value_type *ret)
{
        struct wire w = field->bytes;
        struct wire_field f;
        int more, e = 0;

        if (field->type != WIRE_BYTES)
                return bad(r, "a sample type has the wrong wire type");
        *ret = (struct profile_value_type){0};
        while (e == 0 && (more = wire_next(&w, &f)) > 0) {
                if (f.number > VALUE_TYPE_FIELD_UNIT)
                        continue;
                e = need_varint(r, &f);
                if (e == 0)
                        e = get_string(r, f.value,
                                       f.number == VALUE_TYPE_FIELD_TYPE ? &ret->type : &ret->unit);
        }
        return e == 0 && more < 0 ? wire_error(r) : e;
}

static int read_type(struct reader *r, const struct wire_field *f)
{
        struct profile_value_type t;
        uint32_t n = r->p->n_types;

        int e = read_value_type(r, f, &t);
        if (e < 0)
                return e;
        if (n == PROFILE_MAX_TYPES)
                return bad(r, "it has more than 16 sample types");
        int64_t id = profile_type(r->p, r->p->string[t.type], r->p->string[t.unit]);
        if (id < 0)
                return (int)id;
        return (uint32_t)id == n ? 0 : bad(r, "two sample types are the same");
}

static int add_comment(struct reader *r, uint64_t index)
{
        uint32_t s = 0;

        int e = get_string(r, index, &s);
        if (e < 0)
                return e;
        e = profile_comment(r->p, r->p->string[s]);
        return e == -E2BIG ? bad(r, "it has more than 1024 comments") : e;
}

static int read_comments(struct reader *r, const struct wire_field *f)
{
        struct wire w = f->bytes;
        uint64_t v;

        if (f->type == WIRE_VARINT)
                return add_comment(r, f->value);
        if (f->type != WIRE_BYTES)
                return bad(r, "a comment has the wrong wire type");
        while (w.at < w.end) {
                if (!wire_varint(&w, &v))
                        return wire_error(r);
                int e = add_comment(r, v);
                if (e < 0)
                        return e;
        }
        return 0;
}

static int read_header_field(struct reader *r, const struct wire_field *f)
{
        struct profile *p = r->p;

        switch (f->number) {
        case PROFILE_FIELD_SAMPLE_TYPE:
                return read_type(r, f);
        case PROFILE_FIELD_PERIOD_TYPE:
                return read_value_type(r, f, &p->period_type);
        case PROFILE_FIELD_COMMENT:
                return read_comments(r, f);
        case PROFILE_FIELD_TIME_NANOS:
                p->time_ns = (int64_t)f->value;
                return need_varint(r, f);
        case PROFILE_FIELD_DURATION_NANOS:
                p->duration_ns = (int64_t)f->value;
                return need_varint(r, f);
        case PROFILE_FIELD_PERIOD:
                p->period = (int64_t)f->value;
                return need_varint(r, f);
        case PROFILE_FIELD_DEFAULT_SAMPLE_TYPE: {
                int e = need_varint(r, f);
                return e < 0 ? e : get_string(r, f->value, &p->default_type);
        }
        default:
                return 0;
        }
}

static int read_header(struct reader *r)
{
        struct wire w = r->file;
        struct wire_field f;

        while (wire_next(&w, &f) > 0) {
                int e = read_header_field(r, &f);
                if (e < 0)
                        return e;
        }
        return r->p->n_types ? 0 : bad(r, "it has no sample type");
}

static int read_profile(struct reader *r)
{
        int e;

        if ((e = profile_new(&r->p)) < 0 || (e = count_messages(r)) < 0 || (e = find_messages(r)) < 0 ||
            (e = read_header(r)) < 0 || (e = read_samples(r)) < 0)
                return e;
        return 0;
}

int pprof_read(const void *data, size_t n, size_t max_bytes, struct profile **ret, const char **ret_error)
{
        _cleanup_buf_ struct buf plain = {0};
        const unsigned char *bytes = data;
        const char *error = NULL;
        int e = 0;

        if (!max_bytes)
                max_bytes = DEFAULT_MAX_BYTES;
        if (n >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b) { /* RFC 1952: gzip */
                e = gzip_inflate(data, n, max_bytes, &plain);
                if (e == -EBADMSG)
                        error = "its gzip data is damaged or cut short";
                bytes = (const unsigned char *)buf_text(&plain);
                n = plain.len;
        }
        if (n > max_bytes)
                e = -EFBIG;
        _cleanup_(reader_done) struct reader r = {.file = {bytes, bytes + n}};
        if (e == 0) {
                e = read_profile(&r);
                error = r.error;
        }
        if (e < 0) {
                if (ret_error)
                        *ret_error = error ? error : strerrordesc_np(-e);
                return e;
        }
        *ret = TAKE_PTR(r.p);
        return 0;
}

int pprof_read_file(const char *path, struct profile **ret, const char **ret_error)
{
        _cleanup_buf_ struct buf bytes = {0};

        int e = read_file(path, DEFAULT_MAX_BYTES, &bytes);
        if (e < 0) {
                if (ret_error)
                        *ret_error = strerrordesc_np(-e);
                return e;
        }
        return pprof_read(bytes.data ? bytes.data : "", bytes.len, 0, ret, ret_error);
}
