/* Samples are most of a file, and mostly repeat: neighbours have the same stack, and a label set comes again
 * and again. Bytes that were seen before are not read again: a stack's are compared with those of the sample
 * before, label sets' are looked up in a table of the file's. There it is also known which label sets were
 * not chosen: of their samples nothing else is read. */
#include "profile/pprof_reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/idtable.h"

#define NOT_CHOSEN (UNKNOWN - 1) /* in the place of a label set */

/* The bytes of the labels of a sample, all that is behind its first one, and their set. */
struct known_labels {
        struct wire bytes;
        uint32_t label_set;
};

struct label_cache {
        struct known_labels *entry;
        uint32_t n, cap;
        struct idtable index;
};

struct sample_reader {
        struct pprof_reader *r;
        struct label_cache cache;
        struct wire last_stack; /* the packed locations of the sample before */
        uint32_t last_stack_id; /* UNKNOWN: there is none */
        /* the sample being read */
        uint32_t n_locations, n_values, n_labels;
        int64_t values[PROFILE_MAX_TYPES];
        struct profile_label labels[PROFILE_MAX_LABELS];
        uint32_t locations[PROFILE_MAX_FRAMES];
};

static struct sample_reader *sample_reader_free(struct sample_reader *s)
{
        free(s->cache.entry);
        idtable_free(&s->cache.index);
        free(s);
        return NULL;
}
DEFINE_CLEANUP(struct sample_reader, sample_reader_free);

static size_t wire_size(const struct wire *w)
{
        return (size_t)(w->end - w->at);
}

static bool wire_equal(const struct wire *a, const struct wire *b)
{
        return wire_size(a) == wire_size(b) && (wire_size(a) == 0 || !memcmp(a->at, b->at, wire_size(a)));
}

static bool labels_equal(const void *ctx, uint32_t id, const void *key)
{
        return wire_equal(&((const struct label_cache *)ctx)->entry[id].bytes, key);
}

static uint64_t labels_hash(const void *ctx, uint32_t id)
{
        const struct wire *w = &((const struct label_cache *)ctx)->entry[id].bytes;

        return hash_bytes(w->at, wire_size(w));
}

static uint32_t find_labels(const struct label_cache *c, const struct wire *bytes)
{
        uint32_t id = idtable_find(&c->index, hash_bytes(bytes->at, wire_size(bytes)), labels_equal, c,
                                   bytes);

        return id == IDTABLE_NONE ? UNKNOWN : c->entry[id].label_set;
}

static int remember_labels(struct label_cache *c, const struct wire *bytes, uint32_t label_set)
{
        int r = ARRAY_ROOM(c->entry, c->cap, (uint64_t)c->n + 1);
        if (r < 0)
                return r;
        c->entry[c->n] = (struct known_labels){.bytes = *bytes, .label_set = label_set};
        r = idtable_add(&c->index, hash_bytes(bytes->at, wire_size(bytes)), c->n, labels_hash, c);
        if (r == 0)
                c->n++;
        return r;
}

static int add_location(struct sample_reader *s, uint64_t id)
{
        const struct messages *m = &s->r->x.location;

        if (s->n_locations == PROFILE_MAX_FRAMES)
                return pprof_bad(s->r, "a sample has more than 4096 locations");
        uint32_t i = messages_find(m, id), *to = &s->locations[s->n_locations++];
        if (i != UNKNOWN && m->model[i] != UNKNOWN) {
                *to = m->model[i];
                return 0;
        }
        return pprof_get_location(s->r, id, to);
}

static int add_value(struct sample_reader *s, uint64_t value)
{
        if (s->n_values == s->r->n_types)
                return pprof_bad(s->r, "a sample has more values than the profile has types");
        s->values[s->n_values++] = (int64_t)value;
        return 0;
}

