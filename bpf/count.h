/* Counting of a finished sample: its stacks to the ring when they are new, its row into the CPU's rows, or
 * the whole of it to user space when its walk has to wait for a table.
 *
 * No lock is taken on the way but the rings' own. Each CPU appends to rows of its own and finds them again
 * through an index of its own; a program on top of another one on the same CPU (NMI over a timer interrupt)
 * sees abi_cpu.busy, counts itself as lost and leaves. Rows and index are plain memory that the daemon maps:
 * a drain costs no system call for a row, and no sample is skipped because the kernel switched BPF off on
 * this CPU around such a call.
 *
 * `seen` remembers which stacks were sent: a cache of hashes that may forget, never invent. Two CPUs that
 * write one slot at once lose an entry, and a stack goes twice.
 *
 * Of rows, index and seen there are two sets. The daemon flips `epoch` and waits for an RCU grace period:
 * the programs run under RCU's read lock, so none is left in the old set then. */
#ifndef BPF_COUNT_H
#define BPF_COUNT_H

#include "bpf/scratch.h"

#define RING_TRIES 3 /* in NMI a ring that another CPU holds is not waited for */

static __always_inline void bump(struct abi_cpu *cpu, uint32_t stat, uint64_t n)
{
        cpu->stat[stat] += n;
}

static __always_inline int seen_before(struct scratch *s, uint64_t hash)
{
        uint32_t i = s->epoch * (seen_mask + 1) + (hash & seen_mask);
        struct seen_line *line = bpf_map_lookup_elem(&seen, &i);
        int found = 0;

        if (!line)
                return 0;
#pragma unroll
        for (int k = 0; k < SEEN_SLOTS; k++)
                found |= line->hash[k] == hash;
        return found;
}

static __always_inline void remember(struct scratch *s, uint64_t hash)
{
        uint32_t i = s->epoch * (seen_mask + 1) + (hash & seen_mask), at = (hash >> 32) & (SEEN_SLOTS - 1);
        struct seen_line *line = bpf_map_lookup_elem(&seen, &i);

        if (!line)
                return;
#pragma unroll
        for (int k = 0; k < SEEN_SLOTS; k++)
                if (!line->hash[k])
                        at = k;
        line->hash[at & (SEEN_SLOTS - 1)] = hash;
}

/* Wakes the daemon only when a ring has `wake` bytes: it reads at each drain anyway. */
static __always_inline uint64_t ring_flags(void *ring, uint32_t wake)
{
        return bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA) > wake ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
}

/* Sends a stack that was not sent yet; the counter of the loss when that fails, else 0. `max` bounds the
 * frames for the verifier. */
static __always_inline uint32_t send_stack(struct scratch *s, struct abi_stack *stack, uint64_t hash,
                                           uint32_t kind, uint32_t max)
{
        uint32_t n = stack->n;
        uint64_t size;

        if (!hash || seen_before(s, hash))
                return 0;
        if (n > max)
                n = max;
        stack->hash = hash;
        stack->epoch = s->epoch;
        stack->kind = kind;
        size = sizeof(*stack) + (uint64_t)n * 8;
        for (int i = 0; i < RING_TRIES; i++) {
                if (!bpf_ringbuf_output(&stacks, stack, size, ring_flags(&stacks, stacks_size / 2))) {
                        remember(s, hash);
                        return 0;
                }
                if (bpf_ringbuf_query(&stacks, BPF_RB_AVAIL_DATA) + size + 16 > stacks_size)
                        return ABI_STAT_LOST_STACKS_FULL;
        }
        return ABI_STAT_LOST_BUSY;
}

__noinline int send_user_stack(void)
{
        struct scratch *s = get_scratch();

        return s ? send_stack(s, &s->user.head, s->key.user_stack, 0, ABI_MAX_FRAMES) : 0;
}

__noinline int send_kernel_stack(void)
{
        struct scratch *s = get_scratch();

        return s ? send_stack(s, &s->kernel.head, s->key.kernel_stack, 1, ABI_MAX_KERNEL_FRAMES) : 0;
}

/* argc, which _start pops, and some */
#define STACK_END_ROOM 64
/* A stack is not larger: what lies further up is another one. */
#define STACK_MAX (64ull << 20)
/* With less room in the ring only so much of a stack is copied, so that more samples find some. */
#define RAW_LEAF_SHORT (8 * 1024)
#define RED_ZONE       128 /* below sp, System V ABI for x86-64 */

/* Where the stack ends that sp is on. The main thread's: where its program began; above its first frame it
 * has arguments and environment, kilobytes of them. Another thread's: at its control block, to which the
 * thread pointer points and which C libraries put there. */
