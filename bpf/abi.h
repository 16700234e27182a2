/* What the kernel half and the daemon share: map layouts, record layouts, counters.
 *
 * Values are explicit, asserted and never reused; PROFD_ABI_VERSION tells a daemon that takes over the maps
 * of an older one whether it can read them. */
#ifndef BPF_ABI_H
#define BPF_ABI_H

#include "symbolizer/unwind_format.h"

/* Of what a later daemon drains: struct abi_key, abi_count, abi_row, abi_cpu, abi_stack, abi_raw, and the
 * memory that is kept with them (daemon/kept_state.h, daemon/journal.h). Mappings, tables and caches it does
 * not read: they may change freely. */
#ifndef PROFD_ABI_VERSION /* a test builds one of another version */
#define PROFD_ABI_VERSION 2
#endif

#define ABI_MAX_FRAMES        512 /* of user space, after which a stack is folded in the middle */
#define ABI_MAX_KERNEL_FRAMES 127 /* perf's own limit (kernel.perf_event_max_stack) */
#define ABI_MAX_EVENTS        8
#define ABI_COMM_LEN          16 /* TASK_COMM_LEN */

/* A user frame: which object and where in it, so that equal code is equal whatever the address space.
 *   63..48 object id, 0: none, then 47..0 is the address in the process itself (JIT, anonymous memory)
 *   47..0  ELF virtual address in the object: of the interrupted instruction in the innermost frame and
 *          above a signal frame, elsewhere of the last byte of the call (return address - 1) */
#define ABI_FRAME(object, address) ((uint64_t)(object) << 48 | ((uint64_t)(address)&0xffffffffffffull))
#define ABI_FRAME_OBJECT(f)        ((uint32_t)((f) >> 48))
#define ABI_FRAME_ADDRESS(f)       ((f)&0xffffffffffffull)
/* Stands between leaf and root where the middle of a deeper stack was left out. */
#define ABI_FRAME_FOLDED 0xffffffffffffffffull

/* How the walk of a user stack ended. */
enum abi_walk {
        ABI_WALK_NONE = 0,          /* no user stack: kernel thread, idle */
        ABI_WALK_COMPLETE = 1,      /* reached the outermost frame */
        ABI_WALK_FOLDED = 2,        /* complete, deeper than ABI_MAX_FRAMES: the middle is left out */
        ABI_WALK_DEPTH = 3,         /* not complete after ABI_MAX_FRAMES frames */
        ABI_WALK_NO_PROCESS = 4,    /* mappings not known (yet) */
        ABI_WALK_NO_MAPPING = 5,    /* an address outside every mapping */
        ABI_WALK_NO_TABLE = 6,      /* no unwind information, and no frame pointer */
        ABI_WALK_UNSUPPORTED = 7,   /* unwind information that the rules cannot express */
        ABI_WALK_UNREADABLE = 8,    /* stack memory not present */
        ABI_WALK_BAD_STACK = 9,     /* a frame that goes down the stack, or loops */
        ABI_WALK_FP_END = 10,       /* a frame-pointer chain that ended where it does not say so */
        ABI_WALK_EXITED = 11,       /* the task has no memory map any more */
        ABI_WALK_IN_EXEC = 12,      /* within execve: new memory, old registers */
        ABI_WALK_COMPAT = 13,       /* 32-bit process, walked by frame pointer */
        ABI_WALK_PAGE_MISSING = 14, /* this part of a large object's table is not loaded yet */
        ABI_WALK_MAX
};

/* One row of the counts. Zero what is not used: the whole struct is the hash key. */
struct abi_key {
        uint64_t user_stack;   /* hash of its frames; 0: none */
        uint64_t kernel_stack; /* likewise */
        uint64_t start_ns;     /* of the process (its leader), boot time: with tgid its identity */
        uint64_t cgroup;       /* id in the v2 hierarchy; 0 unknown */
        uint32_t tgid;         /* in the daemon's pid namespace; 0: not in it */
        uint32_t tid;          /* 0 unless samples are kept by thread */
        uint32_t uid;          /* real user id in the initial user namespace */
        uint8_t event;         /* index of the configured event */
        uint8_t walk;          /* enum abi_walk */
        uint16_t pad;
        uint8_t comm[ABI_COMM_LEN]; /* of the thread */
};
_Static_assert(sizeof(struct abi_key) == 64, "one cache line");

struct abi_count {
        uint64_t samples;
        uint64_t weight; /* sum of the periods: ns for time-like events, else events */
};

