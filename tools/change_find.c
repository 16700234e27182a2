#include "tools/change_find.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "base/idtable.h"
#include "profile/profile.h"
#include "tools/say.h"
#include "tools/source.h"
#include "tools/windows.h"

#define LASTING 2 /* windows in which a process must be seen to count as one that stays */

/* A build of an object, or a process of a unit: where it was seen. */
struct sighting {
        char *name, *detail; /* path and build ID; unit and NULL */
        int64_t pid;
        uint32_t first, last, n; /* windows */
};

struct finder {
        struct sighting *seen;
        uint32_t n_seen;
        struct idtable table;
        struct windows windows;
        struct changes *changes;
};

static uint64_t sighting_hash_of(const struct sighting *s)
{
        uint64_t h = hash_u64(hash_bytes(s->name, strlen(s->name)), (uint64_t)s->pid);

        return s->detail ? hash_u64(h, hash_bytes(s->detail, strlen(s->detail))) : h;
}

static uint64_t sighting_hash(const void *ctx, uint32_t id)
{
        return sighting_hash_of(&((const struct finder *)ctx)->seen[id]);
}

static bool sighting_equal(const void *ctx, uint32_t id, const void *key)
{
        const struct sighting *a = &((const struct finder *)ctx)->seen[id], *b = key;

        return a->pid == b->pid && !strcmp(a->name, b->name) && !a->detail == !b->detail &&
               (!a->detail || !strcmp(a->detail, b->detail));
}

static int see(struct finder *f, const char *name, const char *detail, int64_t pid, uint32_t window)
{
        struct sighting key = {.name = (char *)name, .detail = (char *)detail, .pid = pid};
        uint64_t hash = sighting_hash_of(&key);
        uint32_t id = idtable_find(&f->table, hash, sighting_equal, f, &key);

        if (id != IDTABLE_NONE) {
                f->seen[id].n += f->seen[id].last != window;
                f->seen[id].last = window;
                return 0;
        }
        if ((f->n_seen & (f->n_seen - 1)) == 0) {
                struct sighting *more =
                                reallocarray(f->seen, f->n_seen ? (size_t)f->n_seen * 2 : 1, sizeof(*more));
                if (!more)
                        return -ENOMEM;
                f->seen = more;
        }
        struct sighting s = {.name = strdup(name),
                             .detail = detail ? strdup(detail) : NULL,
                             .pid = pid,
                             .first = window,
                             .last = window,
                             .n = 1};
        if (!s.name || (detail && !s.detail)) {
                free(s.name);
                return -ENOMEM;
        }
        f->seen[f->n_seen++] = s;
        return idtable_add(&f->table, hash, f->n_seen - 1, sighting_hash, f);
}

/* A mapping is listed in a profile when a sample has a frame in it. */
static int look_at(struct finder *f, const struct profile *p, uint32_t window)
{
        int r = 0;

        for (uint32_t i = 1; i < p->n_mappings && r >= 0; i++) {
                const char *path = p->string[p->mapping[i].file],
                           *build_id = p->string[p->mapping[i].build_id];
                if (path[0] == '/' && *build_id)
                        r = see(f, path, build_id, -1, window);
        }
        for (uint32_t i = 0; i < p->n_label_sets && r >= 0; i++) {
                const char *unit = NULL;
                int64_t pid = -1;
                for (uint32_t l = p->label_set[i].first; l < p->label_set[i].first + p->label_set[i].n;
                     l++) {
                        const char *key = p->string[p->label[l].key];
                        if (!strcmp(key, "unit"))
                                unit = p->string[p->label[l].str];
                        else if (!strcmp(key, "pid"))
                                pid = p->label[l].num;
                }
                if (unit && pid > 0)
                        r = see(f, unit, NULL, pid, window);
        }
        return r;
}

static int look_at_all(struct finder *f, const struct query *q)
{
        for (size_t i = 0; i < f->windows.n; i++) {
                _cleanup_profile_ struct profile *p = NULL;
                if (f->windows.window[i].reason[0])
                        continue;
                int r = windows_profile(q, &f->windows.window[i], &p);
                if (r != STATUS_DONE)
                        return r;
                r = look_at(f, p, (uint32_t)i);
                if (r < 0)
                        return say_failed("cannot go through the windows: %s", strerror(-r));
                f->changes->windows++;
        }
        return STATUS_DONE;
}

static int add_change(struct finder *f, const char *name, bool unit, const char *before, const char *after,
                      uint32_t window)
{
        struct changes *c = f->changes;

        if ((c->n & (c->n - 1)) == 0) {
                struct change *more = reallocarray(c->change, c->n ? c->n * 2 : 1, sizeof(*more));
                if (!more)
                        return -ENOMEM;
                c->change = more;
        }
        struct change change = {
                        .name = strdup(name),
                        .unit = unit,
                        .before = strdup(before),
                        .after = strdup(after),
                        .at_ns = f->windows.window[window].start_ns,
                        .after_ns = f->windows.window[window].end_ns,
                        .from_ns = c->start_ns,
                        .until_ns = c->end_ns,
        };
        c->change[c->n++] = change;
        return change.name && change.before && change.after ? 0 : -ENOMEM;
}

