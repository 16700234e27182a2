#include "daemon/store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/log.h"
#include "base/parse.h"
#include "daemon/store_internal.h"
#include "profile/gzip.h"

#define MAX_RESTARTS 8 /* of a query, when windows were merged or found damaged under it */

/* How many seconds past its own a window's name may go to be unique. */
#define MAX_NAME_SHIFT 100000

static void read_boot_id(char ret[STORE_BOOT_ID_SIZE])
{
        _cleanup_buf_ struct buf b = {0};

        ret[0] = 0;
        if (read_file("/proc/sys/kernel/random/boot_id", 64, &b) == 0)
                snprintf(ret, STORE_BOOT_ID_SIZE, "%.36s", buf_text(&b));
}

int store_open(struct store **ret, const struct store_config *config)
{
        struct store *s = calloc(1, sizeof(*s));

        if (!s)
                return -ENOMEM;
        s->dir_fd = -1;
        s->config = *config;
        s->config.directory = strdup(config->directory);
        if (!s->config.directory) {
                free(s);
                return -ENOMEM;
        }
        pthread_mutex_init(&s->lock, NULL);
        pthread_mutex_init(&s->maintain_lock, NULL);
        s->next_seq = 1;
        s->next_ticket = 1;
        s->scan_again = true;
        read_boot_id(s->boot_id);
        if (store_become_writer(s) == 0 && faccessat(s->dir_fd, ".", W_OK, AT_EACCESS) < 0)
                store_fail(s, "cannot write to", "", -errno, NULL);
        index_refresh(s);
        *ret = s;
        return 0;
}

struct store *store_free(struct store *s)
{
        if (!s)
                return NULL;
        if (s->put) {
                uint64_t now = now_realtime_ns();
                gaps_note(s, now, now, gaps_stopped);
        }
        gaps_flush(s);
        index_free(s);
        if (s->dir_fd >= 0)
                close(s->dir_fd);
        pthread_mutex_destroy(&s->lock);
        pthread_mutex_destroy(&s->maintain_lock);
        free((char *)(uintptr_t)s->config.directory);
        free(s);
        return NULL;
}

void store_configure(struct store *s, const struct store_config *config)
{
        pthread_mutex_lock(&s->lock);
        const char *directory = s->config.directory;
        s->config = *config;
        s->config.directory = directory;
        pthread_mutex_unlock(&s->lock);
}

/* -- putting -- */

/* A name for the window, free in the directory; with `lock`. */
static int publish_free_name(struct store *s, const char *temp, const struct store_facts *f, char *ret_id)
{
        uint64_t second = f->start_ns / NSEC_PER_SEC, seconds = store_seconds(f->duration_ns);
        int r = -EEXIST;

        for (uint64_t last = second + MAX_NAME_SHIFT; second < last && r == -EEXIST; second++) {
                if (index_second_taken(s, second))
                        continue;
                r = store_id_format(second, seconds, ret_id);
                if (r == 0)
                        r = store_publish(s->dir_fd, temp, ret_id);
        }
        return r;
}

/* Becomes the writer and takes a number. */
static int begin_put(struct store *s, uint64_t *ret_number, int *ret_dir_fd)
{
        pthread_mutex_lock(&s->lock);
        int r = store_become_writer(s);
        if (r == 0) {
                index_refresh(s); /* names and numbers that came by other hands */
                *ret_dir_fd = fcntl(s->dir_fd, F_DUPFD_CLOEXEC, 0);
                r = *ret_dir_fd < 0 ? -errno : 0;
        }
        *ret_number = s->next_seq++;
        pthread_mutex_unlock(&s->lock);
        return r;
}

static int publish(struct store *s, int dir_fd, const char *temp, struct store_facts *f)
{
        char id[STORE_ID_SIZE];

        pthread_mutex_lock(&s->lock);
        int r = publish_free_name(s, temp, f, id);
        if (r == 0)
                r = index_add(s, id, f, true);
        else
                unlinkat(dir_fd, temp, 0);
        pthread_mutex_unlock(&s->lock);
        return r;
}

