#include "daemon/book.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/idtable.h"
#include "base/log.h"

#define BATCH         1000 /* addresses of one request: a round trip costs as much as some hundred look-ups */
#define MAX_LOCATIONS (1u << 24)
#define KERNEL_ITSELF "[kernel.kallsyms]" /* and none of its modules */

enum source_kind { SOURCE_OBJECT, SOURCE_KERNEL, SOURCE_JIT, SOURCE_NOTE };

/* Where locations are: an object, a kernel module, the JIT code of one process. */
struct source {
        enum source_kind kind;
        struct object *object; /* SOURCE_OBJECT */
        struct symobj *jit;    /* SOURCE_JIT; NULL: not asked for, or there was none when asked */
        bool jit_ready;
        uint32_t pid;
        uint64_t start_ns;
        uint32_t name;     /* string: the mapping's file */
        uint32_t *waiting; /* locations to be sent for */
        uint32_t n_waiting, cap_waiting;
};

struct location {
        uint64_t address;
        uint32_t source;
        uint32_t first_frame;
        uint16_t n_frames; /* 0: no name */
        bool named;        /* the answer is there, whatever it is */
};

struct frame {
        uint32_t function, linkage, file; /* strings */
        uint32_t line, function_line;
};

struct book {
        uint32_t refs;
        struct tracker *tracker;
        struct symclient *symbols;
        const struct kernel_symbols *kernel;
        const struct kernel_debug *kernel_debug; /* NULL: the kernel is named by its symbols alone */

        char *text;
        uint32_t n_text, cap_text;
        uint32_t *string; /* index -> offset in text */
        uint32_t n_strings, cap_strings;
        struct idtable strings;

        struct source *source;
        uint32_t n_sources, cap_sources;
        struct idtable sources;

        struct location *location;
        uint32_t n_locations, cap_locations;
        struct idtable locations;

        struct frame *frame;
        uint32_t n_frames, cap_frames;

        uint32_t unnamed;
        bool poor;
};

/* A batch of locations whose names were asked for. */
struct request {
        struct book *book;
        uint32_t n;
        uint32_t location[];
};

struct jit_request {
        struct book *book;
        uint32_t source;
};

/* -- strings -- */

static bool string_equal(const void *ctx, uint32_t id, const void *key)
{
        const struct book *b = ctx;

        return !strcmp(b->text + b->string[id], key);
}

static uint64_t string_hash(const void *ctx, uint32_t id)
{
        const struct book *b = ctx;
        const char *s = b->text + b->string[id];

        return hash_bytes(s, strlen(s));
}

int64_t book_string(struct book *b, const char *s)
{
        size_t n = strlen(s) + 1;
        uint64_t hash = hash_bytes(s, n - 1);
        uint32_t id = idtable_find(&b->strings, hash, string_equal, b, s);

        if (id != IDTABLE_NONE)
                return id;
        if (n > UINT32_MAX / 2 - b->n_text)
                return -ENOMEM;
        if (ARRAY_ROOM(b->text, b->cap_text, b->n_text + (uint64_t)n) < 0 ||
            ARRAY_ROOM(b->string, b->cap_strings, b->n_strings + 1) < 0)
                return -ENOMEM;
        id = b->n_strings;
        b->string[id] = b->n_text;
        memcpy(b->text + b->n_text, s, n);
        if (idtable_add(&b->strings, hash, id, string_hash, b) < 0)
                return -ENOMEM;
        b->n_text += (uint32_t)n;
        b->n_strings++;
        return id;
}

const char *book_text(const struct book *b, uint32_t string)
{
        return b->text + b->string[string];
}

/* -- sources -- */

static uint64_t source_key_hash(const struct source *s)
{
        switch (s->kind) {
        case SOURCE_OBJECT:
                return hash_u64((uintptr_t)s->object, 1);
        case SOURCE_JIT:
                return hash_u64(s->pid, s->start_ns + 2);
        default:
                return hash_u64(s->name, s->kind);
        }
}

static bool source_equal(const void *ctx, uint32_t id, const void *key)
{
        const struct book *b = ctx;
        const struct source *a = &b->source[id], *k = key;

        if (a->kind != k->kind)
                return false;
        switch (k->kind) {
        case SOURCE_OBJECT:
                return a->object == k->object;
        case SOURCE_JIT:
                return a->pid == k->pid && a->start_ns == k->start_ns;
        default:
                return a->name == k->name;
        }
}

