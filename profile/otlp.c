#include "profile/otlp.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/cleanup.h"
#include "profile/wire.h"
#include "profile/wire_out.h"

enum { OTLP_REQUEST_RESOURCE_PROFILES = 1, OTLP_REQUEST_DICTIONARY = 2 };
enum { OTLP_RESOURCE_PROFILES_RESOURCE = 1, OTLP_RESOURCE_PROFILES_SCOPE_PROFILES = 2 };
enum { OTLP_RESOURCE_ATTRIBUTES = 1 };
enum { OTLP_KEY_VALUE_KEY = 1, OTLP_KEY_VALUE_VALUE = 2 };
enum { OTLP_ANY_VALUE_STRING = 1, OTLP_ANY_VALUE_INT = 3 };
enum { OTLP_SCOPE_PROFILES_SCOPE = 1, OTLP_SCOPE_PROFILES_PROFILES = 2 };
enum { OTLP_SCOPE_NAME = 1, OTLP_SCOPE_VERSION = 2 };
enum {
        OTLP_PROFILE_TYPE = 1,
        OTLP_PROFILE_SAMPLES = 2,
        OTLP_PROFILE_TIME_UNIX_NANO = 3,
        OTLP_PROFILE_DURATION_NANO = 4,
        OTLP_PROFILE_PERIOD_OF = 5,
        OTLP_PROFILE_PERIOD_VALUE = 6,
        OTLP_PROFILE_PROFILE_ID = 7,
};
enum { OTLP_TYPE_TYPE = 1, OTLP_TYPE_UNIT = 2 };
enum { OTLP_SAMPLE_STACK = 1, OTLP_SAMPLE_ATTRIBUTES = 2, OTLP_SAMPLE_VALUES = 4 };
enum {
        OTLP_MAP_START = 1,
        OTLP_MAP_LIMIT = 2,
        OTLP_MAP_OFFSET = 3,
        OTLP_MAP_FILE = 4,
        OTLP_MAP_ATTRIBUTES = 5
};
enum { OTLP_STACK_LOCATIONS = 1 };
enum { OTLP_LOC_MAPPING = 1, OTLP_LOC_ADDRESS = 2, OTLP_LOC_LINES = 3, OTLP_LOC_ATTRIBUTES = 4 };
enum { OTLP_LINE_FUNCTION = 1, OTLP_LINE_NUMBER = 2 };
enum { OTLP_FUNC_NAME = 1, OTLP_FUNC_SYSTEM_NAME = 2, OTLP_FUNC_FILE = 3, OTLP_FUNC_START_LINE = 4 };
enum { OTLP_ATTRIBUTE_KEY = 1, OTLP_ATTRIBUTE_VALUE = 2, OTLP_ATTRIBUTE_UNIT = 3 };
enum { OTLP_RESPONSE_PARTIAL_SUCCESS = 1 };
enum { OTLP_PARTIAL_REJECTED = 1, OTLP_PARTIAL_MESSAGE = 2 };

/* The tables of a ProfilesDictionary; the numbers are its fields. */
enum table {
        TABLE_MAPPING = 1,
        TABLE_LOCATION = 2,
        TABLE_FUNCTION = 3,
        TABLE_LINK = 4,
        TABLE_STRING = 5,
        TABLE_ATTRIBUTE = 6,
        TABLE_STACK = 7,
        TABLE_MAX
};

/* Attributes by what they say, 64 bits of it: equal ones have one entry. */
struct attribute {
        XXH64_hash_t hash;
        uint32_t number; /* 0: a free slot */
};

#define MAX_KEYS 64

struct encoder {
        const struct profile *p;
        const struct otlp_source *source;
        uint32_t first, n; /* the samples */
        /* Entries are encoded when they are first referred to. Entry 0 of each table is the empty one. */
        struct buf table[TABLE_MAX];
        uint32_t entries[TABLE_MAX];
        uint32_t *string, *mapping, *function, *location,
                        *stack;      /* the profile's index -> the table's; 0: not yet */
        struct attribute *attribute; /* open addressing, size a power of 2 */
        uint32_t attributes_mask;
        struct {
                const char *key;
                uint32_t number;
        } key[MAX_KEYS]; /* of attributes: a dozen */
        uint32_t n_keys;
        struct buf entry, inner; /* of one table entry being built */
};

