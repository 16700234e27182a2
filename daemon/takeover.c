/* Both kernel halves sample for a moment: the old one ends when the new one has run for half a period. Its
 * last tick was half a period before that on average, and the first one of the new one comes half a period
 * after: no tick is missing on average, and none is double.
 *
 * All of it can be done again: reading changes neither maps nor journals, and what was found is let go of
 * only when all of it is in journals of our own (kept_head.complete). A daemon that finds an incomplete one
 * and those before it reads them all, of the incomplete one the maps alone. */
#include "daemon/takeover.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/log.h"
#include "daemon/journal.h"
#include "daemon/kept_raws.h"
#include "daemon/old_half.h"

#define SAME_WINDOW_NS NSEC_PER_SEC
#define NO_OBJECT      0xffffu /* "[unknown object]" in a profile */

/* One daemon before us. */
struct before {
        const struct takeover_parts *parts;
        uint32_t generation, version;
        struct kept_memory *memory; /* NULL: not there, or not to be read */
        size_t memory_size;
        struct old_half *half;
        uint32_t place[UINT16_MAX + 1]; /* object id -> place in memory->object, + 1 */
        uint16_t ours[UINT16_MAX + 1];  /* object id -> our id, once it was asked for */
        int8_t event[ABI_MAX_EVENTS];   /* -> ours; -1: not sampled any more */
        int (*row)(void *ctx, const struct sample_row *row);
        uint64_t counted[ABI_STAT_MAX]; /* by it, of all windows that are not stored */
        uint64_t samples;               /* handed over */
};

/* -- its events -- */

static bool is_perf_event(int fd)
{
        char path[40], target[40] = "";

        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        return readlink(path, target, sizeof(target) - 1) > 0 && !strcmp(target, "anon_inode:[perf_event]");
}

/* Links end with their last reference. */
static void stop_events(struct keep *keep)
{
        for (uint32_t i = 0; i < keep_n_found(keep); i++) {
                const struct kept *k = keep_found(keep, i);
                if (!strncmp(k->what, "event-", 6) && k->fd >= 0 && is_perf_event(k->fd))
                        ioctl(k->fd, PERF_EVENT_IOC_DISABLE, 0);
        }
        for (uint32_t i = 0; i < keep_n_found(keep); i++)
                keep_release(keep, keep_found(keep, i)->generation, "event-");
}

static void wait_half_a_period(const struct sampler *s)
{
        uint32_t frequency = 1;

        for (uint32_t i = 0; i < sampler_n_events(s); i++)
                frequency = MAX_OF(frequency, sampler_event(s, i)->frequency);
        uint64_t ns = NSEC_PER_SEC / 2 / frequency;
        nanosleep(&(struct timespec){.tv_sec = (time_t)(ns / NSEC_PER_SEC),
                                     .tv_nsec = (long)(ns % NSEC_PER_SEC)},
                  NULL);
}

/* -- its rows -- */

static uint16_t our_object(struct before *b, uint16_t id)
{
        if (!b->ours[id]) {
                const struct kept_object *o = b->place[id] ? &b->memory->object[b->place[id] - 1] : NULL;
                uint16_t ours = o ? tracker_take_object(b->parts->tracker, o) : 0;
                b->ours[id] = ours ? ours : NO_OBJECT;
        }
        return b->ours[id];
}

static int on_row(void *ctx, const struct sample_row *row)
{
        struct before *b = ctx;
        struct abi_key key = *row->key;
        struct sample_row to = *row;
        uint64_t frame[ABI_MAX_FRAMES + 1];

        if (key.event >= ABI_MAX_EVENTS || b->event[key.event] < 0)
                return 0;
        key.event = (uint8_t)b->event[key.event];
        to.key = &key;
        to.user = frame;
        to.n_user = MIN_OF(row->n_user, (uint32_t)ABI_MAX_FRAMES + 1);
        for (uint32_t i = 0; i < to.n_user; i++) {
                uint64_t f = row->user[i];
                uint32_t id = ABI_FRAME_OBJECT(f);

                frame[i] = f == ABI_FRAME_FOLDED || !id
                                           ? f
                                           : ABI_FRAME(our_object(b, (uint16_t)id), ABI_FRAME_ADDRESS(f));
        }
        b->samples += row->samples;
        return b->row(b->parts->recorder, &to);
}

