/* What users write: times in systemd's syntax (systemd.time(7)), sizes, numbers. Configuration, command
 * line and HTTP parameters all read them with these. */
#ifndef BASE_PARSE_H
#define BASE_PARSE_H

#include <stdint.h>

/* "90s", "10min", "14d", "1h 30min", "500ms", "60" (seconds). -EINVAL on anything else, -ERANGE above 100
 * years. */
int parse_duration(const char *s, uint64_t *ret_ns);

/* A point in time as ns since the epoch, in the local zone unless the text names one:
 *   "02:10", "02:10:30" (today), "2026-12-01", "2026-12-01 02:10[:30[.5]]", "today", "yesterday", "now",
 *   "tomorrow", "5min ago", "-5min", "+5min", "@1764554400[.5]", RFC 3339 ("2026-12-01T02:10:00Z",
 *   "...+01:00"), each with an optional " UTC" or zone name behind it as systemd takes it.
 * `now_ns` is what "now" is. A local time that a DST change skips is read as the instant of the change; one
 * that occurs twice as the first. */
int parse_time(const char *s, uint64_t now_ns, uint64_t *ret_ns);

/* "512", "64K", "256M", "1G", "2T" (powers of 1024). */
int parse_size(const char *s, uint64_t *ret_bytes);

/* Decimal, the whole text, within [min, max]; -EINVAL or -ERANGE. */
int parse_u64(const char *s, uint64_t min, uint64_t max, uint64_t *ret);

/* "1%", "0.5%" as parts per million. */
int parse_percent(const char *s, uint32_t *ret_ppm);

/* "yes", "no", "true", "false", "1", "0", "on", "off". Returns 0, 1 or -EINVAL. */
int parse_bool(const char *s);

#endif
