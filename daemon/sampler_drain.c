/* The rings and the drain.
 *
 * The kernel half writes into one of two sets of rows. A drain flips `epoch`, and waits for a grace period
 * of RCU, under whose read lock the programs run: none is left then that saw the old value, and the old set
 * is ours. The wait is an update of a map in a map, which returns when all programs that ran have ended
 * (maybe_wait_bpf_programs() in kernel/bpf/syscall.c); membarrier(2) would do too, but refuses on nohz_full
 * machines. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "daemon/sampler_impl.h"
#include "profd.skel.h"

static int take_stack(void *ctx, void *data, size_t size)
{
        struct sampler *s = ctx;
        const struct abi_stack *stack = data;

        if (size < sizeof(*stack) || size < sizeof(*stack) + stack->n * sizeof(uint64_t))
                return 0;
        if (stack_store_add(&s->store[stack->epoch & 1], stack->hash, stack->frame, stack->n,
                            s->store_limit) < 0)
                s->stacks_lost = true; /* its rows are counted as lost when they come */
        if (s->on_stack)
                s->on_stack(s->stack_ctx, stack->hash, stack->frame, stack->n);
        return 0;
}

static int take_raw(void *ctx, void *data, size_t size)
{
        struct sampler *s = ctx;
        const struct abi_raw *raw = data;
        const uint64_t *kernel = NULL;
        uint32_t n = 0;

        if (size < sizeof(*raw) || size < sizeof(*raw) + raw->leaf_len + raw->root_len)
                return 0;
        raw = raw_parts_add(&s->parts, raw);
        if (!raw)
                return 0;
        if (raw->key.kernel_stack) {
                const struct stack_store *st = &s->store[raw->epoch & 1];

                kernel = stack_store_find(st, raw->key.kernel_stack, &n);
                if (!kernel) { /* sent before the raw sample, so it is in its ring by now */
                        ring_buffer__consume(s->stacks_ring);
                        kernel = stack_store_find(st, raw->key.kernel_stack, &n);
                }
                if (!kernel) {
                        s->lost[ABI_STAT_LOST_STACKS_FULL]++;
                        s->lost[ABI_STAT_DEFERRED]++;
                        return 0;
                }
        }
        s->raw(s->raw_ctx, raw, kernel, n);
        return 0;
}

int sampler_rings_open(struct sampler *s)
{
        int fds[2] = {bpf_map__fd(s->skel->maps.stacks), bpf_map__fd(s->skel->maps.raws)};

        s->stacks_ring = ring_buffer__new(fds[0], take_stack, s, NULL);
        s->raws_ring = ring_buffer__new(fds[1], take_raw, s, NULL);
        s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        if (!s->stacks_ring || !s->raws_ring || s->epoll_fd < 0)
                return -errno;
        for (int i = 0; i < 2; i++) {
                struct epoll_event e = {.events = EPOLLIN};
                if (epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, fds[i], &e) < 0)
                        return -errno;
        }
        if (raw_parts_init(&s->parts, s->sizes.cpus) < 0)
                return -ENOMEM;
        s->store_limit = s->memory / 8 / sizeof(uint64_t) / 2;
        return 0;
}

void sampler_rings_close(struct sampler *s)
{
        ring_buffer__free(s->stacks_ring);
        ring_buffer__free(s->raws_ring);
        s->stacks_ring = s->raws_ring = NULL;
        if (s->epoll_fd >= 0)
                close(s->epoll_fd);
        s->epoll_fd = -1;
        raw_parts_done(&s->parts);
        stack_store_free(&s->store[0]);
        stack_store_free(&s->store[1]);
}

int sampler_fd(const struct sampler *s)
{
        return s->epoll_fd;
}

int sampler_poll(struct sampler *s, sampler_raw_fn raw, void *ctx)
{
        int r;

        s->raw = raw;
        s->raw_ctx = ctx;
        r = ring_buffer__consume(s->stacks_ring);
        if (r >= 0)
                r = ring_buffer__consume(s->raws_ring);
        return r < 0 ? r : 0;
}

int sampler_wait(struct sampler *s)
{
        uint32_t zero = 0;
        return bpf_map_update_elem(bpf_map__fd(s->skel->maps.grace), &zero, &s->grace_inner_fd, BPF_ANY);
}

/* For a daemon after us: what it need not read from the maps. */
static void note_progress(struct sampler *s, uint64_t progress)
{
        if (s->kept)
                __atomic_store_n(&s->kept->progress, progress, __ATOMIC_RELEASE);
}

