#include "daemon/old_half.h"

#include <errno.h>
#include <linux/bpf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "base/cleanup.h"
#include "daemon/kept_state.h"
#include "daemon/sampler_impl.h"

#define MAX_CPUS (1u << 16)
#define MAX_MAP  (1ull << 32)
#define STACK_FRAMES \
        (16u << 20) /* of all its stacks: 128 MiB, more than any ring and journal of ours hold */

struct old_half {
        struct mapped cpus_map, counts_map, ring_map[2];
        struct abi_cpu *cpus;
        struct abi_row *rows;
        uint32_t n_cpus, rows_per_cpu;
        struct stack_store stacks;
        struct raw_parts parts;
};

static int map_info(int fd, struct bpf_map_info *ret)
{
        uint32_t size = sizeof(*ret);

        memset(ret, 0, sizeof(*ret));
        return bpf_obj_get_info_by_fd(fd, ret, &size) < 0 ? -EBADF : 0;
}

static int map_array(int fd, const char *name, uint32_t value_size, struct mapped *ret, uint32_t *ret_n)
{
        struct bpf_map_info info;
        size_t page = (size_t)sysconf(_SC_PAGESIZE);

        if (map_info(fd, &info) < 0 || info.type != BPF_MAP_TYPE_ARRAY || info.key_size != 4 ||
            info.value_size != value_size || !(info.map_flags & BPF_F_MMAPABLE) || strcmp(info.name, name))
                return -EBADF;
        uint64_t size = ((uint64_t)info.max_entries * value_size + page - 1) & ~(uint64_t)(page - 1);
        if (size > MAX_MAP)
                return -EBADF;
        void *p = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED)
                return -errno;
        *ret = (struct mapped){p, size};
        *ret_n = info.max_entries;
        return 0;
}

/* A page that says how far was written, then the data twice in a row; kernel/bpf/ringbuf.c. The page before
 * says how far was read. */
static int map_ring(int fd, const char *name, struct mapped *ret)
{
        struct bpf_map_info info;
        size_t page = (size_t)sysconf(_SC_PAGESIZE);

        if (map_info(fd, &info) < 0 || info.type != BPF_MAP_TYPE_RINGBUF || strcmp(info.name, name) ||
            info.max_entries < page || (info.max_entries & (info.max_entries - 1)))
                return -EBADF;
        size_t size = 2 * page + 2 * (size_t)info.max_entries;
        void *p = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED)
                return -errno;
        *ret = (struct mapped){p, size};
        return 0;
}

int old_half_open(struct old_half **ret, const struct old_half_maps *maps)
{
        struct old_half *h = calloc(1, sizeof(*h));
        uint32_t n_rows = 0;

        if (!h)
                return -ENOMEM;
        int r = map_array(maps->cpus, "cpus", sizeof(struct abi_cpu), &h->cpus_map, &h->n_cpus);
        if (r == 0)
                r = map_array(maps->counts, "counts", sizeof(struct abi_row), &h->counts_map, &n_rows);
        if (r == 0)
                r = map_ring(maps->stacks, "stacks", &h->ring_map[0]);
        if (r == 0)
                r = map_ring(maps->raws, "raws", &h->ring_map[1]);
        if (r == 0 && (!h->n_cpus || h->n_cpus > MAX_CPUS || n_rows % (2 * h->n_cpus)))
                r = -EBADF;
        if (r == 0)
                r = raw_parts_init(&h->parts, h->n_cpus);
        if (r < 0) {
                old_half_free(h);
                return r;
        }
        h->cpus = h->cpus_map.data;
        h->rows = h->counts_map.data;
        h->rows_per_cpu = n_rows / (2 * h->n_cpus);
        *ret = h;
        return 0;
}

static void unmap(struct mapped *m)
{
        if (m->data)
                munmap(m->data, m->size);
}

struct old_half *old_half_free(struct old_half *h)
{
        if (!h)
                return NULL;
        unmap(&h->cpus_map);
        unmap(&h->counts_map);
        unmap(&h->ring_map[0]);
        unmap(&h->ring_map[1]);
        stack_store_free(&h->stacks);
        raw_parts_done(&h->parts);
        free(h);
        return NULL;
}

void old_half_stats(const struct old_half *h, uint64_t stat[ABI_STAT_MAX])
{
        abi_cpu_sums(h->cpus, h->n_cpus, stat);
}