/* A row of `counts`: entry (epoch * cpus + cpu) * rows_per_cpu + i, i < abi_cpu.rows[epoch]. Each CPU writes
 * its own rows, so they need no lock and no atomic, also in NMI. Rows with equal keys may occur twice. */
struct abi_row {
        struct abi_key key;
        struct abi_count count;
};

/* Per CPU: entry `cpu` of `cpus`. The first two members are the same in all versions, so that samples of
 * maps that cannot be read can at least be counted. */
struct abi_cpu {
        uint64_t stat[16];               /* enum abi_stat; TAKEN is the sum of taken[] */
        uint64_t taken[ABI_MAX_EVENTS];  /* samples by event, without those of the idle task */
        uint64_t idle[ABI_MAX_EVENTS];   /* samples of the idle task */
        uint64_t weight[ABI_MAX_EVENTS]; /* written by the daemon: weight of each sample; 0: its period */
        uint32_t scale[ABI_MAX_EVENTS];  /* likewise: by which a period is multiplied, in 1/65536; 0: 1 */
        uint32_t rows[2];                /* rows in use, by epoch; the daemon resets those it has read */
        uint32_t busy;                   /* a program is at work on this CPU */
        uint32_t pad[5];
};
_Static_assert(sizeof(struct abi_cpu) == 384, "whole cache lines");

/* Header of a record in the `stacks` ring: a stack not (or no longer) remembered as sent in this epoch. The
 * same stack may come twice. It comes before the first row that names it. */
struct abi_stack {
        uint64_t hash;
        uint32_t epoch; /* low bit: which set of maps */
        uint16_t kind;  /* 0 user, 1 kernel */
        uint16_t n;     /* frames that follow, leaf first; kernel frames are addresses as perf gives them */
        uint64_t frame[];
};

/* User registers at the sample. `reg` by DWARF number: x86-64 rax rdx rcx rbx rsi rdi rbp rsp r8..r15,
 * aarch64 x0..x15. */
struct abi_registers {
        uint64_t ip, sp, fp, lr; /* lr: aarch64 only */
        uint64_t reg[16];
};

/* A record in the `raws` ring: a sample whose walk has to wait for a table, finished in user space.
 *
 * Of a stack that is larger than what is copied there are the two ends: a frame of half a megabyte has few
 * others above it. A sample with much stack comes in several records, of one CPU and one time, all but the
 * last with `more`; each continues the pieces where the one before ended. */
#define ABI_RAW_LEAF    (64 * 1024)
#define ABI_RAW_ROOT    (64 * 1024)
#define ABI_RAW_PART    (16 * 1024) /* of stack in one record */
#define ABI_RAW_RETURNS 8           /* probes on the return of functions, one in the other */
struct abi_raw {
        struct abi_key key; /* user_stack 0 */
        uint64_t weight;
        uint64_t time_ns; /* monotonic, to be compared with the mapping records */
        uint64_t stamp;   /* of the memory map, see abi_process */
        struct abi_registers registers;
        uint64_t code;                     /* 8 bytes at registers.ip; 0: not readable */
        uint64_t probed;                   /* the instruction whose copy in [uprobes] is stepped; 0: none */
        uint64_t returns[ABI_RAW_RETURNS]; /* what return trampolines stand for, innermost first; 0: none */
        uint64_t leaf, root;         /* addresses of the two pieces of stack, or of what is here of them */
        uint32_t leaf_len, root_len; /* their bytes, which follow */
        uint32_t epoch, cpu;
        uint32_t more, pad;
        uint8_t stack[];
};

/* Mappings of one address space: entries [first, first + n) of `mappings`, sorted by start. Written by the
 * daemon only into entries that no list in use refers to.
 *
 * The stamp is the kernel half's own: it identifies the memory map of a task from exec to exec, is the same
 * in a forked child, and does not change with mmap(). The daemon copies it from a deferred sample: a process
 * gets its list after its first sample was deferred (no entry, or one with another stamp: defer), so that
 * the many processes that are never sampled cost nothing, and a list is never taken for that of a later
 * exec. A task without an entry whose parent has one with the task's stamp was forked from it and uses that
 * one. */
struct abi_process {
        uint64_t stamp;
        uint32_t first, n;
        uint32_t flags;   /* ABI_PROCESS_* */
        uint32_t version; /* of the list: another for each list ever written, so that what was found by it
                           * can be remembered; 0: do not */
};
/* An address outside the list is no mapping: do not defer for it. */
#define ABI_PROCESS_SETTLED 1

