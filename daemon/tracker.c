/* The tracker's own work is to let its parts meet: records → processes → lists in the kernel's maps;
 * deferred samples → what they miss → rows.
 *
 * It is lazy. Records are applied in batches. A process gets its list in the kernel's maps, a file is opened
 * and its table loaded, only when a sample touched them: a host runs many processes for each that is
 * sampled, and most of those that live for milliseconds never are. */
#include "daemon/tracker.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/log.h"
#include "daemon/kept_raws.h"
#include "daemon/kept_state.h"
#include "daemon/object_table.h"
#include "daemon/process_ring.h"
#include "daemon/process_table.h"
#include "daemon/tracker_deferred.h"
#include "daemon/tracker_rows.h"
#include "daemon/unwind_lists.h"
#include "daemon/unwind_tables.h"

#define RING_BYTES     (4u << 20) /* of all CPUs */
#define DEFERRED_BYTES (8u << 20)
#define PROCESS_SHARE  4          /* of the memory for tables, for processes besides, */
#define PROCESS_BYTES  (1u << 20) /* and at least */
/* A record of this age is in its ring: what is younger may still be overtaken by one of another CPU. */
#define SETTLE_NS     (2 * NSEC_PER_MSEC)
#define RESCAN_ALL_NS (5 * NSEC_PER_SEC) /* between two readings of all /proc after records were lost */
#define RESCAN_ONE_NS NSEC_PER_SEC

struct tracker {
        struct process_rings *rings;
        struct record_batch *batch;
        struct unwind_tables *tables;
        struct unwind_lists *lists;
        struct object_table *objects;
        struct process_table *processes;
        struct tracker_rows *rows;
        struct deferred *deferred;
        struct kept_raws *kept_raws; /* NULL: nothing outlives us */
        int epoll_fd;
        int kick_fd; /* readable when a deferred sample may go on */
        uint64_t applied_ns, rescanned_ns, checked_ns;
        uint64_t records;
        uint32_t marks;   /* in use, of tracker_follow() */
        uint64_t skipped; /* records */
        bool held;        /* records are thrown away */
        bool lost;        /* records were, since the last rescan */
};

static void on_moved(void *ctx)
{
        struct tracker *t = ctx;
        uint64_t one = 1;

        if (t->deferred && deferred_waiting(t->deferred))
                (void)!write(t->kick_fd, &one, sizeof(one)); /* full: it is readable already */
}

