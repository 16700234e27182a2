#include "daemon/config.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/log.h"
#include "base/parse.h"
#include "symbolizer/client.h"

#define MAX_FILE_SIZE (1u << 20)

/* Where the reader is, for messages. */
struct position {
        const char *file;
        unsigned line;
        char **error;
};

typedef int (*parse_fn)(const char *value, void *target);

static int set_text(const char *value, void *target)
{
        char *copy = strdup(value);

        if (!copy)
                return -ENOMEM;
        free(*(char **)target);
        *(char **)target = copy;
        return 0;
}

static int set_duration(const char *value, void *target)
{
        return parse_duration(value, target);
}

/* A window shorter than a few drains, or longer than a day, serves nobody. */
static int set_window(const char *value, void *target)
{
        uint64_t ns;
        int r = parse_duration(value, &ns);

        if (r < 0)
                return r;
        if (ns < 5 * NSEC_PER_SEC || ns > 3600 * NSEC_PER_SEC)
                return -ERANGE;
        *(uint64_t *)target = ns;
        return 0;
}

static int set_size(const char *value, void *target)
{
        uint64_t size;
        int r = parse_size(value, &size);

        if (r < 0)
                return r;
        if (size < 1 << 20)
                return -ERANGE;
        *(uint64_t *)target = size;
        return 0;
}

static int set_memory(const char *value, void *target)
{
        uint64_t size;
        int r = parse_size(value, &size);

        if (r < 0)
                return r;
        if (size < 32 << 20)
                return -ERANGE;
        *(uint64_t *)target = size;
        return 0;
}

static int set_frequency(const char *value, void *target)
{
        return parse_u64(value, 1, 10000, target);
}

static int set_share(const char *value, void *target)
{
        uint32_t ppm;
        int r = parse_percent(value, &ppm);

        if (r < 0)
                return r;
        if (ppm == 0)
                return -ERANGE;
        *(uint32_t *)target = ppm;
        return 0;
}

static int set_bool(const char *value, void *target)
{
        int r = parse_bool(value);

        if (r < 0)
                return r;
        *(bool *)target = r;
        return 0;
}

/* "10min 1h": two, the second longer. */
static int set_two_durations(const char *value, void *target)
{
        _cleanup_free_ char *copy = strdup(value);
        uint64_t ns[2];
        char *save;

        if (!copy)
                return -ENOMEM;
        for (int i = 0; i < 2; i++) {
                const char *word = strtok_r(i == 0 ? copy : NULL, " \t", &save);
                if (!word)
                        return -EINVAL;
                int r = parse_duration(word, &ns[i]);
                if (r < 0)
                        return r;
        }
        if (strtok_r(NULL, " \t", &save) || ns[1] <= ns[0])
                return -EINVAL;
        memcpy(target, ns, sizeof(ns));
        return 0;
}

static void free_words(char **word, uint32_t n)
{
        for (uint32_t i = 0; i < n; i++) {
                free(word[i]);
                word[i] = NULL;
        }
}

/* 1 to `max` words of `value`, in place of the `*n` there were. */
static int set_words(const char *value, char **word, uint32_t max, uint32_t *n)
{
        _cleanup_free_ char *copy = strdup(value);
        uint32_t n_new = 0;
        char *save;

        if (!copy)
                return -ENOMEM;
        for (const char *p = value; *(p += strspn(p, " \t,")); p += strcspn(p, " \t,"))
                if (++n_new > max)
                        return -E2BIG;
        if (n_new == 0)
                return -EINVAL;
        free_words(word, *n);
        *n = 0;
        for (char *w = strtok_r(copy, " \t,", &save); w; w = strtok_r(NULL, " \t,", &save)) {
                word[*n] = strdup(w);
                if (!word[*n])
                        return -ENOMEM;
                ++*n;
        }
        return 0;
}

static int set_events(const char *value, void *target)
{
        struct config *c = target;

        return set_words(value, c->events, ABI_MAX_EVENTS, &c->n_events);
}

static int set_debug_dirs(const char *value, void *target)
{
        struct config *c = target;
        uint32_t n = 0;

        for (const char *p = value; *(p += strspn(p, " \t,")); p += strcspn(p, " \t,"))
                if (*p != '/')
                        return -EINVAL;
        while (c->debug_dirs[n])
                n++;
        return set_words(value, c->debug_dirs, CONFIG_MAX_DEBUG_DIRS, &n);
}

