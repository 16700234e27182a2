/* The index in memory: one entry per window file, kept as the directory is. The directory is read again when
 * its time of change moved; a file's head is read once, its contents only when it has no comment of ours. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/log.h"
#include "daemon/store_internal.h"

#define MAX_FOREIGN 1024
/* Times of files move by the kernel's tick (4 or 10 ms): a change in the tick of the scan would not show. */
#define TIME_GRAIN_NS (100 * NSEC_PER_MSEC)

static void entry_free(struct store_entry *e)
{
        store_facts_free(&e->facts);
        free(e);
}

void index_free(struct store *s)
{
        for (uint32_t i = 0; i < s->n_entries; i++)
                entry_free(s->entry[i]);
        free(s->entry);
        free(s->foreign);
}

uint32_t index_position(const struct store *s, const char *id)
{
        uint32_t lo = 0, hi = s->n_entries;

        while (lo < hi) {
                uint32_t mid = lo + (hi - lo) / 2;
                if (strcmp(s->entry[mid]->id, id) < 0)
                        lo = mid + 1;
                else
                        hi = mid;
        }
        return lo;
}

struct store_entry *index_find(struct store *s, const char *id)
{
        uint32_t i = index_position(s, id);

        return i < s->n_entries && strcmp(s->entry[i]->id, id) == 0 ? s->entry[i] : NULL;
}

static int insert(struct store *s, struct store_entry *e)
{
        uint32_t at = index_position(s, e->id);

        if (s->n_entries >= STORE_MAX_ENTRIES)
                return -E2BIG;
        if (s->n_entries == s->cap_entries) {
                uint32_t cap = MAX_OF(s->cap_entries * 2, 64u);
                struct store_entry **p = reallocarray(s->entry, cap, sizeof(struct store_entry *));
                if (!p)
                        return -ENOMEM;
                s->entry = p;
                s->cap_entries = cap;
        }
        memmove(s->entry + at + 1, s->entry + at, (s->n_entries - at) * sizeof(struct store_entry *));
        s->entry[at] = e;
        s->n_entries++;
        return 0;
}

static void remove_at(struct store *s, uint32_t i)
{
        entry_free(s->entry[i]);
        s->n_entries--;
        memmove(s->entry + i, s->entry + i + 1, (s->n_entries - i) * sizeof(struct store_entry *));
}

void index_remove(struct store *s, const char *id)
{
        uint32_t i = index_position(s, id);

        if (i < s->n_entries && strcmp(s->entry[i]->id, id) == 0)
                remove_at(s, i);
}

void index_bad(struct store *s, struct store_entry *e, const char *why)
{
        if (e->bad)
                return;
        e->bad = true;
        s->bad_files++;
        log_warning("Store: %s/%s" STORE_SUFFIX ": %s; it is left alone and passed over",
                    s->config.directory, e->id, why);
        index_replaced(s); /* what it was merged from counts again */
}

void index_replaced(struct store *s)
{
        for (uint32_t i = 0; i < s->n_entries; i++)
                s->entry[i]->replaced = false;
        for (uint32_t i = 0; i < s->n_entries; i++) {
                struct store_entry *m = s->entry[i];
                _cleanup_free_ char *from = NULL;
                char *save = NULL;
                if (m->bad || !m->facts.from || !(from = strdup(m->facts.from)))
                        continue;
                for (char *id = strtok_r(from, ",", &save); id; id = strtok_r(NULL, ",", &save)) {
                        struct store_entry *e = index_find(s, id);
                        /* The numbers tell a source from a later window that got its name. */
                        if (!e || e == m || e->facts.first_seq < m->facts.first_seq ||
                            e->facts.last_seq > m->facts.last_seq)
                                continue;
                        e->replaced = true;
                        if (!e->replaced_at)
                                e->replaced_at = s->next_ticket++;
                }
        }
        for (uint32_t i = 0; i < s->n_entries; i++)
                if (!s->entry[i]->replaced)
                        s->entry[i]->replaced_at = 0;
}

bool index_second_taken(struct store *s, uint64_t second)
{
        char id[STORE_ID_SIZE];

        if (store_id_format(second, 1, id) < 0)
                return true;
        *strchr(id, '_') = 0;
        uint32_t i = index_position(s, id);
        if (i < s->n_entries && strncmp(s->entry[i]->id, id, strlen(id)) == 0)
                return true;
        /* Nor the name of a window that was merged away: a collector has it under that name. */
        for (i = 0; i < s->n_entries; i++)
                if (s->entry[i]->facts.from && strstr(s->entry[i]->facts.from, id))
                        return true;
        return false;
}

static int compare_seq(const void *a, const void *b)
{
        const struct store_entry *x = *(struct store_entry *const *)a, *y = *(struct store_entry *const *)b;

        if (x->facts.first_seq != y->facts.first_seq)
                return x->facts.first_seq < y->facts.first_seq ? -1 : 1;
        return strcmp(x->id, y->id);
}

struct store_entry **index_in_order(struct store *s, uint32_t *ret_n)
{
        struct store_entry **v = calloc(s->n_entries + 1, sizeof(struct store_entry *));
        uint32_t n = 0;

        for (uint32_t i = 0; v && i < s->n_entries; i++)
                if (s->entry[i]->ours && entry_visible(s->entry[i]))
                        v[n++] = s->entry[i];
        if (v)
                qsort(v, n, sizeof(struct store_entry *), compare_seq);
        *ret_n = n;
        return v;
}

