/* execs SECONDS [UNTIL]: one process that becomes the same program again each 50 ms. */
#include <string.h>

#include "tests/programs/truth.h"

static volatile uint64_t sink;

TRUTH_FRAME void stage_leaf(uint64_t x)
{
        TRUTH_BURN(x, 100000);
        sink = x;
}

TRUTH_FRAME void stage(double end)
{
        while (truth_now() < end)
                stage_leaf(sink);
        TRUTH_KEEP();
}

int main(int argc, char **argv)
{
        char until[32];
        double end;

        if (argc > 2) {
                end = atof(argv[2]);
        } else {
                end = truth_deadline(argc, argv);
                printf("pid %d\n", getpid());
                printf("chain stage_leaf;stage;main;" TRUTH_START "\n");
                printf("chain *;main;" TRUTH_START "\n"); /* exec */
                printf("other *\n");                      /* ld.so, before main() */
                truth_ready();
        }
        stage(truth_now() + 0.05);
        if (truth_now() < end) {
                snprintf(until, sizeof(until), "%.6f", end);
                execl("/proc/self/exe", argv[0], argv[1], until, (char *)NULL);
                perror("exec");
                return 1;
        }
        return 0;
}
