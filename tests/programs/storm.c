/* storm SECONDS [PER_SECOND [MILLISECONDS]]: spawns so many processes a second (500), which live two to
 * twenty milliseconds, or as given, nearly all of it in storm_hot(). */
#include <errno.h>
#include <spawn.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "tests/programs/truth.h"

extern char **environ;
static volatile uint64_t sink;

TRUTH_FRAME void storm_hot(double cpu)
{
        uint64_t x = 1;

        while (truth_cpu() < cpu)
                TRUTH_BURN(x, 2000);
        sink = x;
}

static int child(double cpu)
{
        storm_hot(cpu);
        TRUTH_KEEP();
        return 0;
}

static unsigned reap(int options)
{
        unsigned n = 0;

        while (waitpid(-1, NULL, options) > 0)
                n++;
        return n;
}

int main(int argc, char **argv)
{
        double end, start = truth_now(), rate = argc > 2 ? atof(argv[2]) : 500;
        int fixed = argc > 3 ? atoi(argv[3]) : 0;
        unsigned n = 0, ended = 0;
        struct rusage usage;

        if (argc > 2 && strcmp(argv[1], "child") == 0)
                return child(atof(argv[2]) / 1e3);
        end = truth_deadline(argc, argv);
        printf("pid %d\n", getpid());
        printf("chain storm_hot;*;main;" TRUTH_START "\n"); /* of the children; * is the clock too */
        printf("other *\n");                                /* ld.so, posix_spawn */
        truth_ready();
        while (truth_now() < end) {
                char milliseconds[16];
                char *args[] = {argv[0], (char *)"child", milliseconds, NULL};
                double ahead = n / rate - (truth_now() - start);
                pid_t pid;
                int k;

                ended += reap(WNOHANG);
                if (ahead > 0) {
                        usleep((useconds_t)(ahead * 1e6));
                        continue;
                }
                snprintf(milliseconds, sizeof(milliseconds), "%u", fixed ? (unsigned)fixed : 2 + n % 19);
                k = posix_spawn(&pid, "/proc/self/exe", NULL, NULL, args, environ);
                if (k == EAGAIN) { /* more than this user may have at a time */
                        usleep(1000);
                        continue;
                }
                if (k) {
                        fprintf(stderr, "posix_spawn: %s\n", strerror(k));
                        return 1;
                }
                n++;
        }
        ended += reap(0);
        getrusage(RUSAGE_CHILDREN, &usage);
        printf("truth children %u\n", ended);
        printf("truth children_user %.6f\n",
               (double)usage.ru_utime.tv_sec + (double)usage.ru_utime.tv_usec / 1e6);
        printf("truth children_system %.6f\n",
               (double)usage.ru_stime.tv_sec + (double)usage.ru_stime.tv_usec / 1e6);
        return ended == n ? 0 : 1;
}
