#include "symbolizer/names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "symbolizer/demangle.h"

#define MAX_STRINGS ((size_t)256 << 20) /* bytes */

struct name_string {
        uint32_t offset, length;
        uint32_t demangled; /* string; 0: not a mangled name */
        bool tried;
};

struct encoded_head {
        uint32_t n_results, n_frames, strings, reserved;
};

static bool grow(void **array, uint32_t *cap, uint32_t n, size_t item)
{
        uint32_t want = *cap ? 2 * *cap : 64;
        void *p;

        if (n < *cap)
                return true;
        if (want < *cap)
                return false;
        p = reallocarray(*array, want, item);
        if (!p)
                return false;
        *array = p;
        *cap = want;
        return true;
}

void names_free(struct names *b)
{
        free(b->result);
        free(b->frame);
        free(b->string);
        buf_free(&b->strings);
        idtable_free(&b->interned);
        *b = (struct names){};
}

int names_begin(struct names *b)
{
        if (!grow((void **)&b->result, &b->cap_results, b->n_results, sizeof(*b->result)))
                return -ENOMEM;
        b->result[b->n_results++] = (struct name_result){.first = b->n_frames};
        return 0;
}

struct string_key {
        const char *s;
        size_t n;
};

static bool string_equal(const void *ctx, uint32_t id, const void *key)
{
        const struct names *b = ctx;
        const struct string_key *k = key;

        return b->string[id].length == k->n &&
               memcmp(b->strings.data + b->string[id].offset, k->s, k->n) == 0;
}

static uint64_t string_hash(const void *ctx, uint32_t id)
{
        const struct names *b = ctx;

        return hash_bytes(b->strings.data + b->string[id].offset, b->string[id].length);
}

/* The index in b->string of a text. */
static int64_t intern(struct names *b, const char *s)
{
        struct string_key k = {s, strlen(s)};
        uint64_t hash = hash_bytes(k.s, k.n);
        uint32_t id = idtable_find(&b->interned, hash, string_equal, b, &k);
        int r;

        if (id != IDTABLE_NONE)
                return id;
        if (b->strings.len + k.n + 2 > MAX_STRINGS)
                return -E2BIG;
        if (b->strings.len == 0)
                buf_addc(&b->strings, 0); /* offset 0 is none */

        uint32_t offset = (uint32_t)b->strings.len;

        buf_add(&b->strings, s, k.n + 1);
        if (buf_error(&b->strings) < 0 ||
            !grow((void **)&b->string, &b->cap_strings, b->n_strings, sizeof(*b->string)))
                return -ENOMEM;
        b->string[b->n_strings] = (struct name_string){offset, (uint32_t)k.n, 0, false};
        r = idtable_add(&b->interned, hash, b->n_strings, string_hash, b);
        return r < 0 ? r : (int64_t)b->n_strings++;
}

static int intern_offset(struct names *b, const char *s, uint32_t *ret)
{
        int64_t id;

        *ret = 0;
        if (!s || !*s)
                return 0;
        id = intern(b, s);
        if (id < 0)
                return (int)id;
        *ret = b->string[id].offset;
        return 0;
}

static int intern_function(struct names *b, const char *name, uint32_t *ret_function, uint32_t *ret_linkage)
{
        char text[DEMANGLE_MAX];
        int64_t id;
        int r;

        *ret_function = *ret_linkage = 0;
        if (!name || !*name)
                return 0;
        id = intern(b, name);
        if (id < 0)
                return (int)id;
        if (!b->string[id].tried) {
                uint32_t demangled = 0;

                if (demangle(name, text)) {
                        r = intern_offset(b, text, &demangled);
                        if (r < 0)
                                return r;
                }
                b->string[id].tried = true;
                b->string[id].demangled = demangled;
        }
        *ret_function = b->string[id].offset;
        if (b->string[id].demangled) {
                *ret_linkage = *ret_function;
                *ret_function = b->string[id].demangled;
        }
        return 0;
}

static int add_frame(struct names *b, const struct name_frame *f)
{
        if (!grow((void **)&b->frame, &b->cap_frames, b->n_frames, sizeof(*b->frame)))
                return -ENOMEM;
        b->frame[b->n_frames++] = *f;
        b->result[b->n_results - 1].n++;
        return 0;
}

int names_add_raw(struct names *b, const char *function, const char *file, uint32_t line,
                  uint32_t function_line, bool inlined)
{
        struct name_frame f = {.line = line, .function_line = function_line, .inlined = inlined};
        int r = intern_function(b, function, &f.function, &f.linkage);

        if (r == 0)
                r = intern_offset(b, file, &f.file);
        return r < 0 ? r : add_frame(b, &f);
}

