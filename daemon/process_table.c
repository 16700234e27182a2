#include "daemon/process_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "daemon/process_scan.h"

/* What a process did before it ended is in the next drain, its deferred samples in the one after that. */
#define GRACE_TICKS 2
/* Drains may follow each other quickly; a deferred sample may wait for a second. */
#define GRACE_NS (2 * NSEC_PER_SEC)
/* A start from a record and the kernel's own differ by what creating a process takes; one from /proc is
 * rounded down to a tick of 10 ms. A process whose start is further off is another one. */
#define START_TOLERANCE_NS (250 * NSEC_PER_MSEC)

struct process_table {
        struct object_table *objects;
        struct process_map_ops ops;
        struct process_index index;
        struct process_entry *dirty;
        uint64_t limit;      /* bytes of all of it, */
        uint64_t list_bytes; /* of the lists of mappings */
        uint32_t tick;
        struct buf scratch;
        struct process_table_stats stats;
};

struct process_entry *process_table_find(struct process_table *t, uint32_t pid)
{
        return process_index_find(&t->index, pid);
}

static void on_mapped(struct object_entry *o)
{
        o->mappings++;
}

static void on_unmapped(struct object_entry *o)
{
        o->mappings--;
}

/* -- images -- */

/* A new image; takes over the reference to `maps`. */
static int push_image(struct process_table *t, struct process_entry *p, uint64_t from_ns,
                      struct process_maps *maps)
{
        struct process_image *i = calloc(1, sizeof(*i));

        if (!i)
                return -ENOMEM;
        t->stats.memory += sizeof(*i);
        i->from_ns = from_ns;
        i->maps = maps;
        i->older = p->image;
        if (p->image)
                p->image->replaced_tick = t->tick;
        p->image = i;
        return 0;
}

static int push_empty_image(struct process_table *t, struct process_entry *p, uint64_t from_ns)
{
        struct process_maps *maps;

        int r = process_maps_new(&maps, &t->ops);
        if (r < 0)
                return r;
        r = push_image(t, p, from_ns, maps);
        if (r < 0)
                process_maps_unref(maps, &t->ops);
        return r;
}

static void free_images(struct process_table *t, struct process_image *i)
{
        while (i) {
                struct process_image *older = i->older;
                process_maps_unref(i->maps, &t->ops);
                free(i);
                t->stats.memory -= sizeof(*i);
                i = older;
        }
}

struct process_image *process_entry_image(struct process_entry *p, uint64_t time_ns)
{
        struct process_image *i = p->image;

        while (i->older && i->from_ns > time_ns)
                i = i->older;
        return i;
}

/* -- processes -- */

void process_table_mark(struct process_table *t, struct process_entry *p)
{
        if (p->dirty)
                return;
        p->dirty = true;
        p->next_dirty = t->dirty;
        t->dirty = p;
}

struct process_entry *process_table_next_dirty(struct process_table *t)
{
        struct process_entry *p = t->dirty;

        if (p) {
                t->dirty = p->next_dirty;
                p->next_dirty = NULL;
                p->dirty = false;
        }
        return p;
}

struct process_entry *process_table_next(struct process_table *t, struct process_entry *p)
{
        return process_index_next(&t->index.live, p);
}

static struct process_entry *add_process(struct process_table *t, uint32_t pid, struct process_maps *maps,
                                         uint64_t from_ns)
{
        struct process_entry *p = calloc(1, sizeof(struct process_entry));

        if (!p)
                return NULL;
        p->process.pid = pid;
        p->threads = 1;
        int r = maps ? push_image(t, p, from_ns, maps) : push_empty_image(t, p, from_ns);
        if (r < 0) {
                free(p);
                return NULL;
        }
        process_index_add(&t->index, p);
        t->stats.memory += sizeof(*p);
        return p;
}

static void mark_exited(struct process_table *t, struct process_entry *p)
{
        if (p->process.exited)
                return;
        p->process.exited = true;
        p->exited_tick = t->tick;
        process_index_exited(&t->index, p);
        t->stats.exits++;
        process_table_mark(t, p);
}

/* What a record names: the process that is there now, made when it is new to us. */
static struct process_entry *process_of(struct process_table *t, const struct process_record *r)
{
        struct process_entry *p = process_table_find(t, r->pid);

        if (p && !p->process.exited)
                return p;
        if (p && r->time <= p->applied_ns)
                return NULL;
        /* Its FORK was lost. */
        p = add_process(t, r->pid, NULL, 0);
        if (p)
                p->rescan = true;
        return p;
}

/* -- records -- */