static uint64_t source_hash(const void *ctx, uint32_t id)
{
        const struct book *b = ctx;

        return source_key_hash(&b->source[id]);
}

static int64_t find_source(struct book *b, const struct source *key)
{
        uint64_t hash = source_key_hash(key);
        uint32_t id = idtable_find(&b->sources, hash, source_equal, b, key);

        if (id != IDTABLE_NONE)
                return id;
        if (ARRAY_ROOM(b->source, b->cap_sources, b->n_sources + 1) < 0)
                return -ENOMEM;
        id = b->n_sources;
        b->source[id] = *key;
        if (idtable_add(&b->sources, hash, id, source_hash, b) < 0)
                return -ENOMEM;
        b->n_sources++;
        if (key->kind == SOURCE_OBJECT)
                object_ref(key->object);
        return id;
}

/* -- locations -- */

static uint64_t location_key_hash(uint32_t source, uint64_t address)
{
        return hash_u64(address, source + 1ull);
}

static bool location_equal(const void *ctx, uint32_t id, const void *key)
{
        const struct book *b = ctx;
        const struct location *k = key;

        return b->location[id].address == k->address && b->location[id].source == k->source;
}

static uint64_t location_hash(const void *ctx, uint32_t id)
{
        const struct book *b = ctx;

        return location_key_hash(b->location[id].source, b->location[id].address);
}

/* Finds or adds; `*added` tells which. */
static int64_t find_location(struct book *b, uint32_t source, uint64_t address, bool *added)
{
        struct location key = {.address = address, .source = source};
        uint64_t hash = location_key_hash(source, address);
        uint32_t id = idtable_find(&b->locations, hash, location_equal, b, &key);

        *added = false;
        if (id != IDTABLE_NONE)
                return id;
        if (b->n_locations >= MAX_LOCATIONS ||
            ARRAY_ROOM(b->location, b->cap_locations, b->n_locations + 1) < 0)
                return -ENOMEM;
        id = b->n_locations;
        b->location[id] = key;
        if (idtable_add(&b->locations, hash, id, location_hash, b) < 0)
                return -ENOMEM;
        b->n_locations++;
        b->unnamed++;
        *added = true;
        return id;
}

static void set_named(struct book *b, uint32_t location)
{
        if (!b->location[location].named) {
                b->location[location].named = true;
                b->unnamed--;
        }
}

static int64_t add_string_or_empty(struct book *b, const char *s)
{
        return book_string(b, s ? s : "");
}

static int add_frame(struct book *b, uint32_t location, const struct sym_frame *f)
{
        int64_t function = add_string_or_empty(b, f->function), linkage = add_string_or_empty(b, f->linkage),
                file = add_string_or_empty(b, f->file);
        struct location *l = &b->location[location];

        if (function < 0 || linkage < 0 || file < 0 ||
            ARRAY_ROOM(b->frame, b->cap_frames, b->n_frames + 1) < 0)
                return -ENOMEM;
        if (l->n_frames == 0)
                l->first_frame = b->n_frames;
        b->frame[b->n_frames++] = (struct frame){
                        .function = (uint32_t)function,
                        .linkage = (uint32_t)linkage,
                        .file = (uint32_t)file,
                        .line = f->line,
                        .function_line = f->function_line,
        };
        l->n_frames++;
        return 0;
}

static int wait_for_name(struct book *b, uint32_t source, uint32_t location)
{
        struct source *s = &b->source[source];

        if (ARRAY_ROOM(s->waiting, s->cap_waiting, s->n_waiting + 1) < 0)
                return -ENOMEM;
        s->waiting[s->n_waiting++] = location;
        return 0;
}

int64_t book_user_frame(struct book *b, const struct abi_key *key, uint64_t frame)
{
        uint32_t object_id = ABI_FRAME_OBJECT(frame);
        struct source s = {0};
        bool added;

        if (frame == ABI_FRAME_FOLDED)
                return book_note(b, "[... recursion left out ...]");
        if (object_id) {
                s.kind = SOURCE_OBJECT;
                s.object = tracker_object(b->tracker, object_id);
                if (!s.object)
                        return book_note(b, "[unknown object]");
        } else {
                s.kind = SOURCE_JIT;
                s.pid = key->tgid;
                s.start_ns = key->start_ns;
        }
        int64_t source = find_source(b, &s);
        if (source < 0)
                return source;
        int64_t id = find_location(b, (uint32_t)source, ABI_FRAME_ADDRESS(frame), &added);
        if (id >= 0 && added && wait_for_name(b, (uint32_t)source, (uint32_t)id) < 0)
                return -ENOMEM;
        return id;
}