static int watch(struct tracker *t, int fd)
{
        struct epoll_event event = {.events = EPOLLIN};

        return epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

static int make_parts(struct tracker *t, const struct unwind_maps *maps, struct symclient *symbols,
                      uint64_t memory)
{
        int r = record_batch_new(&t->batch);

        if (r == 0)
                r = process_rings_new(&t->rings, MIN_OF(memory / 8, RING_BYTES));
        if (r == 0)
                r = unwind_tables_new(&t->tables, maps, memory);
        if (r == 0)
                r = unwind_lists_new(&t->lists, maps);
        if (r == 0)
                r = object_table_new(&t->objects, symbols, t->tables, on_moved, t);
        if (r == 0)
                r = process_table_new(&t->processes, t->objects,
                                      MAX_OF(memory / PROCESS_SHARE, PROCESS_BYTES), unwind_lists_withdrawn,
                                      t->lists);
        if (r == 0)
                r = tracker_rows_new(&t->rows);
        if (r == 0) {
                struct deferred_parts parts = {t->processes, t->objects, t->tables, t->rows};
                r = deferred_new(&t->deferred, &parts, DEFERRED_BYTES);
        }
        return r;
}

int tracker_new(struct tracker **ret, const struct unwind_maps *maps, struct symclient *symbols,
                uint64_t memory)
{
        struct tracker *t = calloc(1, sizeof(*t));

        if (!t)
                return -ENOMEM;
        t->kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        t->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        int r = t->kick_fd < 0 || t->epoll_fd < 0 ? -errno : 0;
        if (r == 0)
                r = make_parts(t, maps, symbols, memory);
        if (r == 0)
                r = watch(t, t->kick_fd);
        if (r == 0)
                r = watch(t, process_rings_fd(t->rings));
        if (r == 0)
                r = watch(t, object_table_fd(t->objects));
        if (r < 0) {
                tracker_free(t);
                return r;
        }
        *ret = t;
        return 0;
}

struct tracker *tracker_free(struct tracker *t)
{
        if (!t)
                return NULL;
        t->deferred = deferred_free(t->deferred);
        tracker_rows_free(t->rows);
        process_table_free(t->processes);
        object_table_free(t->objects);
        unwind_lists_free(t->lists);
        unwind_tables_free(t->tables);
        process_rings_free(t->rings);
        record_batch_free(t->batch);
        if (t->epoll_fd >= 0)
                close(t->epoll_fd);
        if (t->kick_fd >= 0)
                close(t->kick_fd);
        free(t);
        return NULL;
}

static int rescan_all(struct tracker *t)
{
        t->lost = false;
        t->rescanned_ns = now_monotonic_ns();
        return process_table_scan_all(t->processes);
}

int tracker_start(struct tracker *t)
{
        int r = process_rings_follow_cpus(t->rings);

        if (r < 0)
                return r;
        r = rescan_all(t);
        if (r < 0)
                log_error("Cannot read the list of processes in /proc: %s.", strerror(-r));
        return r;
}

int tracker_follow_cpus(struct tracker *t)
{
        int r = process_rings_follow_cpus(t->rings);

        if (r > 0)
                t->lost = true;
        return MIN_OF(r, 0);
}

int tracker_fd(const struct tracker *t)
{
        return t->epoll_fd;
}

void tracker_hold(struct tracker *t, bool held)
{
        t->held = held;
        t->lost = t->lost || held;
}

static void on_record(void *ctx, const struct process_record *r)
{
        struct tracker *t = ctx;

        t->lost = t->lost || r->type == RECORD_LOST;
        process_table_apply(t->processes, r);
}

/* Reads the rings and applies what is old enough to be in order. */
static void apply_records(struct tracker *t)
{
        uint64_t until = now_monotonic_ns() - SETTLE_NS;

        if (t->held) {
                t->skipped += process_rings_skip(t->rings);
                t->applied_ns = until;
                return;
        }
        if (process_rings_read(t->rings, t->batch) < 0)
                t->lost = true;
        t->records += record_batch_run(t->batch, until, on_record, t);
        t->applied_ns = until;
}

/* Processes of which something is missing: read again, but not too often. */
static void rescan_doubtful(struct tracker *t, uint64_t now)
{
        if (now - t->checked_ns < RESCAN_ONE_NS)
                return;
        t->checked_ns = now;
        for (struct process_entry *p = process_table_next(t->processes, NULL), *next; p; p = next) {
                next = process_table_next(t->processes, p);
                if (p->rescan && now - p->rescanned_ns > RESCAN_ONE_NS)
                        (void)process_table_scan(t->processes, p->process.pid); /* gone: marked so */
        }
}

static void publish(struct tracker *t, uint64_t now)
{
        if (object_table_changed(t->objects)) {
                process_table_refresh(t->processes);
                object_table_settled(t->objects);
        }
        for (struct process_entry *p; (p = process_table_next_dirty(t->processes));)
                unwind_lists_publish(t->lists, t->processes, p, now);
}

static void on_gone(void *ctx, struct process_entry *p)
{
        struct tracker *t = ctx;

        unwind_lists_remove(t->lists, p);
}

int tracker_poll(struct tracker *t)
{
        uint64_t kicks;

        (void)!read(t->kick_fd, &kicks, sizeof(kicks)); /* not kicked: EAGAIN */
        apply_records(t);
        object_table_dispatch(t->objects);
        uint64_t now = now_monotonic_ns();
        if (t->lost && !t->held && now - t->rescanned_ns > RESCAN_ALL_NS)
                (void)rescan_all(t); /* /proc cannot be read: said at the start */
        rescan_doubtful(t, now);
        deferred_run(t->deferred, t->applied_ns, now);
        publish(t, now);
        process_table_trim(t->processes, on_gone, t);
        return 0;
}

void tracker_defer(void *tracker, const struct abi_raw *raw, const uint64_t *kernel, uint32_t n_kernel)
{
        struct tracker *t = tracker;

        deferred_add(t->deferred, raw, kernel, n_kernel);
}

int tracker_drain(struct tracker *t, sample_row_fn row, void *ctx)
{
        int r = tracker_rows_drain(t->rows, row, ctx);

        kept_raws_flush(t->kept_raws);
        return r;
}

void tracker_window(struct tracker *t, uint32_t number)
{
        deferred_window(t->deferred, number);
}

uint32_t tracker_oldest_window(const struct tracker *t)
{
        return deferred_oldest(t->deferred);
}

void tracker_drained(struct tracker *t)
{
        uint64_t now = now_monotonic_ns();

        process_table_tick(t->processes, on_gone, t);
        object_table_tick(t->objects, now);
        unwind_lists_tick(t->lists);
        unwind_tables_tick(t->tables);
}

void tracker_keep(struct tracker *t, struct kept_objects *objects, struct kept_raws *raws)
{
        object_table_keep(t->objects, objects);
        deferred_keep(t->deferred, raws);
        t->kept_raws = raws;
}

uint16_t tracker_take_object(struct tracker *t, const struct kept_object *kept)
{
        const struct object_key key = {kept->device, kept->inode, kept->generation, kept->path};
        uint64_t now = now_monotonic_ns();

        /* Of a file that could not be opened: what its offsets are addresses of is not known now either. */
        if (kept->flags & KEPT_OBJECT_OFFSET || !memchr(kept->path, 0, sizeof(kept->path)))
                return 0;
        struct object_entry *o = object_table_get(t->objects, &key);
        if (!o)
                return 0;
        object_entry_used(o, now);
        (void)object_table_need(t->objects, o, now); /* names come when they come */
        return o->object.id;
}

struct object *tracker_object(struct tracker *t, uint32_t id)
{
        struct object_entry *o = object_table_find(t->objects, id);

        if (!o)
                return NULL;
        object_entry_used(o, now_monotonic_ns());
        return &o->object;
}

const struct process *tracker_process(struct tracker *t, uint32_t pid, uint64_t start_ns)
{
        struct process_entry *p = process_table_started(t->processes, pid, start_ns);

        if (!p)
                return NULL;
        p->used_ns = now_monotonic_ns();
        return &p->process;
}

const char *tracker_mapping_name(struct tracker *t, uint32_t pid, uint64_t address, uint64_t *ret_start)
{
        struct process_entry *p = process_table_find(t->processes, pid);
        const struct process_mapping *m = p ? process_maps_find(p->image->maps, address) : NULL;

        if (!m)
                return NULL;
        if (ret_start)
                *ret_start = m->start;
        return m->object->path;
}

int tracker_follow(struct tracker *t, uint32_t pid, uint32_t *ret_mark)
{
        struct process_entry *p = process_table_find(t->processes, pid);

        if (t->marks == UINT32_MAX)
                return -EBUSY;
        if (!p || p->process.exited) {
                apply_records(t);
                p = process_table_find(t->processes, pid);
        }
        if (!p || p->process.exited) {
                int r = process_table_scan(t->processes, pid);
                if (r < 0)
                        return r;
                p = process_table_find(t->processes, pid);
        }
        uint32_t mark = ~t->marks & (t->marks + 1); /* the lowest that is free */
        t->marks |= mark;
        p->process.marks |= mark;
        *ret_mark = mark;
        return 0;
}

void tracker_unfollow(struct tracker *t, uint32_t mark)
{
        process_table_unmark(t->processes, mark);
        t->marks &= ~mark;
}

void tracker_stats(const struct tracker *t, struct tracker_stats *ret)
{
        struct process_table_stats p;
        struct object_table_stats o;
        struct unwind_tables_stats u;
        struct unwind_lists_stats l;
        struct deferred_stats d;

        process_table_stats(t->processes, &p);
        object_table_stats(t->objects, &o);
        unwind_tables_stats(t->tables, &u);
        unwind_lists_stats(t->lists, &l);
        deferred_stats(t->deferred, &d);
        *ret = (struct tracker_stats){
                        .records = t->records,
                        .records_lost = p.lost,
                        .records_skipped = t->skipped,
                        .execs = p.execs,
                        .forks = p.forks,
                        .exits = p.exits,
                        .deferred = d.taken,
                        .deferred_complete = d.complete,
                        .deferred_wait_ns = d.waited_ns,
                        .deferred_hurried = d.hurried,
                        .deferred_lost = d.lost,
                        .processes = p.processes,
                        .published = l.processes,
                        .mappings = l.mappings,
                        .objects = o.objects,
                        .objects_open = o.open,
                        .objects_past = o.past,
                        .objects_stale = o.stale,
                        .objects_failed = o.failed,
                        .objects_lacking = o.lacking,
                        .lacking_error = o.lacking_error,
                        .objects_stuck = o.stuck,
                        .tables = u.tables,
                        .rows = u.rows,
                        .rules = u.rules,
                        .shards = u.shards,
                        .evictions = u.evictions,
                        .no_room = u.no_room + l.no_room + u.no_rules + p.ignored + p.forgotten,
                        .memory = p.memory + o.memory + d.memory + tracker_rows_memory(t->rows) +
                                  process_rings_memory(t->rings),
        };
}
