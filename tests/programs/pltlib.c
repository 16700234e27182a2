#include "tests/programs/pltlib.h"

uint64_t plt_a(uint64_t x)
{
        return x * 3 + 1;
}

uint64_t plt_b(uint64_t x)
{
        return x * 5 + 1;
}

uint64_t plt_c(uint64_t x)
{
        return x * 7 + 1;
}

uint64_t plt_inner(uint64_t x)
{
        return x * 9 + 1;
}

uint64_t plt_d(uint64_t x)
{
        return plt_inner(x) + 1;
}
