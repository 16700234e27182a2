/* What runs at each sample: takes the kernel stack, walks the user stack, and counts.
 *
 * One object for Linux 5.10 and later, x86-64 and aarch64: `arm64` and the other constants are set before
 * loading, and the verifier drops what they make unreachable.
 *
 * The parts are global functions without arguments that find their state in the CPU's scratch: the verifier
 * looks at each once, whatever calls it, and clang cannot drop an argument that BTF still names. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#include "bpf/abi.h"
#include "bpf/kernel_types.h"
#include "bpf/scratch.h"
#include "bpf/walk.h"
#include "bpf/count.h"

char LICENSE[] SEC("license") = "GPL";

/* Whether the sample hit user code, and the period, from the program's context. By hand: the context's
 * layout is the architecture's, and the verifier wants constant offsets. */
static __always_inline int hit_user(void *ctx)
{
        uint64_t v;

        if (arm64) {
                asm volatile("%0 = *(u64 *)(%1 + %2)" : "=r"(v) : "r"(ctx), "i"(CTX_ARM64_PSTATE));
                return !(v & ARM64_PSR_MODE);
        }
        asm volatile("%0 = *(u64 *)(%1 + %2)" : "=r"(v) : "r"(ctx), "i"(CTX_X86_CS));
        return !!(v & 3);
}

static __always_inline uint64_t sample_period(void *ctx)
{
        uint64_t v;

        if (arm64)
                asm volatile("%0 = *(u64 *)(%1 + %2)" : "=r"(v) : "r"(ctx), "i"(CTX_ARM64_PERIOD));
        else
                asm volatile("%0 = *(u64 *)(%1 + %2)" : "=r"(v) : "r"(ctx), "i"(CTX_X86_PERIOD));
        return v;
}

/* User registers, in user and in kernel mode: they lie at the top of the task's kernel stack in both. Before
 * 5.15 there is no helper for them; their place is computed then (no FRED there yet). 0, or nonzero when
 * there are none. */
static __always_inline int read_registers(struct scratch *s, struct task_struct *task)
{
        void *at;

        if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs))
                at = (void *)bpf_task_pt_regs(bpf_get_current_task_btf());
        else
                at = BPF_CORE_READ(task, stack) + thread_size - bpf_core_type_size(struct pt_regs);

        if (arm64) {
                if (bpf_probe_read_kernel(&s->saved.arm64, sizeof(s->saved.arm64), at))
                        return -1;
                s->compat = !!(s->saved.arm64.pstate & ARM64_PSR_COMPAT);
                s->registers.ip = s->saved.arm64.pc;
                s->registers.sp = s->saved.arm64.sp;
                s->registers.fp = s->saved.arm64.x[29];
                s->registers.lr = s->saved.arm64.x[30];
                __builtin_memcpy(s->registers.reg, s->saved.arm64.x, sizeof(s->registers.reg));
        } else {
                if (bpf_probe_read_kernel(&s->saved.x86, sizeof(s->saved.x86), at))
                        return -1;
                s->compat = s->saved.x86.cs == X86_USER32_CS;
                s->registers.ip = s->saved.x86.ip;
                s->registers.sp = s->saved.x86.sp;
                s->registers.fp = s->saved.x86.bp;
                s->registers.lr = 0;
                s->registers.reg[0] = s->saved.x86.ax;
                s->registers.reg[1] = s->saved.x86.dx;
                s->registers.reg[2] = s->saved.x86.cx;
                s->registers.reg[3] = s->saved.x86.bx;
                s->registers.reg[4] = s->saved.x86.si;
                s->registers.reg[5] = s->saved.x86.di;
                s->registers.reg[6] = s->saved.x86.bp;
                s->registers.reg[7] = s->saved.x86.sp;
                s->registers.reg[8] = s->saved.x86.r8;
                s->registers.reg[9] = s->saved.x86.r9;
                s->registers.reg[10] = s->saved.x86.r10;
                s->registers.reg[11] = s->saved.x86.r11;
                s->registers.reg[12] = s->saved.x86.r12;
                s->registers.reg[13] = s->saved.x86.r13;
                s->registers.reg[14] = s->saved.x86.r14;
                s->registers.reg[15] = s->saved.x86.r15;
        }
        return !s->registers.ip; /* zero in threads of the kernel that never were in user mode (io_uring) */
}

static __always_inline int in_exec(struct task_struct *task)
{
        return bpf_core_field_exists(task->in_execve) && BPF_CORE_READ_BITFIELD_PROBED(task, in_execve);
}

/* Reads the mapping list of `tgid` if it is of this memory map. An element that is replaced meanwhile shows
 * in its stamp. */
static __always_inline int find_list(struct scratch *s, uint32_t tgid)
{
        volatile struct abi_process *p = bpf_map_lookup_elem(&processes, &tgid);

        if (!p || p->stamp != s->stamp)
                return 0;
        s->first = p->first;
        s->n_mappings = p->n;
        s->version = p->version;
        s->settled = p->flags & ABI_PROCESS_SETTLED;
        return p->stamp == s->stamp;
}

