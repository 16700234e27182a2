/* Adding windows up, for queries and merges.
 *
 * Files are read straight into the sum, which is quickest. Should one of them turn out damaged, the sum has
 * part of it: then all is read again, each file on its own. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/cleanup.h"
#include "daemon/store_internal.h"
#include "profile/limit.h"

#define MAX_RESTARTS 8 /* of a query, when windows were merged or found damaged under it */

/* Keeps the profile within the bound. */
static int keep_bound(struct profile **p, const struct store_reading *how)
{
        struct profile *made;

        if (!how->max_rows || (*p)->n_samples <= how->max_rows)
                return 0;
        if (!how->fold)
                return -EOVERFLOW;
        int r = profile_limit(*p, how->max_rows / 2, 0, &made); /* half: not again with each window */
        if (r < 0)
                return r;
        profile_free(*p);
        *p = made;
        return 0;
}

/* Event and side, which no reader of files looks at, of the sum. -ENOENT: the event was not sampled then. */
static int select_rest(struct profile **p, const struct selection *sel)
{
        struct selection rest = selection_any();
        struct profile *selected = NULL;

        if (!sel || (!sel->event && sel->side == SELECT_BOTH))
                return 0;
        rest.event = sel->event;
        rest.side = sel->side;
        int r = selection_apply(&rest, *p, &selected);
        if (r < 0)
                return r;
        profile_free(*p);
        *p = selected;
        return 0;
}

static struct pprof_choice choice_of(const struct store_reading *how)
{
        return (struct pprof_choice){.selection = how->selection, .no_processes = how->no_processes};
}

/* Any file that cannot be read is a failure here. */
static int add_straight(int dir_fd, const struct store_plan *plan, const struct store_reading *how,
                        struct profile **ret)
{
        _cleanup_profile_ struct profile *all = NULL;
        const struct pprof_choice choice = choice_of(how);
        const char *why;

        int r = profile_new(&all);
        for (uint32_t i = 0; i < plan->n && r >= 0; i++) {
                r = store_merge_window(dir_fd, plan->source[i].name, &choice, all, &why);
                if (r >= 0)
                        r = keep_bound(&all, how);
        }
        if (r < 0)
                return r;
        *ret = TAKE_PTR(all);
        return 0;
}

/* A file that could not be read. 1: pass over it; -EAGAIN: others take its place. */
static int unreadable(struct store *s, const struct store_source *source, int err, const char *why)
{
        int r = 1;

        if (err != -EBADMSG && err != -ENOENT)
                return err;
        if (err == -ENOENT && !source->is_sum) /* deleted meanwhile */
                return 1;
        pthread_mutex_lock(&s->lock);
        struct store_entry *e = source->is_sum ? NULL : index_find(s, source->name);
        if (source->is_sum) {
                sums_bad(s, source->name);
                r = -EAGAIN;
        } else if (e) {
                index_bad(s, e, why ? why : "damaged");
                if (e->facts.from)
                        r = -EAGAIN;
        }
        pthread_mutex_unlock(&s->lock);
        return r;
}

static int add_each(struct store *s, int dir_fd, const struct store_plan *plan,
                    const struct store_reading *how, struct profile **ret)
{
        _cleanup_profile_ struct profile *all = NULL;
        const struct pprof_choice choice = choice_of(how);
        uint32_t added = 0;

        int r = profile_new(&all);
        for (uint32_t i = 0; i < plan->n && r >= 0; i++) {
                _cleanup_profile_ struct profile *p = NULL;
                const char *why = NULL;
                r = profile_new(&p);
                if (r == 0)
                        r = store_merge_window(dir_fd, plan->source[i].name, &choice, p, &why);
                if (r < 0) {
                        int u = unreadable(s, &plan->source[i], r, why);
                        r = how->strict && u > 0 ? r : u;
                        continue;
                }
                r = profile_merge(all, p);
                if (r >= 0)
                        r = keep_bound(&all, how);
                added++;
        }
        if (r < 0)
                return r;
        if (added == 0)
                return -ENODATA;
        *ret = TAKE_PTR(all);
        return 0;
}