/* A repeated number: packed, or one of it. */
static inline int add_numbers(struct sample_reader *s, const struct wire_field *f,
                              int (*add)(struct sample_reader *, uint64_t))
{
        struct wire w = f->bytes;
        uint64_t v;

        if (f->type == WIRE_VARINT)
                return add(s, f->value);
        if (f->type != WIRE_BYTES)
                return pprof_bad(s->r, "a sample's field has the wrong wire type");
        while (w.at < w.end) {
                if (!wire_varint(&w, &v))
                        return pprof_bad_wire(s->r);
                int e = add(s, v);
                if (e < 0)
                        return e;
        }
        return 0;
}

static int add_label(struct sample_reader *s, const struct wire_field *field)
{
        struct pprof_reader *r = s->r;
        struct wire w = field->bytes;
        struct wire_field f;
        int more, e = 0;

        if (field->type != WIRE_BYTES)
                return pprof_bad(r, "a label has the wrong wire type");
        if (s->n_labels == PROFILE_MAX_LABELS)
                return pprof_bad(r, "a sample has more than 64 labels");
        struct profile_label *l = &s->labels[s->n_labels++];
        *l = (struct profile_label){0};
        while (e == 0 && (more = wire_next(&w, &f)) > 0) {
                if (f.number > LABEL_FIELD_NUM_UNIT)
                        continue;
                e = pprof_need_varint(r, &f);
                if (e < 0)
                        break;
                if (f.number == LABEL_FIELD_KEY)
                        e = pprof_get_string(r, f.value, &l->key);
                else if (f.number == LABEL_FIELD_STR)
                        e = pprof_get_string(r, f.value, &l->str);
                else if (f.number == LABEL_FIELD_NUM)
                        l->num = (int64_t)f.value;
                else
                        e = pprof_get_string(r, f.value, &l->unit);
        }
        return e == 0 && more < 0 ? pprof_bad_wire(r) : e;
}

/* What is known of a sample without reading all of it. */
struct shortcut {
        struct wire stack;  /* the first field of locations */
        uint32_t n_stacks;  /* fields of locations */
        bool packed;        /* the first one is */
        bool same_stack;    /* as the sample before: not read */
        struct wire labels; /* from the first label to the end */
        bool labels_last;   /* no locations or values are behind it */
        uint32_t label_set; /* of the labels, when known; else UNKNOWN: they are read */
};

static int add_stack(struct sample_reader *s, struct shortcut *c, const struct wire_field *f)
{
        c->labels_last = false;
        if (c->n_stacks++ == 0) {
                c->packed = f->type == WIRE_BYTES;
                c->stack = f->bytes;
                c->same_stack = c->packed && s->last_stack_id != UNKNOWN &&
                                wire_equal(&f->bytes, &s->last_stack);
                if (c->same_stack)
                        return 0;
        } else if (c->same_stack) { /* there is more of it: read what was passed over */
                struct wire_field first = {.type = WIRE_BYTES, .bytes = c->stack};
                c->same_stack = false;
                int e = add_numbers(s, &first, add_location);
                if (e < 0)
                        return e;
        }
        return add_numbers(s, f, add_location);
}

static int read_fields(struct sample_reader *s, struct wire w, struct shortcut *c)
{
        struct wire_field f;
        int more, e = 0;

        for (const unsigned char *field = w.at; (more = wire_next(&w, &f)) > 0; field = w.at) {
                if (f.number == SAMPLE_FIELD_LOCATION_ID) {
                        e = add_stack(s, c, &f);
                } else if (f.number == SAMPLE_FIELD_VALUE) {
                        c->labels_last = false;
                        e = add_numbers(s, &f, add_value);
                } else if (f.number == SAMPLE_FIELD_LABEL) {
                        if (!c->labels.at) {
                                c->labels = (struct wire){field, w.end};
                                c->labels_last = true;
                                c->label_set = find_labels(&s->cache, &c->labels);
                                if (c->label_set != UNKNOWN) /* equal bytes were read to their end before */
                                        return 0;
                        }
                        e = add_label(s, &f);
                }
                if (e < 0)
                        return e;
        }
        return more < 0 ? pprof_bad_wire(s->r) : 0;
}

