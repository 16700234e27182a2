/* Two functions that share the CPU time 3 : 1, in turns of some milliseconds. */
#include "tests/programs/truth.h"

#define ROUNDS 20000 /* between two looks at the clock */

static volatile uint64_t sink;

TRUTH_FRAME void hot_three(uint64_t x)
{
        TRUTH_BURN(x, ROUNDS);
        sink = x;
}

TRUTH_FRAME void hot_one(uint64_t x)
{
        TRUTH_BURN(x, ROUNDS);
        sink = x;
}

int main(int argc, char **argv)
{
        double end = truth_deadline(argc, argv), three = 0, one = 0;

        printf("pid %d\n", getpid());
        printf("chain hot_three;main;" TRUTH_START "\n");
        printf("chain hot_one;main;" TRUTH_START "\n");
        TRUTH_CLOCK();
        truth_ready();
        while (truth_now() < end) {
                double before = truth_cpu();

                if (three <= 3 * one) {
                        hot_three(sink);
                        three += truth_cpu() - before;
                } else {
                        hot_one(sink);
                        one += truth_cpu() - before;
                }
        }
        printf("truth hot_three %.6f\n", three);
        printf("truth hot_one %.6f\n", one);
        return 0;
}