/* Encodes and writes without the lock: however slow the disk, status and queries do not wait for it. */
static int put_once(struct store *s, const struct profile *p, struct store_facts *f)
{
        _cleanup_close_ int dir_fd = -1;
        _cleanup_buf_ struct buf b = {0};
        char temp[64];
        uint64_t number;

        int r = begin_put(s, &number, &dir_fd);
        f->first_seq = f->last_seq = number;
        if (r == 0)
                r = store_facts_encode(p, f, GZIP_LEVEL, &b);
        if (r == 0)
                r = store_write_temp(dir_fd, "put", number, &b, temp);
        if (r == 0)
                r = publish(s, dir_fd, temp, f);
        if (r == 0)
                store_sync_directory(dir_fd);
        return r;
}

static void note_failure(struct store *s, uint64_t start_ns, uint64_t end_ns, int err)
{
        char range[STORE_ID_SIZE] = "";

        store_id_format(start_ns / NSEC_PER_SEC, store_seconds(end_ns - start_ns), range);
        s->write_errors++;
        store_fail(s, "window not stored:", range, err,
                   err == -ENOSPC ? "make room on that file system, or lower MaxSize=" : NULL);
        gaps_note(s, start_ns, end_ns, gaps_reason(err));
}

int store_put(struct store *s, const struct profile *p)
{
        _cleanup_facts_ struct store_facts f = {0};

        int r = store_facts_from_profile(p, &f);
        if (r < 0)
                return r;
        uint64_t start = f.start_ns, end = f.start_ns + f.duration_ns;
        if (!f.boot_id[0])
                memcpy(f.boot_id, s->boot_id, sizeof(f.boot_id));
        if (!f.boot_end_ns)
                f.boot_end_ns = now_boottime_ns();
        r = put_once(s, p, &f);
        if (r == -ENOENT) { /* the directory was removed: make it again */
                pthread_mutex_lock(&s->lock);
                s->gone = true;
                pthread_mutex_unlock(&s->lock);
                r = put_once(s, p, &f);
        }
        pthread_mutex_lock(&s->lock);
        if (r < 0)
                note_failure(s, start, end, r);
        else {
                s->put = true;
                s->merge_rests = false;
                s->error[0] = 0;
                gaps_flush(s);
        }
        pthread_mutex_unlock(&s->lock);
        return r;
}

/* -- listing -- */

static bool overlaps(const struct store_entry *e, uint64_t since_ns, uint64_t until_ns)
{
        return entry_visible(e) && e->facts.start_ns < until_ns && entry_end(e) > since_ns;
}

static void fill_window(const struct store_entry *e, struct store_window *w)
{
        *w = (struct store_window){
                        .start_ns = e->facts.start_ns,
                        .duration_ns = e->facts.duration_ns,
                        .size = (uint64_t)e->disk_size,
                        .samples = e->facts.samples,
                        .lost = e->facts.lost,
                        .first_seq = e->facts.first_seq,
                        .last_seq = e->facts.last_seq,
        };
        memcpy(w->id, e->id, sizeof(w->id));
}

static int compare_windows_by_start(const void *a, const void *b)
{
        const struct store_window *x = a, *y = b;

        if (x->start_ns != y->start_ns)
                return x->start_ns < y->start_ns ? -1 : 1;
        return strcmp(x->id, y->id);
}

int store_list(struct store *s, uint64_t since_ns, uint64_t until_ns, struct store_window **ret,
               uint32_t *ret_n)
{
        uint32_t n = 0;

        pthread_mutex_lock(&s->lock);
        index_refresh(s);
        struct store_window *v = calloc(s->n_entries + 1, sizeof(*v));
        for (uint32_t i = 0; v && i < s->n_entries; i++)
                if (overlaps(s->entry[i], since_ns, until_ns))
                        fill_window(s->entry[i], &v[n++]);
        pthread_mutex_unlock(&s->lock);
        if (!v)
                return -ENOMEM;
        qsort(v, n, sizeof(*v), compare_windows_by_start);
        *ret = v;
        *ret_n = n;
        return 0;
}

static int compare_windows_by_seq(const void *a, const void *b)
{
        const struct store_window *x = a, *y = b;

        if (x->first_seq != y->first_seq)
                return x->first_seq < y->first_seq ? -1 : 1;
        return strcmp(x->id, y->id);
}

