/* Merging and retention.
 *
 * A merge replaces neighbours (consecutive numbers, one boot, no gap between them, one aligned bucket of
 * time) by one window. Its file is written, synced and renamed while its sources are still there; its
 * comment names them. From the moment of the rename they do not count any more, in this process and in any
 * that opens the directory later, so whether and when they are unlinked makes no difference to what is read.
 * A kill leaves, at each point, either the sources, or the merged window with some of them, never a hole and
 * nothing twice.
 *
 * A merged window is merged again only after its own sources are gone, so a name in a comment is one level
 * deep.
 *
 * Age is measured by a clock that has proved itself: after a jump of more than an hour it is believed once a
 * day of windows was stored under it. Until then the time before the jump goes on, by the windows stored
 * since. A clock that jumps a year ahead therefore deletes nothing, and a laptop that sleeps at night ages a
 * day late at most. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/log.h"
#include "daemon/store_internal.h"
#include "profile/gzip.h"

#define NEIGHBOUR_NS   (2 * NSEC_PER_SEC) /* between windows that follow each other */
#define JUMP_NS        (3600 * NSEC_PER_SEC)
#define TRUST_NS       (86400 * NSEC_PER_SEC)
#define MAX_MERGE_SIZE (64u << 20) /* bytes of files merged into one */
#define FOREVER        UINT64_MAX