#define FIELD(f) offsetof(struct config, f)

static const struct {
        const char *section, *key;
        parse_fn parse;
        size_t offset;
        const char *expected, *fallback;
} keys[] = {
                {"Sampling", "Events", set_events, 0, "1 to 8 perf event names", "cycles cache-misses"},
                {"Sampling", "Frequency", set_frequency, FIELD(frequency), "a rate in Hz, 1 to 10000", "99"},
                {"Sampling", "Threads", set_bool, FIELD(threads), "yes or no", "no"},
                {"Sampling", "Pin", set_text, FIELD(pin), "a directory in a BPF file system", ""},
                {"Store", "Directory", set_text, FIELD(directory), "a path", "/var/lib/profd"},
                {"Store", "Window", set_window, FIELD(window_ns), "a duration from 5s to 1h", "60s"},
                {"Store", "MaxSize", set_size, FIELD(max_size), "a size of 1M or more, as 512M or 1G", "1G"},
                {"Store", "MaxAge", set_duration, FIELD(max_age_ns), "a duration, as 14d", "14d"},
                {"Store", "Merge", set_two_durations, FIELD(merge_ns), "two rising durations, as 10min 1h",
                 "10min 1h"},
                {"Store", "MergeAfter", set_two_durations, FIELD(merge_after_ns),
                 "two rising durations, as 2h 24h", "2h 24h"},
                {"Api", "Socket", set_text, FIELD(socket), "a path", "/run/profd/profd.sock"},
                {"Api", "Listen", set_text, FIELD(listen), "ADDRESS:PORT", ""},
                {"Api", "TlsCertificate", set_text, FIELD(tls_certificate), "a path", ""},
                {"Api", "TlsKey", set_text, FIELD(tls_key), "a path", ""},
                {"Api", "TokenFile", set_text, FIELD(token_file), "a path", ""},
                {"Api", "ClientCa", set_text, FIELD(client_ca), "a path", ""},
                {"Api", "Group", set_text, FIELD(group), "the name of a group", "profd"},
                {"Symbols", "DebugDirectories", set_debug_dirs, 0, "1 to 8 absolute paths",
                 SYM_DEBUG_DIRECTORIES},
                {"Limits", "Cpu", set_share, FIELD(cpu_ppm), "a share of all CPUs above 0%, as 1%", "1%"},
                {"Limits", "Memory", set_memory, FIELD(memory), "a size of 32M or more", "256M"},
};

static int fail_at(const struct position *at, const char *what, const char *name, const char *value,
                   const char *expected)
{
        if (asprintf(at->error, "%s:%u: %s '%s%s%s'%s%s", at->file, at->line, what, name, value ? "=" : "",
                     value ? value : "", expected ? ": expected " : "", expected ? expected : "") < 0) {
                *at->error = NULL;
                return -ENOMEM;
        }
        return -EINVAL;
}

static int set_key(struct config *c, const struct position *at, const char *section, const char *key,
                   const char *value)
{
        bool known_section = false;

        for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
                if (strcmp(keys[i].section, section) != 0)
                        continue;
                known_section = true;
                if (strcmp(keys[i].key, key) != 0)
                        continue;
                int r = keys[i].parse(*value ? value : keys[i].fallback, (char *)c + keys[i].offset);
                if (r == -ENOMEM)
                        return r;
                if (r < 0)
                        return fail_at(at, "cannot use", key, value, keys[i].expected);
                return 0;
        }
        if (known_section)
                log_warning("%s:%u: unknown key '%s' in section [%s], ignored", at->file, at->line, key,
                            section);
        return 0;
}

static bool is_section(const char *name)
{
        for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
                if (!strcmp(keys[i].section, name))
                        return true;
        return false;
}

static char *strip(char *s)
{
        while (isspace((unsigned char)*s))
                s++;
        char *end = s + strlen(s);
        while (end > s && isspace((unsigned char)end[-1]))
                *--end = 0;
        return s;
}