static int64_t stack_of(struct sample_reader *s, const struct shortcut *c)
{
        if (c->same_stack)
                return s->last_stack_id;
        int64_t stack = profile_stack(s->r->p, s->locations, s->n_locations);
        if (stack < 0)
                return stack;
        bool comparable = c->n_stacks == 1 && c->packed;
        s->last_stack = c->stack;
        s->last_stack_id = comparable ? (uint32_t)stack : UNKNOWN;
        return stack;
}

/* Drops the labels that the choice leaves out. */
static void drop_processes(struct sample_reader *s)
{
        uint32_t kept = 0;

        for (uint32_t i = 0; i < s->n_labels; i++) {
                const char *key = s->r->p->string[s->labels[i].key];
                if (!profile_is_process_label(key))
                        s->labels[kept++] = s->labels[i];
        }
        s->n_labels = kept;
}

static int64_t choose_label_set(struct sample_reader *s)
{
        const struct pprof_choice *choice = s->r->choice;

        if (choice->selection &&
            !selection_matches_labels(choice->selection, s->r->p, s->labels, s->n_labels))
                return NOT_CHOSEN;
        if (choice->no_processes)
                drop_processes(s);
        return profile_label_set(s->r->p, s->labels, s->n_labels);
}

static int64_t label_set_of(struct sample_reader *s, const struct shortcut *c)
{
        if (c->label_set != UNKNOWN)
                return c->label_set;
        int64_t set = choose_label_set(s);
        if (set < 0 || !c->labels_last)
                return set;
        int r = remember_labels(&s->cache, &c->labels, (uint32_t)set);
        return r < 0 ? r : set;
}

/* Whether a sample has labels that are known not to be chosen. */
static bool is_passed_over(const struct sample_reader *s, struct wire w)
{
        struct wire_field f;

        for (const unsigned char *field = w.at; wire_next(&w, &f) > 0; field = w.at)
                if (f.number == SAMPLE_FIELD_LABEL)
                        return find_labels(&s->cache, &(struct wire){field, w.end}) == NOT_CHOSEN;
        return false;
}

static int read_sample(struct sample_reader *s, struct wire w)
{
        struct pprof_reader *r = s->r;
        struct shortcut c = {.label_set = UNKNOWN};
        int64_t values[PROFILE_MAX_TYPES] = {0};

        if (r->choice->selection && is_passed_over(s, w))
                return 0;
        s->n_locations = s->n_values = s->n_labels = 0;
        int e = read_fields(s, w, &c);
        if (e < 0)
                return e;
        if (s->n_values != r->n_types)
                return pprof_bad(r, "a sample has fewer values than the profile has types");
        for (uint32_t i = 0; i < r->n_types; i++)
                values[r->type[i]] = s->values[i];
        int64_t label_set = label_set_of(s, &c);
        if (label_set < 0 || label_set == NOT_CHOSEN)
                return label_set < 0 ? (int)label_set : 0;
        int64_t stack = stack_of(s, &c);
        if (stack < 0)
                return (int)stack;
        return profile_sample_at(r->p, (uint32_t)stack, (uint32_t)label_set, values);
}

int pprof_read_samples(struct pprof_reader *r)
{
        _cleanup_(sample_reader_free_cleanup) struct sample_reader *s = calloc(1, sizeof(*s));
        struct wire w = r->file;
        struct wire_field f;

        if (!s)
                return -ENOMEM;
        s->r = r;
        s->last_stack_id = UNKNOWN;
        while (wire_next(&w, &f) > 0) {
                if (f.number != PROFILE_FIELD_SAMPLE)
                        continue;
                if (f.type != WIRE_BYTES)
                        return pprof_bad(r, "a sample has the wrong wire type");
                int e = read_sample(s, f.bytes);
                if (e < 0)
                        return e;
        }
        return 0;
}
