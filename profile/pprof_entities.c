#include "profile/pprof_reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int pprof_get_string(struct pprof_reader *r, uint64_t index, uint32_t *ret)
{
        struct messages *m = &r->x.string;

        if (index >= m->n)
                return pprof_bad(r, "a string index is past the end of the string table");
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

static int read_mapping(struct pprof_reader *r, struct wire w, struct profile_mapping *m)
{
        struct wire_field f;
        int more, e = 0;

        while (e == 0 && (more = wire_next(&w, &f)) > 0) {
                if (f.number > MAPPING_FIELD_HAS_INLINE)
                        continue;
                e = pprof_need_varint(r, &f);
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
                        e = pprof_get_string(r, f.value, &m->file);
                        break;
                case MAPPING_FIELD_BUILD_ID:
                        e = pprof_get_string(r, f.value, &m->build_id);
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
        return e == 0 && more < 0 ? pprof_bad_wire(r) : e;
}

static int get_mapping(struct pprof_reader *r, uint64_t file_id, uint32_t *ret)
{
        struct messages *m = &r->x.mapping;
        struct profile_mapping mapping = {0};

        if (file_id == 0) {
                *ret = 0;
                return 0;
        }
        uint32_t i = messages_find(m, file_id);
        if (i == UNKNOWN)
                return pprof_bad(r, "a location names a mapping that is not there");
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

static int read_function(struct pprof_reader *r, struct wire w, struct profile_function *fn)
{
        struct wire_field f;
        int more, e = 0;

        while (e == 0 && (more = wire_next(&w, &f)) > 0) {
                if (f.number > FUNCTION_FIELD_START_LINE)
                        continue;
                e = pprof_need_varint(r, &f);
                if (e < 0)
                        break;
                switch (f.number) {
                case FUNCTION_FIELD_NAME:
                        e = pprof_get_string(r, f.value, &fn->name);
                        break;
                case FUNCTION_FIELD_SYSTEM_NAME:
                        e = pprof_get_string(r, f.value, &fn->system_name);
                        break;
                case FUNCTION_FIELD_FILE:
                        e = pprof_get_string(r, f.value, &fn->file);
                        break;
                case FUNCTION_FIELD_START_LINE:
                        fn->start_line = (int64_t)f.value;
                        break;
                }
        }
        return e == 0 && more < 0 ? pprof_bad_wire(r) : e;
}

static int get_function(struct pprof_reader *r, uint64_t file_id, uint32_t *ret)
{
        struct messages *m = &r->x.function;
        struct profile_function function = {0};

        uint32_t i = messages_find(m, file_id);
        if (i == UNKNOWN)
                return pprof_bad(r, "a line names a function that is not there");
        if (m->model[i] == UNKNOWN) {
                int e = read_function(r, m->at[i], &function);
                if (e < 0)
                        return e;
                if (function.system_name == 0)
                        function.system_name = function.name;
                int64_t id = profile_function(r->p, &function);
                if (id < 0)
                        return (int)id;
                m->model[i] = (uint32_t)id;
        }
        *ret = m->model[i];
        return 0;
}

static int read_line(struct pprof_reader *r, struct wire w, struct profile_line *line)
{
        struct wire_field f;
        uint64_t function = 0;
        int more;

        *line = (struct profile_line){0};
        while ((more = wire_next(&w, &f)) > 0) {
                if (f.number > LINE_FIELD_LINE)
                        continue;
                int e = pprof_need_varint(r, &f);
                if (e < 0)
                        return e;
                if (f.number == LINE_FIELD_FUNCTION_ID)
                        function = f.value;
                else
                        line->line = (int64_t)f.value;
        }
        return more < 0 ? pprof_bad_wire(r) : get_function(r, function, &line->function);
}

struct read_location {
        uint64_t address, mapping;
        uint32_t n_lines;
        bool folded;
};

static int add_line(struct pprof_reader *r, struct read_location *l, struct wire w)
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

static int read_location(struct pprof_reader *r, struct wire w, struct read_location *l)
{
        struct wire_field f;
        int more, e = 0;

        while (e == 0 && (more = wire_next(&w, &f)) > 0) {
                if (f.number == LOCATION_FIELD_LINE) {
                        e = f.type == WIRE_BYTES ? add_line(r, l, f.bytes)
                                                 : pprof_bad(r, "a line has the wrong wire type");
                        continue;
                }
                if (f.number > LOCATION_FIELD_IS_FOLDED)
                        continue;
                e = pprof_need_varint(r, &f);
                if (f.number == LOCATION_FIELD_MAPPING_ID)
                        l->mapping = f.value;
                else if (f.number == LOCATION_FIELD_ADDRESS)
                        l->address = f.value;
                else if (f.number == LOCATION_FIELD_IS_FOLDED)
                        l->folded = f.value;
        }
        return e == 0 && more < 0 ? pprof_bad_wire(r) : e;
}

int pprof_get_location(struct pprof_reader *r, uint64_t file_id, uint32_t *ret)
{
        struct messages *m = &r->x.location;
        struct read_location l = {0};
        uint32_t mapping = 0;

        uint32_t i = messages_find(m, file_id);
        if (i == UNKNOWN)
                return pprof_bad(r, "a sample names a location that is not there");
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