/* -- objects -- */

/* Sightings by name, then by first window. */
static int by_name(const void *a, const void *b)
{
        const struct sighting *x = a, *y = b;
        int c = strcmp(x->name, y->name);

        c = c ? c : (x->detail != NULL) - (y->detail != NULL);
        return c ? c : (x->first > y->first) - (x->first < y->first);
}

static int find_upgrades(struct finder *f, const struct sighting *s, uint32_t n)
{
        for (uint32_t i = 1; i < n; i++) {
                /* Of two builds at once (two containers with a library each) none replaced the other. */
                if (s[i].first <= s[i - 1].first || s[i - 1].last > s[i].first)
                        continue;
                int r = add_change(f, s[i].name, false, s[i - 1].detail, s[i].detail, s[i].first);
                if (r < 0)
                        return r;
        }
        return 0;
}

/* -- units -- */

static int find_restarts(struct finder *f, const struct sighting *s, uint32_t n)
{
        for (uint32_t i = 1; i < n; i++) {
                uint32_t at = s[i].first;
                bool stayed_before = false, outlived = false, stays_after = false;
                if (at == s[i - 1].first) /* one instant, looked at once */
                        continue;
                for (uint32_t k = 0; k < n; k++) {
                        if (s[k].first < at) {
                                stayed_before |= s[k].n >= LASTING;
                                outlived |= s[k].last > at;
                        } else {
                                stays_after |= s[k].n >= LASTING && s[k].first == at;
                        }
                }
                int r = stayed_before && stays_after && !outlived
                                        ? add_change(f, s[i].name, true, "", "", at)
                                        : 0;
                if (r < 0)
                        return r;
        }
        return 0;
}

static int by_time(const void *a, const void *b)
{
        const struct change *x = a, *y = b;

        return x->at_ns != y->at_ns ? x->at_ns > y->at_ns ? 1 : -1 : strcmp(x->name, y->name);
}

/* Each change is compared up to the next one of the same thing. */
static void limit_ranges(struct changes *c)
{
        for (size_t i = 0; i < c->n; i++)
                for (size_t k = i + 1; k < c->n; k++)
                        if (c->change[i].unit == c->change[k].unit &&
                            !strcmp(c->change[i].name, c->change[k].name)) {
                                c->change[i].until_ns = c->change[k].at_ns;
                                c->change[k].from_ns = c->change[i].after_ns;
                                break;
                        }
}

static int find_all(struct finder *f)
{
        int r = 0;

        if (f->n_seen)
                qsort(f->seen, f->n_seen, sizeof(*f->seen), by_name);
        for (uint32_t i = 0, n; i < f->n_seen && r >= 0; i += n) {
                for (n = 1; i + n < f->n_seen && !strcmp(f->seen[i].name, f->seen[i + n].name) &&
                            !f->seen[i].detail == !f->seen[i + n].detail;)
                        n++;
                r = f->seen[i].detail ? find_upgrades(f, f->seen + i, n) : find_restarts(f, f->seen + i, n);
        }
        if (r >= 0 && f->changes->n) {
                qsort(f->changes->change, f->changes->n, sizeof(*f->changes->change), by_time);
                limit_ranges(f->changes);
        }
        return r;
}

static void release(struct finder *f)
{
        for (uint32_t i = 0; i < f->n_seen; i++) {
                free(f->seen[i].name);
                free(f->seen[i].detail);
        }
        free(f->seen);
        idtable_free(&f->table);
        windows_free(&f->windows);
}

int changes_find(const struct query *q, struct changes *ret)
{
        struct changes changes = {0};
        struct finder f = {.changes = &changes};

        int r = windows_read(q, &f.windows);
        if (r != STATUS_DONE)
                return r;
        for (size_t i = 0; i < f.windows.n; i++) {
                if (i == 0)
                        changes.start_ns = f.windows.window[i].start_ns;
                changes.end_ns = MAX_OF(changes.end_ns, f.windows.window[i].end_ns);
        }
        r = look_at_all(&f, q);
        if (r == STATUS_DONE && find_all(&f) < 0)
                r = say_failed("%s", strerror(ENOMEM));
        release(&f);
        if (r == STATUS_DONE)
                *ret = changes;
        else
                changes_free(&changes);
        return r;
}

void changes_free(struct changes *c)
{
        for (size_t i = 0; i < c->n; i++) {
                free(c->change[i].name);
                free(c->change[i].before);
                free(c->change[i].after);
        }
        free(c->change);
        *c = (struct changes){0};
}
