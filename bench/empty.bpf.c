/* The least that any profiler with a BPF program costs: a program that does nothing. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "GPL";

SEC("perf_event") int empty(void *ctx)
{
        return 0;
}
