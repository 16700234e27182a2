/* The kernel half's walk on stacks that a test makes up: run by BPF_PROG_TEST_RUN in the context of the
 * test, whose memory it reads, with registers from `probe` in place of those of a sample. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#include "bpf/abi.h"
#include "bpf/kernel_types.h"
#include "bpf/scratch.h"
#include "bpf/walk.h"
#include "tests/bpf/walk_probe.h"

char LICENSE[] SEC("license") = "GPL";

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __uint(map_flags, BPF_F_MMAPABLE);
        __uint(max_entries, 1);
        __type(key, uint32_t);
        __type(value, struct walk_probe);
} probe SEC(".maps");

__noinline int copy_frames(void)
{
        uint32_t zero = 0;
        struct walk_probe *p = bpf_map_lookup_elem(&probe, &zero);
        struct scratch *s = get_scratch();

        if (!p || !s)
                return 0;
        for (uint32_t i = 0; i < ABI_MAX_FRAMES; i++) {
                p->frame[i] = s->user.frame[i];
                barrier();
        }
        return 0;
}

SEC("raw_tp") int walk_probe_run(void *ctx)
{
        uint32_t zero = 0;
        struct walk_probe *p = bpf_map_lookup_elem(&probe, &zero);
        struct scratch *s = get_scratch();
        uint64_t begin;

        if (!p || !s)
                return 0;
        s->registers = p->registers;
        s->first = p->first;
        s->n_mappings = p->n_mappings;
        s->settled = p->settled;
        s->version = p->version;
        begin = bpf_ktime_get_ns();
        for (uint32_t i = 0; i < WALK_PROBE_MAX_REPEAT; i++) {
                if (i > p->repeat)
                        break;
                walk_user();
        }
        p->ns = bpf_ktime_get_ns() - begin;
        p->n = s->user.head.n;
        p->walked = s->walk.n;
        p->walk = s->key.walk;
        p->hash = s->key.user_stack;
        p->defer = s->defer;
        copy_frames();
        return 0;
}

/* The kernel's own walk of the caller's stack, for comparison. */
SEC("raw_tp") int walk_probe_frame_pointers(void *ctx)
{
        uint32_t zero = 0;
        struct walk_probe *p = bpf_map_lookup_elem(&probe, &zero);
        struct scratch *s = get_scratch();
        uint64_t begin;
        long size = 0;

        if (!p || !s)
                return 0;
        begin = bpf_ktime_get_ns();
        for (uint32_t i = 0; i < WALK_PROBE_MAX_REPEAT; i++) {
                if (i > p->repeat)
                        break;
                size = bpf_get_stack(ctx, s->user.frame, sizeof(s->user.frame), BPF_F_USER_STACK);
        }
        p->ns = bpf_ktime_get_ns() - begin;
        p->fp_frames = size > 0 ? (uint64_t)size / 8 : 0;
        return 0;
}
