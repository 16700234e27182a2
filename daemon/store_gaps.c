/* Gaps between windows, and why.
 *
 * Most reasons follow from the windows themselves: another boot ID after the gap means that the host was
 * down, an unbroken CLOCK_BOOTTIME that the clock was set. What they cannot tell is in the log `gaps.log`,
 * one line each:
 * "<start ns> <end ns> <reason>", appended; a line that was not written to its end is not read. An orderly
 * stop is a line of no length: "<now> <now> stopped". A gap in one boot without any of this is a daemon that
 * was killed. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "daemon/store_internal.h"

#define LOG_NAME     "gaps.log"
#define LOG_MAX      (64u * 1024)        /* rewritten to its newer half beyond this */
#define MIN_GAP_NS   (2 * NSEC_PER_SEC)  /* windows follow each other within milliseconds */
#define STOP_NEAR_NS (10 * NSEC_PER_SEC) /* from the end of the last window to the note that follows it */

const char gaps_stopped[] = "stopped";
static const char killed[] = "killed", host_down[] = "host down", disk_full[] = "disk full",
                  not_writable[] = "not writable", write_failed[] = "write failed",
                  clock_set[] = "clock set", unknown[] = "unknown";

static const char *const logged[] = {gaps_stopped, disk_full, not_writable, write_failed};

const char *gaps_reason(int err)
{
        switch (-err) {
        case ENOSPC:
        case EDQUOT:
                return disk_full;
        case EROFS:
        case EACCES:
        case EPERM:
                return not_writable;
        default:
                return write_failed;
        }
}

void gaps_note(struct store *s, uint64_t start_ns, uint64_t end_ns, const char *reason)
{
        struct store_mark *last = s->n_pending ? &s->pending[s->n_pending - 1] : NULL;

        if (last && (last->reason == reason || s->n_pending == STORE_MAX_PENDING) &&
            reason != gaps_stopped) {
                last->end_ns = MAX_OF(last->end_ns, end_ns);
                return;
        }
        if (s->n_pending < STORE_MAX_PENDING)
                s->pending[s->n_pending++] = (struct store_mark){
                                .start_ns = start_ns, .end_ns = end_ns, .reason = reason};
}

/* Keeps the newer half of the log, from a line's start. */
static void shorten_log(struct store *s, const struct buf *old)
{
        struct buf half = {0};
        char temp[64];
        const char *from = memchr(old->data + old->len / 2, '\n', old->len - old->len / 2);

        if (!from)
                return;
        half.data = (char *)(uintptr_t)from;
        half.len = (size_t)(old->data + old->len - from);
        if (store_write_temp(s->dir_fd, "put", 0, &half, temp) == 0 &&
            renameat(s->dir_fd, temp, s->dir_fd, LOG_NAME) < 0)
                unlinkat(s->dir_fd, temp, 0);
}

static void read_log(struct store *s, struct buf *b)
{
        _cleanup_close_ int fd = -1;

        if (s->dir_fd < 0)
                return;
        fd = openat(s->dir_fd, LOG_NAME, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd >= 0 && read_fd(fd, 4 * LOG_MAX, b) < 0)
                buf_clear(b);
}

void gaps_flush(struct store *s)
{
        _cleanup_buf_ struct buf b = {0}, log = {0};

        if (s->n_pending == 0 || !s->writer || s->dir_fd < 0)
                return;
        read_log(s, &log);
        if (log.len > LOG_MAX)
                shorten_log(s, &log);
        _cleanup_close_ int fd = openat(s->dir_fd, LOG_NAME,
                                        O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640);
        if (fd < 0)
                return;
        /* A line break before and after: what a full disk left of an earlier line does not spoil this one.
         */
        for (uint32_t i = 0; i < s->n_pending; i++)
                buf_addf(&b, "\n%" PRIu64 " %" PRIu64 " %s\n", s->pending[i].start_ns, s->pending[i].end_ns,
                         s->pending[i].reason);
        if (buf_error(&b) == 0 && write_all(fd, b.data, b.len) == 0 && fdatasync(fd) == 0)
                s->n_pending = 0; /* else they are kept; a line twice does no harm */
}

