/* Sums: what the windows of ten minutes, an hour and six hours add up to without the labels of single
 * processes
 * ("pid", "thread_id"), kept beside them, so that a report over a day reads a dozen small files.
 *
 * A sum is a pprof file like a window, in a directory of its own, named after the numbers of the windows in
 * it: "summaries/<first>-<last>.pb.gz". As it goes by numbers, it stays true when its windows are merged. It
 * is used only where the windows that are there have exactly these numbers, samples, losses and times; so
 * nothing need be said when a window is deleted or found damaged: its sums do not fit any more, and are
 * removed. A sum that is missing, truncated or damaged costs time, no result: the windows are read instead,
 * and it is made again.
 *
 * Sums of ten minutes go when there is one of their hour, those of an hour after two days when there is one
 * of six: what is asked for is mostly the last day. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/parse.h"
#include "daemon/store_internal.h"
#include "profile/gzip.h"

#define MINUTE_NS (60 * NSEC_PER_SEC)
#define SETTLE_NS (2 * MINUTE_NS) /* behind the end of a stretch, for its last window */
#define FINE_NS   (48 * 60 * MINUTE_NS)
#define MAX_SUMS  4096u

static const uint64_t width_ns[] = {10 * MINUTE_NS, 60 * MINUTE_NS, 360 * MINUTE_NS};

static void sum_name(uint64_t first_seq, uint64_t last_seq, char ret[STORE_SOURCE_SIZE])
{
        snprintf(ret, STORE_SOURCE_SIZE, STORE_SUMS "/%" PRIu64 "-%" PRIu64, first_seq, last_seq);
}

static uint64_t sum_end(const struct store_sum *sum)
{
        return sum->facts.start_ns + sum->facts.duration_ns;
}

/* -- the index -- */

static struct store_sum *find_sum(struct store *s, uint64_t first_seq, uint64_t last_seq)
{
        for (uint32_t i = 0; i < s->n_sums; i++)
                if (s->sum[i].facts.first_seq == first_seq && s->sum[i].facts.last_seq == last_seq)
                        return &s->sum[i];
        return NULL;
}

/* Those of more windows come first: plans prefer them. */
static int add_sum(struct store *s, const struct store_sum *sum)
{
        uint32_t i = s->n_sums;

        if (i == MAX_SUMS)
                return -E2BIG;
        int r = ARRAY_ROOM(s->sum, s->cap_sums, (uint64_t)i + 1);
        if (r < 0)
                return r;
        uint64_t windows = sum->facts.last_seq - sum->facts.first_seq;
        for (; i > 0 && s->sum[i - 1].facts.last_seq - s->sum[i - 1].facts.first_seq < windows; i--)
                s->sum[i] = s->sum[i - 1];
        s->sum[i] = *sum;
        s->n_sums++;
        return 0;
}

static void forget_sum(struct store *s, struct store_sum *sum)
{
        uint32_t i = (uint32_t)(sum - s->sum);

        memmove(sum, sum + 1, (s->n_sums - i - 1) * sizeof(*sum));
        s->n_sums--;
}

/* What the open file of a sum says of itself. False: it is none, or not whole, or has another's name. */
static bool read_own(int fd, const char *file, uint64_t size, struct store_facts *ret)
{
        struct store_facts f = {0};
        char name[STORE_SOURCE_SIZE];

        if (store_facts_read(fd, &f) < 0)
                return false;
        store_facts_free(&f);
        sum_name(f.first_seq, f.last_seq, name);
        size_t n = strlen(name);
        *ret = f;
        return f.size == size && strncmp(file, name, n) == 0 && strcmp(file + n, STORE_SUFFIX) == 0;
}

bool sums_is_own(int fd, const char *file, uint64_t size)
{
        struct store_facts f;

        return strncmp(file, STORE_SUMS "/", sizeof(STORE_SUMS)) != 0 || read_own(fd, file, size, &f);
}

