/* distinct SECONDS: hardly a sample of it has the stack of another one. Which of two functions calls the
 * next is a bit of a number that another round changes. */
#include "tests/programs/truth.h"

#define DEPTH 48

static volatile uint64_t sink;

static void next(uint64_t bits, int depth);

TRUTH_FRAME void distinct_left(uint64_t bits, int depth)
{
        next(bits, depth);
        TRUTH_KEEP();
}

TRUTH_FRAME void distinct_right(uint64_t bits, int depth)
{
        next(bits, depth);
        TRUTH_KEEP();
}

static inline void next(uint64_t bits, int depth)
{
        uint64_t x = bits;

        if (depth == 0)
                TRUTH_BURN(x, 2000);
        else if (bits >> depth & 1)
                distinct_left(bits, depth - 1);
        else
                distinct_right(bits, depth - 1);
        sink = x;
}

int main(int argc, char **argv)
{
        double end = truth_deadline(argc, argv);
        uint64_t bits = 88172645463325252u;

        printf("pid %d\n", getpid());
        printf("chain *;main;" TRUTH_START "\n");
        truth_ready();
        while (truth_now() < end) {
                bits ^= bits << 13; /* Marsaglia's xorshift */
                bits ^= bits >> 7;
                bits ^= bits << 17;
                next(bits, DEPTH);
        }
        return 0;
}
