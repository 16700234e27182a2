#include "frames_load.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"

int frames_load_start(struct frames_load *l, const char *self, const char *how)
{
        int cpus = (int)MIN_OF(sysconf(_SC_NPROCESSORS_ONLN), FRAMES_LOAD_MAX);
        char copy[PATH_MAX], path[PATH_MAX + 16];

        snprintf(copy, sizeof(copy), "%s", self);
        snprintf(path, sizeof(path), "%s/frames", dirname(copy));
        for (l->n = 0; l->n < cpus; l->n++) {
                pid_t pid = fork();

                if (pid < 0)
                        return -errno;
                if (pid == 0) {
                        cpu_set_t set;

                        CPU_ZERO(&set);
                        CPU_SET(l->n, &set);
                        sched_setaffinity(0, sizeof(set), &set);
                        prctl(PR_SET_PDEATHSIG, SIGKILL);
                        execl(path, path, how, NULL);
                        perror(path);
                        _exit(127);
                }
                l->pid[l->n] = pid;
        }
        return 0;
}

void frames_load_stop(struct frames_load *l)
{
        for (int i = 0; i < l->n; i++) {
                kill(l->pid[i], SIGKILL);
                waitpid(l->pid[i], NULL, 0);
        }
        l->n = 0;
}
