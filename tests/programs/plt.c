/* Calls through the PLT, from and into shared objects: most of the time goes into the stubs and their very
 * short targets. */
#include "tests/programs/pltlib.h"
#include "tests/programs/truth.h"

static volatile uint64_t sink;

TRUTH_FRAME uint64_t calls(uint64_t x)
{
        for (int i = 0; i < 20000; i++)
                x = plt_a(plt_b(plt_c(plt_d(x))));
        return x + 1;
}

int main(int argc, char **argv)
{
        double end = truth_deadline(argc, argv);

        printf("pid %d\n", getpid());
        printf("chain plt_a;calls;main;" TRUTH_START "\n");
        printf("chain plt_b;calls;main;" TRUTH_START "\n");
        printf("chain plt_c;calls;main;" TRUTH_START "\n");
        printf("chain plt_inner;plt_d;calls;main;" TRUTH_START "\n");
        printf("chain ?;calls;main;" TRUTH_START "\n");       /* the stub */
        printf("chain ?;plt_d;calls;main;" TRUTH_START "\n"); /* the library's own */
        TRUTH_CLOCK();
        truth_ready();
        while (truth_now() < end)
                sink = calls(sink);
        return 0;
}
