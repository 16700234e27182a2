/* The kernel structures and fields that are read, and no others: no vmlinux.h, no BTF of the build machine.
 * Where they really are is looked up in the running kernel's BTF when the programs are loaded (CO-RE). */
#ifndef BPF_KERNEL_TYPES_H
#define BPF_KERNEL_TYPES_H

#include "symbolizer/unwind_format.h"

typedef int pid_t;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct mm_struct {
        unsigned long start_code;
        unsigned long start_stack;
};

struct return_instance {
        unsigned long orig_ret_vaddr;
        struct return_instance *next;
};

struct uprobe;

struct uprobe_task {
        unsigned long vaddr; /* of the probed instruction while its copy is stepped */
        struct return_instance *return_instances;
};

struct thread_struct {
        unsigned long fsbase; /* x86-64 */
        struct {
                unsigned long tp_value; /* aarch64 */
        } uw;
};

struct task_struct {
        unsigned int flags;
        void *stack;
        struct mm_struct *mm;
        unsigned in_execve : 1; /* gone in 7.x */
        pid_t tgid;
        struct task_struct *real_parent;
        struct task_struct *group_leader;
        uint64_t start_boottime;
        struct uprobe_task *utask;
        struct thread_struct thread;
};

struct pt_regs {
        unsigned long unused; /* only its size is asked for */
};

#pragma clang attribute pop

#define PF_KTHREAD 0x00200000

/* User registers as the kernel saves them, laid out by hand so that one object serves both architectures:
 * arch/x86/include/asm/ptrace.h (x86-64), struct user_pt_regs of arch/arm64/include/uapi/asm/ptrace.h. */
struct x86_registers {
        uint64_t r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs, flags,
                        sp, ss;
};
struct arm64_registers {
        uint64_t x[31], sp, pc, pstate;
};
#define X86_USER32_CS    0x23 /* __USER32_CS */
#define ARM64_PSR_MODE   0xf  /* 0: EL0 */
#define ARM64_PSR_COMPAT 0x10 /* AArch32 */

/* Offsets in the context of a perf_event program, struct bpf_perf_event_data: registers, then the period. */
#define CTX_X86_CS       (17 * 8)
#define CTX_X86_PERIOD   (21 * 8)
#define CTX_ARM64_PSTATE (33 * 8)
#define CTX_ARM64_PERIOD (34 * 8)

#endif
