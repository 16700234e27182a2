/* The walk of a user stack in the kernel: unwind_step() with what it needs from the maps and user memory. */
#ifndef BPF_WALK_H
#define BPF_WALK_H

#include "bpf/scratch.h"

#define SCRATCH_OF(w) ((struct scratch *)(w)) /* its first member */
_Static_assert(__builtin_offsetof(struct scratch, walk) == 0, "SCRATCH_OF");

/* Nothing of the window is valid. */
#define NO_WINDOW (~0ull - WINDOW)

UNWIND_INLINE int unwind_read(struct unwind_walk *w, void *dst, uint32_t size, uint64_t address)
{
        return bpf_probe_read_user(dst, size, (void *)address) != 0;
}

/* Reads s->want into s->got, and with it what is behind it. */
__noinline int read_window(void)
{
        struct scratch *s = get_scratch();

        if (!s)
                return 1;
        if (!bpf_probe_read_user(s->window, WINDOW, (void *)s->want)) {
                s->window_base = s->want;
                s->got = s->window[0];
                return 0;
        }
        s->window_base = NO_WINDOW;
        return bpf_probe_read_user(&s->got, 8, (void *)s->want) != 0;
}

UNWIND_INLINE int unwind_read8(struct unwind_walk *w, uint64_t address, uint64_t *ret)
{
        struct scratch *s = SCRATCH_OF(w);
        uint64_t offset = address - s->window_base;

        if (offset <= WINDOW - 8 && !(offset & 7)) {
                *ret = s->window[(offset >> 3) & (WINDOW / 8 - 1)];
                return 0;
        }
        s->want = address;
        if (read_window())
                return 1;
        *ret = s->got;
        return 0;
}

UNWIND_INLINE uint64_t unwind_register(struct unwind_walk *w, uint32_t number)
{
        return SCRATCH_OF(w)->registers.reg[number & 15];
}

static __always_inline uint64_t mapping_start(uint32_t i)
{
        struct abi_mapping *m = bpf_map_lookup_elem(&mappings, &i);
        return m ? m->start : ~0ull;
}

UNWIND_INLINE int unwind_find_mapping(struct unwind_walk *w, uint64_t pc)
{
        struct scratch *s = SCRATCH_OF(w);
        uint64_t at = s->first;
        struct abi_mapping *m;
        uint32_t i;

        if (!s->n_mappings)
                return 0;
        UNWIND_SEARCH(at, s->n_mappings, pc, mapping_start);
        i = at;
        m = bpf_map_lookup_elem(&mappings, &i);
        if (!m || pc - m->start >= m->end - m->start)
                return 0;
        w->mapping = *m;
        return 1;
}

UNWIND_INLINE uint64_t unwind_find_rule(struct unwind_walk *w, uint64_t pc)
{
        uint64_t elf = pc - w->mapping.bias, page = (elf >> UNWIND_PAGE_SHIFT) - w->mapping.first_page,
                 entry, at;
        uint32_t i, zero = 0;
        uint64_t *value;
        struct shard *shard;
        void *map;

        if (page >= w->mapping.n_pages)
                return UNWIND_NONE;
        i = w->mapping.page + page;
        value = bpf_map_lookup_elem(&pages, &i);
        if (!value)
                return UNWIND_NONE;
        entry = *value;
        if (!entry)
                return UNWIND_RULE_ABSENT;
        i = ABI_PAGE_SHARD(entry);
        map = bpf_map_lookup_elem(&shards, &i);
        if (!map)
                return UNWIND_RULE_ABSENT;
        shard = bpf_map_lookup_elem(map, &zero);
        if (!shard)
                return UNWIND_RULE_ABSENT;
        at = ABI_PAGE_FIRST(entry);
#define ROW_OFFSET(index) ((uint64_t)UNWIND_ROW_OFFSET(shard->row[(index) & (ABI_SHARD_ROWS - 1)]))
        UNWIND_SEARCH(at, ABI_PAGE_ROWS(entry), elf & UNWIND_PAGE_MASK, ROW_OFFSET);
#undef ROW_OFFSET
        i = UNWIND_ROW_RULE(shard->row[at & (ABI_SHARD_ROWS - 1)]);
        if (i < UNWIND_RULE_FIRST)
                return i; /* is its own kind */
        value = bpf_map_lookup_elem(&rules, &i);
        return value ? *value : UNWIND_NONE;
}

