/* The reader of strangers' files.
 *
 * The file is passed over several times: to find where its strings, functions and so on are (pprof_index.c),
 * for what is said once (here), and for its samples (pprof_samples.c), which bring in whatever they refer to
 * (pprof_entities.c). What no sample refers to is left out. All memory is in proportion to the bytes that
 * are there. */
#include "profile/pprof.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "profile/gzip.h"
#include "profile/pprof_reader.h"

#define DEFAULT_MAX_BYTES ((size_t)1 << 30)

static const struct pprof_choice everything;

static int header_string(struct pprof_reader *r, uint64_t index, uint32_t *ret)
{
        const struct messages *m = &r->x.string;

        if (index >= m->n)
                return pprof_bad(r, "a string index is past the end of the string table");
        int64_t id = profile_string_n(r->header, (const char *)m->at[index].at,
                                      (size_t)(m->at[index].end - m->at[index].at));
        if (id < 0)
                return (int)id;
        *ret = (uint32_t)id;
        return 0;
}

static int read_value_type(struct pprof_reader *r, const struct wire_field *field,
                           struct profile_value_type *ret)
{
        struct wire w = field->bytes;
        struct wire_field f;
        int more, e = 0;

        if (field->type != WIRE_BYTES)
                return pprof_bad(r, "a sample type has the wrong wire type");
        *ret = (struct profile_value_type){0};
        while (e == 0 && (more = wire_next(&w, &f)) > 0) {
                if (f.number > VALUE_TYPE_FIELD_UNIT)
                        continue;
                e = pprof_need_varint(r, &f);
                if (e == 0)
                        e = header_string(r, f.value,
                                          f.number == VALUE_TYPE_FIELD_TYPE ? &ret->type : &ret->unit);
        }
        return e == 0 && more < 0 ? pprof_bad_wire(r) : e;
}

static int read_type(struct pprof_reader *r, const struct wire_field *f)
{
        struct profile_value_type t;
        uint32_t n = r->header->n_types;

        int e = read_value_type(r, f, &t);
        if (e < 0)
                return e;
        if (n == PROFILE_MAX_TYPES)
                return pprof_bad(r, "it has more than 16 sample types");
        int64_t id = profile_type(r->header, r->header->string[t.type], r->header->string[t.unit]);
        if (id < 0)
                return (int)id;
        return (uint32_t)id == n ? 0 : pprof_bad(r, "two sample types are the same");
}

static int add_comment(struct pprof_reader *r, uint64_t index)
{
        uint32_t s = 0;

        int e = header_string(r, index, &s);
        if (e < 0)
                return e;
        e = profile_comment(r->header, r->header->string[s]);
        return e == -E2BIG ? pprof_bad(r, "it has more than 1024 comments") : e;
}

static int read_comments(struct pprof_reader *r, const struct wire_field *f)
{
        struct wire w = f->bytes;
        uint64_t v;

        if (f->type == WIRE_VARINT)
                return add_comment(r, f->value);
        if (f->type != WIRE_BYTES)
                return pprof_bad(r, "a comment has the wrong wire type");
        while (w.at < w.end) {
                if (!wire_varint(&w, &v))
                        return pprof_bad_wire(r);
                int e = add_comment(r, v);
                if (e < 0)
                        return e;
        }
        return 0;
}

static int read_header_field(struct pprof_reader *r, const struct wire_field *f)
{
        struct profile *p = r->header;

        switch (f->number) {
        case PROFILE_FIELD_SAMPLE_TYPE:
                return read_type(r, f);
        case PROFILE_FIELD_PERIOD_TYPE:
                return read_value_type(r, f, &p->period_type);
        case PROFILE_FIELD_COMMENT:
                return read_comments(r, f);
        case PROFILE_FIELD_TIME_NANOS:
                p->time_ns = (int64_t)f->value;
                return pprof_need_varint(r, f);
        case PROFILE_FIELD_DURATION_NANOS:
                p->duration_ns = (int64_t)f->value;
                return pprof_need_varint(r, f);
        case PROFILE_FIELD_PERIOD:
                p->period = (int64_t)f->value;
                return pprof_need_varint(r, f);
        case PROFILE_FIELD_DEFAULT_SAMPLE_TYPE: {
                int e = pprof_need_varint(r, f);
                return e < 0 ? e : header_string(r, f->value, &p->default_type);
        }
        default:
                return 0;
        }
}