int index_add(struct store *s, const char *id, struct store_facts *facts, bool verified)
{
        struct store_entry *e = calloc(1, sizeof(*e));
        char name[64];
        struct stat st;

        if (!e)
                return -ENOMEM;
        snprintf(name, sizeof(name), "%s" STORE_SUFFIX, id);
        strcpy(e->id, id);
        e->facts = *facts;
        e->ours = facts->first_seq > 0;
        e->verified = verified;
        if (fstatat(s->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
                e->ino = st.st_ino;
                e->disk_size = st.st_size;
                e->mtime = st.st_mtim;
        }
        int r = insert(s, e);
        if (r < 0) {
                free(e); /* the facts stay the caller's */
                return r;
        }
        *facts = (struct store_facts){0};
        if (e->facts.last_seq >= s->next_seq)
                s->next_seq = e->facts.last_seq + 1;
        return 0;
}

/* -- scanning -- */

/* The facts of a file without our comment. */
static int facts_from_contents(struct store *s, const char *id, struct store_facts *f, const char **ret_why)
{
        _cleanup_profile_ struct profile *p = NULL;

        int r = store_read_window(s->dir_fd, id, &p, ret_why);
        if (r < 0)
                return r;
        r = store_facts_from_profile(p, f);
        if (r == -EBADMSG)
                *ret_why = "a profile without a time is no window";
        return r;
}

static void read_facts(struct store *s, struct store_entry *e, const char *name)
{
        _cleanup_close_ int fd =
                        openat(s->dir_fd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW);
        const char *why = NULL;

        int r = fd < 0 ? -errno : store_facts_read(fd, &e->facts);
        if (r == 0 && (uint64_t)e->disk_size != e->facts.size) {
                r = -EBADMSG;
                why = "truncated: it is not as long as it says";
        }
        if (r == -ENODATA) {
                r = facts_from_contents(s, e->id, &e->facts, &why);
                e->verified = r == 0;
        }
        if (r < 0) {
                index_bad(s, e, why ? why : r == -EBADMSG ? "not a gzip'ed pprof profile" : strerror(-r));
                return;
        }
        e->ours = e->facts.first_seq > 0;
        e->facts.size = (uint64_t)e->disk_size;
        if (e->facts.last_seq >= s->next_seq)
                s->next_seq = e->facts.last_seq + 1;
}

static void scan_window(struct store *s, const char *id, const char *name)
{
        struct store_entry *e = index_find(s, id);
        struct stat st;

        if (fstatat(s->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
                return;
        if (e && e->ino == st.st_ino && e->disk_size == st.st_size && e->mtime.tv_sec == st.st_mtim.tv_sec &&
            e->mtime.tv_nsec == st.st_mtim.tv_nsec) {
                e->seen = true;
                return;
        }
        if (e) /* another file under its name */
                index_remove(s, id);
        e = calloc(1, sizeof(*e));
        if (!e)
                return;
        strcpy(e->id, id);
        e->seen = true;
        e->ino = st.st_ino;
        e->disk_size = st.st_size;
        e->mtime = st.st_mtim;
        if (insert(s, e) < 0) {
                entry_free(e);
                return;
        }
        read_facts(s, e, name);
}

static void report_foreign(struct store *s, const char *name)
{
        uint64_t hash = hash_bytes(name, strlen(name));

        for (uint32_t i = 0; i < s->n_foreign; i++)
                if (s->foreign[i] == hash)
                        return;
        if (s->n_foreign == MAX_FOREIGN)
                return;
        uint64_t *p = reallocarray(s->foreign, s->n_foreign + 1, sizeof(uint64_t));
        if (!p)
                return;
        s->foreign = p;
        s->foreign[s->n_foreign++] = hash;
        s->bad_files++;
        log_notice("Store: %s/%s is no window of profd's; it is left alone", s->config.directory, name);
}

static bool same_time(const struct timespec *a, const struct timespec *b)
{
        return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

void index_refresh(struct store *s)
{
        struct stat st;

        if (store_open_directory(s) < 0 || fstat(s->dir_fd, &st) < 0)
                return;
        if (st.st_nlink == 0) {
                s->gone = true;
                if (store_open_directory(s) < 0 || fstat(s->dir_fd, &st) < 0)
                        return;
        }
        if (!s->scan_again && same_time(&st.st_mtim, &s->scanned))
                return;

        _cleanup_close_ int fd = openat(s->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
        if (!d) {
                store_fail(s, "cannot list", "", -errno, NULL);
                return;
        }
        fd = -1; /* now the stream's */
        for (uint32_t i = 0; i < s->n_entries; i++)
                s->entry[i]->seen = false;
        for (struct dirent *e = readdir(d); e; e = readdir(d)) {
                char id[STORE_ID_SIZE];
                if (store_id_from_name(e->d_name, id) == 0)
                        scan_window(s, id, e->d_name);
                else if (e->d_name[0] != '.' && e->d_type == DT_REG && strcmp(e->d_name, "gaps.log") != 0)
                        report_foreign(s, e->d_name);
        }
        closedir(d);
        for (uint32_t i = s->n_entries; i-- > 0;)
                if (!s->entry[i]->seen)
                        remove_at(s, i);
        index_replaced(s);

        uint64_t changed = (uint64_t)st.st_mtim.tv_sec * NSEC_PER_SEC + (uint64_t)st.st_mtim.tv_nsec;
        uint64_t now = now_realtime_ns();
        s->scanned = st.st_mtim;
        s->scan_again = now < changed + TIME_GRAIN_NS && now + TIME_GRAIN_NS > changed;
}