struct abi_mapping {
        uint64_t start, end; /* addresses in the process */
        uint64_t bias;       /* address - ELF virtual address */
        uint32_t page;       /* first entry in `pages`, which stands for ELF page `first_page` */
        uint32_t n_pages;    /* 0: no table */
        uint32_t first_page; /* ELF virtual address >> UNWIND_PAGE_SHIFT of the first indexed page */
        uint16_t object;     /* 0: anonymous or JIT code */
        uint16_t flags;      /* ABI_MAPPING_* */
};
#define ABI_MAPPING_FP      1 /* code that keeps frame pointers (JIT, Go): walk by them, end is complete */
#define ABI_MAPPING_DEFER   2 /* a table is on its way: hand the sample to user space */
#define ABI_MAPPING_GO      4 /* Go: a chain that ends at a stack switch is complete */
#define ABI_MAPPING_UPROBES 8 /* [uprobes]: copies of probed instructions, return trampolines */

/* Tables live in `shards`: an array of maps, whose inner maps the daemon makes as BPF_MAP_TYPE_ARRAY,
 * BPF_F_MMAPABLE, one entry of ABI_SHARD_ROWS rows of 4 bytes. Rows that no entry of `pages` refers to may
 * be rewritten after a grace period (when no program is running that began before).
 *
 * Entry of `pages`: where the rows of one page are. 0: not loaded, hand the sample to user space, which
 * loads it. A page without CFI has one row of UNWIND_NONE. Entries are set and zeroed while lists refer to
 * them. 63 loaded   48..40 shard   39..20 first row in the shard   19..0 rows */
#define ABI_SHARD_ROWS_LOG 18
#define ABI_SHARD_ROWS     (1u << ABI_SHARD_ROWS_LOG) /* 1 MiB a shard */
#define ABI_MAX_SHARDS     512
#define ABI_PAGE(shard, first, n) \
        (1ull << 63 | (uint64_t)(shard) << 40 | (uint64_t)(first) << 20 | (uint64_t)(n))
#define ABI_PAGE_SHARD(e) ((uint32_t)((e) >> 40) & (ABI_MAX_SHARDS - 1))
#define ABI_PAGE_FIRST(e) ((uint32_t)((e) >> 20) & (ABI_SHARD_ROWS - 1))
#define ABI_PAGE_ROWS(e)  ((uint32_t)(e)&0xfffffu)

#define ABI_MAX_RULES 65536

/* Counters, per CPU. Each sample taken ends in exactly one of DELIVERED (it is in the counts), DEFERRED (it
 * is in the raws ring) or one of the LOST ones. */
enum abi_stat {
        ABI_STAT_TAKEN = 0, /* samples that the event delivered and that were not idle */
        ABI_STAT_DELIVERED = 1,
        ABI_STAT_DEFERRED = 2,
        ABI_STAT_LOST_COUNTS_FULL = 3, /* no room for a new row */
        ABI_STAT_LOST_STACKS_FULL = 4, /* no room for a new stack */
        ABI_STAT_LOST_BUSY = 5,        /* a bucket or ring was locked by what this sample interrupted */
        ABI_STAT_RAWS_FULL = 6,   /* the ring of deferred samples was full: the sample is delivered, with the
                                   * frames it had (not a loss of a sample; it is DELIVERED too) */
        ABI_STAT_IDLE = 7,        /* ticks of the idle task, not samples */
        ABI_STAT_LOST_NESTED = 8, /* an event on top of another one of ours on this CPU */
        ABI_STAT_USER_FRAMES = 9,
        ABI_STAT_KERNEL_FRAMES = 10,
        ABI_STAT_MISSED = 11, /* not in TAKEN: ticks of the clock that never came to the program, reckoned by
                               * the daemon from the time that passed: the kernel leaves out a tick that hits
                               * another BPF program or a long time with interrupts off, a virtual machine
                               * those while it does not run */
        ABI_STAT_LOST_RESTART =
                        12, /* found by the daemon that took over: in the hands of one that was killed */
        ABI_STAT_LOST_UPGRADE = 13, /* likewise: in maps of a version that it cannot read */
        ABI_STAT_RUN_NS = 14, /* not samples: time in the program, by its own clock. The kernel's account of
                               * it (run_time_ns) takes CAP_SYS_ADMIN, and a price from every BPF program */
        ABI_STAT_MAX = 16
};

#endif