static void encoder_done(struct encoder *e)
{
        for (int t = 0; t < TABLE_MAX; t++)
                buf_free(&e->table[t]);
        free(e->string);
        free(e->mapping);
        free(e->function);
        free(e->location);
        free(e->stack);
        free(e->attribute);
        buf_free(&e->entry);
        buf_free(&e->inner);
}

static uint32_t *numbers(uint32_t n)
{
        return calloc((size_t)n + 1, sizeof(uint32_t));
}

static int encoder_init(struct encoder *e)
{
        const struct profile *p = e->p;
        /* each label may be an attribute, and each mapping has one or two */
        uint64_t most = (uint64_t)p->n_labels + 2ull * p->n_mappings + 16, size = 64;

        while (size < 2 * most)
                size *= 2;
        if (size > UINT32_MAX)
                return -E2BIG;
        e->string = numbers(p->n_strings);
        e->mapping = numbers(p->n_mappings);
        e->function = numbers(p->n_functions);
        e->location = numbers(p->n_locations);
        e->stack = numbers(p->n_stacks);
        e->attribute = calloc(size, sizeof(*e->attribute));
        e->attributes_mask = (uint32_t)size - 1;
        if (!e->string || !e->mapping || !e->function || !e->location || !e->stack || !e->attribute)
                return -ENOMEM;
        for (uint32_t t = TABLE_MAPPING; t < TABLE_MAX; t++) {
                wire_put_bytes(&e->table[t], t, NULL, 0);
                e->entries[t] = 1;
        }
        return 0;
}

/* Ends e->entry: it becomes an entry of the table. */
static uint32_t end_entry(struct encoder *e, enum table t)
{
        wire_put_message(&e->table[t], t, &e->entry);
        return e->entries[t]++;
}

/* -- strings and attributes -- */

static uint32_t new_string(struct encoder *e, const char *s)
{
        wire_put_bytes(&e->table[TABLE_STRING], TABLE_STRING, s, strlen(s));
        return e->entries[TABLE_STRING]++;
}

static uint32_t string(struct encoder *e, uint32_t i)
{
        if (i && !e->string[i])
                e->string[i] = new_string(e, profile_str(e->p, i));
        return e->string[i];
}

/* The name of an attribute. Only a file from elsewhere has more than MAX_KEYS; the others may then be there
 * twice. */
static uint32_t key_string(struct encoder *e, const char *key)
{
        for (uint32_t i = 0; i < e->n_keys; i++)
                if (!strcmp(e->key[i].key, key))
                        return e->key[i].number;
        uint32_t number = new_string(e, key);
        if (e->n_keys < MAX_KEYS) {
                e->key[e->n_keys].key = key;
                e->key[e->n_keys++].number = number;
        }
        return number;
}

/* The attribute `key`, with a text, or with a number when text is NULL. */
static uint32_t attribute(struct encoder *e, const char *key, const char *text, int64_t number,
                          uint32_t unit)
{
        XXH64_hash_t h = XXH3_64bits(key, strlen(key));
        struct attribute *a;
        uint32_t key_at, unit_at;

        h = text ? XXH3_64bits_withSeed(text, strlen(text), h)
                 : XXH3_64bits_withSeed(&number, sizeof(number), h + 1);
        h += unit;
        for (uint32_t i = (uint32_t)h;; i++) {
                a = &e->attribute[i & e->attributes_mask];
                if (a->number && a->hash == h)
                        return a->number;
                if (!a->number)
                        break;
        }
        key_at = key_string(e, key);
        unit_at = string(e, unit);
        if (text)
                wire_put_bytes(&e->inner, OTLP_ANY_VALUE_STRING, text, strlen(text));
        else {
                /* of a oneof, which is there even when 0 */
                wire_put_varint(&e->inner, WIRE_TAG(OTLP_ANY_VALUE_INT, WIRE_VARINT));
                wire_put_varint(&e->inner, (uint64_t)number);
        }
        wire_put_number(&e->entry, OTLP_ATTRIBUTE_KEY, key_at);
        wire_put_message(&e->entry, OTLP_ATTRIBUTE_VALUE, &e->inner);
        wire_put_number(&e->entry, OTLP_ATTRIBUTE_UNIT, unit_at);
        *a = (struct attribute){h, end_entry(e, TABLE_ATTRIBUTE)};
        return a->number;
}

