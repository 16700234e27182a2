/* Two functions that share the CPU time 3 : 1, in turns of some tens of microseconds. Their lengths vary at
 * random: on a busy host the scheduler's slices, the sampling and turns of equal length would beat. */
#include "tests/programs/truth.h"

#define MIN_ROUNDS 10000 /* between two looks at the clock */
#define MAX_ROUNDS 30000

static volatile uint64_t sink;

TRUTH_FRAME void hot_three(uint64_t x, uint64_t rounds)
{
        TRUTH_BURN(x, rounds);
        sink = x;
}

TRUTH_FRAME void hot_one(uint64_t x, uint64_t rounds)
{
        TRUTH_BURN(x, rounds);
        sink = x;
}

int main(int argc, char **argv)
{
        double end = truth_deadline(argc, argv), three = 0, one = 0;
        uint64_t random = (uint64_t)getpid();

        printf("pid %d\n", getpid());
        printf("chain hot_three;main;" TRUTH_START "\n");
        printf("chain hot_one;main;" TRUTH_START "\n");
        TRUTH_CLOCK();
        truth_ready();
        while (truth_now() < end) {
                random = random * 6364136223846793005ull + 1442695040888963407ull;
                uint64_t rounds = MIN_ROUNDS + (random >> 33) % (MAX_ROUNDS - MIN_ROUNDS);
                double before = truth_cpu();

                if (three <= 3 * one) {
                        hot_three(sink, rounds);
                        three += truth_cpu() - before;
                } else {
                        hot_one(sink, rounds);
                        one += truth_cpu() - before;
                }
        }
        printf("truth hot_three %.6f\n", three);
        printf("truth hot_one %.6f\n", one);
        return 0;
}
