/* What most profilers do at a sample, to compare with: both stacks by frame pointer into the kernel's stack
 * map, and a count. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "bpf/abi.h"

char LICENSE[] SEC("license") = "GPL";

struct key {
        uint64_t tgid;
        int user, kernel;
        char comm[16];
};

struct {
        __uint(type, BPF_MAP_TYPE_STACK_TRACE);
        __uint(max_entries, 16384);
        __uint(key_size, sizeof(uint32_t));
        __uint(value_size, 127 * sizeof(uint64_t));
} traces SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __uint(max_entries, 16384);
        __type(key, struct key);
        __type(value, uint64_t);
} counted SEC(".maps");

SEC("perf_event") int stackmap(void *ctx)
{
        uint64_t id = bpf_get_current_pid_tgid(), one = 1, *n;
        struct key key = {.tgid = id >> 32};

        if (!id)
                return 0;
        bpf_get_current_comm(key.comm, sizeof(key.comm));
        key.user = bpf_get_stackid(ctx, &traces, BPF_F_USER_STACK);
        key.kernel = bpf_get_stackid(ctx, &traces, 0);
        n = bpf_map_lookup_elem(&counted, &key);
        if (n)
                __sync_fetch_and_add(n, 1);
        else
                bpf_map_update_elem(&counted, &key, &one, BPF_NOEXIST);
        return 0;
}
