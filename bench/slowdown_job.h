#ifndef BENCH_SLOWDOWN_JOB_H
#define BENCH_SLOWDOWN_JOB_H

#include <stdint.h>

/* Does n steps of work; what it returns depends on all of them. */
uint64_t slowdown_job(uint32_t n);

#endif