static const char *find_reason(const char *text)
{
        for (size_t i = 0; i < ARRAY_SIZE(logged); i++)
                if (strcmp(text, logged[i]) == 0)
                        return logged[i];
        return NULL;
}

struct marks {
        struct store_mark *mark;
        uint32_t n;
};

static int add_mark(struct marks *m, const struct store_mark *mark)
{
        struct store_mark *p = reallocarray(m->mark, m->n + 1, sizeof(*p));

        if (!p)
                return -ENOMEM;
        m->mark = p;
        m->mark[m->n++] = *mark;
        return 0;
}

static int read_marks(struct store *s, struct marks *ret)
{
        _cleanup_buf_ struct buf log = {0};
        char *line, *save = NULL;
        int r = 0;

        read_log(s, &log);
        /* The last line counts only when it is whole. */
        while (log.len > 0 && log.data[log.len - 1] != '\n')
                log.data[--log.len] = 0;
        for (line = log.len ? strtok_r(log.data, "\n", &save) : NULL; line && r == 0;
             line = strtok_r(NULL, "\n", &save)) {
                struct store_mark m;
                int at = 0;
                if (sscanf(line, "%" SCNu64 " %" SCNu64 " %n", &m.start_ns, &m.end_ns, &at) == 2 && at > 0 &&
                    m.start_ns <= m.end_ns && (m.reason = find_reason(line + at)))
                        r = add_mark(ret, &m);
        }
        for (uint32_t i = 0; i < s->n_pending && r == 0; i++)
                r = add_mark(ret, &s->pending[i]);
        return r;
}

struct gaps {
        struct store_gap *gap;
        uint32_t n;
        uint64_t since_ns, until_ns;
};

static int add_gap(struct gaps *g, uint64_t start_ns, uint64_t end_ns, const char *reason)
{
        start_ns = MAX_OF(start_ns, g->since_ns);
        end_ns = MIN_OF(end_ns, g->until_ns);
        if (start_ns >= end_ns)
                return 0;
        struct store_gap *p = reallocarray(g->gap, g->n + 1, sizeof(*p));
        if (!p)
                return -ENOMEM;
        g->gap = p;
        g->gap[g->n++] = (struct store_gap){.start_ns = start_ns, .end_ns = end_ns, .reason = reason};
        return 0;
}

/* A stretch of a gap that no failed write explains. */
static int add_unexplained(struct gaps *g, const struct marks *m, const struct store_entry *a,
                           const struct store_entry *b, uint64_t start_ns, uint64_t end_ns)
{
        const char *reason = unknown;

        if (end_ns - start_ns < MIN_GAP_NS)
                return 0;
        if (a->facts.boot_id[0] && b->facts.boot_id[0]) {
                if (strcmp(a->facts.boot_id, b->facts.boot_id) != 0) {
                        /* Down until it booted; on a host that was up for long before, profd was stopped. */
                        uint64_t up = MIN_OF(b->facts.boot_end_ns, entry_end(b)), booted = entry_end(b) - up;
                        if (booted <= start_ns || booted + 120 * NSEC_PER_SEC >= end_ns)
                                return add_gap(g, start_ns, end_ns, host_down);
                        int r = add_gap(g, start_ns, booted, host_down);
                        return r < 0 ? r : add_gap(g, booted, end_ns, gaps_stopped);
                }
                uint64_t b_start = b->facts.boot_end_ns - MIN_OF(b->facts.boot_end_ns, b->facts.duration_ns);
                bool unbroken = a->facts.boot_end_ns && b_start < a->facts.boot_end_ns + MIN_GAP_NS;
                reason = unbroken ? clock_set : killed;
        }
        for (uint32_t i = 0; i < m->n; i++)
                if (m->mark[i].reason == gaps_stopped && m->mark[i].start_ns + MIN_GAP_NS >= entry_end(a) &&
                    m->mark[i].start_ns <= MIN_OF(entry_end(a) + STOP_NEAR_NS, end_ns))
                        reason = gaps_stopped;
        return add_gap(g, start_ns, end_ns, reason);
}