int64_t book_kernel_address(struct book *b, uint64_t address)
{
        struct kernel_symbol symbol = {.module = KERNEL_ITSELF};
        bool known = b->kernel && kernel_symbols_find(b->kernel, address, &symbol), added;
        int64_t name = book_string(b, symbol.module);
        uint64_t slide;

        if (name < 0)
                return name;
        int64_t source = find_source(b, &(struct source){.kind = SOURCE_KERNEL, .name = (uint32_t)name});
        if (source < 0)
                return source;
        int64_t id = find_location(b, (uint32_t)source, address, &added);
        if (id < 0 || !added)
                return id;
        if (known && add_frame(b, (uint32_t)id, &(struct sym_frame){.function = symbol.name}) < 0)
                return -ENOMEM;
        if (strcmp(symbol.module, KERNEL_ITSELF) != 0 || !kernel_debug_object(b->kernel_debug, &slide))
                set_named(b, (uint32_t)id);
        else if (wait_for_name(b, (uint32_t)source, (uint32_t)id) < 0)
                return -ENOMEM;
        return id;
}

int64_t book_note(struct book *b, const char *text)
{
        int64_t name = book_string(b, text);
        bool added;

        if (name < 0)
                return name;
        int64_t source = find_source(b, &(struct source){.kind = SOURCE_NOTE, .name = (uint32_t)name});
        if (source < 0)
                return source;
        int64_t id = find_location(b, (uint32_t)source, 0, &added);
        if (id < 0 || !added)
                return id;
        if (add_frame(b, (uint32_t)id, &(struct sym_frame){.function = text}) < 0)
                return -ENOMEM;
        set_named(b, (uint32_t)id);
        return id;
}

/* -- names -- */

static void on_names(void *ctx, int err, const struct sym_result *results, uint32_t n)
{
        struct request *r = ctx;

        r->book->poor |= err == -ECHILD || err == -ENOMEM;
        for (uint32_t i = 0; i < r->n; i++) {
                if (err >= 0 && i < n && results[i].n > 0)
                        r->book->location[r->location[i]].n_frames = 0; /* the kernel's symbol goes */
                for (uint32_t k = 0; err >= 0 && i < n && k < results[i].n; k++)
                        if (add_frame(r->book, r->location[i], &results[i].frame[k]) < 0)
                                break; /* without memory it stays without a name */
                set_named(r->book, r->location[i]);
        }
        book_unref(r->book);
        free(r);
}

static void give_up(struct book *b, struct source *s)
{
        for (uint32_t i = 0; i < s->n_waiting; i++)
                set_named(b, s->waiting[i]);
        s->n_waiting = 0;
}

static int ask_batch(struct book *b, struct symobj *symbols, uint64_t slide, const uint32_t *locations,
                     uint32_t n)
{
        uint64_t address[BATCH];
        struct request *r = malloc(sizeof(*r) + n * sizeof(r->location[0]));

        if (!r)
                return -ENOMEM;
        r->n = n;
        memcpy(r->location, locations, n * sizeof(r->location[0]));
        for (uint32_t i = 0; i < n; i++)
                address[i] = b->location[locations[i]].address - slide;
        r->book = book_ref(b);
        int err = symclient_names(b->symbols, symbols, address, n, on_names, r);
        if (err < 0) {
                book_unref(r->book);
                free(r);
        }
        return err;
}

/* slide: what addresses in the process are above those in the object. */
static int ask(struct book *b, uint32_t source, struct symobj *symbols, uint64_t slide)
{
        uint32_t n;

        for (uint32_t first = 0; first < b->source[source].n_waiting; first += n) {
                n = MIN_OF(b->source[source].n_waiting - first, (uint32_t)BATCH);
                int r = ask_batch(b, symbols, slide, b->source[source].waiting + first, n);
                if (r < 0)
                        return r;
        }
        b->source[source].n_waiting = 0;
        return 0;
}

