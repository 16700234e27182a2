#include "tools/push_state.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "profile/pprof.h"
#include "tools/say.h"

#define CURSOR      "cursor"
#define SENT_SUFFIX ".pb.gz"
#define CURSOR_MAX  4096
#define KEPT        128 /* windows: two hours of the default width, the oldest go first */

static int path_in(const struct push_state *s, const char *name, char path[PATH_MAX])
{
        int n = snprintf(path, PATH_MAX, "%s/%s", s->directory, name);

        return n < 0 || n >= PATH_MAX ? -ENAMETOOLONG : 0;
}

static int write_whole(const struct push_state *s, const char *name, const void *data, size_t n)
{
        char path[PATH_MAX], temporary[PATH_MAX];

        int r = path_in(s, name, path);
        if (r >= 0)
                r = path_in(s, ".new", temporary);
        return r < 0 ? r : replace_file(path, temporary, 0600, data, n);
}

static void take_line(struct push_state *s, const char *key, const char *value)
{
        const struct {
                const char *key;
                uint64_t *number;
        } numbers[] = {
                        {"since_ns", &s->since_ns}, {"last_seq", &s->last_seq}, {"windows", &s->windows},
                        {"samples", &s->samples},   {"rejected", &s->rejected}, {"refused", &s->refused},
                        {"missed", &s->missed},
        };

        if (!strcmp(key, "after"))
                snprintf(s->after, sizeof(s->after), "%s", value);
        for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
                if (!strcmp(key, numbers[i].key))
                        *numbers[i].number = strtoull(value, NULL, 10);
}

int push_state_read(struct push_state *ret, const char *directory, uint64_t since_ns)
{
        struct push_state s = {.directory = directory, .since_ns = since_ns};
        char path[PATH_MAX], *save = NULL;
        _cleanup_buf_ struct buf text = {0};

        if (mkdir(directory, 0700) < 0 && errno != EEXIST)
                return say_failed("cannot make the directory %s: %s", directory, strerror(errno));
        int r = path_in(&s, CURSOR, path);
        if (r >= 0)
                r = read_file(path, CURSOR_MAX, &text);
        if (r < 0 && r != -ENOENT)
                return say_failed("cannot read %s/" CURSOR ": %s", directory, strerror(-r));
        for (char *line = text.len ? strtok_r(text.data, "\n", &save) : NULL; line;
             line = strtok_r(NULL, "\n", &save)) {
                char *eq = strchr(line, '=');
                if (!eq)
                        return say_failed("%s is damaged; remove it to begin again (--from says where)",
                                          path);
                *eq = 0;
                take_line(&s, line, eq + 1);
        }
        *ret = s;
        return STATUS_DONE;
}

int push_state_write(const struct push_state *s)
{
        _cleanup_buf_ struct buf text = {0};

        buf_addf(&text,
                 "after=%s\nsince_ns=%" PRIu64 "\nlast_seq=%" PRIu64 "\nwindows=%" PRIu64
                 "\nsamples=%" PRIu64 "\nrejected=%" PRIu64 "\nrefused=%" PRIu64 "\nmissed=%" PRIu64 "\n",
                 s->after, s->since_ns, s->last_seq, s->windows, s->samples, s->rejected, s->refused,
                 s->missed);
        int r = buf_error(&text);
        if (r >= 0)
                r = write_whole(s, CURSOR, text.data, text.len);
        return r < 0 ? say_failed("cannot write %s/" CURSOR ": %s", s->directory, strerror(-r))
                     : STATUS_DONE;
}

static int is_kept(const struct dirent *d)
{
        size_t n = strlen(d->d_name), suffix = strlen(SENT_SUFFIX);

        return n > suffix && !strcmp(d->d_name + n - suffix, SENT_SUFFIX);
}

static void free_names(struct dirent **names, int n)
{
        for (int i = 0; i < n; i++)
                free(names[i]);
        free(names);
}

/* Window IDs sort by their time. */
static int forget_old(const struct push_state *s)
{
        struct dirent **names = NULL;
        int n = scandir(s->directory, &names, is_kept, alphasort);

        if (n < 0)
                return -errno;
        for (int i = 0; i + KEPT < n; i++) {
                char path[PATH_MAX];
                if (path_in(s, names[i]->d_name, path) == 0)
                        unlink(path);
        }
        free_names(names, n);
        return 0;
}

int push_state_keep(const struct push_state *s, const char *id, const void *data, size_t n)
{
        char name[PUSH_ID_MAX + sizeof(SENT_SUFFIX)];

        snprintf(name, sizeof(name), "%s%s", id, SENT_SUFFIX);
        int r = write_whole(s, name, data, n);
        if (r >= 0)
                r = forget_old(s);
        return r < 0 ? say_failed("cannot keep %s in %s: %s", id, s->directory, strerror(-r)) : STATUS_DONE;
}

static int subtract(struct profile *p, const struct profile *sent)
{
        _cleanup_profile_ struct profile *negative = NULL;

        int r = profile_new(&negative);
        if (r >= 0)
                r = profile_merge(negative, sent);
        if (r < 0)
                return r;
        for (size_t i = 0; i < (size_t)negative->n_samples * negative->n_types; i++)
                negative->value[i] = -negative->value[i];
        /* the range stays the merged window's */
        negative->time_ns = p->time_ns;
        negative->duration_ns = p->duration_ns;
        return profile_merge(p, negative);
}

int push_state_subtract(const struct push_state *s, struct profile *p)
{
        int64_t begin = p->time_ns, end = p->time_ns + p->duration_ns;
        struct dirent **names = NULL;
        int r = 0, n = scandir(s->directory, &names, is_kept, alphasort);

        if (n < 0)
                return -errno;
        for (int i = 0; i < n && r >= 0; i++) {
                _cleanup_profile_ struct profile *sent = NULL;
                char path[PATH_MAX];
                r = path_in(s, names[i]->d_name, path);
                if (r >= 0)
                        r = pprof_read_file(path, &sent, NULL);
                if (r >= 0 && sent->time_ns >= begin && sent->time_ns + sent->duration_ns <= end)
                        r = subtract(p, sent);
        }
        free_names(names, n);
        return r;
}
