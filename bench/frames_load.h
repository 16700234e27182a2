/* bench/frames on each CPU: a load whose stacks all ways of walking find whole and equal. */
#ifndef BENCH_FRAMES_LOAD_H
#define BENCH_FRAMES_LOAD_H

#include <sys/types.h>

#define FRAMES_LOAD_MAX 1024

struct frames_load {
        pid_t pid[FRAMES_LOAD_MAX];
        int n;
};

/* self: argv[0], beside which bench/frames is; how: "hot" or "cold". They end with this process. 0 or
 * -errno. */
int frames_load_start(struct frames_load *l, const char *self, const char *how);
void frames_load_stop(struct frames_load *l);

#endif