/* Instructions that carry a probe are stepped in [uprobes], and a probe on a function's return puts an
 * address there in place of the return address; the task keeps the real ones, innermost first. 0 where there
 * is none. */
static __always_inline void read_uprobes(uint64_t *ret_probed, uint64_t ret_returns[ABI_RAW_RETURNS])
{
        struct task_struct *task = (void *)bpf_get_current_task();
        struct return_instance *ri = NULL;
        struct uprobe_task *utask = NULL;

        *ret_probed = 0;
        if (bpf_core_field_exists(task->utask) && bpf_core_field_exists(utask->return_instances))
                utask = BPF_CORE_READ(task, utask);
        if (utask) {
                if (bpf_core_field_exists(utask->vaddr))
                        *ret_probed = BPF_CORE_READ(utask, vaddr);
                ri = BPF_CORE_READ(utask, return_instances);
        }
        for (uint32_t i = 0; i < ABI_RAW_RETURNS; i++) {
                ret_returns[i] = ri ? BPF_CORE_READ(ri, orig_ret_vaddr) : 0;
                if (ri)
                        ri = BPF_CORE_READ(ri, next);
        }
}

UNWIND_INLINE uint64_t unwind_uprobe(struct unwind_walk *w)
{
        struct task_struct *task = (void *)bpf_get_current_task();
        struct return_instance *ri;
        struct uprobe_task *utask = NULL;

        if (!bpf_core_field_exists(task->utask) || !bpf_core_field_exists(utask->return_instances))
                return 0;
        utask = BPF_CORE_READ(task, utask);
        if (!utask)
                return 0;
        if (w->leaf)
                return bpf_core_field_exists(utask->vaddr) ? BPF_CORE_READ(utask, vaddr) : 0;
        ri = BPF_CORE_READ(utask, return_instances);
        for (uint32_t i = 0; i < ABI_RAW_RETURNS; i++) {
                if (!ri)
                        return 0;
                if (i == w->uprobes)
                        return BPF_CORE_READ(ri, orig_ret_vaddr);
                ri = BPF_CORE_READ(ri, next);
        }
        return 0;
}

UNWIND_INLINE void unwind_emit(struct unwind_walk *w, uint64_t frame)
{
        struct scratch *s = SCRATCH_OF(w);
        uint32_t n = w->n, at = n < LEAF ? n : LEAF + (n & (ROOT - 1));

        if (n == LEAF)
                s->hash_leaf = s->hash;
        barrier_var(at); /* the verifier of 5.10 does not see the bound through the branch */
        s->user.frame[at & (ABI_MAX_FRAMES - 1)] = frame;
        s->hash = mix(s->hash, frame);
        w->n = n + 1;
}

static __always_inline struct step_entry *step_at(struct scratch *s, uint32_t at)
{
        uint32_t i = s->cpu * STEP_CACHE + at;
        return bpf_map_lookup_elem(&step_cache, &i);
}

static __always_inline int is_step(const struct step_entry *e, uint64_t ip, uint32_t version)
{
        return e && e->ip == ip && e->version == version;
}

static __always_inline uint64_t step_hash(uint64_t ip, uint32_t version)
{
        return (ip ^ (uint64_t)version << 32) * 0x9E3779B97F4A7C15ull;
}

/* A return address is at this place in the log: the next is probably behind it. */
static __always_inline void log_moved(struct scratch *s, uint32_t at)
{
        struct step_entry *e;

        if (s->leaf_at) { /* it is that of the interrupted instruction's caller */
                e = step_at(s, s->leaf_at);
                if (e && e->caller != at)
                        e->caller = at;
                s->leaf_at = 0;
        }
        s->log_at = at + 1;
}

