#include "symbolizer/dwarf_names.h"

#include "base/hash.h"
#include "base/idtable.h"
#include "symbolizer/dwarf_form.h"
#include "symbolizer/dwarf_scopes.h"

/* Instance, abstract instance, definition, declaration: four links are the most a compiler makes. */
#define MAX_LINKS    16
#define MAX_SCOPES   64
#define MAX_NAME     4096 /* of names that are put together here; longer ones stay without their scopes */
#define STRING_CHUNK (64u << 10)

struct string_chunk {
        struct string_chunk *next;
        uint64_t size, used;
        char bytes[];
};

struct interned {
        const char *s;
        uint32_t len;
};

struct function_entry {
        struct dwarf_function function;
        uint64_t offset; /* of the DIE that it was asked for by */
        uint32_t file;
};

struct dwarf_names {
        struct dwarf_budget *budget;
        struct dwarf_abbrev_set *abbrevs;
        struct function_entry *entry;
        uint64_t n_entries, cap_entries;
        struct idtable entry_ids;
        struct interned *string;
        uint64_t n_strings, cap_strings;
        struct idtable string_ids;
        struct string_chunk *chunks;
};

int dwarf_names_new(struct dwarf_names **ret, struct dwarf_budget *budget, struct dwarf_abbrev_set *abbrevs)
{
        struct dwarf_names *n = dwarf_alloc(budget, 1, sizeof(*n));
        int r;

        if (!n)
                return -errno;
        n->budget = budget;
        n->abbrevs = abbrevs;
        r = DWARF_GROW(budget, n->entry, n->cap_entries, n->n_entries);
        if (r < 0) {
                dwarf_names_free(n);
                return r;
        }
        n->n_entries = 1; /* id 0 is none */
        *ret = n;
        return 0;
}

struct dwarf_names *dwarf_names_free(struct dwarf_names *n)
{
        if (!n)
                return NULL;
        while (n->chunks) {
                struct string_chunk *c = n->chunks;
                n->chunks = c->next;
                dwarf_release(n->budget, c, 1, sizeof(*c) + c->size);
        }
        dwarf_release(n->budget, n->entry, n->cap_entries, sizeof(*n->entry));
        dwarf_release(n->budget, n->string, n->cap_strings, sizeof(*n->string));
        idtable_free(&n->entry_ids);
        idtable_free(&n->string_ids);
        dwarf_release(n->budget, n, 1, sizeof(*n));
        return NULL;
}

/* -- strings -- */

static bool string_equal(const void *ctx, uint32_t id, const void *key)
{
        const struct dwarf_names *n = ctx;
        const struct interned *a = &n->string[id], *b = key;
        return a->len == b->len && memcmp(a->s, b->s, a->len) == 0;
}

static uint64_t string_hash(const void *ctx, uint32_t id)
{
        const struct dwarf_names *n = ctx;
        return hash_bytes(n->string[id].s, n->string[id].len);
}

static char *chunk_take(struct dwarf_names *n, size_t size)
{
        struct string_chunk *c = n->chunks;

        if (!c || c->size - c->used < size) {
                uint64_t chunk = MAX_OF((uint64_t)size, STRING_CHUNK);

                c = dwarf_alloc(n->budget, 1, sizeof(*c) + chunk);
                if (!c)
                        return NULL;
                c->size = chunk;
                c->next = n->chunks;
                n->chunks = c;
        }
        c->used += size;
        return c->bytes + c->used - size;
}

const char *dwarf_names_intern(struct dwarf_names *n, const char *s, size_t len)
{
        struct interned key = {s, (uint32_t)len};
        uint64_t hash = hash_bytes(s, len);
        uint32_t id = idtable_find(&n->string_ids, hash, string_equal, n, &key);
        char *copy;
        int r;

        if (id != IDTABLE_NONE)
                return n->string[id].s;
        r = DWARF_GROW(n->budget, n->string, n->cap_strings, n->n_strings);
        if (r == 0 && n->n_strings >= IDTABLE_NONE)
                r = -E2BIG;
        if (r < 0) {
                errno = -r;
                return NULL;
        }
        copy = chunk_take(n, len + 1);
        if (!copy)
                return NULL;
        memcpy(copy, s, len);
        copy[len] = '\0';
        id = (uint32_t)n->n_strings;
        n->string[n->n_strings++] = (struct interned){copy, (uint32_t)len};
        r = idtable_add(&n->string_ids, hash, id, string_hash, n);
        if (r < 0) {
                errno = -r;
                return NULL;
        }
        return copy;
}