static int compare_marks(const void *a, const void *b)
{
        const struct store_mark *x = a, *y = b;

        return x->start_ns < y->start_ns ? -1 : x->start_ns > y->start_ns;
}

/* One gap, cut into what failed writes explain and the rest. */
static int add_between(struct gaps *g, const struct marks *m, const struct store_entry *a,
                       const struct store_entry *b, uint64_t start_ns, uint64_t end_ns)
{
        uint64_t at = start_ns;
        int r = 0;

        for (uint32_t i = 0; i < m->n && r == 0; i++) {
                uint64_t from = MAX_OF(m->mark[i].start_ns, at), to = MIN_OF(m->mark[i].end_ns, end_ns);
                if (m->mark[i].reason == gaps_stopped || from >= to)
                        continue;
                r = add_unexplained(g, m, a, b, at, from);
                if (r == 0)
                        r = add_gap(g, from, to, m->mark[i].reason);
                at = to;
        }
        return r < 0 ? r : add_unexplained(g, m, a, b, at, end_ns);
}

static int compare_start(const void *a, const void *b)
{
        const struct store_entry *x = *(struct store_entry *const *)a, *y = *(struct store_entry *const *)b;

        return x->facts.start_ns < y->facts.start_ns ? -1 : x->facts.start_ns > y->facts.start_ns;
}

static int find_gaps(struct store *s, struct gaps *g, const struct marks *m)
{
        _cleanup_free_ struct store_entry **v = calloc(s->n_entries + 1, sizeof(struct store_entry *));
        uint32_t n = 0;
        uint64_t end = 0;
        int r = 0;

        if (!v)
                return -ENOMEM;
        for (uint32_t i = 0; i < s->n_entries; i++)
                if (entry_visible(s->entry[i]))
                        v[n++] = s->entry[i];
        qsort(v, n, sizeof(struct store_entry *), compare_start);
        const struct store_entry *last = n ? v[0] : NULL;
        for (uint32_t i = 0; i < n && r == 0; i++) {
                if (i > 0 && v[i]->facts.start_ns > end + MIN_GAP_NS)
                        r = add_between(g, m, last, v[i], end, v[i]->facts.start_ns);
                if (entry_end(v[i]) >= end) {
                        end = entry_end(v[i]);
                        last = v[i];
                }
        }
        /* What could not be stored after the last window. */
        for (uint32_t i = 0; i < m->n && r == 0; i++)
                if (m->mark[i].reason != gaps_stopped && m->mark[i].end_ns > end)
                        r = add_gap(g, MAX_OF(m->mark[i].start_ns, end), m->mark[i].end_ns,
                                    m->mark[i].reason);
        return r;
}

int store_gaps(struct store *s, uint64_t since_ns, uint64_t until_ns, struct store_gap **ret,
               uint32_t *ret_n)
{
        struct gaps g = {.since_ns = since_ns, .until_ns = until_ns};
        struct marks m = {0};

        pthread_mutex_lock(&s->lock);
        index_refresh(s);
        int r = read_marks(s, &m);
        if (r == 0 && m.n > 0)
                qsort(m.mark, m.n, sizeof(m.mark[0]), compare_marks);
        if (r == 0)
                r = find_gaps(s, &g, &m);
        pthread_mutex_unlock(&s->lock);
        free(m.mark);
        if (r < 0) {
                free(g.gap);
                return r;
        }
        *ret = g.gap;
        *ret_n = g.n;
        return 0;
}