/* The user stack of the current task into the scratch: frames, hash, and how the walk ended. */
static __always_inline void user_stack(struct scratch *s)
{
        struct task_struct *task = (void *)bpf_get_current_task();
        struct mm_struct *mm;
        uint64_t code;

        s->user.head.n = 0;
        s->hash = 0;
        s->defer = 0;
        s->key.walk = ABI_WALK_NONE;
        if (BPF_CORE_READ(task, flags) & PF_KTHREAD || read_registers(s, task))
                return;

        mm = BPF_CORE_READ(task, mm);
        code = mm ? BPF_CORE_READ(mm, start_code) : 0;
        if (!code || in_exec(task)) {
                /* 0 in new memory until the program is mapped */
                s->key.walk = mm ? ABI_WALK_IN_EXEC : ABI_WALK_EXITED;
                return;
        }
        /* Of one image: program text and stack are placed at random, and a fork keeps both. */
        s->stack_end = BPF_CORE_READ(mm, start_stack);
        s->stamp = mix(mix(hash_seed, code), s->stack_end) | 1;

        s->n_mappings = 0;
        s->settled = 0;
        if (!find_list(s, s->key.tgid) &&
            (pidns_inode || !find_list(s, BPF_CORE_READ(task, real_parent, tgid)))) {
                s->n_mappings = 0;
                s->defer = !s->compat &&
                           s->key.tgid; /* of no process the daemon can see: nothing to wait for */
        }
        if (s->compat) {
                walk_compat();
        } else if (s->defer) {
                s->key.walk = ABI_WALK_NO_PROCESS;
                walk_leaf();
        } else {
                walk_user();
        }
}

/* Process and thread as the daemon's pid namespace counts them; 0 when they are not in it. */
static __always_inline uint64_t id_for_daemon(uint64_t id)
{
        struct bpf_pidns_info in = {};

        if (!pidns_inode)
                return id;
        if (bpf_get_ns_current_pid_tgid(pidns_device, pidns_inode, &in, sizeof(in)))
                return 0;
        return (uint64_t)in.tgid << 32 | in.pid;
}

static __always_inline void fill_key(struct scratch *s, uint64_t id)
{
        struct task_struct *task = (void *)bpf_get_current_task();

        id = id_for_daemon(id);

        s->key.user_stack = 0;
        s->key.kernel_stack = 0;
        s->key.start_ns = BPF_CORE_READ(task, group_leader, start_boottime);
        s->key.cgroup = bpf_get_current_cgroup_id();
        s->key.tgid = id >> 32;
        s->key.tid = keep_threads ? (uint32_t)id : 0;
        s->key.uid = (uint32_t)bpf_get_current_uid_gid();
        s->key.pad = 0;
        bpf_get_current_comm(s->key.comm, sizeof(s->key.comm));
}

static __always_inline void kernel_stack(struct scratch *s, void *ctx)
{
        long size;

        s->kernel.head.n = 0;
        if (hit_user(ctx))
                return;
        size = bpf_get_stack(ctx, s->kernel.frame, sizeof(s->kernel.frame), 0);
        if (size <= 0)
                return;
        s->kernel.head.n = (uint64_t)size / 8;
        hash_kernel();
}

static __always_inline int sample(void *ctx, uint32_t event)
{
        uint32_t zero = 0, n = bpf_get_smp_processor_id();
        uint64_t id = bpf_get_current_pid_tgid();
        struct abi_cpu *cpu = bpf_map_lookup_elem(&cpus, &n);
        uint64_t begin = bpf_ktime_get_ns();
        struct scratch *s;

        if (!cpu)
                return 0;
        if (!id) {
                __sync_fetch_and_add(&cpu->stat[ABI_STAT_IDLE], 1);
                __sync_fetch_and_add(&cpu->idle[event], 1);
                return 0;
        }
        __sync_fetch_and_add(&cpu->taken[event], 1);
        if (cpu->busy) {
                __sync_fetch_and_add(&cpu->stat[ABI_STAT_LOST_NESTED], 1);
                return 0;
        }
        s = bpf_map_lookup_elem(&scratches, &zero);
        if (!s)
                return 0;
        cpu->busy = 1;
        barrier();
        s->cpu = n;
        s->epoch = *(volatile uint32_t *)&epoch & 1;
        s->key.event = event;
        s->weight = cpu->weight[event];
        if (!s->weight) {
                s->weight = sample_period(ctx);
                if (cpu->scale[event])
                        s->weight = s->weight * cpu->scale[event] >> 16;
        }
        fill_key(s, id);
        kernel_stack(s, ctx);
        user_stack(s);
        count();
        bump(cpu, ABI_STAT_RUN_NS, bpf_ktime_get_ns() - begin);
        barrier();
        cpu->busy = 0;
        return 0;
}

/* A program for each event: before 5.15 a program cannot learn otherwise which event it is attached to.
 * Those not needed are not loaded. */
#define SAMPLE(n)                                   \
        SEC("perf_event") int sample_##n(void *ctx) \
        {                                           \
                return sample(ctx, n);              \
        }
SAMPLE(0)
SAMPLE(1)
SAMPLE(2)
SAMPLE(3)
SAMPLE(4)
SAMPLE(5)
SAMPLE(6)
SAMPLE(7)
_Static_assert(ABI_MAX_EVENTS == 8, "one program for each");
