/* A library for the tracker's tests; VARIANT makes its contents differ while all addresses stay. */
#include <stdint.h>
#include <time.h>

#ifndef VARIANT
#define VARIANT 1
#endif

static volatile uint64_t sink;
extern const char library_variant[];
const char library_variant[] = {'v', '0' + VARIANT, 0};

void hot_library(double seconds);

__attribute__((noinline)) void hot_library(double seconds)
{
        struct timespec t;
        double end;

        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
        end = (double)t.tv_sec + (double)t.tv_nsec / 1e9 + seconds;
        do {
                for (int i = 0; i < 20000; i++)
                        sink = sink * 6364136223846793005ull + VARIANT;
                clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
        } while ((double)t.tv_sec + (double)t.tv_nsec / 1e9 < end);
}
