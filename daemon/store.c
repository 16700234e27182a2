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

/* How many seconds past its own a window's name may go to be unique. */
#define MAX_NAME_SHIFT 100000

/* From a window's end until it is stored: beyond it the clock was set meanwhile. */
#define MAX_DELAY_NS (600 * NSEC_PER_SEC)

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
        sums_free(s);
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

/* CLOCK_BOOTTIME at a moment of the wall clock, a short while ago: a window is stored when its last names
 * have come, some seconds behind its end. Of other moments: now. */
static uint64_t boottime_at(uint64_t real_ns)
{
        uint64_t real = now_realtime_ns(), boot = now_boottime_ns(), ago = real - MIN_OF(real, real_ns);

        return ago < MAX_DELAY_NS && ago < boot ? boot - ago : boot;
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
                f.boot_end_ns = boottime_at(end);
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
                if (entry_overlaps(s->entry[i], since_ns, until_ns))
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
        t.size += sums_size(s);
        t.bad_files = s->bad_files;
        t.write_errors = s->write_errors;
        t.merges = s->merges;
        t.deleted = s->deleted;
        memcpy(t.error, s->error, sizeof(t.error));
        pthread_mutex_unlock(&s->lock);
        *ret = t;
}