/* OpenTelemetry's name (semantic conventions) of a label; the label's own where there is none. */
static const char *attribute_key(const char *label)
{
        static const struct {
                const char *label, *key;
        } names[] = {
                        {"pid", "process.pid"},     {"comm", "process.executable.name"},
                        {"uid", "process.user.id"}, {"user", "process.owner"},
                        {"thread_id", "thread.id"}, {"thread_name", "thread.name"},
                        {"pod", "k8s.pod.uid"},     {"container_id", "container.id"},
                        {"unit", "systemd.unit"},
        };

        for (size_t i = 0; i < ARRAY_SIZE(names); i++)
                if (!strcmp(names[i].label, label))
                        return names[i].key;
        return label;
}

static bool is_container(const struct encoder *e, const struct profile_label *l)
{
        return l->str && !strcmp(profile_str(e->p, l->key), "container_id");
}

/* -- the other tables -- */

static uint32_t mapping(struct encoder *e, uint32_t i)
{
        const struct profile_mapping *m = &e->p->mapping[i];

        if (!i || e->mapping[i])
                return e->mapping[i];
        uint32_t file = string(e, m->file), build_id = 0;
        if (m->build_id)
                build_id = attribute(e, "process.executable.build_id.gnu", profile_str(e->p, m->build_id), 0,
                                     0);
        wire_put_number(&e->entry, OTLP_MAP_START, m->start);
        wire_put_number(&e->entry, OTLP_MAP_LIMIT, m->limit);
        wire_put_number(&e->entry, OTLP_MAP_OFFSET, m->offset);
        wire_put_number(&e->entry, OTLP_MAP_FILE, file);
        if (build_id) {
                wire_put_varint(&e->inner, build_id);
                wire_put_message(&e->entry, OTLP_MAP_ATTRIBUTES, &e->inner);
        }
        return e->mapping[i] = end_entry(e, TABLE_MAPPING);
}

static uint32_t function(struct encoder *e, uint32_t i)
{
        const struct profile_function *f = &e->p->function[i];

        if (!i || e->function[i])
                return e->function[i];
        uint32_t name = string(e, f->name), system_name = string(e, f->system_name),
                 file = string(e, f->file);
        wire_put_number(&e->entry, OTLP_FUNC_NAME, name);
        wire_put_number(&e->entry, OTLP_FUNC_SYSTEM_NAME, system_name);
        wire_put_number(&e->entry, OTLP_FUNC_FILE, file);
        wire_put_number(&e->entry, OTLP_FUNC_START_LINE, (uint64_t)f->start_line);
        return e->function[i] = end_entry(e, TABLE_FUNCTION);
}

static uint32_t location(struct encoder *e, uint32_t i)
{
        const struct profile_location *l = &e->p->location[i];

        if (e->location[i])
                return e->location[i];
        uint32_t map = mapping(e, l->mapping);
        uint32_t kind = attribute(e, "profile.frame.type",
                                  profile_mapping_is_kernel(e->p, l->mapping) ? "kernel" : "native", 0, 0);
        for (uint32_t k = 0; k < l->n_lines; k++)
                function(e, e->p->line[l->first_line + k].function);
        wire_put_number(&e->entry, OTLP_LOC_MAPPING, map);
        wire_put_number(&e->entry, OTLP_LOC_ADDRESS, l->address);
        for (uint32_t k = 0; k < l->n_lines; k++) {
                const struct profile_line *line = &e->p->line[l->first_line + k];
                wire_put_number(&e->inner, OTLP_LINE_FUNCTION, e->function[line->function]);
                wire_put_number(&e->inner, OTLP_LINE_NUMBER, (uint64_t)line->line);
                wire_put_message(&e->entry, OTLP_LOC_LINES, &e->inner);
        }
        wire_put_varint(&e->inner, kind);
        wire_put_message(&e->entry, OTLP_LOC_ATTRIBUTES, &e->inner);
        return e->location[i] = end_entry(e, TABLE_LOCATION);
}

