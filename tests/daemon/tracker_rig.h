/* Sampler, tracker and symbolizer together, as the daemon runs them, for tests on the real kernel. */
#ifndef TESTS_TRACKER_RIG_H
#define TESTS_TRACKER_RIG_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/sampler.h"
#include "daemon/tracker.h"

struct rig_frame {
        uint32_t object;  /* id */
        const char *path; /* of the object; "" when there is none */
        bool named;       /* its file was opened */
        uint64_t address; /* ELF address, or in the process */
};

struct rig_row {
        uint32_t pid;
        uint64_t start_ns;
        char comm[ABI_COMM_LEN];
        enum abi_walk walk;
        uint64_t samples;
        bool deferred;
        uint32_t n;
        struct rig_frame *frame;
};

struct rig {
        struct symclient *symbols;
        struct sampler *sampler;
        struct tracker *tracker;
        struct rig_row *row;
        uint32_t n, cap;
        bool deferred; /* rows that come now are of deferred samples */
        uint32_t drains;
        uint32_t only_pid; /* rows of others are not kept; 0: all are */
        char **path;
        uint32_t n_paths;
};

/* table_memory: of the tracker. Prints why and returns NULL when this kernel or user cannot. */
struct rig *rig_new(uint32_t frequency, uint64_t table_memory);
struct rig *rig_free(struct rig *r);

/* Polls, and drains each 500 ms, for so long. */
void rig_run(struct rig *r, uint32_t ms);
/* The same until a child has ended; returns its wait status. */
int rig_run_child(struct rig *r, int pid);
/* Lets what was deferred come out: two drains. */
void rig_settle(struct rig *r);
void rig_forget(struct rig *r); /* the rows */
/* Samples that were finished before what they waited for had come, or found no room to wait. */
uint64_t rig_given_up(const struct rig *r);

/* [*start, *end): ELF addresses of a function, from the symbol table of a file, read by libelf. */
bool rig_function(const char *file, const char *name, uint64_t *start, uint64_t *end);

struct rig_count {
        uint64_t samples, complete, hit; /* with a frame in the function, in an object with the path */
        uint64_t deferred;
        uint64_t walk[ABI_WALK_MAX];
};
/* Over rows whose comm begins with `comm` (NULL: all): those with a frame in `function` of `file`; `path`:
 * what the object must be called (NULL: the file's own path). */
struct rig_count rig_count(const struct rig *r, const char *comm, const char *file, const char *path,
                           const char *function);

/* Starts argv[0]; returns its pid. It does not outlive this process. */
int rig_spawn(char *const argv[]);
/* Of those started by rig_spawn() the ones that still run. */
void rig_kill_children(void);

#endif
