/* Work for the tracker's tests: tracker_work MODE ... burns CPU in a function whose name says where.
 *
 *   burn MS             in hot_burn()
 *   chain N MS          burns in hot_chain(), then becomes itself by exec, N times
 *   forks N MS          forks N times without exec; each child burns in hot_fork()
 *   load LIBRARY MS     burns in hot_load() before and in the library's hot_library() after dlopen()
 *   wait FD MS          reads a byte from FD, then burns in hot_wait()
 *   many N MS PROGRAM   starts PROGRAM burn MS N times, one after the other
 *   root DIR MS         with DIR as its root in a mount namespace of its own, becomes /tracker_work burn MS
 */
#ifndef STATIC
#include <dlfcn.h>
#endif
#include <sched.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile uint64_t sink;

static double cpu_seconds(void)
{
        struct timespec t;

        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
        return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* What one round of work takes at most, unless a hypervisor stopped the CPU meanwhile: then time passes in
 * which nothing is sampled. */
#define ROUND 0.001

#define HOT(name)                                                                              \
        __attribute__((noinline)) static void name(double seconds)                             \
        {                                                                                      \
                double before = cpu_seconds(), now;                                            \
                while (seconds > 0) {                                                          \
                        for (int i = 0; i < 20000; i++)                                        \
                                sink = sink * 6364136223846793005ull + 1442695040888963407ull; \
                        now = cpu_seconds();                                                   \
                        seconds -= now - before < ROUND ? now - before : ROUND;                \
                        before = now;                                                          \
                }                                                                              \
                __asm__ volatile("" ::: "memory");                                             \
        }

HOT(hot_burn)
HOT(hot_chain)
HOT(hot_fork)
#ifndef STATIC
HOT(hot_load)
#endif
HOT(hot_wait)

static double ms(const char *text)
{
        return atof(text) / 1e3;
}

static int chain(char **argv)
{
        char left[16];

        hot_chain(ms(argv[3]));
        if (atoi(argv[2]) <= 1)
                return 0;
        snprintf(left, sizeof(left), "%d", atoi(argv[2]) - 1);
        execl("/proc/self/exe", argv[0], argv[1], left, argv[3], (char *)NULL);
        return 1;
}

static int forks(char **argv)
{
        for (int i = 0; i < atoi(argv[2]); i++) {
                if (fork() == 0) {
                        hot_fork(ms(argv[3]));
                        _exit(0);
                }
                wait(NULL);
        }
        return 0;
}

static int load(char **argv)
{
#ifdef STATIC
        return 2;
#else
        hot_load(ms(argv[3]));
        void *library = dlopen(argv[2], RTLD_NOW);
        void (*work)(double) = library ? (void (*)(double))dlsym(library, "hot_library") : NULL;
        if (!work)
                return 1;
        work(ms(argv[3]));
        return 0;
#endif
}

static int many(char **argv)
{
        char *const child[] = {argv[4], (char *)"burn", argv[3], NULL};

        for (int i = 0; i < atoi(argv[2]); i++) {
                if (posix_spawn(NULL, argv[4], NULL, NULL, child, environ) == 0) /* by vfork() */
                        wait(NULL);
        }
        return 0;
}

static int root(char **argv)
{
        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            mount(argv[2], argv[2], NULL, MS_BIND, NULL) < 0 || chdir(argv[2]) < 0 ||
            syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 || chdir("/") < 0) {
                perror("root");
                return 77;
        }
        execl("/tracker_work", "tracker_root", "burn", argv[3], (char *)NULL);
        perror("exec");
        return 1;
}

int main(int argc, char **argv)
{
        char byte;

        if (argc > 2 && strcmp(argv[1], "burn") == 0)
                hot_burn(ms(argv[2]));
        else if (argc > 3 && strcmp(argv[1], "chain") == 0)
                return chain(argv);
        else if (argc > 3 && strcmp(argv[1], "forks") == 0)
                return forks(argv);
        else if (argc > 3 && strcmp(argv[1], "load") == 0)
                return load(argv);
        else if (argc > 4 && strcmp(argv[1], "many") == 0)
                return many(argv);
        else if (argc > 3 && strcmp(argv[1], "root") == 0)
                return root(argv);
        else if (argc > 3 && strcmp(argv[1], "wait") == 0 && read(atoi(argv[2]), &byte, 1) == 1)
                hot_wait(ms(argv[3]));
        else
                return 2;
        return 0;
}