/* -- DIEs -- */

struct facts { /* of a DIE and those it is an instance of */
        const char *name, *linkage;
        uint32_t line;
        uint16_t tag;
        struct dwarf_unit *unit; /* the last DIE read */
        uint64_t offset;
        struct dwarf_unit *next_unit; /* what it refers to; NULL */
        uint64_t next_offset;
};

/* Adds what the DIE at (u, offset) knows and `f` does not. */
static int read_facts(struct dwarf_unit *u, uint64_t offset, struct facts *f)
{
        struct dwarf_value name = {0}, linkage = {0}, line = {0}, link = {0}, v;
        struct dwarf_cursor c;
        struct dwarf_spec spec;
        uint16_t attr, form;
        int64_t implicit;
        int r = dwarf_die_open(u, offset, &spec, &c);

        f->next_unit = NULL;
        if (r < 0)
                return r;
        f->tag = spec.tag;
        f->unit = u;
        f->offset = offset;
        while (!c.bad && dwarf_spec_next(&spec, &attr, &form, &implicit)) {
                v = dwarf_read_form(&c, u, form, implicit);
                switch (attr) {
                case DW_AT_name:
                        name = v;
                        break;
                case DW_AT_linkage_name:
                case DW_AT_MIPS_linkage_name:
                        linkage = v;
                        break;
                case DW_AT_decl_line:
                        line = v;
                        break;
                case DW_AT_abstract_origin:
                case DW_AT_specification:
                case DW_AT_extension:
                        link = v;
                        break;
                }
        }
        if (c.bad)
                return -EBADMSG;
        if (!f->name && name.form)
                f->name = dwarf_value_string(u, name);
        if (!f->linkage && linkage.form)
                f->linkage = dwarf_value_string(u, linkage);
        if (!f->line && line.form && line.u <= UINT32_MAX)
                f->line = (uint32_t)line.u;
        if (link.form && !dwarf_value_reference(u, link, &f->next_unit, &f->next_offset))
                f->next_unit = NULL;
        return 0;
}

/* Follows the links from a DIE that was read. */
static int follow(struct facts *f, struct dwarf_budget *budget)
{
        for (int links = 0; f->next_unit && links < MAX_LINKS; links++) {
                int r;

                if (f->name && f->linkage && f->line)
                        break;
                if (!dwarf_work(budget, 1))
                        return -E2BIG;
                r = read_facts(f->next_unit, f->next_offset, f);
                if (r == -EBADMSG)
                        break;
                if (r < 0)
                        return r;
        }
        return 0;
}

/* -- names with what they are in -- */

/* Languages whose DW_AT_name is a name within something else. C, Go and assembler write the whole name, and
 * a linkage name there is an alias that the library wanted in its place ("__GI_abort"). */
static bool language_has_scopes(uint16_t language)
{
        switch (language) {
        case DW_LANG_C89:
        case DW_LANG_C:
        case DW_LANG_C99:
        case DW_LANG_C11:
        case DW_LANG_Go:
        case DW_LANG_Mips_Assembler:
                return false;
        default:
                return true;
        }
}

static const char *scope_name(const struct facts *f)
{
        if (f->name)
                return f->name;
        switch (f->tag) {
        case DW_TAG_namespace:
                return "(anonymous namespace)";
        case DW_TAG_class_type:
        case DW_TAG_structure_type:
        case DW_TAG_union_type:
        case DW_TAG_enumeration_type:
        case DW_TAG_interface_type:
                return "{unnamed type}";
        default:
                return NULL;
        }
}

