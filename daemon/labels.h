/* Who a sample is of: process name, systemd unit, container, user. Looked up once per process, while it
 * lives where possible: from the cgroup id in the sample, else /proc, else what its parent was. */
#ifndef DAEMON_LABELS_H
#define DAEMON_LABELS_H

#include <stdint.h>

#include "daemon/cgroup.h"
#include "daemon/sample.h"
#include "daemon/tracker.h"

struct labels;

struct process_labels {
        char comm[ABI_COMM_LEN + 1]; /* of the leader */
        struct cgroup_names cgroup;
        char user[40]; /* name in /etc/passwd, else the number */
};

int labels_new(struct labels **ret, struct tracker *tracker);
struct labels *labels_free(struct labels *l);

/* The labels of the process a row is of; NULL when out of memory. Valid until labels_drained(). */
const struct process_labels *labels_of(struct labels *l, const struct abi_key *key);

/* Called once per drain: forgets processes that no row has named for some drains. */
void labels_drained(struct labels *l);

#endif
