/* What profctl doctor finds out. Each finding is a line: what, how it is, and what to do when it is not
 * well. */
#ifndef TOOLS_DOCTOR_H
#define TOOLS_DOCTOR_H

#include <stdint.h>

#include "base/buf.h"
#include "profile/profile.h"

enum finding { FINDING_GOOD, FINDING_NOTE, FINDING_BAD };

struct doctor {
        struct buf *out;
        unsigned bad, notes;
        const char *root; /* "" on a host, the top of a made-up /proc and /sys in tests */
};

void doctor_say(struct doctor *d, enum finding how, const char *subject, const char *fmt, ...)
                __attribute__((format(printf, 4, 5)));

/* The kernel and its settings. */
void doctor_host(struct doctor *d);

/* The capabilities of the process that serves the socket, where that is a profd. */
void doctor_capabilities(struct doctor *d, const char *socket_path);
/* The same of a process's effective set, as in /proc/PID/status (bits by number, capability.h of the
 * kernel). */
void doctor_capability_set(struct doctor *d, uint64_t effective);

/* Objects whose debug symbols would name or explain the most samples, and those at which the most stacks
 * end before their root. */
void doctor_symbols(struct doctor *d, const struct profile *p);

#endif
