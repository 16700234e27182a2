/* vforks SECONDS: a process and the children it makes by vfork(), which work in its memory and on its stack
 * while it waits, and never exec. */
#include <sys/wait.h>

#include "tests/programs/truth.h"

static volatile uint64_t sink;

TRUTH_FRAME void burn(double until)
{
        uint64_t x = 1;

        while (truth_now() < until)
                TRUTH_BURN(x, 10000);
        sink = x;
}

TRUTH_FRAME void in_child(double until)
{
        burn(until);
        TRUTH_KEEP();
}

TRUTH_FRAME void in_parent(double until)
{
        burn(until);
        TRUTH_KEEP();
}

int main(int argc, char **argv)
{
        double end = truth_deadline(argc, argv);
        unsigned children = 0;

        printf("pid %d\n", getpid());
        printf("chain *;burn;in_child;main;" TRUTH_START "\n");
        printf("chain *;burn;in_parent;main;" TRUTH_START "\n");
        TRUTH_CLOCK();
        truth_ready();
        while (truth_now() < end) {
                pid_t pid = vfork();

                if (pid == 0) {
                        in_child(truth_now() + 0.02);
                        _exit(0);
                }
                if (pid < 0 || waitpid(pid, NULL, 0) != pid) {
                        perror("vfork");
                        return 1;
                }
                children++;
                in_parent(truth_now() + 0.005);
        }
        printf("truth children %u\n", children);
        return 0;
}
