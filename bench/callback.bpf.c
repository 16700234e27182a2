/* How long the kernel's callback of the sampling timer takes, whoever samples: from its entry to its exit,
 * as tracepoints see it. The ticks of idle CPUs are left out. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#include "bench/latency.h"

char LICENSE[] SEC("license") = "GPL";

struct hrtimer {
        void *function;
} __attribute__((preserve_access_index));

const volatile uint64_t callback = 0; /* address of perf_swevent_hrtimer() */

struct {
        __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
        __uint(max_entries, 1);
        __type(key, uint32_t);
        __type(value, struct latency);
} latencies SEC(".maps");

SEC("raw_tp/hrtimer_expire_entry") int begin(struct bpf_raw_tracepoint_args *ctx)
{
        struct hrtimer *timer = (void *)ctx->args[0];
        uint32_t zero = 0;
        struct latency *l = bpf_map_lookup_elem(&latencies, &zero);

        if (l && bpf_get_current_pid_tgid() && (uint64_t)BPF_CORE_READ(timer, function) == callback)
                l->begin = bpf_ktime_get_ns();
        return 0;
}

SEC("raw_tp/hrtimer_expire_exit") int end(struct bpf_raw_tracepoint_args *ctx)
{
        uint64_t now = bpf_ktime_get_ns();
        uint32_t zero = 0, step, log = 0;
        struct latency *l = bpf_map_lookup_elem(&latencies, &zero);

        if (!l || !l->begin)
                return 0;
        now -= l->begin;
        l->begin = 0;
        if (now < LATENCY_STEPS)
                now = LATENCY_STEPS;
        while (log < 31 && now >> (log + 1) >= LATENCY_STEPS)
                log++;
        step = log * LATENCY_STEPS + (uint32_t)(now >> log) - LATENCY_STEPS;
        if (step < LATENCY_BUCKETS)
                l->runs[step]++;
        return 0;
}