static struct object_entry *object_for(struct process_table *t, struct process_entry *p, uint64_t start,
                                       uint64_t end, struct object_key *key)
{
        /* Of 32-bit processes: another vDSO than ours. */
        if (!key->inode && strcmp(key->name, "[vdso]") == 0 && start >> 32 == 0)
                key->name = "[vdso32]";
        struct object_entry *o = object_table_get(t->objects, key);
        if (!o)
                return NULL;
        struct object_mapper m = {
                        .pid = p->process.pid, .ppid = p->process.ppid, .start = start, .end = end};
        object_table_mapper(t->objects, o, &m, p->applied_ns);
        return o;
}

static void add_mapping(struct process_table *t, struct process_entry *p, const struct process_scan_map *m,
                        uint64_t generation)
{
        struct object_key key = {m->device, m->inode, generation, m->name};
        struct object_entry *o = object_for(t, p, m->start, m->end, &key);

        if (!o) {
                t->stats.ignored++;
                return;
        }
        struct process_mapping mapping = {m->start, m->end, m->inode ? m->offset : 0, o};
        int r = process_maps_add(&p->image->maps, &mapping, &t->ops);
        if (r > 0) {
                p->flags &= ~(uint32_t)ABI_PROCESS_SETTLED;
                process_table_mark(t, p);
        } else if (r < 0) {
                t->stats.ignored++;
                p->rescan = r == -ENOSPC; /* nobody reports munmap(): the list may be full of what is gone */
        }
}

static void apply_mmap(struct process_table *t, const struct process_record *r)
{
        struct process_scan_map m = {r->start, r->end, r->offset, r->device, r->inode, r->name};
        struct process_entry *p = process_of(t, r);

        if (!p || r->time < p->applied_ns)
                return;
        p->applied_ns = r->time;
        add_mapping(t, p, &m, r->generation);
}

static void set_comm(struct process_entry *p, const char *comm)
{
        strncpy(p->process.comm, comm, sizeof(p->process.comm) - 1);
}

static void apply_exec(struct process_table *t, const struct process_record *r)
{
        struct process_entry *p = process_of(t, r);

        if (!p || r->time < p->applied_ns)
                return;
        t->stats.execs++;
        if (push_empty_image(t, p, r->time) < 0)
                return;
        p->applied_ns = r->time;
        p->threads = 1; /* all others are gone */
        p->leader_exited = false;
        p->rescan = false;
        set_comm(p, r->name);
        process_table_mark(t, p);
}

static void apply_comm(struct process_table *t, const struct process_record *r)
{
        if (r->pid != r->tid)
                return;
        struct process_entry *p = process_of(t, r);
        if (p && r->time >= p->applied_ns)
                set_comm(p, r->name);
}

/* Records carry monotonic time, which a suspended host does not count; a start is in boot time, which does.
 * What is between the two is asked for each time: it jumps when the host wakes, just when many start. */
static void set_birth(struct process_entry *p, const struct process_record *r)
{
        p->born_ns = r->time;
        p->process.ppid = r->ppid;
        p->process.start_ns = r->time + (now_boottime_ns() - now_monotonic_ns());
}

static void apply_fork(struct process_table *t, const struct process_record *r)
{
        if (r->pid == r->ppid) {
                struct process_entry *p = process_table_find(t, r->pid);
                if (p && !p->process.exited && r->time > p->applied_ns)
                        p->threads++;
                return;
        }
        struct process_entry *old = process_table_find(t, r->pid);
        if (old && r->time <= MAX_OF(old->born_ns, old->applied_ns)) {
                /* Came late: what it is by now is known, not what it comes from. */
                if (!old->process.start_ns)
                        set_birth(old, r);
                return;
        }
        if (old)
                mark_exited(t, old);
        struct process_entry *parent = process_table_at(t, r->ppid, r->time);
        struct process_maps *maps =
                        parent ? process_maps_ref(process_entry_image(parent, r->time)->maps) : NULL;
        struct process_entry *p = add_process(t, r->pid, maps, r->time);
        if (!p) {
                process_maps_unref(maps, &t->ops);
                return;
        }
        t->stats.forks++;
        p->applied_ns = r->time;
        set_birth(p, r);
        if (parent) {
                memcpy(p->process.comm, parent->process.comm, sizeof(p->process.comm));
                p->process.marks = parent->process.marks;
                p->rescan = parent->rescan;
        }
}

static void apply_exit(struct process_table *t, const struct process_record *r)
{
        struct process_entry *p = process_table_find(t, r->pid);

        if (!p || p->process.exited || r->time < p->born_ns)
                return;
        p->applied_ns = MAX_OF(p->applied_ns, r->time);
        if (p->threads)
                p->threads--;
        p->leader_exited = p->leader_exited || r->tid == r->pid;
        if (!p->threads)
                mark_exited(t, p);
        else if (p->leader_exited)
                p->rescan = true; /* did they all go, or does it live on without its leader? */
}