/* Where a window that is not there any more stood: the windows stored up to and with it. */
static uint64_t seq_by_time(const struct store *s, uint64_t start_ns, const char *id)
{
        uint64_t seq = 0;

        for (uint32_t i = 0; i < s->n_entries; i++) {
                const struct store_facts *f = &s->entry[i]->facts;
                if (!entry_visible(s->entry[i]))
                        continue;
                if (f->from && store_from_has(f->from, id))
                        return f->first_seq; /* merged: at least the first of it was stored with the one
                                                named */
                if (f->start_ns + f->duration_ns <= start_ns)
                        seq = MAX_OF(seq, f->last_seq);
                else if (f->start_ns <= start_ns) /* merged more than once: it is somewhere in this one */
                        seq = MAX_OF(seq, f->first_seq);
        }
        return seq;
}

int store_after(struct store *s, const char *id, uint32_t max, struct store_window **ret, uint32_t *ret_n)
{
        uint64_t start_s = 0, seconds, seq = 0;
        uint32_t n = 0;

        if (id && store_id_parse(id, &start_s, &seconds) < 0)
                return -EINVAL;
        pthread_mutex_lock(&s->lock);
        index_refresh(s);
        struct store_window *v = calloc(s->n_entries + 1, sizeof(*v));
        if (v && id) {
                const struct store_entry *e = index_find(s, id);
                seq = e && !e->bad && e->ours ? e->facts.last_seq
                                              : seq_by_time(s, start_s * NSEC_PER_SEC, id);
        }
        for (uint32_t i = 0; v && i < s->n_entries; i++) {
                const struct store_entry *e = s->entry[i];
                if (!entry_visible(e) || !e->ours || e->facts.last_seq <= seq)
                        continue;
                fill_window(e, &v[n]);
                v[n++].overlaps = e->facts.first_seq <= seq;
        }
        pthread_mutex_unlock(&s->lock);
        if (!v)
                return -ENOMEM;
        qsort(v, n, sizeof(*v), compare_windows_by_seq);
        *ret = v;
        *ret_n = MIN_OF(n, max);
        return 0;
}

