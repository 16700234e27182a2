/* The job whose time is measured: arithmetic and memory at the bottom of a call chain. Compiled with frame
 * pointers, so that every tool walks the same frames. */
#include "slowdown_job.h"

#define DEPTH 24
#define WORDS (256 * 1024 / 8) /* more than a first-level cache, less than a second */

static uint64_t memory[WORDS];

static __attribute__((noinline)) uint64_t work(uint64_t v, uint32_t n)
{
        for (uint32_t i = 0; i < n; i++) {
                v = v * 6364136223846793005ull + 1442695040888963407ull;
                memory[(v >> 32) % WORDS] += v;
        }
        return v;
}

static __attribute__((noinline)) uint64_t descend(uint64_t v, uint32_t n, int depth)
{
        uint64_t r = depth ? descend(v, n, depth - 1) : work(v, n);

        __asm__ volatile("" : "+r"(r)); /* no tail call */
        return r;
}

uint64_t slowdown_job(uint32_t n)
{
        return descend(memory[0], n, DEPTH);
}
