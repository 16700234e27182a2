/* Time zones: the offset from UTC at an instant, and the instant of a local time.
 *
 * The local zone is the C library's; a named one is read from its TZif file (RFC 8536) under
 * /usr/share/zoneinfo, because the C library knows one zone only, chosen by the environment of the whole
 * process. Safe in any thread. */
#ifndef BASE_ZONE_H
#define BASE_ZONE_H

#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"

struct zone;

/* NULL: the local zone. -ENOENT: no zone of this name; -EBADMSG: its file is damaged. */
int zone_open(const char *name, struct zone **ret);
/* From the bytes of a TZif file. */
int zone_parse(const void *data, size_t n, struct zone **ret);
struct zone *zone_free(struct zone *z);
DEFINE_CLEANUP(struct zone, zone_free);

/* Seconds east of UTC at `t` (seconds since the epoch). */
int32_t zone_offset(const struct zone *z, int64_t t);

/* The instant of a local time, given as the seconds since the epoch that it would be in UTC. A local time
 * that a change of the offset skips is the instant of that change; one that occurs twice is the first. */
int64_t zone_to_utc(const struct zone *z, int64_t local);

/* Days since the epoch of a date of the Gregorian calendar; the month is 1..12. */
int64_t days_of_date(int64_t year, unsigned month, unsigned day);

#endif
