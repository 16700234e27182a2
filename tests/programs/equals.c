/* Work in 40 functions that do the same and are called in random order, and in one that has a third of the
 * time; with "slow" that one takes a tenth longer. Two processes; the work is fixed, not the time.
 *
 *   equals ROUNDS [slow]        a round is about 8 ms of CPU time in all */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define STEPS 4000
#define CALLS 1000 /* of a round */
#define LARGE 20   /* times as often called as another */

static volatile uint64_t sink;

#define WORK(name)                                                               \
        __attribute__((noipa)) static void name(uint32_t n)                      \
        {                                                                        \
                uint64_t v = n;                                                  \
                for (uint32_t i = 0; i < n; i++)                                 \
                        v = v * 6364136223846793005ull + 1442695040888963407ull; \
                sink += v;                                                       \
        }
#define TEN(d)             \
        WORK(equal_##d##0) \
        WORK(equal_##d##1) \
        WORK(equal_##d##2) \
        WORK(equal_##d##3) \
        WORK(equal_##d##4) \
        WORK(equal_##d##5) \
        WORK(equal_##d##6) \
        WORK(equal_##d##7) \
        WORK(equal_##d##8) \
        WORK(equal_##d##9)
TEN(0)
TEN(1)
TEN(2)
TEN(3)
WORK(large)

#define NAMES(d)                                                                                          \
        equal_##d##0, equal_##d##1, equal_##d##2, equal_##d##3, equal_##d##4, equal_##d##5, equal_##d##6, \
                        equal_##d##7, equal_##d##8, equal_##d##9
static void (*const equal[])(uint32_t) = {NAMES(0), NAMES(1), NAMES(2), NAMES(3)};

int main(int argc, char **argv)
{
        int rounds = argc > 1 ? atoi(argv[1]) : 10;
        uint32_t large_steps = argc > 2 && !strcmp(argv[2], "slow") ? STEPS + STEPS / 10 : STEPS;
        uint64_t random = 1;
        pid_t other = fork();

        if (other < 0) {
                perror("fork");
                return 1;
        }
        for (int i = 0; i < rounds * CALLS; i++) {
                random = random * 6364136223846793005ull + 1442695040888963407ull;
                uint32_t which = (uint32_t)(random >> 33) % (40 + LARGE);
                if (which < 40)
                        equal[which](STEPS);
                else
                        large(large_steps);
        }
        return other && waitpid(other, NULL, 0) != other;
}
