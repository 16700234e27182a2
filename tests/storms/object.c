/* An object of the storm: real code with unwind information and a name of its own; its build ID is altered
 * in each copy. */
#include <stdint.h>

static __attribute__((noinline)) uint64_t inner(uint64_t x)
{
        for (int i = 0; i < 20000; i++)
                x = x * 6364136223846793005u + 1442695040888963407u;
        return x;
}

uint64_t storm_work(uint64_t x);
uint64_t storm_work(uint64_t x)
{
        return inner(x) + 1;
}