/* "a::b::name", in D "a.b.name". *ret NULL when it stands in nothing that has a name, or is too long. */
static int qualify(struct dwarf_names *n, const struct facts *f, const char **ret)
{
        uint64_t scope[MAX_SCOPES];
        char text[MAX_NAME];
        const char *between = f->unit->language == DW_LANG_D ? "." : "::";
        size_t end = sizeof(text), len = strnlen(f->name, sizeof(text)), gap = strlen(between);
        uint32_t n_scopes;
        int r;

        *ret = NULL;
        r = dwarf_scopes_of(f->unit, f->offset, n->abbrevs, scope, MAX_SCOPES, &n_scopes);
        if (r < 0)
                return r;
        if (n_scopes == 0 || len >= sizeof(text))
                return 0;
        end -= len;
        memcpy(text + end, f->name, len);
        for (uint32_t i = 0; i < n_scopes; i++) { /* innermost first */
                struct facts s = {0};
                const char *name;

                r = read_facts(f->unit, scope[i], &s);
                if (r == 0)
                        r = follow(&s, n->budget);
                if (r == -EBADMSG)
                        continue;
                if (r < 0)
                        return r;
                name = scope_name(&s);
                if (!name)
                        continue;
                len = strnlen(name, sizeof(text));
                if (len + gap > end)
                        return 0;
                end -= gap;
                memcpy(text + end, between, gap);
                end -= len;
                memcpy(text + end, name, len);
        }
        *ret = dwarf_names_intern(n, text + end, sizeof(text) - end);
        return *ret ? 0 : -errno;
}

static int make_function(struct dwarf_names *n, struct facts *f, struct dwarf_function *ret)
{
        const char *qualified = NULL, *linkage = NULL;
        uint16_t language = f->unit ? f->unit->language : 0;
        int r = follow(f, n->budget);

        if (r < 0)
                return r;
        if (f->unit && f->unit->language)
                language = f->unit->language;
        if (language_has_scopes(language)) {
                linkage = f->linkage;
                if (!linkage && f->name)
                        r = qualify(n, f, &qualified);
                if (r < 0 && r != -EBADMSG)
                        return r;
        } else if (!f->name) {
                linkage = f->linkage;
        }
        *ret = (struct dwarf_function){
                        .name = linkage     ? linkage
                                : qualified ? qualified
                                            : f->name,
                        .short_name = f->name,
                        .line = f->line,
                        .language = language,
        };
        return 0;
}

/* -- the table -- */

struct entry_key {
        uint64_t offset;
        uint32_t file;
};

static bool entry_equal(const void *ctx, uint32_t id, const void *key)
{
        const struct dwarf_names *n = ctx;
        const struct entry_key *k = key;
        return n->entry[id].offset == k->offset && n->entry[id].file == k->file;
}

static uint64_t entry_hash(const void *ctx, uint32_t id)
{
        const struct dwarf_names *n = ctx;
        return hash_u64(n->entry[id].offset, n->entry[id].file);
}

static int add_entry(struct dwarf_names *n, const struct function_entry *e, uint64_t hash, uint32_t *ret)
{
        int r = DWARF_GROW(n->budget, n->entry, n->cap_entries, n->n_entries);

        if (r < 0)
                return r;
        if (n->n_entries >= IDTABLE_NONE)
                return -E2BIG;
        n->entry[n->n_entries] = *e;
        r = idtable_add(&n->entry_ids, hash, (uint32_t)n->n_entries, entry_hash, n);
        if (r < 0)
                return r;
        *ret = (uint32_t)n->n_entries++;
        return 0;
}

/* A DIE without names of its own is an instance of another: all instances share that one's entry. */
int dwarf_names_function(struct dwarf_names *n, struct dwarf_unit *u, uint64_t offset, uint32_t *ret_id)
{
        struct facts f = {0};
        struct entry_key key;
        struct function_entry e = {0};
        uint64_t hash;
        uint32_t id;
        int r = read_facts(u, offset, &f);

        if (r < 0 && r != -EBADMSG)
                return r;
        if (r == 0 && !f.name && !f.linkage && f.next_unit) {
                u = f.next_unit;
                offset = f.next_offset;
                f = (struct facts){.next_unit = u, .next_offset = offset};
        }
        key = (struct entry_key){offset, u->file->serial};
        hash = hash_u64(key.offset, key.file);
        id = idtable_find(&n->entry_ids, hash, entry_equal, n, &key);
        if (id != IDTABLE_NONE) {
                *ret_id = id;
                return 0;
        }
        r = make_function(n, &f, &e.function);
        if (r < 0)
                return r;
        if (!e.function.language)
                e.function.language = u->language;
        e.offset = offset;
        e.file = u->file->serial;
        return add_entry(n, &e, hash, ret_id);
}

const struct dwarf_function *dwarf_names_get(const struct dwarf_names *n, uint32_t id)
{
        return &n->entry[id].function;
}
