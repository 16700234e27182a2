/* giant SECONDS [UNTIL]: a frame of 600 KiB between short ones, first on the main thread's stack, then on
 * another's; and the same program anew each 60 ms, since what matters are the samples of a process whose
 * tables are not there yet. */
#include <pthread.h>
#include <string.h>

#include "tests/programs/truth.h"

#define DEPTH 20
#define GIANT (600 * 1024)
#define WIDE  1500 /* bytes; so that both ends are longer than a few KiB */

static volatile uint64_t sink;

TRUTH_FRAME void leaf(void)
{
        uint64_t x = 1;

        TRUTH_BURN(x, 100000);
        sink = x;
}

TRUTH_FRAME void above(unsigned depth, double until, void (*next)(unsigned, double))
{
        char wide[WIDE];

        __asm__ volatile("" : : "r"(wide) : "memory");
        if (depth)
                above(depth - 1, until, next);
        else
                next(DEPTH, until);
        TRUTH_KEEP();
}

TRUTH_FRAME void below(unsigned depth, double until)
{
        char wide[WIDE];

        __asm__ volatile("" : : "r"(wide) : "memory");
        if (depth)
                below(depth - 1, until);
        else
                while (truth_now() < until)
                        leaf();
        TRUTH_KEEP();
}

TRUTH_FRAME void giant(unsigned depth, double until)
{
        char big[GIANT];

        __asm__ volatile("" : : "r"(big) : "memory");
        below(depth, until);
        TRUTH_KEEP();
}

static void *thread(void *until)
{
        above(DEPTH, *(double *)until, giant);
        TRUTH_KEEP();
        return NULL;
}

static void say_chain(const char *top)
{
        printf("chain leaf");
        for (int i = 0; i <= DEPTH; i++)
                printf(";below");
        printf(";giant");
        for (int i = 0; i <= DEPTH; i++)
                printf(";above");
        printf(";%s\n", top);
}

int main(int argc, char **argv)
{
        double end, until;
        pthread_t other;

        if (argc > 2) {
                end = atof(argv[2]);
        } else {
                end = truth_deadline(argc, argv);
                printf("pid %d\n", getpid());
                say_chain("main;" TRUTH_START);
                say_chain("thread;" TRUTH_THREAD);
                printf("other *;below;*\n"); /* the clock, and on the way back */
                printf("other *;main;" TRUTH_START "\n");
                printf("other *;" TRUTH_THREAD "\n");
                printf("other *\n"); /* ld.so, before main() */
                truth_ready();
        }
        above(DEPTH, truth_now() + 0.03, giant);
        until = truth_now() + 0.03;
        if (pthread_create(&other, NULL, thread, &until) == 0)
                pthread_join(other, NULL);
        if (truth_now() < end) {
                char text[32];

                snprintf(text, sizeof(text), "%.6f", end);
                execl("/proc/self/exe", argv[0], argv[1], text, (char *)NULL);
                perror("exec");
                return 1;
        }
        return 0;
}