static int read_line(struct config *c, const struct position *at, char *line, char **section)
{
        char *s = strip(line);

        if (!*s || *s == '#' || *s == ';')
                return 0;
        if (*s == '[') {
                char *end = strchr(s, ']');
                if (!end || end[1])
                        return fail_at(at, "not a section", s, NULL, "[Name]");
                *end = 0;
                *section = s + 1;
                if (!is_section(*section))
                        log_warning("%s:%u: unknown section [%s], ignored", at->file, at->line, *section);
                return 0;
        }
        char *eq = strchr(s, '=');
        if (!eq)
                return fail_at(at, "not a setting", s, NULL, "Key=Value");
        *eq = 0;
        if (!*section)
                return fail_at(at, "no section before", strip(s), NULL, "[Name] first");
        return set_key(c, at, *section, strip(s), strip(eq + 1));
}

static int read_config_file(struct config *c, const char *file, char **error)
{
        _cleanup_buf_ struct buf text = {0};
        struct position at = {.file = file, .error = error};
        char *section = NULL;

        int r = read_file(file, MAX_FILE_SIZE, &text);
        if (r < 0)
                return r;
        if (!text.len)
                return 0;
        for (char *line = text.data; line;) {
                char *end = strchr(line, '\n');
                if (end)
                        *end = 0;
                at.line++;
                r = read_line(c, &at, line, &section);
                if (r < 0)
                        return r;
                line = end ? end + 1 : NULL;
        }
        return 0;
}

static int read_drop_ins(struct config *c, const char *file, char **error)
{
        _cleanup_free_ char *pattern = NULL;
        glob_t found = {0};
        int r = 0;

        if (asprintf(&pattern, "%s.d/*.conf", file) < 0) {
                pattern = NULL;
                return -ENOMEM;
        }
        if (glob(pattern, 0, NULL, &found) == 0)
                for (size_t i = 0; i < found.gl_pathc && r >= 0; i++)
                        r = read_config_file(c, found.gl_pathv[i], error);
        globfree(&found);
        return r;
}

static int set_defaults(struct config *c)
{
        for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
                int r = keys[i].parse(keys[i].fallback, (char *)c + keys[i].offset);
                if (r < 0)
                        return r;
        }
        return 0;
}

/* TCP is served with TLS or not at all, and never to strangers. */
static int check_whole(const struct config *c, const char *file, char **error)
{
        const char *what = NULL;

        if (*c->listen && (!*c->tls_certificate || !*c->tls_key))
                what = "Listen= needs TlsCertificate= and TlsKey=";
        else if (*c->listen && !*c->token_file && !*c->client_ca)
                what = "Listen= needs TokenFile= or ClientCa=: nobody is let in without one";
        else if (c->merge_ns[0] <= c->window_ns || c->merge_ns[1] % c->merge_ns[0])
                what = "Merge= must be wider than Window=, and its second width a multiple of the first";
        if (!what)
                return 0;
        if (asprintf(error, "%s: %s", file, what) < 0) {
                *error = NULL;
                return -ENOMEM;
        }
        return -EINVAL;
}

int config_load(struct config **ret, const char *file, char **ret_error)
{
        struct config *c = calloc(1, sizeof(*c));
        _cleanup_free_ char *error = NULL;
        bool given = file != NULL;
        int r;

        if (!c)
                return -ENOMEM;
        file = given ? file : CONFIG_DEFAULT_FILE;
        r = set_defaults(c);
        if (r >= 0) {
                r = read_config_file(c, file, &error);
                if (r == -ENOENT && !given)
                        r = 0;
        }
        if (r >= 0)
                r = read_drop_ins(c, file, &error);
        if (r >= 0)
                r = check_whole(c, file, &error);
        if (r < 0) {
                config_free(c);
                *ret_error = TAKE_PTR(error);
                return r;
        }
        *ret = c;
        return 0;
}

struct config *config_free(struct config *c)
{
        if (!c)
                return NULL;
        free_words(c->events, c->n_events);
        free_words(c->debug_dirs, CONFIG_MAX_DEBUG_DIRS);
        free(c->directory);
        free(c->pin);
        free(c->socket);
        free(c->listen);
        free(c->tls_certificate);
        free(c->tls_key);
        free(c->token_file);
        free(c->client_ca);
        free(c->group);
        free(c);
        return NULL;
}