static uint32_t stack(struct encoder *e, const struct profile_sample *s)
{
        const uint32_t *at = e->p->sample_location + s->first_location;

        if (!s->n_locations || e->stack[s->stack])
                return e->stack[s->stack];
        for (uint32_t k = 0; k < s->n_locations; k++)
                location(e, at[k]);
        for (uint32_t k = 0; k < s->n_locations; k++)
                wire_put_varint(&e->inner, e->location[at[k]]);
        wire_put_message(&e->entry, OTLP_STACK_LOCATIONS, &e->inner);
        return e->stack[s->stack] = end_entry(e, TABLE_STACK);
}

/* -- samples, profiles, resources -- */

static void put_sample(struct encoder *e, uint32_t i, uint32_t type, struct buf *profile)
{
        const struct profile_sample *s = &e->p->sample[i];
        _cleanup_buf_ struct buf sample = {0}, packed = {0};

        wire_put_number(&sample, OTLP_SAMPLE_STACK, stack(e, s));
        for (uint32_t k = 0; k < s->n_labels; k++) {
                const struct profile_label *l = &e->p->label[s->first_label + k];
                if (!is_container(e, l))
                        wire_put_varint(&packed, attribute(e, attribute_key(profile_str(e->p, l->key)),
                                                           l->str ? profile_str(e->p, l->str) : NULL, l->num,
                                                           l->unit));
        }
        if (packed.len)
                wire_put_message(&sample, OTLP_SAMPLE_ATTRIBUTES, &packed);
        wire_put_varint(&packed, (uint64_t)profile_values(e->p, i)[type]);
        wire_put_message(&sample, OTLP_SAMPLE_VALUES, &packed);
        wire_put_message(profile, OTLP_PROFILE_SAMPLES, &sample);
}

static void put_type(struct encoder *e, uint32_t field, struct profile_value_type t, struct buf *profile)
{
        _cleanup_buf_ struct buf b = {0};

        wire_put_number(&b, OTLP_TYPE_TYPE, string(e, t.type));
        wire_put_number(&b, OTLP_TYPE_UNIT, string(e, t.unit));
        wire_put_message(profile, field, &b);
}

/* The container of a sample, a string of the profile; 0: none. */
static uint32_t container_of(const struct encoder *e, uint32_t i)
{
        const struct profile_label *l = profile_find_label(e->p, &e->p->sample[i], "container_id");

        return l ? l->str : 0;
}

static void put_profile(struct encoder *e, const uint32_t *container, uint32_t of, uint32_t type,
                        struct buf *scope)
{
        _cleanup_buf_ struct buf b = {0}, id = {0};
        XXH128_canonical_t hash;
        bool any = false;

        put_type(e, OTLP_PROFILE_TYPE, e->p->type[type], &b);
        for (uint32_t i = 0; i < e->n; i++)
                if (container[i] == of && profile_values(e->p, e->first + i)[type]) {
                        put_sample(e, e->first + i, type, &b);
                        any = true;
                }
        if (!any)
                return;
        wire_put_fixed64(&b, OTLP_PROFILE_TIME_UNIX_NANO, (uint64_t)e->p->time_ns);
        wire_put_number(&b, OTLP_PROFILE_DURATION_NANO, (uint64_t)e->p->duration_ns);
        put_type(e, OTLP_PROFILE_PERIOD_OF, e->p->period_type, &b);
        wire_put_number(&b, OTLP_PROFILE_PERIOD_VALUE, (uint64_t)e->p->period);
        buf_addf(&id, "%s %s %u %s %s", e->source->host, e->source->id, e->first, profile_str(e->p, of),
                 profile_str(e->p, e->p->type[type].type));
        XXH128_canonicalFromHash(&hash, XXH3_128bits(buf_text(&id), id.len));
        wire_put_bytes(&b, OTLP_PROFILE_PROFILE_ID, hash.digest, sizeof(hash.digest));
        wire_put_message(scope, OTLP_SCOPE_PROFILES_PROFILES, &b);
}

static void put_text_attribute(struct buf *resource, const char *key, const char *text)
{
        _cleanup_buf_ struct buf value = {0}, pair = {0};

        wire_put_bytes(&value, OTLP_ANY_VALUE_STRING, text, strlen(text));
        wire_put_bytes(&pair, OTLP_KEY_VALUE_KEY, key, strlen(key));
        wire_put_message(&pair, OTLP_KEY_VALUE_VALUE, &value);
        wire_put_message(resource, OTLP_RESOURCE_ATTRIBUTES, &pair);
}

