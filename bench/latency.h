/* A histogram of run times: 16 steps in each power of two, so that a figure is right to 6 %. */
#ifndef BENCH_LATENCY_H
#define BENCH_LATENCY_H

#include "symbolizer/unwind_format.h"

#define LATENCY_STEPS   16
#define LATENCY_BUCKETS (32 * LATENCY_STEPS)

struct latency {
        uint64_t begin; /* of what is running, ns; 0: nothing */
        uint64_t runs[LATENCY_BUCKETS];
};

/* The ns from which on a bucket counts. */
static inline uint64_t latency_ns(uint32_t bucket)
{
        return (uint64_t)(LATENCY_STEPS + bucket % LATENCY_STEPS) << (bucket / LATENCY_STEPS);
}

#endif
