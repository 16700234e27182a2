#ifndef TESTS_PROGRAMS_PLTLIB_H
#define TESTS_PROGRAMS_PLTLIB_H

#include <stdint.h>

uint64_t plt_a(uint64_t x);
uint64_t plt_b(uint64_t x);
uint64_t plt_c(uint64_t x);
uint64_t plt_d(uint64_t x);
uint64_t plt_inner(uint64_t x);

#endif