/* Enters one that is in the directory. False: it is none. */
static bool take_file(struct store *s, const char *file)
{
        struct store_sum sum = {0};
        struct stat st;

        _cleanup_close_ int fd =
                        openat(s->dir_fd, file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW);
        if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
                return false;
        sum.disk_size = (uint64_t)st.st_size;
        return read_own(fd, file, sum.disk_size, &sum.facts) && add_sum(s, &sum) == 0;
}

void sums_find(struct store *s)
{
        if (s->sums_known || s->dir_fd < 0)
                return;
        s->sums_known = true;
        s->n_sums = 0;
        _cleanup_close_ int fd =
                        openat(s->dir_fd, STORE_SUMS, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
        if (!d)
                return;
        fd = -1; /* now the stream's */
        for (struct dirent *e = readdir(d); e; e = readdir(d)) {
                char file[sizeof(STORE_SUMS) + sizeof(e->d_name)];
                snprintf(file, sizeof(file), STORE_SUMS "/%s", e->d_name);
                if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 && !take_file(s, file) &&
                    s->writer)
                        unlinkat(s->dir_fd, file, 0); /* the directory is ours alone */
        }
        closedir(d);
}

void sums_bad(struct store *s, const char *name)
{
        char other[STORE_SOURCE_SIZE];

        for (uint32_t i = 0; i < s->n_sums; i++) {
                sum_name(s->sum[i].facts.first_seq, s->sum[i].facts.last_seq, other);
                if (strcmp(name, other) == 0)
                        s->sum[i].bad = true;
        }
}

uint64_t sums_size(const struct store *s)
{
        uint64_t size = 0;

        for (uint32_t i = 0; i < s->n_sums; i++)
                size += s->sum[i].disk_size;
        return size;
}

void sums_free(struct store *s)
{
        free(s->sum);
        s->sum = NULL;
        s->n_sums = s->cap_sums = 0;
}

/* -- what a sum holds -- */

/* The windows v[*ret_first...], `*ret_n` of them, that are what a sum was made of. */
static bool find_windows(const struct store_sum *sum, struct store_entry *const *v, uint32_t n,
                         uint32_t *ret_first, uint32_t *ret_n)
{
        uint32_t first = 0, i, high = n;
        uint64_t samples = 0, lost = 0, start = UINT64_MAX, end = 0;

        while (first < high) {
                uint32_t middle = first + (high - first) / 2;
                if (v[middle]->facts.first_seq < sum->facts.first_seq)
                        first = middle + 1;
                else
                        high = middle;
        }
        for (i = first; i < n && v[i]->facts.last_seq <= sum->facts.last_seq; i++) {
                const struct store_facts *f = &v[i]->facts;
                if (f->first_seq != (i == first ? sum->facts.first_seq : v[i - 1]->facts.last_seq + 1))
                        return false;
                samples += f->samples;
                lost += f->lost;
                start = MIN_OF(start, f->start_ns);
                end = MAX_OF(end, entry_end(v[i]));
        }
        *ret_first = first;
        *ret_n = i - first;
        return i > first && v[i - 1]->facts.last_seq == sum->facts.last_seq && !sum->bad &&
               samples == sum->facts.samples && lost == sum->facts.lost && start == sum->facts.start_ns &&
               end == sum_end(sum);
}

static uint32_t count_ours(struct store_entry *const *v, uint32_t n)
{
        uint32_t ours = 0;

        while (ours < n && v[ours]->ours)
                ours++;
        return ours;
}

static bool any_taken(const bool *taken, uint32_t first, uint32_t n)
{
        return memchr(taken + first, true, n) != NULL;
}

int sums_plan(const struct store *s, struct store_entry *const *v, uint32_t n, struct store_plan *ret)
{
        _cleanup_free_ bool *taken = calloc((size_t)n + 1, sizeof(*taken));
        struct store_plan plan = {.source = calloc((size_t)n + 1, sizeof(*plan.source))};
        uint32_t ours = count_ours(v, n), first, windows;

        if (!taken || !plan.source) {
                store_plan_done(&plan);
                return -ENOMEM;
        }
        for (uint32_t i = 0; s && i < s->n_sums; i++) {
                const struct store_sum *sum = &s->sum[i];
                if (!find_windows(sum, v, ours, &first, &windows) || any_taken(taken, first, windows))
                        continue;
                memset(taken + first, true, windows);
                struct store_source *source = &plan.source[plan.n++];
                source->is_sum = true;
                sum_name(sum->facts.first_seq, sum->facts.last_seq, source->name);
        }
        for (uint32_t i = 0; i < n; i++)
                if (!taken[i])
                        strcpy(plan.source[plan.n++].name, v[i]->id);
        *ret = plan;
        return 0;
}

