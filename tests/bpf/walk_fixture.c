#include "tests/bpf/walk_fixture.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "walk_probe.skel.h"

static bool twin_arm64;
#define UNWIND_ARM64 twin_arm64
#include "bpf/unwind_step.h"

static void *map(int fd, size_t size)
{
        void *p = mmap(NULL, (size + 4095) & ~4095ul, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        return p == MAP_FAILED ? NULL : p;
}

int walk_fixture_new(struct walk_fixture *f, bool arm64)
{
        struct walk_probe_bpf *k = walk_probe_bpf__open();

        *f = (struct walk_fixture){.skel = k, .arm64 = arm64};
        if (!k)
                return -errno;
        k->rodata->arm64 = arm64;
        k->rodata->hash_seed = FIXTURE_SEED;
        bpf_map__set_max_entries(k->maps.mappings, FIXTURE_MAPPINGS);
        bpf_map__set_max_entries(k->maps.pages, FIXTURE_PAGES);
        bpf_map__set_max_entries(k->maps.shards, FIXTURE_SHARDS);
        bpf_map__set_max_entries(k->maps.step_cache, 1024 + 512);
        int r = walk_probe_bpf__load(k);
        if (r < 0)
                return r;
        f->probe = map(bpf_map__fd(k->maps.probe), sizeof(*f->probe));
        f->mappings = map(bpf_map__fd(k->maps.mappings), FIXTURE_MAPPINGS * sizeof(*f->mappings));
        f->pages = map(bpf_map__fd(k->maps.pages), FIXTURE_PAGES * sizeof(*f->pages));
        f->rules = map(bpf_map__fd(k->maps.rules), ABI_MAX_RULES * sizeof(*f->rules));
        for (uint32_t i = 0; i < FIXTURE_SHARDS; i++) {
                LIBBPF_OPTS(bpf_map_create_opts, opts, .map_flags = BPF_F_MMAPABLE);
                int fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "shard", 4, ABI_SHARD_ROWS * 4, 1, &opts);
                if (fd < 0)
                        return fd;
                r = bpf_map_update_elem(bpf_map__fd(k->maps.shards), &i, &fd, BPF_ANY);
                f->shard[i] = map(fd, ABI_SHARD_ROWS * 4);
                close(fd);
                if (r < 0)
                        return r;
        }
        return f->probe && f->mappings && f->pages && f->rules && f->shard[0] && f->shard[1] ? 0 : -ENOMEM;
}

void walk_fixture_free(struct walk_fixture *f)
{
        walk_probe_bpf__destroy(f->skel);
}

int walk_kernel(struct walk_fixture *f, struct walk_result *ret)
{
        LIBBPF_OPTS(bpf_test_run_opts, opts);
        const volatile struct walk_probe *p = f->probe;
        int r = bpf_prog_test_run_opts(bpf_program__fd(f->skel->progs.walk_probe_run), &opts);

        if (r < 0)
                return r;
        *ret = (struct walk_result){p->n, p->walked, p->walk, p->defer, p->hash, {0}};
        memcpy(ret->frame, f->probe->frame, p->n * sizeof(uint64_t));
        return 0;
}

static __attribute__((noinline)) int recurse(struct walk_fixture *f, uint32_t frames)
{
        LIBBPF_OPTS(bpf_test_run_opts, opts);
        int r;

        if (frames > 6) /* those of libbpf, libc and the caller are there too */
                r = recurse(f, frames - 1);
        else
                r = bpf_prog_test_run_opts(bpf_program__fd(f->skel->progs.walk_probe_frame_pointers), &opts);
        __asm__ volatile("" : "+r"(r)); /* no tail call */
        return r;
}

double walk_frame_pointers(struct walk_fixture *f, uint32_t frames, uint32_t repeat)
{
        f->probe->repeat = repeat;
        if (recurse(f, frames) < 0)
                return 0;
        return (double)f->probe->ns / (repeat + 1);
}

/* The twin: reads this process's memory as the kernel does, and finds mappings and rows by going through all
 * of them. */
struct twin {
        struct unwind_walk walk;
        const struct walk_fixture *f;
        uint64_t frame[UNWIND_MAX_STEPS + 1];
};