int store_open_window(struct store *s, const char *id)
{
        uint64_t start, seconds;
        char name[64];
        int fd = -ENOENT;

        if (store_id_parse(id, &start, &seconds) < 0)
                return -ENOENT;
        pthread_mutex_lock(&s->lock);
        index_refresh(s);
        const struct store_entry *e = index_find(s, id);
        if (e && !e->bad) {
                snprintf(name, sizeof(name), "%s" STORE_SUFFIX, e->id);
                fd = openat(s->dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
                if (fd < 0)
                        fd = -errno;
        }
        pthread_mutex_unlock(&s->lock);
        return fd;
}

/* -- querying -- */

static bool selects_all(const struct selection *sel)
{
        return !sel || (!sel->event && sel->pid < 0 && !sel->comm && !sel->thread_name && !sel->unit &&
                        !sel->container && !sel->user && sel->side == SELECT_BOTH);
}

static int add_window(struct profile *into, const struct profile *p, const struct selection *sel)
{
        _cleanup_profile_ struct profile *selected = NULL;

        if (selects_all(sel))
                return profile_merge(into, p);
        int r = selection_apply(sel, p, &selected);
        if (r == -ENOENT) /* the event was not sampled then */
                return 0;
        return r < 0 ? r : profile_merge(into, selected);
}

/* A window that could not be read. 1: pass over it; -EAGAIN: what it was merged from takes its place. */
static int unreadable(struct store *s, const char *id, int err, const char *why)
{
        int r = 1;

        if (err == -ENOENT) /* deleted meanwhile */
                return 1;
        if (err != -EBADMSG)
                return err;
        pthread_mutex_lock(&s->lock);
        struct store_entry *e = index_find(s, id);
        if (e) {
                index_bad(s, e, why ? why : "damaged");
                if (e->facts.from)
                        r = -EAGAIN;
        }
        pthread_mutex_unlock(&s->lock);
        return r;
}

/* All windows whole, each read straight into the sum. Any that cannot be read is a failure: the sum then has
 * part of it. */
static int add_all_whole(int dir_fd, char (*ids)[STORE_ID_SIZE], uint32_t n, struct profile **ret)
{
        _cleanup_profile_ struct profile *all = NULL;
        const char *why;

        int r = profile_new(&all);
        for (uint32_t i = 0; i < n && r >= 0; i++)
                r = store_merge_window(dir_fd, ids[i], all, &why);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(all);
        return 0;
}

int store_add_windows(struct store *s, int dir_fd, char (*ids)[STORE_ID_SIZE], uint32_t n,
                      const struct selection *sel, bool strict, struct profile **ret)
{
        _cleanup_profile_ struct profile *all = NULL;
        uint32_t added = 0;

        if (n > 0 && selects_all(sel) && add_all_whole(dir_fd, ids, n, ret) >= 0)
                return 0;
        /* One after the other: what is selected of each, or all of those that can be read. */
        int r = profile_new(&all);
        for (uint32_t i = 0; i < n && r >= 0; i++) {
                _cleanup_profile_ struct profile *p = NULL;
                const char *why;
                r = store_read_window(dir_fd, ids[i], &p, &why);
                if (r < 0) {
                        int u = unreadable(s, ids[i], r, why);
                        r = strict ? r : u;
                        continue;
                }
                r = add_window(all, p, sel);
                added++;
        }
        if (r < 0)
                return r;
        if (added == 0)
                return -ENODATA;
        *ret = TAKE_PTR(all);
        return 0;
}

struct snapshot {
        char (*ids)[STORE_ID_SIZE];
        uint32_t n;
};

static int take_snapshot(struct store *s, uint64_t since_ns, uint64_t until_ns, struct snapshot *ret)
{
        ret->ids = calloc(s->n_entries + 1, sizeof(*ret->ids));
        if (!ret->ids)
                return -ENOMEM;
        for (uint32_t i = 0; i < s->n_entries; i++)
                if (overlaps(s->entry[i], since_ns, until_ns))
                        memcpy(ret->ids[ret->n++], s->entry[i]->id, STORE_ID_SIZE);
        return 0;
}

static void reader_remove(struct store *s, struct store_reader *me)
{
        for (struct store_reader **p = &s->readers; *p; p = &(*p)->next)
                if (*p == me) {
                        *p = me->next;
                        return;
                }
}

static int query_once(struct store *s, uint64_t since_ns, uint64_t until_ns, const struct selection *sel,
                      struct profile **ret)
{
        struct snapshot v = {0};
        _cleanup_close_ int dir_fd = -1;
        struct store_reader me;

        pthread_mutex_lock(&s->lock);
        index_refresh(s);
        int r = take_snapshot(s, since_ns, until_ns, &v);
        dir_fd = s->dir_fd >= 0 ? fcntl(s->dir_fd, F_DUPFD_CLOEXEC, 0) : -1;
        if (r == 0 && v.n > 0 && dir_fd < 0)
                r = -errno;
        me = (struct store_reader){.ticket = s->next_ticket++, .next = s->readers};
        s->readers = &me;
        pthread_mutex_unlock(&s->lock);

        if (r == 0)
                r = v.n == 0 ? -ENODATA : store_add_windows(s, dir_fd, v.ids, v.n, sel, false, ret);

        pthread_mutex_lock(&s->lock);
        reader_remove(s, &me);
        pthread_mutex_unlock(&s->lock);
        free(v.ids);
        return r;
}

int store_query(struct store *s, uint64_t since_ns, uint64_t until_ns, const struct selection *sel,
                struct profile **ret)
{
        int r = -EAGAIN;

        for (uint32_t i = 0; r == -EAGAIN && i < MAX_RESTARTS; i++)
                r = query_once(s, since_ns, until_ns, sel, ret);
        return r;
}

void store_stats(struct store *s, struct store_stats *ret)
{
        struct store_stats t = {0};

        pthread_mutex_lock(&s->lock);
        index_refresh(s);
        for (uint32_t i = 0; i < s->n_entries; i++) {
                const struct store_entry *e = s->entry[i];
                if (!e->bad)
                        t.size += (uint64_t)e->disk_size;
                if (!entry_visible(e))
                        continue;
                t.windows++;
                if (t.oldest_ns == 0 || e->facts.start_ns < t.oldest_ns)
                        t.oldest_ns = e->facts.start_ns;
                t.newest_ns = MAX_OF(t.newest_ns, entry_end(e));
        }
        t.bad_files = s->bad_files;
        t.write_errors = s->write_errors;
        t.merges = s->merges;
        t.deleted = s->deleted;
        memcpy(t.error, s->error, sizeof(t.error));
        pthread_mutex_unlock(&s->lock);
        *ret = t;
}
