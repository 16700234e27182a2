/* What a control group path tells: the systemd unit, the container and the Kubernetes pod of a process. */
#ifndef DAEMON_CGROUP_H
#define DAEMON_CGROUP_H

#include <stdint.h>

struct cgroup_names {
        char unit[256];        /* "postgresql.service"; "" none */
        char container_id[80]; /* 64 hex digits (docker, podman, containerd, CRI-O), else the runtime's name
                                */
        char pod[40];          /* UID of the pod, with dashes */
};

/* Reads the names out of a path as in /proc/PID/cgroup. The unit is the innermost one, a user manager's own
 * units included. */
void cgroup_parse(const char *path, struct cgroup_names *ret);

/* Finds the path that says most among the lines of /proc/PID/cgroup (v2, v1 and hybrid hosts): the v2 line
 * when it is not the root, else the name=systemd one, else pids, memory, cpu. Writes "/" when all are the
 * root. */
void cgroup_choose(const char *proc_cgroup, char *ret_path, uint32_t size);

struct cgroup_resolver;

/* Finds paths by the ids that BPF reports (v2 hierarchy). -ENOENT where there is no cgroup2 mount. */
int cgroup_resolver_new(struct cgroup_resolver **ret);
struct cgroup_resolver *cgroup_resolver_free(struct cgroup_resolver *r);

/* -ENOENT: it is gone; -EPERM: needs CAP_DAC_READ_SEARCH. */
int cgroup_path(struct cgroup_resolver *r, uint64_t id, char *ret_path, uint32_t size);

#endif
