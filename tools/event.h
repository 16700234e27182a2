/* Which sample type of a profile a command shows, and the lines that say what a profile is of. */
#ifndef TOOLS_EVENT_H
#define TOOLS_EVENT_H

#include "base/buf.h"
#include "profile/profile.h"

/* Index of the sample type: by name, or with NULL the CPU's time, else the profile's default, else its last
 * one. -1: there is none of that name, which has been said. */
int event_index(const struct profile *p, const char *name);
/* The same, saying nothing. */
int event_find(const struct profile *p, const char *name);

/* "cpu: 12.3 s in 1,234 samples at 99 Hz, 3 lost" */
void event_summary(const struct profile *p, int type, struct buf *out);
/* "web1, 2026-12-01 02:05:00 to 02:15:00 UTC", as far as it is known. */
void event_origin(const struct profile *p, struct buf *out);

/* Samples of the profile, by its own count where it has one; lost ones by its ledger. */
uint64_t profile_samples(const struct profile *p);
uint64_t profile_lost(const struct profile *p);

#endif
