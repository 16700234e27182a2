#include "profile/pprof_index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

static void messages_done(struct messages *m)
{
        free(m->at);
        free(m->id);
        free(m->model);
        free(m->by_id);
        free(m->sorted);
}

struct indexer {
        struct pprof_index *x;
        struct wire file;
        const char *error;
};

static int bad(struct indexer *r, const char *error)
{
        r->error = error;
        return -EBADMSG;
}

static struct messages *messages_of(struct indexer *r, uint32_t field)
{
        switch (field) {
        case PROFILE_FIELD_STRING_TABLE:
                return &r->x->string;
        case PROFILE_FIELD_MAPPING:
                return &r->x->mapping;
        case PROFILE_FIELD_FUNCTION:
                return &r->x->function;
        case PROFILE_FIELD_LOCATION:
                return &r->x->location;
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

static int count_messages(struct indexer *r)
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
                return bad(r, PPROF_BAD_WIRE);
        int e = allocate(&r->x->string, false);
        if (e == 0)
                e = allocate(&r->x->mapping, true);
        if (e == 0)
                e = allocate(&r->x->function, true);
        if (e == 0)
                e = allocate(&r->x->location, true);
        return e;
}

/* Id is field 1 of a mapping, a function and a location alike. */
static int message_id(struct indexer *r, struct wire w, uint64_t *ret)
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
                return bad(r, PPROF_BAD_WIRE);
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
static int index_ids(struct indexer *r, struct messages *m)
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

uint32_t messages_find_sparse(const struct messages *m, uint64_t id)
{
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

static int find_messages(struct indexer *r)
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
        if (r->x->string.n == 0)
                return bad(r, "there is no string table");
        if (r->x->string.at[0].at != r->x->string.at[0].end)
                return bad(r, "the first string is not empty");
        int e = index_ids(r, &r->x->mapping);
        if (e == 0)
                e = index_ids(r, &r->x->function);
        if (e == 0)
                e = index_ids(r, &r->x->location);
        return e;
}

int pprof_index_make(struct pprof_index *x, struct wire file, const char **ret_error)
{
        struct indexer r = {.x = x, .file = file};

        int e = count_messages(&r);
        if (e == 0)
                e = find_messages(&r);
        if (e == -EBADMSG)
                *ret_error = r.error;
        return e;
}

void pprof_index_done(struct pprof_index *x)
{
        messages_done(&x->string);
        messages_done(&x->mapping);
        messages_done(&x->function);
        messages_done(&x->location);
}