/* The step at ip, if it is remembered. */
static __always_inline struct step_entry *recall(struct scratch *s)
{
        uint64_t ip = s->walk.ip, hash;
        uint32_t version = s->version, cpu = s->cpu, at = s->log_at & (STEP_LOG - 1);
        struct step_index *index;
        struct step_entry *e;

        if (!version)
                return NULL;
        if (s->walk.leaf) {
                at = STEP_LOG + (uint32_t)(step_hash(ip, version) >> (64 - STEP_LEAF_BITS));
                e = step_at(s, at);
                s->leaf_at = at;
                if (!is_step(e, ip, version))
                        return NULL;
                s->log_at = e->caller;
                return e;
        }
        e = step_at(s, at);
        if (!is_step(e, ip, version)) {
                index = bpf_map_lookup_elem(&step_indexes, &cpu);
                if (!index)
                        return NULL;
                hash = step_hash(ip, version) >> (64 - STEP_INDEX_BITS);
                at = index->at[hash & (STEP_INDEX - 1)] & (STEP_LOG - 1);
                e = step_at(s, at);
                if (!is_step(e, ip, version))
                        return NULL;
        }
        log_moved(s, at);
        return e;
}

/* Remembers the step at ip, which was found in a loaded table. */
static __always_inline void remember_step(struct scratch *s, uint64_t ip, uint8_t leaf)
{
        uint32_t at = s->leaf_at, cpu = s->cpu;
        struct step_index *index;
        struct step_entry *e;

        if (!leaf) {
                index = bpf_map_lookup_elem(&step_indexes, &cpu);
                if (!index)
                        return;
                at = s->log_next++ & (STEP_LOG - 1);
                index->at[step_hash(ip, s->version) >> (64 - STEP_INDEX_BITS) & (STEP_INDEX - 1)] = at;
                log_moved(s, at);
        }
        e = step_at(s, at);
        if (!e)
                return;
        e->ip = ip;
        e->version = s->version;
        e->flags = s->walk.flags;
        e->frame = s->frame;
        e->rule = s->rule;
}

/* unwind_locate() into s->frame and s->rule: apart from the step, whose code is short when it is all that
 * runs, and so has fewer lines to miss in a cold cache. */
__noinline int walk_locate(void)
{
        struct scratch *s = get_scratch();
        uint64_t ip;
        uint8_t leaf;
        int r;

        if (!s)
                return UNWIND_ENDED;
        ip = s->walk.ip;
        leaf = s->walk.leaf;
        r = unwind_locate(&s->walk, &s->frame, &s->rule);
        if (r == UNWIND_FOUND && s->version && s->rule != UNWIND_NONE && s->rule != UNWIND_RULE_ABSENT)
                remember_step(s, ip, leaf);
        return r;
}

__noinline int walk_step(void)
{
        struct scratch *s = get_scratch();
        struct step_entry *e;
        int r;

        if (!s)
                return 1;
        e = recall(s);
        if (e) {
                s->walk.flags = e->flags;
                s->frame = e->frame;
                s->rule = e->rule;
        } else {
                r = walk_locate();
                if (r != UNWIND_FOUND)
                        return r == UNWIND_ENDED;
        }
        return unwind_apply(&s->walk, s->frame, s->rule);
}

/* Of a stack deeper than ABI_MAX_FRAMES: the first LEAF frames, the mark, the last ROOT - 1. Its hash is of
 * these, so that recursions of different depth are one stack. */
__noinline int fold(void)
{
        struct scratch *s = get_scratch();
        uint64_t h;

        if (!s)
                return 0;
        h = mix(s->hash_leaf, ABI_FRAME_FOLDED);
        for (uint32_t i = 0; i < ROOT - 1; i++) {
                uint64_t frame = s->user.frame[LEAF + ((s->walk.n + 1 + i) & (ROOT - 1))];
                s->root[i] = frame;
                h = mix(h, frame);
        }
        for (uint32_t i = 0; i < ROOT - 1; i++) {
                s->user.frame[LEAF + 1 + i] = s->root[i];
                barrier(); /* or clang makes a call of memcpy() of it */
        }
        s->user.frame[LEAF] = ABI_FRAME_FOLDED;
        s->user.head.n = ABI_MAX_FRAMES;
        s->hash = h;
        return 0;
}

