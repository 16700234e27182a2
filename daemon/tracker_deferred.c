#include "daemon/tracker_deferred.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "base/io.h"
#include "daemon/kept_raws.h"
#include "daemon/unwind_twin.h"

#define PATIENCE_NS NSEC_PER_SEC
/* Between two readings of one process in /proc. */
#define RESCAN_NS NSEC_PER_SEC

struct waiting {
        struct waiting *next;
        uint64_t deadline_ns;
        struct object_entry *object; /* what it waits for (held); NULL: records */
        uint32_t version;            /* of the object when it was found wanting */
        bool scanned;                /* /proc was asked for the process */
        bool as_scanned;             /* walk with what it said */
        uint32_t bytes;
        uint32_t window; /* that it was taken in */
        uint32_t n_kernel;
        const uint64_t *kernel;
        const struct abi_raw *raw;
        struct kept_raw *kept; /* both are in there; NULL: in data */
        uint64_t data[];
};

struct deferred {
        struct deferred_parts parts;
        struct kept_raws *kept; /* NULL: nothing outlives us */
        struct waiting *first, **end;
        uint64_t bytes, max_bytes;
        uint32_t window;
        struct deferred_stats stats;
};

int deferred_new(struct deferred **ret, const struct deferred_parts *parts, uint64_t max_bytes)
{
        struct deferred *d = calloc(1, sizeof(*d));

        if (!d)
                return -ENOMEM;
        d->parts = *parts;
        d->max_bytes = max_bytes;
        d->end = &d->first;
        *ret = d;
        return 0;
}

void deferred_keep(struct deferred *d, struct kept_raws *kept)
{
        d->kept = kept;
}

static void wait_for(struct waiting *w, struct object_entry *o)
{
        if (w->object)
                w->object->refs--;
        w->object = o;
        if (o) {
                o->refs++;
                w->version = o->version;
        }
}

static void waiting_free(struct deferred *d, struct waiting *w)
{
        wait_for(w, NULL);
        if (w->kept)
                kept_raws_done(d->kept, w->kept);
        d->bytes -= w->bytes;
        free(w);
}

struct deferred *deferred_free(struct deferred *d)
{
        if (!d)
                return NULL;
        for (struct waiting *w = d->first, *next; w; w = next) {
                next = w->next;
                waiting_free(d, w);
        }
        free(d);
        return NULL;
}

static void emit(struct deferred *d, const struct waiting *w, enum abi_walk walk, const uint64_t *frame,
                 uint32_t n, uint64_t now_ns)
{
        struct abi_key key = w->raw->key;

        key.walk = (uint8_t)walk;
        key.user_stack = n ? hash_bytes(frame, n * sizeof(*frame)) | 1 : 0;
        struct sample_row row = {
                        .key = &key,
                        .samples = 1,
                        .weight = w->raw->weight,
                        .kernel = w->kernel,
                        .n_kernel = w->n_kernel,
                        .user = frame,
                        .n_user = n,
                        .window = w->window,
        };
        d->stats.waited_ns += now_ns - MIN_OF(now_ns, w->raw->time_ns);
        d->stats.complete += walk == ABI_WALK_COMPLETE || walk == ABI_WALK_FOLDED;
        d->stats.lost += tracker_rows_add(d->parts.rows, &row) < 0;
}

/* Of nobody's mappings: the one address that is certain. */
static void emit_unknown(struct deferred *d, const struct waiting *w, uint64_t now_ns)
{
        uint64_t frame = ABI_FRAME(0, w->raw->registers.ip);

        emit(d, w, ABI_WALK_NO_PROCESS, &frame, 1, now_ns);
}

static struct process_entry *process_of(struct deferred *d, struct waiting *w)
{
        const struct abi_raw *raw = w->raw;
        struct process_entry *p = process_table_at(d->parts.processes, raw->key.tgid, raw->time_ns);

        if (p && (process_entry_image(p, raw->time_ns)->maps->n || w->scanned))
                return p;
        if (w->scanned)
                return NULL;
        /* It came before us, or its records were lost. */
        w->scanned = true;
        if (process_table_scan(d->parts.processes, raw->key.tgid) < 0)
                return p;
        return process_table_at(d->parts.processes, raw->key.tgid, raw->time_ns);
}

/* Its next samples need not be deferred: the kernel half gets the list. */
static void publish(struct deferred *d, struct process_entry *p, const struct process_image *image,
                    const struct waiting *w, bool settled)
{
        if (image != p->image || p->process.exited)
                return;
        if (settled)
                p->flags |= ABI_PROCESS_SETTLED;
        if (p->stamp != w->raw->stamp || p->stamp_image != image || settled) {
                p->wanted_stamp = w->raw->stamp;
                process_table_find_ns_pid(d->parts.processes, p);
                process_table_mark(d->parts.processes, p);
        }
}

