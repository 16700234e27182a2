/* Children made by fork without exec, each of which lives a tenth of a second: they share their parent's
 * mappings. */
#include <sys/wait.h>

#include "tests/programs/truth.h"

static volatile uint64_t sink;

TRUTH_FRAME void child_leaf(uint64_t x)
{
        TRUTH_BURN(x, 100000);
        sink = x;
}

TRUTH_FRAME void child(double end)
{
        while (truth_now() < end)
                child_leaf(sink);
        TRUTH_KEEP();
}

int main(int argc, char **argv)
{
        double end = truth_deadline(argc, argv);
        unsigned n = 0;

        printf("pid %d\n", getpid());
        printf("chain child_leaf;child;main;" TRUTH_START "\n");
        printf("chain *;main;" TRUTH_START "\n"); /* fork */
        truth_ready();
        for (; truth_now() < end; n++) {
                pid_t pid = fork();

                if (pid == 0) {
                        child(truth_now() + 0.1);
                        _exit(0);
                }
                if (pid < 0 || waitpid(pid, NULL, 0) != pid) {
                        perror("fork");
                        return 1;
                }
        }
        printf("truth children %u\n", n);
        return 0;
}