static void on_raw(void *ctx, const struct abi_raw *raw, const uint64_t *kernel, uint32_t n_kernel)
{
        struct before *b = ctx;

        if (raw->key.event >= ABI_MAX_EVENTS || b->event[raw->key.event] != raw->key.event)
                return; /* rare: the order of Events= was changed */
        b->samples++;
        recorder_raw(b->parts->recorder, raw, kernel, n_kernel);
}

static void on_journal_stack(void *ctx, uint64_t hash, const uint64_t *frame, uint32_t n)
{
        struct before *b = ctx;

        (void)old_half_stack(b->half, hash, frame, n); /* without memory its rows are left out */
}

static void on_journal_row(void *ctx, const struct abi_key *key, const struct abi_count *count)
{
        struct before *b = ctx;
        struct sample_row row = {.key = key, .samples = count->samples, .weight = count->weight};

        if (key->kernel_stack)
                row.kernel = old_half_find(b->half, key->kernel_stack, &row.n_kernel);
        if (key->user_stack)
                row.user = old_half_find(b->half, key->user_stack, &row.n_user);
        if ((!key->kernel_stack || row.kernel) && (!key->user_stack || row.user))
                (void)on_row(b, &row); /* it says what is lost by itself */
}

/* -- its windows -- */

/* Taken less lost by a cause that is known, less what was handed over: was in its hands. Of all windows
 * together, since a deferred sample may come out in the next one. */
static void carry_rest(struct before *b)
{
        static const enum abi_stat causes[] = {ABI_STAT_LOST_COUNTS_FULL, ABI_STAT_LOST_STACKS_FULL,
                                               ABI_STAT_LOST_BUSY,        ABI_STAT_LOST_NESTED,
                                               ABI_STAT_LOST_RESTART,     ABI_STAT_LOST_UPGRADE};
        uint64_t rest[ABI_STAT_MAX] = {0}, known = b->samples;

        for (size_t i = 0; i < ARRAY_SIZE(causes); i++)
                known += b->counted[causes[i]];
        if (b->counted[ABI_STAT_TAKEN] > known)
                rest[ABI_STAT_LOST_RESTART] = b->counted[ABI_STAT_TAKEN] - known;
        sampler_carry(b->parts->sampler, rest);
        if (rest[ABI_STAT_LOST_RESTART])
                log_notice("%" PRIu64 " samples were in the hands of the daemon before when it ended",
                           rest[ABI_STAT_LOST_RESTART]);
}

/* The writer was through with it, and no more was done. */
static bool is_stored(const struct before *b, uint64_t start_real_ns)
{
        struct store_window *w = NULL;
        uint32_t n = 0;
        bool found = false;

        if (store_list(b->parts->store, start_real_ns, start_real_ns + 1, &w, &n) < 0)
                return false;
        for (uint32_t i = 0; i < n; i++)
                found |= w[i].start_ns + SAME_WINDOW_NS > start_real_ns &&
                         w[i].start_ns < start_real_ns + SAME_WINDOW_NS;
        free(w);
        return found;
}

struct found_journal {
        void *memory;
        size_t size;
};

static bool open_journal(const struct before *b, const struct kept *k, struct found_journal *ret)
{
        struct found_journal j;

        if (k->generation != b->generation || strncmp(k->what, "window-", 7) || k->fd < 0 ||
            keep_found_memory(b->parts->keep, b->generation, k->what, &j.memory, &j.size) < 0)
                return false;
        if (journal_is_one(j.memory, j.size) && ((struct journal_head *)j.memory)->before[ABI_STAT_TAKEN] >=
                                                                b->memory->head.stored[ABI_STAT_TAKEN]) {
                *ret = j;
                return true;
        }
        munmap(j.memory, j.size);
        return false;
}

static void read_past(struct before *b, const struct found_journal *j, uint64_t stat[ABI_STAT_MAX])
{
        const struct journal_head *h = j->memory;
        const struct journal_reader reader = {.row = on_journal_row, .ctx = b};
        uint64_t of_it[ABI_STAT_MAX];

        for (int i = 0; i < ABI_STAT_MAX; i++) {
                of_it[i] = h->after[i] - h->before[i];
                stat[i] -= of_it[i];
        }
        if (is_stored(b, h->start_real_ns) ||
            recorder_past(b->parts->recorder, h->start_real_ns, h->end_ns - h->start_ns, of_it) < 0)
                return;
        for (int i = 0; i < ABI_STAT_MAX; i++)
                b->counted[i] += of_it[i];
        b->row = recorder_past_row;
        journal_read(j->memory, j->size, &reader);
}