/* Whether a stretch needs no sum (any more): a wider one has it, and it is short or old. */
static bool is_superfluous(const struct store *s, const struct store_facts *f, uint64_t now_ns)
{
        uint64_t end = f->start_ns + f->duration_ns;

        if (f->duration_ns > width_ns[0] && end + FINE_NS > now_ns)
                return false;
        for (uint32_t i = 0; i < s->n_sums; i++) {
                const struct store_facts *w = &s->sum[i].facts;
                if (!s->sum[i].bad && w->first_seq <= f->first_seq && w->last_seq >= f->last_seq &&
                    w->last_seq - w->first_seq > f->last_seq - f->first_seq)
                        return true;
        }
        return false;
}

/* -- making -- */

static void extend(struct store_facts *to, const struct store_facts *f)
{
        uint64_t end = MAX_OF(to->start_ns + to->duration_ns, f->start_ns + f->duration_ns);

        if (to->first_seq == 0) {
                to->first_seq = f->first_seq;
                to->start_ns = f->start_ns;
                end = f->start_ns + f->duration_ns;
        }
        to->start_ns = MIN_OF(to->start_ns, f->start_ns);
        to->duration_ns = end - to->start_ns;
        to->last_seq = f->last_seq;
        to->samples += f->samples;
        to->lost += f->lost;
}

/* Windows to be summed up, and what the sum must be. */
struct stretch {
        struct store_entry *const *v;
        uint32_t n;
        struct store_facts facts;
};

static bool is_wanted(struct store *s, const struct stretch *t, uint32_t level, uint64_t now_ns)
{
        bool last = level + 1 == ARRAY_SIZE(width_ns);

        if (t->n == 1 && t->facts.duration_ns * 2 <= width_ns[level])
                return false; /* the window itself is as good */
        if (!last && t->facts.start_ns + t->facts.duration_ns + FINE_NS <= now_ns)
                return false;
        for (uint32_t i = 0; i < t->n; i++)
                if (t->v[i]->unsummed)
                        return false;
        return !find_sum(s, t->facts.first_seq, t->facts.last_seq) && !is_superfluous(s, &t->facts, now_ns);
}

/* The first stretch of one level that is due. */
static bool find_stretch(struct store *s, struct store_entry *const *v, uint32_t n, uint32_t level,
                         uint64_t now_ns, struct stretch *ret)
{
        uint64_t width = width_ns[level];

        for (uint32_t i = 0, j; i < n; i = j) {
                uint64_t bucket = v[i]->facts.start_ns / width;
                struct stretch t = {.v = v + i};
                for (j = i; j < n && v[j]->facts.start_ns / width == bucket; j++) {
                        if (v[j]->facts.duration_ns > width ||
                            (j > i && v[j]->facts.first_seq != v[j - 1]->facts.last_seq + 1))
                                break;
                        extend(&t.facts, &v[j]->facts);
                }
                t.n = j - i;
                if (t.n == 0)
                        j++;
                else if ((bucket + 1) * width + SETTLE_NS <= now_ns && is_wanted(s, &t, level, now_ns)) {
                        *ret = t;
                        return true;
                }
        }
        return false;
}

/* Reads and encodes; without `lock`. */
static int encode_sum(struct store *s, int dir_fd, const struct store_plan *plan, struct store_facts *facts,
                      struct buf *out)
{
        _cleanup_profile_ struct profile *p = NULL;
        const struct store_reading how = {.no_processes = true, .strict = true, .max_rows = STORE_MAX_ROWS};
        struct store_facts found;

