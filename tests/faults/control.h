/* What the injector and its driver (faults.py, which has the same layout) share: a file mapped by both.
 *
 * A site is a call of a function that can fail, told apart by its kind and the innermost frames of its
 * stack. Each site fails once, at its first call for which there is still an allowance; the file outlives
 * the program, so that the next run goes on with the next site. */
#pragma once

#include <stdint.h>

#define CONTROL_FRAMES 6
#define CONTROL_SITES  16384 /* a power of two */
#define CONTROL_NAME   24

/* What is made to fail, bits of `kinds`. */
enum fault_kind {
        FAULT_ALLOC = 1 << 0,  /* malloc, calloc, realloc, aligned_alloc, posix_memalign, mmap: ENOMEM */
        FAULT_WRITE = 1 << 1,  /* write, pwrite: ENOSPC */
        FAULT_OPEN = 1 << 2,   /* what makes a descriptor: EMFILE */
        FAULT_READ = 1 << 3,   /* read, pread: EIO */
        FAULT_KERNEL = 1 << 4, /* bpf(), perf_event_open(): ENOMEM */
        FAULT_THREAD = 1 << 5, /* pthread_create, posix_spawn: EAGAIN */
        FAULT_FILE = 1 << 6,   /* fsync, rename, unlink, mkdir, ftruncate: EIO, ENOSPC, EROFS */
};

enum fault_action {
        FAULT_FAIL = 0,
        FAULT_KILL = 1, /* the process, as by SIGKILL, in place of the call */
};

struct control_frame {
        uint64_t offset; /* in the object's mapping */
        char object[CONTROL_NAME];
};

struct control_site {
        uint64_t hash;                               /* 0: free */
        uint32_t kind;                               /* one of fault_kind */
        uint32_t fired;                              /* 1: was made to fail */
        struct control_frame frames[CONTROL_FRAMES]; /* innermost first; written once fired */
};

struct control {
        uint32_t kinds;     /* by the driver: bits of fault_kind */
        uint32_t action;    /* by the driver */
        uint32_t allowance; /* by the driver: this many sites may still fail; counted down */
        uint32_t gap_ms;    /* by the driver: so long there is none after one */
        uint32_t sites;     /* seen so far */
        uint32_t fired;     /* sites that failed so far */
        uint64_t last_ns;   /* CLOCK_MONOTONIC of the newest failure */
        struct control_site site[CONTROL_SITES];
};
