#include "profile/symbols.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/hash.h"
#include "base/idtable.h"

struct symbol_key {
        uint32_t name, object; /* strings; name 0: no name */
        uint64_t address;      /* of those without a name */
};

struct maker {
        const struct profile *p;
        struct symbols *s;
        struct symbol_key *key;
        uint32_t cap_symbols, cap_keys, n_frames, cap_frames;
        struct idtable index;
        struct buf text;   /* names made here, one NUL-ended text after another */
        uint32_t *text_at; /* of symbol: offset in text + 1; 0: the name is the profile's */
        uint32_t cap_text_at;
};

static void maker_done(struct maker *m)
{
        symbols_free(m->s);
        free(m->key);
        free(m->text_at);
        idtable_free(&m->index);
        buf_free(&m->text);
}

static bool key_equal(const void *ctx, uint32_t id, const void *key)
{
        const struct symbol_key *a = &((const struct maker *)ctx)->key[id], *b = key;

        return a->name == b->name && a->object == b->object && a->address == b->address;
}

static uint64_t hash_of_key(const struct symbol_key *k)
{
        return hash_u64((uint64_t)k->name << 32 | k->object, k->address);
}

static uint64_t key_hash(const void *ctx, uint32_t id)
{
        return hash_of_key(&((const struct maker *)ctx)->key[id]);
}

const char *object_base_name(const char *path)
{
        const char *slash = *path == '[' ? NULL : strrchr(path, '/');

        return slash ? slash + 1 : path;
}

/* Appends the name of an address without one; its offset + 1. */
static uint32_t make_name(struct maker *m, const struct profile_location *l)
{
        const char *object = object_base_name(m->p->string[m->p->mapping[l->mapping].file]);
        size_t at = m->text.len;

        if (*object)
                buf_addf(&m->text, "%s+0x%" PRIx64, object, l->address);
        else
                buf_addf(&m->text, "0x%" PRIx64, l->address);
        buf_addc(&m->text, 0);
        return (uint32_t)at + 1;
}

static int64_t add_symbol(struct maker *m, const struct symbol_key *key, const struct profile_location *l)
{
        struct symbols *s = m->s;
        const struct profile *p = m->p;
        uint64_t hash = hash_of_key(key);
        uint32_t id = idtable_find(&m->index, hash, key_equal, m, key);
        int r;

        if (id != IDTABLE_NONE)
                return id;
        if ((r = ARRAY_ROOM(s->symbol, m->cap_symbols, (uint64_t)s->n + 1)) < 0 ||
            (r = ARRAY_ROOM(m->key, m->cap_keys, (uint64_t)s->n + 1)) < 0 ||
            (r = ARRAY_ROOM(m->text_at, m->cap_text_at, (uint64_t)s->n + 1)) < 0 ||
            (r = idtable_add(&m->index, hash, s->n, key_hash, m)) < 0)
                return r;
        m->key[s->n] = *key;
        m->text_at[s->n] = key->name ? 0 : make_name(m, l);
        s->symbol[s->n] = (struct symbol){
                        .name = p->string[key->name],
                        .object = p->string[key->object],
                        .build_id = p->string[p->mapping[l->mapping].build_id],
                        .named = key->name != 0,
                        .kernel = profile_mapping_is_kernel(p, l->mapping),
        };
        return s->n++;
}

static int add_frame(struct maker *m, const struct profile_location *l, uint32_t function, int64_t line,
                     bool inlined)
{
        const struct profile *p = m->p;
        struct symbol_key key = {.name = function ? p->function[function].name : 0,
                                 .object = p->mapping[l->mapping].file};

        if (!key.name)
                key.address = l->address;
        int64_t symbol = add_symbol(m, &key, l);
        if (symbol < 0)
                return (int)symbol;
        int r = ARRAY_ROOM(m->s->frame, m->cap_frames, (uint64_t)m->n_frames + 1);
        if (r < 0)
                return r;
        m->s->frame[m->n_frames++] = (struct symbol_frame){
                        .symbol = (uint32_t)symbol, .function = function, .line = line, .inlined = inlined};
        return 0;
}

static int add_location(struct maker *m, uint32_t id, bool inlines)
{
        const struct profile_location *l = &m->p->location[id];
        uint32_t first = inlines || !l->n_lines ? 0 : l->n_lines - 1;
        int r = 0;

        m->s->first[id] = m->n_frames;
        if (!l->n_lines)
                return add_frame(m, l, 0, 0, false);
        for (uint32_t i = first; i < l->n_lines && r >= 0; i++) {
                const struct profile_line *line = &m->p->line[l->first_line + i];
                r = add_frame(m, l, line->function, line->line, i + 1 < l->n_lines);
        }
        return r;
}

/* The symbol for stacks without frames: it has no key that a location could have. */
static int add_no_stack(struct maker *m)
{
        struct symbols *s = m->s;

        int r = ARRAY_ROOM(s->symbol, m->cap_symbols, (uint64_t)s->n + 1);
        if (r < 0)
                return r;
        s->symbol[s->n] = (struct symbol){.name = "[no stack]", .object = "", .build_id = ""};
        s->no_stack = s->n;
        return 0;
}

int symbols_new(struct symbols **ret, const struct profile *p, bool inlines)
{
        _cleanup_(maker_done) struct maker m = {.p = p, .s = calloc(1, sizeof(*m.s))};

        if (!m.s)
                return -ENOMEM;
        m.text.limit = UINT32_MAX - 1; /* text_at */
        m.s->first = calloc((size_t)p->n_locations + 1, sizeof(*m.s->first));
        if (!m.s->first)
                return -ENOMEM;
        for (uint32_t i = 1; i < p->n_locations; i++) {
                int r = add_location(&m, i, inlines);
                if (r < 0)
                        return r;
        }
        m.s->first[p->n_locations] = m.n_frames;
        int r = add_no_stack(&m);
        if (r < 0)
                return r;
        if (buf_error(&m.text))
                return buf_error(&m.text);
        for (uint32_t i = 0; i < m.s->n; i++)
                if (m.text_at[i])
                        m.s->symbol[i].name = m.text.data + m.text_at[i] - 1;
        m.s->n++;
        m.s->text = TAKE_PTR(m.text.data);
        *ret = TAKE_PTR(m.s);
        return 0;
}

struct symbols *symbols_free(struct symbols *s)
{
        if (!s)
                return NULL;
        free(s->symbol);
        free(s->frame);
        free(s->first);
        free(s->text);
        free(s);
        return NULL;
}

int symbols_frames(const struct symbols *s, const struct profile *p, const struct profile_sample *sample,
                   struct frame_list *ret)
{
        ret->n = 0;
        for (uint32_t i = 0; i < sample->n_locations; i++) {
                uint32_t l = p->sample_location[sample->first_location + i];
                uint64_t need = (uint64_t)ret->n + s->first[l + 1] - s->first[l];
                int r;
                if ((r = ARRAY_ROOM(ret->frame, ret->cap, need)) < 0 ||
                    (r = ARRAY_ROOM(ret->location, ret->cap_location, need)) < 0)
                        return r;
                for (uint32_t f = s->first[l]; f < s->first[l + 1]; f++) {
                        ret->frame[ret->n] = f;
                        ret->location[ret->n++] = l;
                }
        }
        return 0;
}

void frame_list_free(struct frame_list *l)
{
        free(l->frame);
        free(l->location);
        *l = (struct frame_list){0};
}