static void on_jit(void *ctx, int err, struct symobj *obj, const struct sym_info *info)
{
        struct jit_request *r = ctx;
        struct source *s = &r->book->source[r->source];

        s->jit_ready = err >= 0;
        if (err < 0) {
                /* A runtime may begin its map later: the next new address asks again. */
                symobj_close(r->book->symbols, TAKE_PTR(s->jit));
                give_up(r->book, s);
        } else if (ask(r->book, r->source, s->jit, 0) < 0)
                give_up(r->book, s);
        book_unref(r->book);
        free(r);
}

static int ask_jit(struct book *b, uint32_t source)
{
        struct source *s = &b->source[source];

        if (s->jit_ready)
                return ask(b, source, s->jit, 0);
        if (s->jit)
                return 0; /* the answer will come */
        const struct process *p = tracker_process(b->tracker, s->pid, s->start_ns);
        struct jit_request *r = malloc(sizeof(*r));
        if (!r)
                return -ENOMEM;
        *r = (struct jit_request){.book = book_ref(b), .source = source};
        struct symobj *jit = symclient_open_jit(b->symbols, s->pid, p ? p->ns_pid : 0, on_jit, r);
        if (!jit) {
                book_unref(b);
                free(r);
                give_up(b, s);
                return 0;
        }
        b->source[source].jit = jit;
        return 0;
}

static int ask_kernel(struct book *b, uint32_t source)
{
        uint64_t slide = 0;
        struct symobj *vmlinux = kernel_debug_object(b->kernel_debug, &slide);

        return ask(b, source, vmlinux, slide);
}

int book_request_names(struct book *b)
{
        int err = 0;

        for (uint32_t i = 0; i < b->n_sources && err >= 0; i++) {
                struct source *s = &b->source[i];
                if (!s->n_waiting)
                        continue;
                if (s->kind == SOURCE_JIT)
                        err = ask_jit(b, i);
                else if (s->kind == SOURCE_KERNEL)
                        err = ask_kernel(b, i);
                else if (s->object->symbols && symobj_info(s->object->symbols))
                        err = ask(b, i, s->object->symbols, 0);
                else if (s->object->address_is_offset || s->object->error)
                        give_up(b, s);
        }
        return err;
}

uint32_t book_unnamed(const struct book *b)
{
        return b->unnamed;
}

bool book_is_poor(const struct book *b)
{
        return b->poor;
}

/* -- export -- */

static const char *base_name(const char *path)
{
        const char *slash = strrchr(path, '/');

        return slash && slash[1] ? slash + 1 : path;
}

static int64_t export_object_mapping(const struct object *o, struct profile *p)
{
        char hex[BUILD_ID_TEXT_MAX];

        build_id_text(o->build_id, o->build_id_len, hex);
        int64_t file = profile_string(p, o->path), build_id = profile_string(p, hex);
        if (file < 0 || build_id < 0)
                return -ENOMEM;
        return profile_mapping(p, &(struct profile_mapping){
                                                  .start = o->text_start,
                                                  .limit = o->text_end,
                                                  .offset = o->text_offset,
                                                  .file = (uint32_t)file,
                                                  .build_id = (uint32_t)build_id,
                                                  .has_functions = true,
                                                  .has_filenames = true,
                                                  .has_lines = true,
                                                  .has_inline = true,
                                  });
}

static int64_t export_named_mapping(const char *name, struct profile *p)
{
        int64_t file = profile_string(p, name);

        if (file < 0)
                return file;
        return profile_mapping(p, &(struct profile_mapping){.file = (uint32_t)file, .has_functions = true});
}

static int64_t export_function(struct profile *p, const char *name, const char *linkage, const char *file,
                               uint32_t line)
{
        int64_t n = profile_string(p, name), l = profile_string(p, *linkage ? linkage : name),
                f = profile_string(p, file);

        if (n < 0 || l < 0 || f < 0)
                return -ENOMEM;
        return profile_function(p, &(struct profile_function){.name = (uint32_t)n,
                                                              .system_name = (uint32_t)l,
                                                              .file = (uint32_t)f,
                                                              .start_line = line});
}