uint64_t old_half_taken(int cpus_fd)
{
        struct bpf_map_info info;
        uint64_t taken = 0;

        if (map_info(cpus_fd, &info) < 0 || info.type != BPF_MAP_TYPE_ARRAY || strcmp(info.name, "cpus") ||
            info.key_size != 4 || info.value_size < offsetof(struct abi_cpu, idle) ||
            info.value_size > 1 << 16 || info.max_entries > MAX_CPUS)
                return 0;
        _cleanup_free_ struct abi_cpu *cpu = malloc(MAX_OF((size_t)info.value_size, sizeof(*cpu)));
        for (uint32_t i = 0; cpu && i < info.max_entries; i++) {
                if (bpf_map_lookup_elem(cpus_fd, &i, cpu) < 0)
                        break;
                for (uint32_t k = 0; k < ABI_MAX_EVENTS; k++)
                        taken += cpu->taken[k];
        }
        return taken;
}

/* -- the rings -- */

typedef void (*record_fn)(void *ctx, const void *data, uint32_t size);

static void read_ring(const struct mapped *m, record_fn fn, void *ctx)
{
        size_t page = (size_t)sysconf(_SC_PAGESIZE), mask = (m->size - 2 * page) / 2 - 1;
        const char *base = m->data, *data = base + 2 * page;
        uint64_t at = *(const uint64_t *)base, end = *(const uint64_t *)(base + page);

        if (end - at > mask + 1)
                return;
        while (at < end) {
                uint32_t len = *(const uint32_t *)(data + (at & mask));
                uint32_t size = len & ~(BPF_RINGBUF_BUSY_BIT | BPF_RINGBUF_DISCARD_BIT);

                if (len & BPF_RINGBUF_BUSY_BIT || size > end - at)
                        return;
                if (!(len & BPF_RINGBUF_DISCARD_BIT))
                        fn(ctx, data + (at & mask) + BPF_RINGBUF_HDR_SZ, size);
                at += (size + BPF_RINGBUF_HDR_SZ + 7) & ~7u;
        }
}

int old_half_stack(struct old_half *h, uint64_t hash, const uint64_t *frame, uint32_t n)
{
        return stack_store_add(&h->stacks, hash, frame, n, STACK_FRAMES);
}

const uint64_t *old_half_find(const struct old_half *h, uint64_t hash, uint32_t *ret_n)
{
        return stack_store_find(&h->stacks, hash, ret_n);
}

static void on_stack(void *ctx, const void *data, uint32_t size)
{
        const struct abi_stack *s = data;

        if (size >= sizeof(*s) && size >= sizeof(*s) + s->n * sizeof(uint64_t))
                (void)old_half_stack(ctx, s->hash, s->frame,
                                     s->n); /* without memory its rows are left out */
}

struct raws {
        struct old_half *half;
        sampler_raw_fn fn;
        void *ctx;
};

static void on_raw(void *ctx, const void *data, uint32_t size)
{
        const struct abi_raw *raw = data;
        struct raws *r = ctx;
        const uint64_t *kernel = NULL;
        uint32_t n = 0;

        if (size < sizeof(*raw) || size < sizeof(*raw) + raw->leaf_len + raw->root_len)
                return;
        raw = raw_parts_add(&r->half->parts, raw);
        if (!raw)
                return;
        if (raw->key.kernel_stack) {
                kernel = old_half_find(r->half, raw->key.kernel_stack, &n);
                if (!kernel)
                        return;
        }
        r->fn(r->ctx, raw, kernel, n);
}

/* -- the rows -- */

static int read_rows(struct old_half *h, uint32_t set, uint32_t cpu, uint32_t first, sample_row_fn fn,
                     void *ctx)
{
        const struct abi_row *r = h->rows + ((size_t)set * h->n_cpus + cpu) * h->rows_per_cpu;
        uint32_t n = MIN_OF(h->cpus[cpu].rows[set], h->rows_per_cpu);

        for (uint32_t i = first; i < n; i++) {
                struct sample_row row;

                if (!sample_row_fill(&row, &h->stacks, &r[i]))
                        continue;
                int err = fn(ctx, &row);
                if (err < 0)
                        return err;
        }
        return 0;
}

int old_half_read(struct old_half *h, uint64_t progress, sample_row_fn row, sampler_raw_fn raw, void *ctx)
{
        struct raws raws = {h, raw, ctx};

        read_ring(&h->ring_map[0], on_stack, h);
        read_ring(&h->ring_map[1], on_raw, &raws);
        for (uint32_t set = 0; set < 2; set++)
                for (uint32_t cpu = 0; cpu < h->n_cpus; cpu++) {
                        bool here = progress >> 32 == KEPT_PROGRESS(set, cpu, 0) >> 32;
                        int r = read_rows(h, set, cpu, here ? (uint32_t)progress : 0, row, ctx);
                        if (r < 0)
                                return r;
                }
        return 0;
}
