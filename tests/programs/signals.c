/* signals SECONDS [altstack]: a timer's signal handler that works as long as what it interrupts, on the
 * stack of what it interrupts or on one of its own. */
#include <signal.h>
#include <string.h>
#include <sys/time.h>

#include "tests/programs/truth.h"

#define ALTSTACK (64 * 1024)

static volatile uint64_t sink;

TRUTH_FRAME void burn(uint64_t rounds)
{
        uint64_t x = rounds;

        TRUTH_BURN(x, rounds);
        sink = x;
}

TRUTH_FRAME void in_handler(void)
{
        burn(300000);
        TRUTH_KEEP();
}

static void handler(int number)
{
        in_handler();
        TRUTH_KEEP();
}

TRUTH_FRAME void work(void)
{
        burn(1000);
        TRUTH_KEEP();
}

int main(int argc, char **argv)
{
        double end = truth_deadline(argc, argv);
        struct sigaction action = {.sa_flags = SA_RESTART};
        struct itimerval every = {{0, 4000}, {0, 4000}};

        action.sa_handler = handler;
        if (argc > 2 && strcmp(argv[2], "altstack") == 0) {
                stack_t stack = {.ss_sp = malloc(ALTSTACK), .ss_size = ALTSTACK};

                if (!stack.ss_sp || sigaltstack(&stack, NULL) < 0) {
                        perror("sigaltstack");
                        return 1;
                }
                action.sa_flags |= SA_ONSTACK;
        }
        printf("pid %d\n", getpid());
        printf("chain burn;work;main;" TRUTH_START "\n");
        /* ?: the C library's trampoline; *: wherever it was, the vDSO included */
        printf("chain burn;in_handler;handler;?;*;main;" TRUTH_START "\n");
        TRUTH_CLOCK();
        truth_ready();
        sigaction(SIGALRM, &action, NULL);
        setitimer(ITIMER_REAL, &every, NULL);
        while (truth_now() < end)
                for (int i = 0; i < 100; i++)
                        work();
        return 0;
}