int names_copy(struct names *b, const struct names *from, uint32_t result)
{
        return names_copy_frames(b, from, from->result[result].first, from->result[result].n);
}

int names_copy_frames(struct names *b, const struct names *from, uint32_t first, uint32_t n)
{
        int r = names_begin(b);

        for (uint32_t i = 0; i < n && r == 0; i++) {
                struct name_frame f = from->frame[first + i];
                const char *text = from->strings.data;

                r = intern_offset(b, f.function ? text + f.function : NULL, &f.function);
                if (r == 0)
                        r = intern_offset(b, f.linkage ? text + f.linkage : NULL, &f.linkage);
                if (r == 0)
                        r = intern_offset(b, f.file ? text + f.file : NULL, &f.file);
                if (r == 0)
                        r = add_frame(b, &f);
        }
        return r;
}

int names_encode(const struct names *b, struct buf *out)
{
        struct encoded_head head = {b->n_results, b->n_frames, (uint32_t)b->strings.len, 0};

        buf_add(out, &head, sizeof(head));
        for (uint32_t i = 0; i < b->n_results; i++)
                buf_add(out, &b->result[i].n, sizeof(uint32_t));
        if (b->n_frames > 0)
                buf_add(out, b->frame, (size_t)b->n_frames * sizeof(*b->frame));
        if (b->strings.len > 0)
                buf_add(out, b->strings.data, b->strings.len);
        return buf_error(out);
}

bool names_are_sound(const struct names *b)
{
        if (b->strings.len > 0 && (b->strings.data[0] != 0 || b->strings.data[b->strings.len - 1] != 0))
                return false;
        for (uint32_t i = 0; i < b->n_frames; i++) {
                const struct name_frame *f = &b->frame[i];
                size_t limit = MAX_OF(b->strings.len, (size_t)1);

                if (f->function >= limit || f->linkage >= limit || f->file >= limit || f->inlined > 1)
                        return false;
        }
        return true;
}

int names_decode(const void *data, size_t size, struct names *ret)
{
        _cleanup_names_ struct names b = {};
        struct encoded_head head;
        const char *p = data;
        uint64_t frames = 0;

        if (size < sizeof(head))
                return -EBADMSG;
        memcpy(&head, p, sizeof(head));
        p += sizeof(head);
        if (size - sizeof(head) != (uint64_t)head.n_results * sizeof(uint32_t) +
                                                   (uint64_t)head.n_frames * sizeof(*b.frame) + head.strings)
                return -EBADMSG;
        b.result = calloc((size_t)head.n_results + 1, sizeof(*b.result));
        b.frame = malloc(((size_t)head.n_frames + 1) * sizeof(*b.frame));
        if (!b.result || !b.frame)
                return -ENOMEM;
        b.n_results = b.cap_results = head.n_results;
        b.n_frames = b.cap_frames = head.n_frames;
        for (uint32_t i = 0; i < head.n_results; i++, p += sizeof(uint32_t)) {
                b.result[i].first = (uint32_t)frames;
                memcpy(&b.result[i].n, p, sizeof(uint32_t));
                frames += b.result[i].n;
                if (b.result[i].n > SYM_MAX_INLINE || frames > head.n_frames)
                        return -EBADMSG;
        }
        if (head.n_frames > 0)
                memcpy(b.frame, p, (size_t)head.n_frames * sizeof(*b.frame));
        p += (size_t)head.n_frames * sizeof(*b.frame);
        if (head.strings > 0)
                buf_add(&b.strings, p, head.strings);
        if (buf_error(&b.strings) < 0)
                return -ENOMEM;
        if (frames != head.n_frames || !names_are_sound(&b))
                return -EBADMSG;
        *ret = b;
        b = (struct names){};
        return 0;
}

static const char *text_at(const struct names *b, uint32_t offset)
{
        return offset ? b->strings.data + offset : NULL;
}

void names_frame(const struct names *b, uint32_t frame, struct sym_frame *ret)
{
        const struct name_frame *f = &b->frame[frame];

        *ret = (struct sym_frame){
                        .function = text_at(b, f->function),
                        .linkage = text_at(b, f->linkage),
                        .file = text_at(b, f->file),
                        .line = f->line,
                        .function_line = f->function_line,
                        .inlined = f->inlined,
        };
}
