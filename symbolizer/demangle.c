#include "symbolizer/demangle.h"

#include <libiberty/demangle.h>
#include <setjmp.h>
#include <string.h>

/* No name that a compiler makes is longer; a parser's work is at least linear in it. */
#define MAX_LINKAGE 65536

#define LEGACY_HASH 20 /* "17h", 16 digits, "E" */

struct sink {
        char *out;
        size_t len;
        jmp_buf full;
};

static void sink_write(const char *s, size_t n, void *opaque)
{
        struct sink *k = opaque;
        size_t room = DEMANGLE_MAX - 1 - k->len;

        if (n > room) {
                memcpy(k->out + k->len, s, room);
                k->len += room;
                longjmp(k->full, 1);
        }
        memcpy(k->out + k->len, s, n);
        k->len += n;
}

typedef int (*demangler)(const char *, int, demangle_callbackref, void *);

static bool run(demangler f, const char *name, char *out, size_t *ret_len)
{
        struct sink k = {.out = out};

        if (setjmp(k.full)) {
                memcpy(out + DEMANGLE_MAX - 4, "...", 4);
                *ret_len = DEMANGLE_MAX - 1;
                return true;
        }
        if (!f(name, DMGL_PARAMS | DMGL_ANSI, sink_write, &k) || k.len == 0)
                return false;
        out[k.len] = 0;
        *ret_len = k.len;
        return true;
}

/* Where the mangled part of a Rust legacy name ends: after its hash; NULL when it has none. */
static const char *legacy_end(const char *name)
{
        for (const char *p = strstr(name, "17h"); p; p = strstr(p + 1, "17h")) {
                if (strspn(p + 3, "0123456789abcdef") == 16 && p[19] == 'E' && (p[20] == 0 || p[20] == '.'))
                        return p + LEGACY_HASH;
        }
        return NULL;
}

/* Demangles the part before `suffix`, and puts the suffix behind it. */
static bool run_with_suffix(demangler f, const char *name, const char *suffix, const char *before,
                            const char *after, char *out)
{
        char part[MAX_LINKAGE];
        size_t n = (size_t)(suffix - name), len;

        memcpy(part, name, n);
        part[n] = 0;
        if (!run(f, part, out, &len))
                return false;

        size_t more = strlen(before) + strlen(suffix) + strlen(after);

        if (more < DEMANGLE_MAX - len) {
                char *p = stpcpy(out + len, before);

                p = stpcpy(p, suffix);
                strcpy(p, after);
        }
        return true;
}

static bool demangle_rust(const char *name, const char *suffix, char *out)
{
        size_t len;

        if (*suffix == 0)
                return run(rust_demangle_callback, name, out, &len);
        return run_with_suffix(rust_demangle_callback, name, suffix, "", "", out);
}

static bool demangle_cxx(const char *name, char *out)
{
        const char *suffix = strchr(name, '.');
        size_t len;

        if (run(cplus_demangle_v3_callback, name, out, &len))
                return true;
        /* What binutils does not take for a clone: ".0", ".__uniq.1". */
        return suffix && run_with_suffix(cplus_demangle_v3_callback, name, suffix, " [clone ", "]", out);
}

bool demangle(const char *linkage, char ret[DEMANGLE_MAX])
{
        const char *end;

        if (linkage[0] != '_' || (linkage[1] != 'Z' && linkage[1] != 'R') ||
            strnlen(linkage, MAX_LINKAGE) == MAX_LINKAGE)
                return false;
        if (linkage[1] == 'R')
                return demangle_rust(linkage, strchrnul(linkage, '.'), ret);
        end = linkage[2] == 'N' ? legacy_end(linkage) : NULL;
        if (end && demangle_rust(linkage, end, ret))
                return true;
        return demangle_cxx(linkage, ret);
}