void process_table_apply(void *table, const struct process_record *r)
{
        struct process_table *t = table;

        switch (r->type) {
        case RECORD_MMAP:
                apply_mmap(t, r);
                break;
        case RECORD_EXEC:
                apply_exec(t, r);
                break;
        case RECORD_COMM:
                apply_comm(t, r);
                break;
        case RECORD_FORK:
                apply_fork(t, r);
                break;
        case RECORD_EXIT:
                apply_exit(t, r);
                break;
        case RECORD_LOST:
                t->stats.lost += r->lost;
                break;
        }
}

/* -- /proc -- */

struct scan {
        struct process_table *t;
        struct process_entry *p;
};

static void on_scanned(void *ctx, const struct process_scan_map *m)
{
        const struct scan *s = ctx;

        if (m->start >> 63)
                return; /* [vsyscall]: the kernel's, and the same in all */
        add_mapping(s->t, s->p, m, 0);
}

/* The process that /proc shows, which may be another one than that we knew by the pid. */
static struct process_entry *scanned_process(struct process_table *t, uint32_t pid,
                                             const struct process_stat *s)
{
        struct process_entry *p = process_table_find(t, pid);

        if (p && !p->process.exited && p->process.start_ns &&
            p->process.start_ns > s->start_ns + START_TOLERANCE_NS)
                return p; /* /proc cannot be older: clock trouble; keep it */
        if (p && !p->process.exited &&
            (!p->process.start_ns || p->process.start_ns + START_TOLERANCE_NS > s->start_ns))
                return p;
        if (p && !p->process.exited)
                mark_exited(t, p);
        p = add_process(t, pid, NULL, 0);
        return p;
}

int process_table_scan(struct process_table *t, uint32_t pid)
{
        struct process_stat s;
        uint64_t now = now_monotonic_ns();

        int r = process_scan_stat(pid, &t->scratch, &s);
        if (r < 0) {
                struct process_entry *gone = process_table_find(t, pid);
                if (gone && !gone->process.exited)
                        mark_exited(t, gone);
                return -ESRCH;
        }
        struct process_entry *p = scanned_process(t, pid, &s);
        if (!p)
                return -ENOMEM;
        p->rescan = false;
        p->rescanned_ns = now;
        if (s.state == 'Z' && s.threads <= 1) {
                mark_exited(t, p);
                return -ESRCH;
        }
        /* Records of before this moment are in what is read now; those of after it are applied on top. */
        if (p->image->maps->n && push_empty_image(t, p, now) < 0)
                return -ENOMEM;
        p->applied_ns = now;
        p->threads = s.threads;
        p->leader_exited = s.state == 'Z';
        p->process.ppid = s.ppid;
        if (!p->process.start_ns)
                p->process.start_ns = s.start_ns;
        memcpy(p->process.comm, s.comm, sizeof(s.comm));
        struct scan scan = {t, p};
        (void)process_scan_maps(pid, &t->scratch, on_scanned, &scan); /* gone since: its EXIT comes */
        process_table_mark(t, p);
        return 0;
}

static void scan_one(void *ctx, uint32_t pid)
{
        (void)process_table_scan(ctx, pid); /* gone since */
}

int process_table_scan_all(struct process_table *t)
{
        uint64_t begin = now_monotonic_ns();

        int r = process_scan_all(scan_one, t);
        if (r < 0)
                return r;
        /* Whoever was not there any more is gone, whatever became of the record that said so. */
        for (struct process_entry *p = process_table_next(t, NULL), *next; p; p = next) {
                next = process_table_next(t, p);
                if (p->rescanned_ns < begin)
                        (void)process_table_scan(t, p->process.pid);
        }
        return 0;
}

void process_table_find_ns_pid(struct process_table *t, struct process_entry *p)
{
        if (!p->process.ns_pid && !p->process.exited)
                p->process.ns_pid = process_scan_ns_pid(p->process.pid, &t->scratch);
}

/* -- finding -- */

struct process_entry *process_table_at(struct process_table *t, uint32_t pid, uint64_t time_ns)
{
        struct process_entry *p = process_table_find(t, pid);

        while (p && p->older && p->born_ns > time_ns)
                p = p->older;
        return p;
}

struct process_entry *process_table_started(struct process_table *t, uint32_t pid, uint64_t start_ns)
{
        struct process_entry *best = NULL;
        uint64_t best_off = START_TOLERANCE_NS;

        for (struct process_entry *p = process_table_find(t, pid); p; p = p->older) {
                if (!start_ns)
                        return p;
                uint64_t mine = p->process.start_ns;
                uint64_t off = !mine ? 0 : mine > start_ns ? mine - start_ns : start_ns - mine;
                if (off < best_off) {
                        best = p;
                        best_off = off;
                }
        }
        return best;
}

/* -- upkeep -- */