static __always_inline uint64_t find_stack_end(struct scratch *s)
{
        struct task_struct *task = (void *)bpf_get_current_task();
        uint64_t sp = s->registers.sp, end = s->stack_end + STACK_END_ROOM, block = 0;

        if (end < sp)
                end = ~0ull;
        if (bpf_core_field_exists(task->thread.fsbase))
                block = BPF_CORE_READ(task, thread.fsbase);
        else if (bpf_core_field_exists(task->thread.uw.tp_value))
                block = BPF_CORE_READ(task, thread.uw.tp_value);
        return block > sp && block < end ? block : end;
}

static __always_inline struct raw_scratch *get_raw_scratch(void)
{
        uint32_t zero = 0;
        return bpf_map_lookup_elem(&raw_scratches, &zero);
}

/* Sends the record, and begins the next where it ended. */
static __always_inline int send_raw(struct raw_scratch *r, uint32_t more)
{
        uint32_t len = r->len;

        r->raw.more = more;
        asm volatile("" : "+r"(len));
        if (len > ABI_RAW_PART)
                return -1;
        /* At a quarter: on a host with more work than CPUs the daemon may have to wait for one. */
        if (bpf_ringbuf_output(&raws, &r->raw, sizeof(r->raw) + len, ring_flags(&raws, raws_size / 4)))
                return -1;
        r->raw.leaf += r->raw.leaf_len;
        r->raw.root += r->raw.root_len;
        r->len = r->raw.leaf_len = r->raw.root_len = 0;
        return 0;
}

/* Copies what is next of the piece of stack, not across a page. Nonzero at its end, or at a page that is not
 * present; but in front of the piece such pages are left out: a new frame may have moved sp into some that
 * nothing has touched yet. */
__noinline int copy_chunk(void)
{
        struct raw_scratch *r = get_raw_scratch();
        uint64_t at, left;
        uint32_t n, len;

        if (!r)
                return 1;
        if (r->len > ABI_RAW_PART - RAW_CHUNK && send_raw(r, 1))
                return 1;
        at = r->at;
        left = r->end - at;
        len = r->len;
        n = RAW_CHUNK - (at & (RAW_CHUNK - 1));
        if (n > left)
                n = left;
        /* Behind the barrier, so that 5.10's verifier sees the bounds on the very registers. */
        asm volatile("" : "+r"(n), "+r"(len));
        if (!n || n > RAW_CHUNK || len > ABI_RAW_PART - RAW_CHUNK)
                return 1;
        r->at = at + n;
        if (bpf_probe_read_user(&r->stack[len], n, (void *)at)) {
                if (r->begun)
                        return 1;
                if (r->root)
                        r->raw.root = at + n;
                else
                        r->raw.leaf = at + n;
                return 0;
        }
        r->begun = 1;
        r->len = len + n;
        if (r->root)
                r->raw.root_len += n;
        else
                r->raw.leaf_len += n;
        return 0;
}

/* Copies [begin, end) of user memory, or what is present of it, and sends what does not fit. */
static __always_inline void copy_piece(struct raw_scratch *r, uint64_t begin, uint64_t end, uint32_t max)
{
        r->at = begin;
        r->end = end;
        r->begun = 0;
        for (uint32_t i = 0; i <= max / RAW_CHUNK; i++)
                if (copy_chunk())
                        break;
}

/* The stack of the sample, whole or its two ends. */
static __always_inline void copy_stack(struct scratch *s, struct raw_scratch *r)
{
        uint64_t sp = s->registers.sp, end = find_stack_end(s), leaf, leaf_end, root;

        /* Registers that were just taken from below sp are there still, and unwind information says so. */
        leaf = sp - RED_ZONE;
        if ((leaf ^ sp) & ~(uint64_t)(RAW_CHUNK - 1))
                leaf = sp & ~(uint64_t)(RAW_CHUNK - 1);
        leaf_end = leaf + ABI_RAW_LEAF;
        if (bpf_ringbuf_query(&raws, BPF_RB_AVAIL_DATA) > raws_size / 2)
                leaf_end = leaf + RAW_LEAF_SHORT;
        if (leaf_end > end)
                leaf_end = end;
        r->raw.leaf = leaf;
        r->raw.root = end;
        r->raw.leaf_len = r->raw.root_len = r->len = 0;
        r->root = 0;
        copy_piece(r, leaf, leaf_end, ABI_RAW_LEAF);
        if (leaf_end == end || end - sp > STACK_MAX)
                return;
        root = end - ABI_RAW_ROOT;
        if (root < leaf_end)
                root = leaf_end;
        r->raw.root = root;
        r->root = 1;
        copy_piece(r, root, end, ABI_RAW_ROOT);
}

