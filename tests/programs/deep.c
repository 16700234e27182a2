/* deep SECONDS [DEPTH]: a chain of DEPTH calls through three functions with different frames. Compiled in
 * every way that changes frames: compilers, without frame pointers, static, PIE, 32-bit, musl. */
#include "tests/programs/truth.h"

#define ROUNDS 100000

static volatile uint64_t sink;

TRUTH_FRAME uint64_t leaf(uint64_t x)
{
        TRUTH_BURN(x, ROUNDS);
        return x;
}

TRUTH_FRAME uint64_t small(unsigned depth, uint64_t x);

/* An array on the stack. */
TRUTH_FRAME uint64_t array(unsigned depth, uint64_t x)
{
        uint64_t a[9];

        for (int i = 0; i < 9; i++)
                a[i] = x + (uint64_t)i;
        __asm__ volatile("" : : "r"(a) : "memory");
        x = depth ? small(depth - 1, x + a[3]) : leaf(x);
        return x + a[5];
}

/* Many values across the call: callee-saved registers. */
TRUTH_FRAME uint64_t saves(unsigned depth, uint64_t x)
{
        unsigned long y = (unsigned long)x, a = y * 3, b = y * 5, c = y * 7, d = y * 9, e = y * 11;

        __asm__ volatile("" : "+g"(a), "+g"(b), "+g"(c), "+g"(d), "+g"(e));
        x = depth ? array(depth - 1, x ^ 1) : leaf(x);
        return x + a * b + c * d + e;
}

TRUTH_FRAME uint64_t small(unsigned depth, uint64_t x)
{
        x = depth ? saves(depth - 1, x + 1) : leaf(x);
        TRUTH_KEEP();
        return x ^ 5;
}

int main(int argc, char **argv)
{
        static const char *const names[] = {"small", "saves", "array"};
        double end = truth_deadline(argc, argv);
        unsigned depth = argc > 2 ? (unsigned)atoi(argv[2]) : 45;

        printf("pid %d\nchain leaf", getpid());
        for (unsigned i = depth + 1; i-- > 0;)
                printf(";%s", names[i % 3]);
        printf(";main;" TRUTH_START "\n");
        TRUTH_CLOCK();
        truth_ready();
        while (truth_now() < end)
                sink = small(depth, sink);
        return 0;
}