/* What has no name is shown as object+0xoffset, in every reader. */
static int64_t export_unnamed(struct book *b, const struct location *l, int64_t mapping, const char *object,
                              uint64_t offset, struct profile *p)
{
        char name[512];

        snprintf(name, sizeof(name), "%s+0x%" PRIx64, base_name(object), offset);
        int64_t function = export_function(p, name, "", "", 0);
        if (function < 0)
                return function;
        return profile_location(p, (uint32_t)mapping, l->address,
                                &(struct profile_line){.function = (uint32_t)function}, 1);
}

static int64_t export_chain(struct book *b, const struct location *l, int64_t mapping, uint64_t address,
                            struct profile *p)
{
        struct profile_line line[SYM_MAX_INLINE];
        uint32_t n = MIN_OF(l->n_frames, (uint32_t)SYM_MAX_INLINE);

        for (uint32_t i = 0; i < n; i++) {
                const struct frame *f = &b->frame[l->first_frame + i];
                int64_t function = export_function(p, book_text(b, f->function), book_text(b, f->linkage),
                                                   book_text(b, f->file), f->function_line);
                if (function < 0)
                        return function;
                line[i] = (struct profile_line){.function = (uint32_t)function, .line = f->line};
        }
        return profile_location(p, (uint32_t)mapping, address, line, n);
}

/* Where the kernel was put at boot (KASLR) is nobody's business, and differs between hosts: kernel locations
 * are at their offset in the function. */
static uint64_t kernel_offset(struct book *b, uint64_t address)
{
        struct kernel_symbol symbol;

        return b->kernel && kernel_symbols_find(b->kernel, address, &symbol) ? symbol.offset : 0;
}

int64_t book_export(struct book *b, uint32_t location, struct profile *p, bool *unknown)
{
        const struct location *l = &b->location[location];
        const struct source *s = &b->source[l->source];
        const char *name = NULL;
        uint64_t start = 0;
        int64_t mapping = 0;

        *unknown = l->n_frames == 0;
        switch (s->kind) {
        case SOURCE_NOTE:
                return export_chain(b, l, 0, 0, p);
        case SOURCE_OBJECT:
                mapping = export_object_mapping(s->object, p);
                name = s->object->path;
                break;
        case SOURCE_KERNEL:
                name = book_text(b, s->name);
                mapping = export_named_mapping(name, p);
                break;
        case SOURCE_JIT:
                name = tracker_mapping_name(b->tracker, s->pid, l->address, &start);
                name = name && *name ? name : "[anonymous]";
                mapping = export_named_mapping(name, p);
                break;
        }
        if (mapping < 0)
                return mapping;
        if (*unknown)
                return export_unnamed(b, l, mapping, name, l->address - start, p);
        return export_chain(b, l, mapping,
                            s->kind == SOURCE_KERNEL ? kernel_offset(b, l->address) : l->address, p);
}

uint64_t book_memory(const struct book *b)
{
        return b->cap_text + b->cap_strings * sizeof(*b->string) + b->cap_sources * sizeof(*b->source) +
               b->cap_locations * sizeof(*b->location) + b->cap_frames * sizeof(*b->frame) +
               ((uint64_t)b->strings.mask + b->locations.mask) * sizeof(struct idtable_slot);
}

int book_new(struct book **ret, struct tracker *tracker, struct symclient *symbols,
             const struct kernel_symbols *kernel, const struct kernel_debug *kernel_debug)
{
        struct book *b = calloc(1, sizeof(*b));

        if (!b)
                return -ENOMEM;
        *b = (struct book){.refs = 1,
                           .tracker = tracker,
                           .symbols = symbols,
                           .kernel = kernel,
                           .kernel_debug = kernel_debug};
        if (book_string(b, "") < 0) {
                book_unref(b);
                return -ENOMEM;
        }
        *ret = b;
        return 0;
}

struct book *book_ref(struct book *b)
{
        b->refs++;
        return b;
}

struct book *book_unref(struct book *b)
{
        if (!b || --b->refs > 0)
                return NULL;
        for (uint32_t i = 0; i < b->n_sources; i++) {
                free(b->source[i].waiting);
                if (b->source[i].kind == SOURCE_OBJECT)
                        object_unref(b->source[i].object);
                symobj_close(b->symbols, b->source[i].jit);
        }
        free(b->source);
        free(b->text);
        free(b->string);
        free(b->location);
        free(b->frame);
        idtable_free(&b->strings);
        idtable_free(&b->sources);
        idtable_free(&b->locations);
        free(b);
        return NULL;
}