/* Hands registers and stack of the sample to user space. 0 when all of it is in the ring. */
__noinline int defer_sample(void)
{
        struct scratch *s = get_scratch();
        struct raw_scratch *r = get_raw_scratch();

        if (!s || !r)
                return -1;
        r->raw.key = s->key;
        r->raw.key.user_stack = 0;
        r->raw.weight = s->weight;
        r->raw.time_ns = bpf_ktime_get_ns();
        r->raw.stamp = s->stamp;
        r->raw.registers = s->registers;
        r->raw.epoch = s->epoch;
        r->raw.cpu = s->cpu;
        if (bpf_probe_read_user(&r->raw.code, sizeof(r->raw.code), (void *)s->registers.ip))
                r->raw.code = 0;
        read_uprobes(&r->raw.probed, r->raw.returns);
        copy_stack(s, r);
        return send_raw(r, 0);
}

static __always_inline uint64_t key_hash(const struct abi_key *key)
{
        const uint64_t *word = (const uint64_t *)key;
        uint64_t h = hash_seed;

#pragma unroll
        for (int i = 0; i < (int)(sizeof(*key) / 8); i++)
                h = mix(h, word[i]);
        return h;
}

static __always_inline int key_equal(const struct abi_key *a, const struct abi_key *b)
{
        const uint64_t *x = (const uint64_t *)a, *y = (const uint64_t *)b;
        uint64_t diff = 0;

#pragma unroll
        for (int i = 0; i < (int)(sizeof(*a) / 8); i++)
                diff |= x[i] ^ y[i];
        return !diff;
}

/* Adds the sample to a row. 0, or the counter of the loss. */
static __always_inline uint32_t add_row(struct scratch *s, struct abi_cpu *cpu)
{
        uint64_t h = key_hash(&s->key);
        uint32_t set = s->epoch * n_cpus + s->cpu, base = set * rows_per_cpu;
        uint32_t i = set * (index_mask + 1) + (h & index_mask), used, lost;
        struct index_line *line = bpf_map_lookup_elem(&row_index, &i);
        uint32_t tag = h >> 48;
        int free_slot = -1;
        struct abi_row *row;

        if (!line)
                return ABI_STAT_LOST_COUNTS_FULL;
        for (int k = 0; k < INDEX_SLOTS; k++) {
                uint32_t at = ((h >> 32) + k) & (INDEX_SLOTS - 1), slot = line->slot[at];
                if (!slot) {
                        free_slot = at;
                        break;
                }
                if (slot >> 16 != tag)
                        continue;
                i = base + (slot & 0xffff) - 1;
                row = bpf_map_lookup_elem(&counts, &i);
                if (row && key_equal(&row->key, &s->key)) {
                        row->count.samples++;
                        row->count.weight += s->weight;
                        return 0;
                }
        }
        lost = send_kernel_stack();
        if (!lost)
                lost = send_user_stack();
        if (lost)
                return lost;
        used = cpu->rows[s->epoch & 1];
        if (used >= rows_per_cpu)
                return ABI_STAT_LOST_COUNTS_FULL;
        i = base + used;
        row = bpf_map_lookup_elem(&counts, &i);
        if (!row)
                return ABI_STAT_LOST_COUNTS_FULL;
        row->key = s->key;
        row->count.samples = 1;
        row->count.weight = s->weight;
        cpu->rows[s->epoch & 1] = used + 1;
        if (free_slot >= 0)
                line->slot[free_slot & (INDEX_SLOTS - 1)] = tag << 16 | (used + 1);
        return 0;
}

__noinline int count(void)
{
        struct scratch *s = get_scratch();
        struct abi_cpu *cpu;
        uint32_t i, lost;

        if (!s)
                return 0;
        i = s->cpu;
        cpu = bpf_map_lookup_elem(&cpus, &i);
        if (!cpu)
                return 0;
        if (s->defer) {
                lost = send_kernel_stack();
                if (lost) {
                        bump(cpu, lost & 15, 1);
                        return 0;
                }
                if (!defer_sample()) {
                        bump(cpu, ABI_STAT_DEFERRED, 1);
                        return 0;
                }
                bump(cpu, ABI_STAT_RAWS_FULL, 1);
        }
        lost = add_row(s, cpu);
        if (lost) {
                bump(cpu, lost & 15, 1);
                return 0;
        }
        bump(cpu, ABI_STAT_DELIVERED, 1);
        bump(cpu, ABI_STAT_USER_FRAMES, s->user.head.n);
        bump(cpu, ABI_STAT_KERNEL_FRAMES, s->kernel.head.n);
        return 0;
}

#endif