static __always_inline void walk_begin(struct scratch *s)
{
        struct unwind_walk *w = &s->walk;

        unwind_begin(w);
        w->ip = s->registers.ip;
        w->sp = s->registers.sp;
        w->fp = s->registers.fp;
        w->lr = s->registers.lr;
        w->bx = s->registers.reg[3];
        s->window_base = NO_WINDOW;
        s->hash = hash_seed;
        s->hash_leaf = 0;
        s->leaf_at = 0;
}

static __always_inline void walk_end(struct scratch *s)
{
        if (!s->hash)
                s->hash = 1; /* 0 is no stack */
        s->key.user_stack = s->hash;
}

__noinline int walk_user(void)
{
        struct scratch *s = get_scratch();
        uint32_t how;

        if (!s)
                return 0;
        walk_begin(s);
        for (uint32_t i = 0; i < UNWIND_MAX_STEPS; i++)
                if (walk_step())
                        break;
        how = s->walk.walk;
        s->defer = s->walk.defer || (s->walk.unmapped && !s->settled);
        s->user.head.n = s->walk.n;
        if (s->walk.n > ABI_MAX_FRAMES) {
                fold();
                if (how == ABI_WALK_COMPLETE)
                        how = ABI_WALK_FOLDED;
        }
        s->key.walk = how;
        walk_end(s);
        return 0;
}

/* Just the interrupted instruction, for a process whose mappings are not known. */
__noinline int walk_leaf(void)
{
        struct scratch *s = get_scratch();

        if (!s)
                return 0;
        walk_begin(s);
        unwind_emit(&s->walk, ABI_FRAME(0, s->registers.ip));
        s->user.head.n = s->walk.n;
        walk_end(s);
        return 0;
}

static __always_inline void emit_address(struct scratch *s, uint64_t pc)
{
        struct abi_mapping *m = &s->walk.mapping;

        if (pc - m->start < m->end - m->start || unwind_find_mapping(&s->walk, pc))
                unwind_emit(&s->walk, ABI_FRAME(m->object, m->object ? pc - m->bias : pc));
        else
                unwind_emit(&s->walk, ABI_FRAME(0, pc));
}

/* One frame of a 32-bit process: nonzero when there is no further one. */
__noinline int compat_step(void)
{
        struct scratch *s = get_scratch();
        uint32_t slot[2], fp;

        if (!s)
                return 1;
        fp = s->walk.fp;
        if (s->walk.n >= ABI_MAX_FRAMES || !fp || fp & 3 || fp < (uint32_t)s->walk.sp)
                return 1;
        if (bpf_probe_read_user(slot, sizeof(slot), (void *)(uint64_t)fp) || slot[1] < 4096)
                return 1;
        emit_address(s, slot[1] - 1);
        s->walk.sp = fp + 8;
        s->walk.fp = slot[0];
        return 0;
}

/* A 32-bit process: by frame pointer (ebp), which is all that the tables of 64-bit code leave to do. */
__noinline int walk_compat(void)
{
        struct scratch *s = get_scratch();

        if (!s)
                return 0;
        walk_begin(s);
        emit_address(s, s->registers.ip);
        if (!arm64) /* which register it is in AArch32 code depends on the instruction set */
                for (uint32_t i = 0; i < ABI_MAX_FRAMES; i++)
                        if (compat_step())
                                break;
        s->user.head.n = s->walk.n;
        s->key.walk = ABI_WALK_COMPAT;
        walk_end(s);
        return 0;
}

__noinline int hash_kernel(void)
{
        struct scratch *s = get_scratch();
        uint64_t h = ~hash_seed;

        if (!s)
                return 0;
        for (uint32_t i = 0; i < ABI_MAX_KERNEL_FRAMES; i++) {
                if (i >= s->kernel.head.n)
                        break;
                h = mix(h, s->kernel.frame[i]);
        }
        s->key.kernel_stack = h ? h : 1;
        return 0;
}

#endif