static void put_resource(struct encoder *e, const uint32_t *container, uint32_t of, struct buf *out)
{
        _cleanup_buf_ struct buf resource = {0}, info = {0}, scope = {0}, whole = {0};
        uint32_t default_type = profile_default_type(e->p);

        put_text_attribute(&resource, "host.name", e->source->host);
        put_text_attribute(&resource, "os.type", "linux");
        if (of)
                put_text_attribute(&resource, "container.id", profile_str(e->p, of));
        wire_put_bytes(&info, OTLP_SCOPE_NAME, "profd", strlen("profd"));
        wire_put_bytes(&info, OTLP_SCOPE_VERSION, e->source->version, strlen(e->source->version));
        wire_put_message(&scope, OTLP_SCOPE_PROFILES_SCOPE, &info);
        for (uint32_t k = 0; k < e->p->n_types; k++) {
                uint32_t type = k == 0 ? default_type : k <= default_type ? k - 1 : k;
                put_profile(e, container, of, type, &scope);
        }
        wire_put_message(&whole, OTLP_RESOURCE_PROFILES_RESOURCE, &resource);
        wire_put_message(&whole, OTLP_RESOURCE_PROFILES_SCOPE_PROFILES, &scope);
        wire_put_message(out, OTLP_REQUEST_RESOURCE_PROFILES, &whole);
}

static int compare_numbers(const void *a, const void *b)
{
        uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

        return (x > y) - (x < y);
}

int otlp_encode(const struct profile *p, const struct otlp_source *source, uint32_t first, uint32_t n,
                struct buf *out)
{
        __attribute__((cleanup(encoder_done))) struct encoder e = {
                        .p = p, .source = source, .first = first, .n = n};
        _cleanup_free_ uint32_t *container = NULL, *distinct = NULL;
        _cleanup_buf_ struct buf dictionary = {0};
        int r;

        if (first > p->n_samples || n > p->n_samples - first)
                return -EINVAL;
        r = encoder_init(&e);
        if (r < 0)
                return r;
        container = numbers(n);
        distinct = numbers(n);
        if (!container || !distinct)
                return -ENOMEM;
        for (uint32_t i = 0; i < n; i++)
                distinct[i] = container[i] = container_of(&e, first + i);
        qsort(distinct, n, sizeof(*distinct), compare_numbers);
        for (uint32_t i = 0; i < n; i++)
                if (i == 0 || distinct[i] != distinct[i - 1])
                        put_resource(&e, container, distinct[i], out);
        for (int t = TABLE_MAPPING; t < TABLE_MAX; t++) {
                if (e.table[t].error)
                        return e.table[t].error;
                buf_add(&dictionary, e.table[t].data, e.table[t].len);
        }
        wire_put_message(out, OTLP_REQUEST_DICTIONARY, &dictionary);
        return buf_error(out);
}

int otlp_answer(const void *data, size_t n, int64_t *ret_rejected, char *message, size_t size)
{
        struct wire w = {data, (const unsigned char *)data + n};
        struct wire_field f = {0};
        int64_t rejected = 0;
        int r, inner = 0;

        snprintf(message, size, "%s", "");
        while ((r = wire_next(&w, &f)) > 0) {
                if (f.number != OTLP_RESPONSE_PARTIAL_SUCCESS || f.type != WIRE_BYTES)
                        continue;
                struct wire partial = f.bytes;
                while ((inner = wire_next(&partial, &f)) > 0) {
                        if (f.number == OTLP_PARTIAL_REJECTED && f.type == WIRE_VARINT)
                                rejected = (int64_t)f.value;
                        if (f.number == OTLP_PARTIAL_MESSAGE && f.type == WIRE_BYTES)
                                snprintf(message, size, "%.*s",
                                         (int)MIN_OF((size_t)(f.bytes.end - f.bytes.at), size),
                                         (const char *)f.bytes.at);
                }
                if (inner < 0)
                        return -EBADMSG;
        }
        if (r < 0)
                return -EBADMSG;
        *ret_rejected = rejected;
        return 0;
}