static enum object_answer ask(struct deferred *d, const struct unwind_twin_result *r, uint64_t now_ns)
{
        enum object_answer a = object_table_need(d->parts.objects, r->missing, now_ns);

        if (a == OBJECT_HAVE && r->missing_rows)
                a = object_table_need_rows(d->parts.objects, r->missing, r->missing_address, now_ns);
        return a;
}

/* An address outside every mapping: of a list that is not whole, because records were lost? */
static bool look_again(struct deferred *d, struct waiting *w, struct process_entry *p,
                       const struct process_image *image, uint64_t now_ns)
{
        if (w->scanned || p->process.exited || image != p->image || now_ns - p->rescanned_ns < RESCAN_NS)
                return false;
        w->scanned = true;
        w->as_scanned = process_table_scan(d->parts.processes, p->process.pid) == 0 &&
                        process_table_find(d->parts.processes, p->process.pid) == p;
        return w->as_scanned;
}

/* True when the sample is done with. */
static bool finish(struct deferred *d, struct waiting *w, bool last, uint64_t now_ns)
{
        struct unwind_twin_result r;
        struct process_entry *p = process_of(d, w);

        if (!p) {
                emit_unknown(d, w, now_ns);
                return true;
        }
        p->used_ns = now_ns;
        struct process_image *image = w->as_scanned ? p->image : process_entry_image(p, w->raw->time_ns);
        publish(d, p, image, w, false);
        for (;;) {
                unwind_twin_walk(w->raw, image->maps, d->parts.tables, now_ns, &r);
                if (r.unmapped && look_again(d, w, p, image, now_ns)) {
                        image = p->image;
                        publish(d, p, image, w, false);
                        continue;
                }
                if (!r.missing)
                        break;
                struct object_entry *o = r.missing;
                uint32_t version = o->version;
                if (ask(d, &r, now_ns) == OBJECT_WAIT) {
                        if (last)
                                break;
                        wait_for(w, o);
                        return false;
                }
                if (o->version == version)
                        break; /* as much as can be had */
        }
        d->stats.hurried += r.missing != NULL;
        if (r.unmapped)
                publish(d, p, image, w, true);
        emit(d, w, r.walk, r.frame, r.n, now_ns);
        return true;
}

static bool run_one(struct deferred *d, struct waiting *w, uint64_t applied_ns, uint64_t now_ns)
{
        bool last = now_ns >= w->deadline_ns;

        if (!last && (w->raw->time_ns > applied_ns || (w->object && w->object->version == w->version)))
                return false;
        return finish(d, w, last, now_ns);
}

void deferred_run(struct deferred *d, uint64_t applied_ns, uint64_t now_ns)
{
        struct waiting **at = &d->first;

        while (*at) {
                struct waiting *w = *at;
                if (!run_one(d, w, applied_ns, now_ns)) {
                        at = &w->next;
                        continue;
                }
                *at = w->next;
                waiting_free(d, w);
        }
        d->end = at;
}

void deferred_window(struct deferred *d, uint32_t number)
{
        d->window = number;
}

/* They are in the order in which they came. */
uint32_t deferred_oldest(const struct deferred *d)
{
        return d->first ? d->first->window : UINT32_MAX;
}

bool deferred_waiting(const struct deferred *d)
{
        return d->first != NULL;
}

void deferred_add(struct deferred *d, const struct abi_raw *raw, const uint64_t *kernel, uint32_t n_kernel)
{
        size_t kernel_bytes = n_kernel * sizeof(*kernel),
               raw_bytes = sizeof(*raw) + raw->leaf_len + raw->root_len;
        uint64_t now = now_monotonic_ns();

        d->stats.taken++;
        struct kept_raw *kept = kept_raws_add(d->kept, raw, kernel, n_kernel);
        struct waiting *w = malloc(sizeof(*w) + (kept ? 0 : kernel_bytes + raw_bytes));
        if (!w) {
                if (kept)
                        kept_raws_done(d->kept, kept);
                d->stats.lost++;
                return;
        }
        *w = (struct waiting){
                        .deadline_ns = now + PATIENCE_NS,
                        .bytes = (uint32_t)(sizeof(*w) + kernel_bytes + raw_bytes),
                        .window = d->window,
                        .n_kernel = n_kernel,
                        .kernel = kept ? kept->kernel : w->data,
                        .raw = kept ? &kept->raw : (struct abi_raw *)(w->data + n_kernel),
                        .kept = kept,
        };
        if (!kept) {
                if (kernel_bytes)
                        memcpy(w->data, kernel, kernel_bytes);
                memcpy(w->data + n_kernel, raw, raw_bytes);
        }
        d->bytes += w->bytes;
        if (d->bytes > d->max_bytes) {
                finish(d, w, true, now);
                waiting_free(d, w);
                return;
        }
        *d->end = w;
        d->end = &w->next;
}

void deferred_stats(const struct deferred *d, struct deferred_stats *ret)
{
        *ret = d->stats;
        ret->memory = sizeof(*d) + d->bytes;
}