UNWIND_INLINE int unwind_read(struct unwind_walk *w, void *dst, uint32_t size, uint64_t address)
{
        struct iovec local = {dst, size}, remote = {(void *)address, size};
        return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) != (ssize_t)size;
}

UNWIND_INLINE int unwind_read8(struct unwind_walk *w, uint64_t address, uint64_t *ret)
{
        return unwind_read(w, ret, 8, address);
}

UNWIND_INLINE uint64_t unwind_register(struct unwind_walk *w, uint32_t number)
{
        return ((struct twin *)w)->f->probe->registers.reg[number & 15];
}

UNWIND_INLINE int unwind_find_mapping(struct unwind_walk *w, uint64_t pc)
{
        const struct walk_fixture *f = ((struct twin *)w)->f;

        for (uint32_t i = 0; i < f->probe->n_mappings; i++) {
                const struct abi_mapping *m = &f->mappings[f->probe->first + i];
                if (pc >= m->start && pc < m->end) {
                        w->mapping = *m;
                        return 1;
                }
        }
        return 0;
}

UNWIND_INLINE uint64_t unwind_find_rule(struct unwind_walk *w, uint64_t pc)
{
        const struct walk_fixture *f = ((struct twin *)w)->f;
        uint64_t elf = pc - w->mapping.bias, page = (elf >> UNWIND_PAGE_SHIFT) - w->mapping.first_page, e,
                 rule;
        uint32_t found = 0;

        if (page >= w->mapping.n_pages)
                return 0;
        e = f->pages[w->mapping.page + page];
        if (!e)
                return UNWIND_RULE_ABSENT;
        for (uint32_t i = 0; i < ABI_PAGE_ROWS(e); i++) {
                uint32_t row = f->shard[ABI_PAGE_SHARD(e)][ABI_PAGE_FIRST(e) + i];
                if (UNWIND_ROW_OFFSET(row) <= (elf & UNWIND_PAGE_MASK))
                        found = UNWIND_ROW_RULE(row);
        }
        if (found < UNWIND_RULE_FIRST)
                return found;
        memcpy(&rule, &f->rules[found], 8);
        return rule;
}

UNWIND_INLINE uint64_t unwind_uprobe(struct unwind_walk *w)
{
        return 0;
}

UNWIND_INLINE void unwind_emit(struct unwind_walk *w, uint64_t frame)
{
        ((struct twin *)w)->frame[w->n++] = frame;
}

static uint64_t hash_frames(const uint64_t *frame, uint32_t n)
{
        uint64_t h = FIXTURE_SEED;

        for (uint32_t i = 0; i < n; i++) {
                h = (h ^ frame[i]) * 0x9E3779B97F4A7C15ull;
                h ^= h >> 32;
        }
        return h ? h : 1;
}

void walk_twin(struct walk_fixture *f, struct walk_result *ret)
{
        static struct twin t;
        const struct abi_registers *r = &f->probe->registers;
        uint32_t steps = 0;

        twin_arm64 = f->arm64;
        t.f = f;
        unwind_begin(&t.walk);
        t.walk.ip = r->ip;
        t.walk.sp = r->sp;
        t.walk.fp = r->fp;
        t.walk.lr = r->lr;
        t.walk.bx = r->reg[3];
        while (steps++ < UNWIND_MAX_STEPS && !unwind_step(&t.walk))
                ;
        *ret = (struct walk_result){.n = t.walk.n, .walked = t.walk.n, .walk = t.walk.walk};
        ret->defer = t.walk.defer || (t.walk.unmapped && !f->probe->settled);
        if (ret->n > ABI_MAX_FRAMES) {
                uint32_t half = ABI_MAX_FRAMES / 2;
                memcpy(ret->frame, t.frame, half * 8);
                ret->frame[half] = ABI_FRAME_FOLDED;
                memcpy(ret->frame + half + 1, t.frame + ret->n - (half - 1), (half - 1) * 8);
                ret->n = ABI_MAX_FRAMES;
                if (ret->walk == ABI_WALK_COMPLETE)
                        ret->walk = ABI_WALK_FOLDED;
        } else {
                memcpy(ret->frame, t.frame, ret->n * 8);
        }
        ret->hash = hash_frames(ret->frame, ret->n);
}