        int r = store_add_up(s, dir_fd, plan, &how, &p);
        if (r < 0)
                return r;
        r = store_facts_from_profile(p, &found);
        if (r == 0 && (found.samples != facts->samples || found.lost != facts->lost))
                r = -EBADMSG;
        return r < 0 ? r : store_facts_encode(p, facts, GZIP_LEVEL_KEPT, out);
}

static int write_sum(int dir_fd, struct store_facts *facts, const struct buf *b)
{
        char temp[64], name[STORE_SOURCE_SIZE], file[STORE_SOURCE_SIZE + 8];

        if (mkdirat(dir_fd, STORE_SUMS, 0750) < 0 && errno != EEXIST)
                return -errno;
        int r = store_write_temp(dir_fd, "sum", facts->first_seq, b, temp);
        if (r < 0)
                return r;
        sum_name(facts->first_seq, facts->last_seq, name);
        snprintf(file, sizeof(file), "%s" STORE_SUFFIX, name);
        if (renameat(dir_fd, temp, dir_fd, file) < 0) {
                r = -errno;
                unlinkat(dir_fd, temp, 0);
        }
        return r;
}

/* Their contents are what does not add up: trying again would not help. */
static void set_unsummed(struct store *s, const struct store_facts *facts)
{
        for (uint32_t i = 0; i < s->n_entries; i++) {
                struct store_entry *e = s->entry[i];
                if (e->ours && e->facts.first_seq >= facts->first_seq &&
                    e->facts.last_seq <= facts->last_seq)
                        e->unsummed = true;
        }
}

/* 1: done or set aside; -errno. */
static int make_sum(struct store *s, const struct stretch *t)
{
        _cleanup_(store_plan_done) struct store_plan plan = {0};
        _cleanup_close_ int dir_fd = fcntl(s->dir_fd, F_DUPFD_CLOEXEC, 0);
        _cleanup_buf_ struct buf b = {0};
        struct store_sum sum = {.facts = t->facts};

        int r = dir_fd < 0 ? -errno : sums_plan(s, t->v, t->n, &plan);
        if (r < 0)
                return r;
        pthread_mutex_unlock(&s->lock); /* `t` may go from here on */
        r = encode_sum(s, dir_fd, &plan, &sum.facts, &b);
        int written = r == 0 ? write_sum(dir_fd, &sum.facts, &b) : 0;
        pthread_mutex_lock(&s->lock);
        if (r == -EBADMSG || r == -EOVERFLOW || r == -E2BIG || r == -EFBIG) {
                set_unsummed(s, &sum.facts);
                return 1;
        }
        if (r == -EAGAIN) /* a damaged sum: the next plan does without it */
                return 1;
        if (r < 0 || written < 0)
                return r < 0 ? r : written;
        sum.disk_size = b.len;
        r = add_sum(s, &sum);
        return r < 0 ? r : 1;
}

/* -- removing -- */

/* One that cannot be unlinked is forgotten all the same: it costs space until the next start. */
static void remove_sum(struct store *s, struct store_sum *sum)
{
        char name[STORE_SOURCE_SIZE];

        sum_name(sum->facts.first_seq, sum->facts.last_seq, name);
        store_unlink(s->dir_fd, name);
        forget_sum(s, sum);
}

int sums_maintain(struct store *s, uint64_t now_ns)
{
        uint32_t n, first, windows;

        sums_find(s);
        _cleanup_free_ struct store_entry **v = index_in_order(s, &n);
        struct stretch t;

        if (!v)
                return -ENOMEM;
        for (uint32_t i = s->n_sums; i-- > 0;)
                if (!find_windows(&s->sum[i], v, n, &first, &windows))
                        remove_sum(s, &s->sum[i]);
        for (uint32_t i = s->n_sums; i-- > 0;)
                if (is_superfluous(s, &s->sum[i].facts, now_ns))
                        remove_sum(s, &s->sum[i]);
        for (uint32_t level = 0; level < ARRAY_SIZE(width_ns); level++)
                if (find_stretch(s, v, n, level, now_ns, &t))
                        return make_sum(s, &t);
        return 0;
}