static bool refresh_list(struct process_table *t, struct process_maps *maps)
{
        bool touched = false;

        for (uint32_t i = 0; i < maps->n; i++) {
                struct object_entry **o = &maps->mapping[i].object;
                while ((*o)->successor) {
                        struct object_entry *new = (*o)->successor;
                        on_mapped(new);
                        on_unmapped(*o);
                        *o = new;
                        touched = true;
                }
                touched = touched || (*o)->republish;
        }
        return touched;
}

void process_table_refresh(struct process_table *t)
{
        /* What has ended did so with what it had: a sample that still waits is walked with that. */
        for (struct process_entry *p = NULL; (p = process_table_next(t, p));)
                for (struct process_image *i = p->image; i; i = i->older)
                        if (refresh_list(t, i->maps)) {
                                if (i->maps->published_n)
                                        t->ops.withdrawn(t->ops.ctx, i->maps->published_first,
                                                         i->maps->published_n);
                                i->maps->published_n = 0;
                        }
        /* A list that several share was withdrawn at the first: all whose list is not up to date follow. */
        for (struct process_entry *p = NULL; (p = process_table_next(t, p));)
                if (p->stamp && !p->image->maps->published_n)
                        process_table_mark(t, p);
}

static void drop_old_images(struct process_table *t, struct process_entry *p, uint64_t now)
{
        for (struct process_image *i = p->image; i->older; i = i->older)
                if (t->tick - i->older->replaced_tick >= GRACE_TICKS && now - i->from_ns > GRACE_NS) {
                        free_images(t, i->older);
                        i->older = NULL;
                        return;
                }
}

static void unlink_dirty(struct process_table *t, struct process_entry *p)
{
        struct process_entry **at = &t->dirty;

        if (!p->dirty)
                return;
        while (*at != p)
                at = &(*at)->next_dirty;
        *at = p->next_dirty;
}

static void forget(struct process_table *t, struct process_entry *p, process_gone_fn gone, void *ctx)
{
        gone(ctx, p);
        unlink_dirty(t, p);
        process_index_remove(&t->index, p);
        free_images(t, p->image);
        free(p);
        t->stats.memory -= sizeof(*p);
}

void process_table_tick(struct process_table *t, process_gone_fn gone, void *ctx)
{
        struct process_entry *p;

        t->tick++;
        uint64_t now = now_monotonic_ns();
        while ((p = process_index_next(&t->index.exited, NULL)) && t->tick - p->exited_tick >= GRACE_TICKS &&
               now - p->applied_ns >= GRACE_NS)
                forget(t, p, gone, ctx);
        for (p = NULL; (p = process_table_next(t, p));)
                drop_old_images(t, p, now);
}

static uint64_t memory(const struct process_table *t)
{
        return t->stats.memory + t->list_bytes + process_index_memory(&t->index);
}

void process_table_trim(struct process_table *t, process_gone_fn gone, void *ctx)
{
        struct process_entry *p;

        while (memory(t) > t->limit && (p = process_index_next(&t->index.exited, NULL))) {
                forget(t, p, gone, ctx);
                t->stats.forgotten++;
        }
}

void process_table_unmark(struct process_table *t, uint32_t mark)
{
        struct process_entry *p;

        for (p = NULL; (p = process_index_next(&t->index.live, p));)
                p->process.marks &= ~mark;
        for (p = NULL; (p = process_index_next(&t->index.exited, p));)
                p->process.marks &= ~mark;
}

int process_table_new(struct process_table **ret, struct object_table *objects, uint64_t memory,
                      void (*withdrawn)(void *ctx, uint32_t first, uint32_t n), void *ctx)
{
        struct process_table *t = calloc(1, sizeof(*t));

        if (!t)
                return -ENOMEM;
        if (process_index_init(&t->index) < 0) {
                free(t);
                return -ENOMEM;
        }
        t->objects = objects;
        t->limit = memory;
        t->ops = (struct process_map_ops){on_mapped, on_unmapped, withdrawn, ctx, &t->list_bytes};
        t->stats.memory = sizeof(*t);
        *ret = t;
        return 0;
}

static void free_ring(struct process_table *t, struct process_ring *ring)
{
        for (struct process_entry *p = process_index_next(ring, NULL), *next; p; p = next) {
                next = process_index_next(ring, p);
                free_images(t, p->image);
                free(p);
        }
}

struct process_table *process_table_free(struct process_table *t)
{
        if (!t)
                return NULL;
        free_ring(t, &t->index.live);
        free_ring(t, &t->index.exited);
        buf_free(&t->scratch);
        process_index_done(&t->index);
        free(t);
        return NULL;
}

void process_table_stats(const struct process_table *t, struct process_table_stats *ret)
{
        *ret = t->stats;
        ret->processes = t->index.n;
        ret->memory = memory(t) + t->scratch.cap;
}