static int drain_cpu(struct sampler *s, uint32_t cpu, uint32_t set, sample_row_fn fn, void *ctx)
{
        const struct stack_store *st = &s->store[set];
        const struct abi_row *r = s->rows + ((size_t)set * s->sizes.cpus + cpu) * s->sizes.rows_per_cpu;
        uint32_t n = MIN_OF(s->cpus[cpu].rows[set], s->sizes.rows_per_cpu);
        size_t line_bytes = s->index_map.size ? 64 : 0;
        int result = 0;

        if (!n)
                return 0;
        for (uint32_t i = 0; i < n; i++) {
                struct sample_row row;

                if (!result && sample_row_fill(&row, st, &r[i])) {
                        result = fn(ctx, &row);
                        note_progress(s, KEPT_PROGRESS(set, cpu, i + 1));
                } else {
                        s->lost[ABI_STAT_LOST_STACKS_FULL] += r[i].count.samples;
                        s->lost[ABI_STAT_DELIVERED] += r[i].count.samples;
                }
        }
        memset((char *)s->index_map.data +
                               ((size_t)set * s->sizes.cpus + cpu) * s->sizes.index_lines * line_bytes,
               0, s->sizes.index_lines * line_bytes);
        __atomic_store_n(&s->cpus[cpu].rows[set], 0, __ATOMIC_RELEASE);
        note_progress(s, 0);
        return result < 0 ? result : 0;
}

void abi_cpu_sums(const struct abi_cpu *cpus, uint32_t n, uint64_t stat[ABI_STAT_MAX])
{
        memset(stat, 0, ABI_STAT_MAX * sizeof(uint64_t));
        for (uint32_t cpu = 0; cpu < n; cpu++) {
                for (uint32_t i = 0; i < ABI_STAT_MAX; i++)
                        stat[i] += __atomic_load_n(&cpus[cpu].stat[i], __ATOMIC_RELAXED);
                for (uint32_t i = 0; i < ABI_MAX_EVENTS; i++)
                        stat[ABI_STAT_TAKEN] += __atomic_load_n(&cpus[cpu].taken[i], __ATOMIC_RELAXED);
        }
}

int sampler_drain(struct sampler *s, sample_row_fn row, sampler_raw_fn raw, void *ctx)
{
        uint32_t set = s->skel->bss->epoch & 1;
        size_t seen_bytes = (size_t)s->sizes.seen_lines * 64;
        int r, result;

        abi_cpu_sums(s->cpus, s->sizes.cpus, s->at_drain);
        __atomic_store_n(&s->skel->bss->epoch, !set, __ATOMIC_SEQ_CST);
        r = sampler_wait(s);
        if (r < 0) {
                log_error("cannot wait for the BPF programs: %s", strerror(-r));
                return r;
        }
        result = sampler_poll(s, raw, ctx);
        for (uint32_t cpu = 0; cpu < s->sizes.cpus; cpu++) {
                r = drain_cpu(s, cpu, set, row, ctx);
                if (r < 0 && !result)
                        result = r;
        }
        memset((char *)s->seen_map.data + set * seen_bytes, 0, seen_bytes);
        stack_store_clear(&s->store[set]);
        if (s->stacks_lost) {
                log_warning("more distinct stacks in one interval than fit in memory: some samples are lost "
                            "(counted)");
                s->stacks_lost = false;
        }
        return result;
}

/* What is ours besides the kernel half's sums. */
static void add_own(struct sampler *s, const uint64_t kernel[ABI_STAT_MAX], uint64_t stats[ABI_STAT_MAX])
{
        uint64_t missed = s->missed;

        memcpy(stats, kernel, ABI_STAT_MAX * sizeof(*stats));
        for (uint32_t i = 0; i < s->n_events; i++)
                for (uint32_t cpu = 0; cpu < s->sizes.cpus; cpu++)
                        missed += s->event[i].watch[cpu].missed;
        stats[ABI_STAT_MISSED] += missed;
        stats[ABI_STAT_LOST_STACKS_FULL] += s->lost[ABI_STAT_LOST_STACKS_FULL];
        stats[ABI_STAT_DELIVERED] -= s->lost[ABI_STAT_DELIVERED];
        stats[ABI_STAT_DEFERRED] -= s->lost[ABI_STAT_DEFERRED];
        for (uint32_t i = 0; i < ABI_STAT_MAX; i++) {
                stats[i] += s->carried[i];
                if (s->kept)
                        s->kept->added[i] = stats[i] - kernel[i];
        }
}

int sampler_stats(struct sampler *s, uint64_t stats[ABI_STAT_MAX])
{
        uint64_t kernel[ABI_STAT_MAX];

        abi_cpu_sums(s->cpus, s->sizes.cpus, kernel);
        add_own(s, kernel, stats);
        return 0;
}

void sampler_stats_drained(struct sampler *s, uint64_t stats[ABI_STAT_MAX])
{
        add_own(s, s->at_drain, stats);
}

void sampler_carry(struct sampler *s, const uint64_t stat[ABI_STAT_MAX])
{
        for (uint32_t i = 0; i < ABI_STAT_MAX; i++) {
                s->carried[i] += stat[i];
                if (s->kept) /* now: we may not live to the next look at the sums */
                        s->kept->added[i] += stat[i];
        }
}