static int read_header(struct pprof_reader *r)
{
        struct wire w = r->file;
        struct wire_field f;

        while (wire_next(&w, &f) > 0) {
                int e = read_header_field(r, &f);
                if (e < 0)
                        return e;
        }
        return r->header->n_types ? 0 : pprof_bad(r, "it has no sample type");
}

/* Puts the header's types, ledger and times into the profile, and says which of its types are the file's. */
static int apply_header(struct pprof_reader *r)
{
        const struct profile *h = r->header;

        r->n_types = h->n_types;
        if (h != r->p) {
                int e = profile_merge(r->p, h);
                if (e < 0)
                        return e;
        }
        for (uint32_t i = 0; i < h->n_types; i++) {
                int64_t id = profile_type(r->p, h->string[h->type[i].type], h->string[h->type[i].unit]);
                if (id < 0)
                        return (int)id;
                r->type[i] = (uint32_t)id;
        }
        return 0;
}

static int read_profile(struct pprof_reader *r)
{
        int e;

        if ((e = pprof_index_make(&r->x, r->file, &r->error)) < 0 || (e = read_header(r)) < 0 ||
            (e = apply_header(r)) < 0)
                return e;
        return pprof_read_samples(r);
}

static void reader_done(struct pprof_reader *r)
{
        pprof_index_done(&r->x);
        free(r->lines);
}

/* Reads a file's bytes into `p`, what is said once into `header`. */
static int read_bytes(const void *data, size_t n, size_t max_bytes, const struct pprof_choice *choice,
                      struct profile *p, struct profile *header, const char **ret_error)
{
        _cleanup_buf_ struct buf plain = {0};
        _cleanup_(reader_done) struct pprof_reader r = {.p = p, .header = header, .choice = choice};
        const unsigned char *bytes = data;
        int e = 0;

        if (!max_bytes)
                max_bytes = DEFAULT_MAX_BYTES;
        if (n >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b) { /* RFC 1952: gzip */
                e = gzip_inflate(data, n, max_bytes, &plain);
                if (e == -EBADMSG)
                        r.error = "its gzip data is damaged or cut short";
                bytes = (const unsigned char *)buf_text(&plain);
                n = plain.len;
        }
        if (e == 0 && n > max_bytes)
                e = -EFBIG;
        if (e == 0) {
                r.file = (struct wire){bytes, bytes + n};
                e = read_profile(&r);
        }
        if (e < 0 && ret_error)
                *ret_error = r.error ? r.error : strerrordesc_np(-e);
        return e;
}

int pprof_read(const void *data, size_t n, size_t max_bytes, struct profile **ret, const char **ret_error)
{
        _cleanup_profile_ struct profile *p = NULL;

        int e = profile_new(&p);
        if (e == 0)
                e = read_bytes(data, n, max_bytes, &everything, p, p, ret_error);
        else if (ret_error)
                *ret_error = strerrordesc_np(-e);
        if (e < 0)
                return e;
        *ret = TAKE_PTR(p);
        return 0;
}

int pprof_merge(const void *data, size_t n, size_t max_bytes, const struct pprof_choice *choice,
                struct profile *into, const char **ret_error)
{
        _cleanup_profile_ struct profile *header = NULL;

        int e = profile_new(&header);
        if (e == 0)
                e = read_bytes(data, n, max_bytes, choice ? choice : &everything, into, header, ret_error);
        else if (ret_error)
                *ret_error = strerrordesc_np(-e);
        return e;
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
        return pprof_read(buf_text(&bytes), bytes.len, 0, ret, ret_error);
}