/* What it hands over from now on is of the window that goes on. */
static void resume(struct before *b, uint64_t start_ns, uint64_t start_real_ns,
                   const uint64_t stat[ABI_STAT_MAX])
{
        recorder_resume(b->parts->recorder, start_ns, start_real_ns, stat);
        for (int i = 0; i < ABI_STAT_MAX; i++)
                b->counted[i] += stat[i];
        b->row = recorder_row;
}

/* Its journals: windows that had ended become windows, the one that went on is begun with. */
static void read_journals(struct before *b, uint64_t stat[ABI_STAT_MAX])
{
        struct keep *keep = b->parts->keep;
        const struct journal_reader stacks = {.stack = on_journal_stack, .ctx = b};
        _cleanup_free_ struct found_journal *journal = calloc(keep_n_found(keep) + 1, sizeof(*journal));
        uint64_t start_ns = now_monotonic_ns(), start_real_ns = now_realtime_ns();
        uint32_t n = 0;

        for (uint32_t i = 0; journal && i < keep_n_found(keep); i++)
                n += open_journal(b, keep_found(keep, i), &journal[n]);
        for (uint32_t i = 0; i < n; i++)
                journal_read(journal[i].memory, journal[i].size, &stacks);
        for (uint32_t i = 0; i < n; i++) {
                const struct journal_head *h = journal[i].memory;
                if (h->end_ns)
                        read_past(b, &journal[i], stat);
                else {
                        start_ns = MIN_OF(start_ns, h->start_ns);
                        start_real_ns = MIN_OF(start_real_ns, h->start_real_ns);
                }
        }
        resume(b, start_ns, start_real_ns, stat);
        for (uint32_t i = 0; i < n; i++) {
                const struct journal_head *h = journal[i].memory;
                const struct journal_reader rows = {.row = on_journal_row, .ctx = b};
                if (!h->end_ns)
                        journal_read(journal[i].memory, journal[i].size, &rows);
        }
        for (uint32_t i = 0; i < n; i++)
                munmap(journal[i].memory, journal[i].size);
}

/* -- as a whole -- */

static void map_events(struct before *b)
{
        const struct sampler *s = b->parts->sampler;

        for (uint32_t i = 0; i < ABI_MAX_EVENTS; i++) {
                b->event[i] = -1;
                for (uint32_t k = 0; k < sampler_n_events(s); k++)
                        if (!strncmp(sampler_event(s, k)->name, b->memory->head.event[i],
                                     sizeof(b->memory->head.event[i])))
                                b->event[i] = (int8_t)k;
        }
}

static int open_half(struct before *b)
{
        struct keep *k = b->parts->keep;
        const struct old_half_maps maps = {
                        keep_found_fd(k, b->generation, "cpus"),
                        keep_found_fd(k, b->generation, "counts"),
                        keep_found_fd(k, b->generation, "stacks"),
                        keep_found_fd(k, b->generation, "raws"),
        };

        if (b->version != PROFD_ABI_VERSION || !b->memory || b->memory_size != sizeof(*b->memory))
                return -EBADF;
        return old_half_open(&b->half, &maps);
}

/* Of a version that we cannot read. */
static void lose(struct before *b)
{
        uint64_t stat[ABI_STAT_MAX] = {0};
        uint64_t taken = old_half_taken(keep_found_fd(b->parts->keep, b->generation, "cpus"));
        uint64_t stored = b->memory ? b->memory->head.stored_taken : 0;

        stat[ABI_STAT_TAKEN] = stat[ABI_STAT_LOST_UPGRADE] = taken > stored ? taken - stored : 0;
        sampler_carry(b->parts->sampler, stat);
        log_warning("samples that the profd before this one had taken and not stored cannot be read (layout "
                    "%u, ours is %u): %" PRIu64 " are lost and counted",
                    b->version, PROFD_ABI_VERSION, stat[ABI_STAT_TAKEN]);
}