static uint64_t thread_cpu_ns(void)
{
        struct timespec t;

        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

/* -- removing what a merge replaced -- */

static struct store_entry *replacement(struct store *s, const struct store_entry *e)
{
        for (uint32_t i = 0; i < s->n_entries; i++)
                if (!s->entry[i]->bad && s->entry[i] != e && s->entry[i]->facts.from &&
                    store_from_has(s->entry[i]->facts.from, e->id))
                        return s->entry[i];
        return NULL;
}

static uint64_t oldest_reader(const struct store *s)
{
        uint64_t ticket = FOREVER;

        for (const struct store_reader *r = s->readers; r; r = r->next)
                ticket = MIN_OF(ticket, r->ticket);
        return ticket;
}

/* Makes sure that a merged window found in the directory is whole before anything is removed for it.
 * Releases and takes `lock`: entries may change. */
static int verify(struct store *s, const struct store_entry *m)
{
        _cleanup_profile_ struct profile *p = NULL;
        _cleanup_close_ int dir_fd = fcntl(s->dir_fd, F_DUPFD_CLOEXEC, 0);
        char id[STORE_ID_SIZE];
        const char *why;

        memcpy(id, m->id, sizeof(id));
        pthread_mutex_unlock(&s->lock);
        int r = store_read_window(dir_fd, id, &p, &why);
        pthread_mutex_lock(&s->lock);
        struct store_entry *e = index_find(s, id);
        if (e && r == 0)
                e->verified = true;
        else if (e && r == -EBADMSG)
                index_bad(s, e, why ? why : "damaged");
        return r == -EBADMSG || r == -ENOENT ? 0 : r;
}

static struct store_entry *next_replaced(struct store *s)
{
        uint64_t reader = oldest_reader(s);

        for (uint32_t i = 0; i < s->n_entries; i++)
                if (s->entry[i]->replaced && s->entry[i]->replaced_at < reader)
                        return s->entry[i];
        return NULL;
}

static int remove_replaced(struct store *s)
{
        struct store_entry *e;
        bool removed = false;
        int r = 0;

        while (r == 0 && (e = next_replaced(s))) {
                struct store_entry *m = replacement(s, e);
                if (m && !m->verified) {
                        r = verify(s, m);
                        continue;
                }
                r = store_unlink(s->dir_fd, e->id);
                if (r == 0) {
                        index_remove(s, e->id);
                        removed = true;
                }
        }
        if (removed)
                fsync(s->dir_fd);
        return r;
}

/* -- merging -- */

struct group {
        struct store_plan windows;
        struct store_facts facts; /* of the window to be */
};

static void group_free(struct group *g)
{
        store_plan_done(&g->windows);
        store_facts_free(&g->facts);
}

/* Whether sources of this merged window are still in the directory. */
static bool has_remains(const struct store *s, const struct store_entry *m)
{
        for (uint32_t i = 0; m->facts.from && i < s->n_entries; i++)
                if (s->entry[i]->replaced && store_from_has(m->facts.from, s->entry[i]->id))
                        return true;
        return false;
}

static bool follows(const struct store_entry *a, const struct store_entry *b)
{
        uint64_t end = entry_end(a), start = b->facts.start_ns;

        return b->facts.first_seq == a->facts.last_seq + 1 &&
               strcmp(a->facts.boot_id, b->facts.boot_id) == 0 && start + NEIGHBOUR_NS >= end &&
               start <= end + NEIGHBOUR_NS;
}

static int fill_group(struct store_entry *const *v, uint32_t n, struct group *g)
{
        _cleanup_buf_ struct buf from = {0};
        struct store_facts *f = &g->facts;

        int r = sums_plan(NULL, v, n, &g->windows);
        if (r < 0)
                return r;
        f->start_ns = v[0]->facts.start_ns;
        f->first_seq = v[0]->facts.first_seq;
        f->last_seq = v[n - 1]->facts.last_seq;
        f->boot_end_ns = v[n - 1]->facts.boot_end_ns;
        memcpy(f->boot_id, v[0]->facts.boot_id, sizeof(f->boot_id));
        for (uint32_t i = 0; i < n; i++) {
                const struct store_facts *w = &v[i]->facts;
                f->duration_ns = MAX_OF(f->duration_ns,
                                        entry_end(v[i]) - MIN_OF(f->start_ns, entry_end(v[i])));
                f->samples += w->samples;
                f->lost += w->lost;
                buf_addf(&from, "%s%s", i ? "," : "", v[i]->id);
        }
        f->from = buf_take(&from);
        return f->from ? 0 : -ENOMEM;
}

/* The first group of one level that is due. 1: found. */
static int find_group(struct store *s, struct store_entry *const *v, uint32_t n, uint32_t level,
                      uint64_t now_ns, struct group *g)
{
        uint64_t width = s->config.merge_ns[level], after = s->config.merge_after_ns[level];

        for (uint32_t i = 0, j; width > 0 && i < n; i = j) {
                uint64_t bucket = v[i]->facts.start_ns / width, size = 0;
                bool remains = false;
                for (j = i; j < n && j - i < STORE_MAX_SOURCES; j++) {
                        if (v[j]->facts.duration_ns >= width || v[j]->apart ||
                            v[j]->facts.start_ns / width != bucket || (j > i && !follows(v[j - 1], v[j])) ||
                            size > MAX_MERGE_SIZE)
                                break;
                        size += (uint64_t)v[j]->disk_size;
                        remains = remains || has_remains(s, v[j]);
                }
                if (j == i)
                        j++;
                else if (j - i >= 2 && !remains && (bucket + 1) * width + after <= now_ns &&
                         entry_end(v[j - 1]) + after <= now_ns) {
                        int r = fill_group(v + i, j - i, g);
                        return r < 0 ? r : 1;
                }
        }
        return 0;
}

static int next_group(struct store *s, uint64_t now_ns, struct group *g)
{
        uint32_t n;
        _cleanup_free_ struct store_entry **v = index_in_order(s, &n);
        int r = v ? 0 : -ENOMEM;

        for (uint32_t level = 0; level < STORE_MERGE_LEVELS && r == 0; level++)
                r = find_group(s, v, n, level, now_ns, g);
        return r;
}

/* What is in the merged profile must be what its windows' own facts add up to. */
static int check_sums(const struct group *g, const struct store_facts *merged)
{
        if (merged->samples == g->facts.samples)
                return 0;
        log_error("Store: %s and its %u neighbours hold %" PRIu64 " samples, merged %" PRIu64
                  "; they are left as they are",
                  g->windows.source[0].name, g->windows.n - 1, g->facts.samples, merged->samples);
        return -EBADMSG;
}

static int encode_group(struct store *s, int dir_fd, struct group *g, struct buf *out)
{
        _cleanup_profile_ struct profile *p = NULL;
        _cleanup_facts_ struct store_facts merged = {0};

        int r = store_add_up(s, dir_fd, &g->windows, &(struct store_reading){.strict = true}, &p);
        if (r < 0)
                return r;
        p->time_ns = (int64_t)g->facts.start_ns;
        p->duration_ns = (int64_t)g->facts.duration_ns;
        r = store_facts_from_profile(p, &merged);
        if (r == 0)
                r = check_sums(g, &merged);
        if (r < 0)
                return r;
        return store_facts_encode(p, &g->facts, GZIP_LEVEL_KEPT, out);
}

/* With `lock`: the rename, when all sources are still as they were read. */
static int publish_group(struct store *s, struct group *g, const char *temp)
{
        uint64_t second, seconds;
        char id[STORE_ID_SIZE];

        for (uint32_t i = 0; i < g->windows.n; i++) {
                const struct store_entry *e = index_find(s, g->windows.source[i].name);
                if (!e || !entry_visible(e))
                        return -ESTALE;
        }
        int r = store_id_parse(g->windows.source[0].name, &second, &seconds);
        if (r == 0)
                r = store_id_format(second, MAX_OF(store_seconds(g->facts.duration_ns), seconds + 1), id);
        if (r == 0)
                r = store_publish(s->dir_fd, temp, id);
        if (r == 0)
                r = index_add(s, id, &g->facts, true);
        if (r == 0) {
                index_replaced(s);
                s->merges++;
        }
        return r;
}

/* Their contents, not the disk or the memory, are what does not merge: trying again would not help. */
static void set_apart(struct store *s, const struct group *g)
{
        for (uint32_t i = 0; i < g->windows.n; i++) {
                struct store_entry *e = index_find(s, g->windows.source[i].name);
                if (e)
                        e->apart = true;
        }
}

/* Merges one group. 1: done, look again; 0: nothing is due. */
static int merge_one(struct store *s, uint64_t now_ns)
{
        __attribute__((cleanup(group_free))) struct group g = {0};
        _cleanup_buf_ struct buf b = {0};
        char temp[64];

        int r = next_group(s, now_ns, &g);
        if (r <= 0)
                return r;
        _cleanup_close_ int dir_fd = fcntl(s->dir_fd, F_DUPFD_CLOEXEC, 0);
        if (dir_fd < 0)
                return -errno;
        pthread_mutex_unlock(&s->lock);
        r = encode_group(s, dir_fd, &g, &b);
        int written = r == 0 ? store_write_temp(dir_fd, "merge", g.facts.first_seq, &b, temp) : 0;
        pthread_mutex_lock(&s->lock);
        if (r < 0 && r != -ENOMEM && r != -ENOENT) {
                set_apart(s, &g);
                return 1;
        }
        if (r < 0 || written < 0)
                return r < 0 ? r : written;
        r = publish_group(s, &g, temp);
        if (r < 0)
                unlinkat(s->dir_fd, temp, 0);
        if (r == -EEXIST) { /* a damaged file has the name, and is left alone */
                set_apart(s, &g);
                return 1;
        }
        if (r < 0)
                return r;
        pthread_mutex_unlock(&s->lock);
        store_sync_directory(dir_fd); /* before anything is removed */
        pthread_mutex_lock(&s->lock);
        return 1;
}

/* -- retention -- */

static uint64_t trusted_now(struct store_entry *const *v, uint32_t n, uint64_t now_ns)
{
        uint64_t settled = 0;

        if (n == 0)
                return now_ns;
        if (now_ns > entry_end(v[n - 1]) + JUMP_NS)
                return entry_end(v[n - 1]);
        for (uint32_t i = n - 1; i > 0 && settled < TRUST_NS; i--) {
                uint64_t end = entry_end(v[i - 1]), start = v[i]->facts.start_ns;
                settled += v[i]->facts.duration_ns;
                if (settled < TRUST_NS && (start > end + JUMP_NS || start + JUMP_NS < end))
                        return MIN_OF(now_ns, end + settled);
        }
        return now_ns;
}

static int delete_window(struct store *s, struct store_entry *e)
{
        int r = store_unlink(s->dir_fd, e->id);

        if (r < 0)
                return r;
        s->deleted++;
        index_remove(s, e->id);
        return 0;
}

static int retain(struct store *s, uint64_t now_ns)
{
        uint32_t n, i = 0;
        _cleanup_free_ struct store_entry **v = index_in_order(s, &n);
        uint64_t size = 0;
        int r = 0;

        if (!v)
                return -ENOMEM;
        for (uint32_t k = 0; k < n; k++)
                size += (uint64_t)v[k]->disk_size;
        uint64_t now = trusted_now(v, n, now_ns);
        /* By size the first stored go first: after a clock that was ahead was set right, that is not the
         * same as the oldest by name. The newest stays. */
        for (; s->config.max_size && size > s->config.max_size && i + 1 < n && r == 0; i++) {
                size -= (uint64_t)v[i]->disk_size;
                r = delete_window(s, v[i]);
        }
        for (; s->config.max_age_ns && i < n && r == 0; i++)
                if (entry_end(v[i]) + s->config.max_age_ns < now)
                        r = delete_window(s, v[i]);
        return r;
}

int store_maintain(struct store *s, uint64_t now_ns, uint64_t budget_ns)
{
        uint64_t begin = thread_cpu_ns();

        pthread_mutex_lock(&s->maintain_lock);
        pthread_mutex_lock(&s->lock);
        int r = store_become_writer(s);
        if (r == 0) {
                index_refresh(s);
                r = remove_replaced(s);
                int kept = retain(s, now_ns);
                if (r == 0)
                        r = kept;
        }
        bool more = true;
        while (r == 0 && !s->merge_rests && more) {
                r = merge_one(s, now_ns);
                if (r == 0)
                        r = sums_maintain(s, now_ns);
                if (r == -ESTALE ||
                    r == -ENOENT) /* windows went away meanwhile: the next call sees what is there */
                        r = more = false;
                else if (r == 1)
                        r = remove_replaced(s);
                else
                        more = false;
                if (more && thread_cpu_ns() - begin > budget_ns) {
                        r = 1;
                        break;
                }
        }
        if (r < 0) {
                s->merge_rests = true;
                store_fail(s, "cannot merge or remove windows in", "", r, NULL);
        }
        pthread_mutex_unlock(&s->lock);
        pthread_mutex_unlock(&s->maintain_lock);
        return r;
}
