/* Workloads whose every stack is known, for tests of the profiler.
 *
 * A program is called as `NAME SECONDS [...]` and works for so long. On stdout it says, flushed before it
 * starts to work:
 *
 *   pid N
 *   chain LEAF;CALLER;...;ROOT     function names; `?` is one frame of any name, `*` any number of any
 *   other LEAF;...                 likewise, for what says little: counted apart
 *   ready
 *
 * Each sample of the process has one of the chains, or the rest of one from some frame on (a sample may fall
 * into a caller). Before it ends a program says `truth NAME VALUE` for what else it knows about itself. */
#ifndef TESTS_PROGRAMS_TRUTH_H
#define TESTS_PROGRAMS_TRUTH_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A frame of its own: not inlined, not cloned, no tail call out of it when TRUTH_KEEP() ends it. */
#ifdef __clang__
#define TRUTH_FRAME __attribute__((noinline))
#else
#define TRUTH_FRAME __attribute__((noinline, noclone, noipa))
#endif
#define TRUTH_KEEP() __asm__ volatile("" ::: "memory")

/* Above main() are the C library's two frames and _start; above a thread's function two of the C library's.
 */
#ifdef TRUTH_ANY_START
#define TRUTH_START  "*"
#define TRUTH_THREAD "*"
#else
#define TRUTH_START  "?;?;_start"
#define TRUTH_THREAD "?;?"
#endif

static inline double truth_now(void)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static inline double truth_cpu(void)
{
        struct timespec t;

        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* When to stop, as truth_now() counts, by the first argument. */
static inline double truth_deadline(int argc, char **argv)
{
        double seconds = argc > 1 ? atof(argv[1]) : 0;

        if (seconds <= 0) {
                fprintf(stderr, "usage: %s SECONDS [...]\n", argv[0]);
                exit(2);
        }
        return truth_now() + seconds;
}

/* What main() calls now and then to see the time. */
#define TRUTH_CLOCK() printf("other *;main;" TRUTH_START "\n")

static inline void truth_ready(void)
{
        printf("ready\n");
        fflush(stdout);
}

/* Some 3 ns a round that no compiler takes away. */
#define TRUTH_BURN(x, rounds)                                                      \
        do {                                                                       \
                for (uint64_t round_ = (rounds); round_; round_--) {               \
                        (x) = (x)*6364136223846793005ull + 1442695040888963407ull; \
                        (x) ^= (x) >> 17;                                          \
                        __asm__ volatile("" : "+r"(x));                            \
                }                                                                  \
        } while (0)

#ifdef __cplusplus
}
#endif

#endif