static void read_deferred(struct before *b)
{
        void *memory;
        size_t size;

        if (keep_found_memory(b->parts->keep, b->generation, "deferred", &memory, &size) < 0)
                return;
        kept_raws_read(memory, size, on_raw, b);
        munmap(memory, size);
}

/* maps_only: what it had drained came from others that we read too. */
static int read_one(struct before *b, bool maps_only)
{
        uint64_t stat[ABI_STAT_MAX];

        int r = open_half(b);
        if (r == -ENOMEM)
                return r;
        if (r < 0) {
                lose(b);
                return 0;
        }
        for (uint32_t i = 0; i < KEPT_OBJECTS; i++)
                if (b->memory->object[i].id)
                        b->place[b->memory->object[i].id] = i + 1;
        map_events(b);
        old_half_stats(b->half, stat);
        if (maps_only) {
                resume(b, now_monotonic_ns(), now_realtime_ns(), stat);
        } else {
                for (int i = 0; i < ABI_STAT_MAX; i++)
                        stat[i] += b->memory->head.added[i] - b->memory->head.stored[i];
                read_journals(b, stat);
        }
        if (!maps_only)
                read_deferred(b);
        r = old_half_read(b->half, maps_only ? 0 : b->memory->head.progress, on_row, on_raw, b);
        carry_rest(b);
        log_info("took over %" PRIu64 " samples of the daemon before", b->samples);
        return r;
}

static bool is_complete(const struct before *b)
{
        return b->memory && b->memory->head.complete;
}

static void open_before(const struct takeover_parts *parts, const struct kept *k, struct before *b)
{
        void *memory;

        *b = (struct before){.parts = parts, .generation = k->generation, .version = k->version};
        if (keep_found_memory(parts->keep, k->generation, "state", &memory, &b->memory_size) < 0)
                return;
        b->memory = memory;
        if (b->memory_size < sizeof(struct kept_head) || b->memory->head.magic != KEPT_MAGIC) {
                munmap(memory, b->memory_size);
                b->memory = NULL;
        }
}

static void close_before(struct before *b)
{
        old_half_free(b->half);
        if (b->memory)
                munmap(b->memory, b->memory_size);
}

/* The generation after `after`; NULL: there is none. */
static const struct kept *next_generation(const struct keep *keep, uint32_t after)
{
        const struct kept *next = NULL;

        for (uint32_t i = 0; i < keep_n_found(keep); i++) {
                const struct kept *k = keep_found(keep, i);
                if (k->fd >= 0 && k->generation > after && (!next || k->generation < next->generation))
                        next = k;
        }
        return next;
}

/* The newest that has all of those before it; 0: none. */
static uint32_t newest_complete(const struct takeover_parts *parts, struct before *b)
{
        uint32_t newest = 0;

        for (const struct kept *k = next_generation(parts->keep, 0); k;
             k = next_generation(parts->keep, k->generation)) {
                open_before(parts, k, b);
                if (is_complete(b))
                        newest = k->generation;
                close_before(b);
        }
        return newest;
}

int takeover_run(const struct takeover_parts *parts)
{
        struct keep *keep = parts->keep;
        _cleanup_free_ struct before *b = malloc(sizeof(*b));
        bool first = true;
        int r;

        if (!b)
                return -ENOMEM;
        if (keep_n_found(keep)) {
                wait_half_a_period(parts->sampler);
                stop_events(keep);
                r = sampler_wait(parts->sampler);
                if (r < 0)
                        return r;
        }
        uint32_t newest = newest_complete(parts, b);
        for (const struct kept *k = next_generation(keep, 0); k; k = next_generation(keep, k->generation)) {
                if (k->generation < newest)
                        continue;
                open_before(parts, k, b);
                r = keep_found_fd(keep, k->generation, "cpus") < 0 ? 0
                                                                   : read_one(b, !first && !is_complete(b));
                close_before(b);
                if (r < 0)
                        return r;
                first = false;
        }
        if (parts->own)
                __atomic_store_n(&parts->own->complete, 1, __ATOMIC_RELEASE);
        for (const struct kept *k = next_generation(keep, 0); k; k = next_generation(keep, k->generation))
                keep_release(keep, k->generation, "");
        return 0;
}
