/* Numbers and times as people read them. Times are in the local zone. */
#ifndef TOOLS_HUMAN_H
#define TOOLS_HUMAN_H

#include <stdint.h>

#include <stdbool.h>
#include "base/buf.h"

#define HUMAN_MAX 40

/* Each writes into `out` (HUMAN_MAX bytes) and returns it. */
const char *human_count(char *out, uint64_t n);     /* "1,234,567" */
const char *human_bytes(char *out, uint64_t n);     /* "1.5 MiB" */
const char *human_duration(char *out, uint64_t ns); /* "12.3 s", "2 h 5 min" */
const char *human_time(char *out, uint64_t ns);     /* "2026-12-01 02:10:00" */
const char *human_clock(char *out, uint64_t ns);    /* "02:10:00" */
const char *human_zone(char *out, uint64_t ns);     /* "CET" */

/* A value with its unit as in a profile: "nanoseconds" become a duration, everything else a count. */
const char *human_value(char *out, const char *unit, int64_t value);

/* "2026-12-01 02:05:00 to 02:15:00 CET", the date of the end only where it differs. */
void human_range(struct buf *out, uint64_t start_ns, uint64_t end_ns);

#endif
