/* What /proc says of a process: for those that were there before us, and to repair what was lost. */
#ifndef DAEMON_PROCESS_SCAN_H
#define DAEMON_PROCESS_SCAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "bpf/abi.h"

struct process_stat {
        uint32_t ppid, threads;
        char state;
        uint64_t start_ns; /* boot time, rounded down to a clock tick */
        char comm[ABI_COMM_LEN];
};

/* -ENOENT or -ESRCH: gone. `b` is room to work in. */
int process_scan_stat(uint32_t pid, struct buf *b, struct process_stat *ret);

struct process_scan_map {
        uint64_t start, end, offset;
        uint64_t device, inode; /* major << 32 | minor */
        const char *name;       /* "//anon" when there is none, as in the kernel's records */
};

/* The executable mappings, in order. Returns their number; 0 for a kernel thread or a zombie. */
typedef void (*process_scan_map_fn)(void *ctx, const struct process_scan_map *m);
int process_scan_maps(uint32_t pid, struct buf *b, process_scan_map_fn fn, void *ctx);

/* The same from a text (for tests). */
uint32_t process_scan_maps_text(char *text, process_scan_map_fn fn, void *ctx);

/* The pid in the process's own, innermost pid namespace; 0 when not known. */
uint32_t process_scan_ns_pid(uint32_t pid, struct buf *b);

/* Calls fn for every process (not thread) there is. */
int process_scan_all(void (*fn)(void *ctx, uint32_t pid), void *ctx);

#endif
