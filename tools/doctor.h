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

/* What the profd of that process ID, on this host, may do: its capabilities, its limits. */
void doctor_process(struct doctor *d, uint64_t pid);
/* How many files it may open at once. */
void doctor_open_files(struct doctor *d, uint64_t limit);
/* Its effective set, as in /proc/PID/status (bits by number, capability.h of the kernel). */
void doctor_capability_set(struct doctor *d, uint64_t effective);

/* The file system that the store of this host is on. True: something was said. */
bool doctor_disk(struct doctor *d, const char *directory);

/* Objects whose debug symbols would name or explain the most samples, and those at which the most stacks
 * end before their root. */
void doctor_symbols(struct doctor *d, const struct profile *p);

#endif
