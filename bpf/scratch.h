/* Constants, maps, and the per-CPU scratch of the BPF programs. */
#ifndef BPF_SCRATCH_H
#define BPF_SCRATCH_H

#include "bpf/abi.h"
#include "bpf/lines.h"

/* Set by the daemon before loading. */
const volatile uint32_t arm64 = 0;           /* nonzero: stacks are of aarch64, else x86-64 */
const volatile uint32_t thread_size = 16384; /* of a kernel stack; used before 5.15 only */
const volatile uint32_t keep_threads = 0;    /* tid in the key */
const volatile uint32_t n_cpus = 1;          /* possible CPUs, the entries of `cpus` */
const volatile uint32_t rows_per_cpu = 1;
const volatile uint32_t index_mask = 0; /* index lines per CPU and epoch - 1; a power of two less one */
const volatile uint32_t seen_mask = 0;  /* lines of `seen` per epoch - 1 */
const volatile uint32_t stacks_size = 0, raws_size = 0; /* bytes of the rings */
/* The daemon's pid namespace (device and inode of its nsfs file); 0: the initial one. */
const volatile uint64_t pidns_device = 0, pidns_inode = 0;
const volatile uint64_t hash_seed = 0; /* random, so that nobody makes stacks whose hashes collide */

#define UNWIND_ARM64 arm64
#include "bpf/unwind_step.h"

uint32_t epoch; /* the set that samples go to; written by the daemon */

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __uint(map_flags, BPF_F_MMAPABLE);
        __uint(max_entries, 1);
        __type(key, uint32_t);
        __type(value, struct abi_cpu);
} cpus SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __uint(map_flags, BPF_F_MMAPABLE);
        __uint(max_entries, 1);
        __type(key, uint32_t);
        __type(value, struct abi_row);
} counts SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __uint(map_flags, BPF_F_MMAPABLE);
        __uint(max_entries, 1);
        __type(key, uint32_t);
        __type(value, struct index_line);
} row_index SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __uint(map_flags, BPF_F_MMAPABLE);
        __uint(max_entries, 1);
        __type(key, uint32_t);
        __type(value, struct seen_line);
} seen SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_RINGBUF);
        __uint(max_entries, 4096);
} stacks SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_RINGBUF);
        __uint(max_entries, 4096);
} raws SEC(".maps");

/* Preallocated, as a program that may run in NMI demands. */
struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __uint(max_entries, 1);
        __type(key, uint32_t);
        __type(value, struct abi_process);
} processes SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __uint(map_flags, BPF_F_MMAPABLE);
        __uint(max_entries, 1);
        __type(key, uint32_t);
        __type(value, struct abi_mapping);
} mappings SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __uint(map_flags, BPF_F_MMAPABLE);
        __uint(max_entries, 1);
        __type(key, uint32_t);
        __type(value, uint64_t);
} pages SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __uint(map_flags, BPF_F_MMAPABLE);
        __uint(max_entries, ABI_MAX_RULES);
        __type(key, uint32_t);
        __type(value, uint64_t); /* struct unwind_rule */
} rules SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __uint(map_flags, BPF_F_MMAPABLE); /* for its alignment */
        __uint(max_entries, STEP_CACHE);
        __type(key, uint32_t);
        __type(value, struct step_entry);
} step_cache SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __uint(max_entries, 1);
        __type(key, uint32_t);
        __type(value, struct step_index);
} step_indexes SEC(".maps");

struct shard {
        uint32_t row[ABI_SHARD_ROWS];
};
/* Inner maps by size: with the type of the value, map creation would want its BTF from the daemon. */
struct shard_map {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __uint(map_flags, BPF_F_MMAPABLE);
        __uint(max_entries, 1);
        __uint(key_size, sizeof(uint32_t));
        __uint(value_size, sizeof(struct shard));
};
struct {
        __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
        __uint(max_entries, 1);
        __type(key, uint32_t);
        __type(value, uint32_t);
        __array(values, struct shard_map);
} shards SEC(".maps");

/* Updating this map waits for a grace period (the kernel's promise for maps in maps): the daemon does it to
 * know that no program is left that saw the old epoch. */
struct grace_map {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __uint(max_entries, 1);
        __uint(key_size, sizeof(uint32_t));
        __uint(value_size, sizeof(uint64_t));
};
struct {
        __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
        __uint(max_entries, 1);
        __type(key, uint32_t);
        __type(value, uint32_t);
        __array(values, struct grace_map);
} grace SEC(".maps");

#define WINDOW 512 /* bytes of user stack read at once: one read serves several frames */
#define LEAF   (ABI_MAX_FRAMES / 2)
#define ROOT   (ABI_MAX_FRAMES / 2)

/* State of the sample being taken. */
struct scratch {
        struct unwind_walk walk;
        uint64_t frame, rule; /* of the address that the walk is at */
        uint64_t want, got;   /* of read_window() */
        uint64_t window_base; /* address of window[] */
        uint64_t window[WINDOW / 8];
        uint32_t first, n_mappings; /* list of the process, in `mappings` */
        uint32_t version;           /* of that list; 0: not to be remembered */
        uint32_t cpu, epoch;
        uint32_t log_at, log_next; /* in the CPU's log: what is probably next; where the next is put */
        uint32_t leaf_at;          /* of the interrupted instruction in the CPU's step_cache; 0: not there */
        uint64_t weight, stamp;
        uint64_t stack_end; /* where the main thread's stack began: arguments and environment are above */
        uint64_t hash;      /* of the user frames emitted */
        uint64_t hash_leaf; /* of the first LEAF of them */
        uint8_t compat, defer, settled, pad;
        struct abi_key key;
        struct abi_registers registers;
        union {
                struct x86_registers x86;
                struct arm64_registers arm64;
        } saved;
        struct {
                struct abi_stack head;
                uint64_t frame[ABI_MAX_KERNEL_FRAMES + 1];
        } kernel;
        /* The first LEAF frames, then a ring of the last ROOT ones. */
        struct {
                struct abi_stack head;
                uint64_t frame[ABI_MAX_FRAMES];
        } user;
        uint64_t root[ROOT]; /* for putting the ring in order */
};
struct {
        __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
        __uint(max_entries, 1);
        __type(key, uint32_t);
        __type(value, struct scratch);
} scratches SEC(".maps");

/* A record of a deferred sample, as it is put together. A whole chunk fits behind all that is sent for less.
 */
#define RAW_CHUNK 4096
struct raw_scratch {
        uint64_t at, end; /* of the piece of stack: what is next */
        uint32_t len;     /* bytes of stack in the record */
        uint8_t root;     /* which piece it is */
        uint8_t begun;    /* something of it was copied */
        uint16_t pad;
        struct abi_raw raw;
        uint8_t stack[ABI_RAW_PART];
};
struct {
        __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
        __uint(max_entries, 1);
        __type(key, uint32_t);
        __type(value, struct raw_scratch);
} raw_scratches SEC(".maps");

static __always_inline struct scratch *get_scratch(void)
{
        uint32_t zero = 0;
        return bpf_map_lookup_elem(&scratches, &zero);
}

/* Every word goes through a bijection of the state, so that two sequences of words collide only when 64
 * scattered bits cancel out. */
static __always_inline uint64_t mix(uint64_t h, uint64_t v)
{
        h = (h ^ v) * 0x9E3779B97F4A7C15ull;
        return h ^ h >> 32;
}

#endif
