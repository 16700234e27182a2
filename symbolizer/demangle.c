#include "symbolizer/demangle.h"

#include <libiberty/demangle.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
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

/* -- D -- */

/* As deep as a parser of such a name can go, on a stack of 8 MiB by far. */
#define MAX_D_LINKAGE 8192

/* Steps of the parser, of which a hundred million take a second: 10 ms. */
#define MAX_D_COST 1000000

/* At most how much text a reference ("Q" and a distance back in base 26, upper case digits but for the last;
 * https://dlang.org/spec/abi.html, "Back references") at `at` stands for: an identifier, or a type that ends
 * before the reference does. cost[i]: of what stands before i. */
static uint64_t reference_cost(const char *name, size_t at, const uint64_t *cost)
{
        size_t distance = 0, i = at + 1;

        while (name[i] >= 'A' && name[i] <= 'Z' && distance <= at)
                distance = distance * 26 + (size_t)(name[i++] - 'A');
        if (name[i] < 'a' || name[i] > 'z')
                return 0;
        distance = distance * 26 + (size_t)(name[i] - 'a');
        if (distance == 0 || distance > at)
                return 0;
        if (name[at - distance] >= '0' && name[at - distance] <= '9')
                return strtoul(name + at - distance, NULL, 10) % MAX_D_LINKAGE;
        return cost[at] - cost[at - distance];
}

/* Types refer to types that refer to types: a name may stand for a text that doubles with every reference.
 */
static bool is_cheap(const char *name, size_t n)
{
        uint64_t cost[MAX_D_LINKAGE];

        cost[0] = 0;
        for (size_t i = 0; i < n; i++) {
                cost[i + 1] = cost[i] + 1 + (name[i] == 'Q' ? reference_cost(name, i, cost) : 0);
                if (cost[i + 1] > MAX_D_COST)
                        return false;
        }
        return true;
}

/* What a compiler has put behind the name (".part.0") stays as it is. */
static bool demangle_d(const char *name, char *out)
{
        size_t n = strcspn(name, "."), len;
        char part[MAX_D_LINKAGE], *text;

        if (n >= MAX_D_LINKAGE)
                return false;
        memcpy(part, name, n);
        part[n] = 0;
        text = is_cheap(part, n) ? dlang_demangle(part, 0) : NULL;
        if (!text)
                return false;
        len = strlen(text);
        if (len + strlen(name + n) < DEMANGLE_MAX) {
                strcpy(stpcpy(out, text), name + n);
        } else {
                len = len < DEMANGLE_MAX - 4 ? len : DEMANGLE_MAX - 4;
                memcpy(out, text, len);
                strcpy(out + len, "...");
        }
        free(text);
        return true;
}

static bool demangle_any(const char *linkage, char *ret)
{
        const char *end;

        if (linkage[0] != '_')
                return false;
        switch (linkage[1]) {
        case 'D':
                return demangle_d(linkage, ret);
        case 'R':
                return demangle_rust(linkage, strchrnul(linkage, '.'), ret);
        case 'Z':
                end = linkage[2] == 'N' ? legacy_end(linkage) : NULL;
                if (end && demangle_rust(linkage, end, ret))
                        return true;
                return demangle_cxx(linkage, ret);
        default:
                return false;
        }
}

#define STUB_SUFFIX "@plt"

bool demangle(const char *linkage, char ret[DEMANGLE_MAX])
{
        char part[MAX_LINKAGE];
        size_t n = strnlen(linkage, MAX_LINKAGE), suffix = strlen(STUB_SUFFIX);

        if (linkage[0] != '_' || n == MAX_LINKAGE)
                return false;
        if (n < suffix || strcmp(linkage + n - suffix, STUB_SUFFIX) != 0)
                return demangle_any(linkage, ret);
        n -= suffix;
        memcpy(part, linkage, n);
        part[n] = 0;
        if (!demangle_any(part, ret))
                return false;
        n = strlen(ret);
        if (n + suffix < DEMANGLE_MAX)
                strcpy(ret + n, STUB_SUFFIX);
        return true;
}