int store_add_up(struct store *s, int dir_fd, const struct store_plan *plan, const struct store_reading *how,
                 struct profile **ret)
{
        _cleanup_profile_ struct profile *p = NULL;

        int r = add_straight(dir_fd, plan, how, &p);
        if (r == -EBADMSG || r == -ENOENT)
                r = add_each(s, dir_fd, plan, how, &p);
        if (r >= 0)
                r = select_rest(&p, how->selection);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(p);
        return 0;
}

/* -- queries -- */

/* The windows of a range as sums_plan() wants them. */
static struct store_entry **in_range(struct store *s, uint64_t since_ns, uint64_t until_ns, uint32_t *ret_n)
{
        uint32_t n, kept = 0;
        struct store_entry **v = index_in_order(s, &n);

        for (uint32_t i = 0; v && i < n; i++)
                if (entry_overlaps(v[i], since_ns, until_ns))
                        v[kept++] = v[i];
        for (uint32_t i = 0; v && i < s->n_entries; i++)
                if (!s->entry[i]->ours && entry_overlaps(s->entry[i], since_ns, until_ns))
                        v[kept++] = s->entry[i];
        *ret_n = kept;
        return v;
}

static int make_plan(struct store *s, uint64_t since_ns, uint64_t until_ns, bool with_sums,
                     struct store_plan *ret)
{
        uint32_t n;
        _cleanup_free_ struct store_entry **v = in_range(s, since_ns, until_ns, &n);

        if (!v)
                return -ENOMEM;
        return n == 0 ? -ENODATA : sums_plan(with_sums ? s : NULL, v, n, ret);
}

static void reader_remove(struct store *s, struct store_reader *me)
{
        for (struct store_reader **p = &s->readers; *p; p = &(*p)->next)
                if (*p == me) {
                        *p = me->next;
                        return;
                }
}

struct request {
        uint64_t since_ns, until_ns;
        bool with_sums;
        struct store_reading how;
};

static int query_once(struct store *s, const struct request *q, struct profile **ret)
{
        _cleanup_(store_plan_done) struct store_plan plan = {0};
        _cleanup_close_ int dir_fd = -1;
        struct store_reader me;

        pthread_mutex_lock(&s->lock);
        index_refresh(s);
        sums_find(s);
        int r = make_plan(s, q->since_ns, q->until_ns, q->with_sums, &plan);
        if (r == 0) {
                dir_fd = fcntl(s->dir_fd, F_DUPFD_CLOEXEC, 0);
                r = dir_fd < 0 ? -errno : 0;
        }
        me = (struct store_reader){.ticket = s->next_ticket++, .next = s->readers};
        s->readers = &me;
        pthread_mutex_unlock(&s->lock);

        if (r == 0)
                r = store_add_up(s, dir_fd, &plan, &q->how, ret);

        pthread_mutex_lock(&s->lock);
        reader_remove(s, &me);
        pthread_mutex_unlock(&s->lock);
        return r;
}

int store_query(struct store *s, uint64_t since_ns, uint64_t until_ns, const struct selection *sel,
                bool processes, struct profile **ret)
{
        bool needs_pid = sel && sel->pid >= 0, left_out = false;
        struct request q = {
                        .since_ns = since_ns,
                        .until_ns = until_ns,
                        .with_sums = !processes && !needs_pid,
                        .how = {.selection = sel,
                                .no_processes = !processes,
                                .max_rows = STORE_MAX_ROWS,
                                .fold = !processes},
        };
        int r = -EAGAIN;

        for (uint32_t i = 0; r == -EAGAIN && i < MAX_RESTARTS; i++) {
                r = query_once(s, &q, ret);
                if (r == -EAGAIN) /* one damaged sum is enough; the windows are there */
                        q.with_sums = false;
                if (r == -EOVERFLOW && processes) {
                        q.how.no_processes = q.how.fold = left_out = true;
                        q.with_sums = !needs_pid;
                        r = -EAGAIN;
                }
        }
        if (r < 0 || !left_out)
                return r;
        r = profile_comment(*ret, STORE_LEFT_OUT ": pid and thread_id: too many samples differ with them");
        if (r < 0)
                profile_free(*ret);
        return r;
}
