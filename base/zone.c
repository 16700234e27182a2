/* TZif (RFC 8536): a header, a version 1 block with 32-bit times that is skipped, the same with 64-bit
 * times, and a footer, a POSIX TZ string that rules after the last transition. Files made "slim" end their
 * transitions long ago and leave all of the present to the footer. */
#include "base/zone.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/io.h"

#define TZIF_HEADER   44
#define TZIF_MAX_SIZE (1u << 20)
#define DAY           86400

/* One end of daylight saving time: a day of the year, and the second of it by the clock in force before. */
struct rule {
        char kind; /* 'M': week `week` (5: the last) of `month`; 'J': day 1..365, never 29 February; 'N': day
                      0.. */
        int month, week, day;
        int32_t second;
};

struct zone {
        bool local;
        uint32_t n_times, n_types;
        int64_t *time; /* ascending */
        uint8_t *type; /* from time[i] on, an index into offset */
        int32_t *offset;
        bool has_rules, has_dst;
        int32_t std, dst; /* of the rules */
        struct rule begin, end;
};

int64_t days_of_date(int64_t year, unsigned month, unsigned day)
{
        /* Years that begin in March end with the leap day; an era of 400 years has 146,097 days. */
        if (month <= 2)
                year--;
        int64_t era = (year >= 0 ? year : year - 399) / 400;
        int64_t yoe = year - era * 400;
        int64_t doy = (153 * ((int64_t)month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
        return era * 146097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719468;
}

static int64_t year_of(int64_t t)
{
        int64_t year = 1970 + t / 31556952; /* the mean Gregorian year; off by one at most */

        while (days_of_date(year, 1, 1) * DAY > t)
                year--;
        while (days_of_date(year + 1, 1, 1) * DAY <= t)
                year++;
        return year;
}

/* -- the POSIX TZ string of the footer -- */

static bool skip_name(const char **s)
{
        const char *p = *s;

        if (*p == '<') {
                p = strchr(p, '>');
                if (!p)
                        return false;
                *s = p + 1;
                return true;
        }
        while (isalpha((unsigned char)*p))
                p++;
        bool found = p > *s;
        *s = p;
        return found;
}

static bool number(const char **s, int max, int *ret)
{
        int v = 0;

        if (!isdigit((unsigned char)**s))
                return false;
        while (isdigit((unsigned char)**s)) {
                v = v * 10 + (*(*s)++ - '0');
                if (v > max)
                        return false;
        }
        *ret = v;
        return true;
}

/* [+-]hh[:mm[:ss]]; up to a week of hours, as RFC 8536 allows in rules. */
static bool clock_time(const char **s, int32_t *ret)
{
        int h, m = 0, sec = 0, sign = 1;

        if (**s == '+' || **s == '-')
                sign = *(*s)++ == '-' ? -1 : 1;
        if (!number(s, 167, &h))
                return false;
        if (**s == ':') {
                (*s)++;
                if (!number(s, 59, &m))
                        return false;
                if (**s == ':') {
                        (*s)++;
                        if (!number(s, 59, &sec))
                                return false;
                }
        }
        *ret = sign * (h * 3600 + m * 60 + sec);
        return true;
}

static bool dst_rule(const char **s, struct rule *ret)
{
        struct rule r = {.kind = 'N', .second = 2 * 3600};

        if (*(*s)++ != ',')
                return false;
        if (**s == 'M') {
                r.kind = *(*s)++;
                if (!number(s, 12, &r.month) || r.month < 1 || *(*s)++ != '.' || !number(s, 5, &r.week) ||
                    r.week < 1 || *(*s)++ != '.' || !number(s, 6, &r.day))
                        return false;
        } else {
                if (**s == 'J')
                        r.kind = *(*s)++;
                if (!number(s, 365, &r.day) || (r.kind == 'J' && r.day < 1))
                        return false;
        }
        if (**s == '/') {
                (*s)++;
                if (!clock_time(s, &r.second))
                        return false;
        }
        *ret = r;
        return true;
}

static bool parse_rules(struct zone *z, const char *s)
{
        int32_t v;

        if (!skip_name(&s) || !clock_time(&s, &v))
                return false;
        z->std = -v; /* POSIX counts west of Greenwich */
        z->has_rules = true;
        if (!*s)
                return true;
        if (!skip_name(&s))
                return false;
        z->dst = z->std + 3600;
        if (*s && *s != ',') {
                if (!clock_time(&s, &v))
                        return false;
                z->dst = -v;
        }
        z->has_dst = dst_rule(&s, &z->begin) && dst_rule(&s, &z->end) && !*s;
        return z->has_dst;
}

/* Seconds since the epoch, by the clock in force before, at which a rule strikes in a year. */
static int64_t rule_time(const struct rule *r, int64_t year)
{
        int64_t first = days_of_date(year, 1, 1), day;

        switch (r->kind) {
        case 'M': {
                int64_t month = days_of_date(year, (unsigned)r->month, 1);
                int64_t next = r->month == 12 ? days_of_date(year + 1, 1, 1)
                                              : days_of_date(year, (unsigned)r->month + 1, 1);
                int weekday = (int)(((month + 4) % 7 + 7) % 7); /* 1 January 1970 was a Thursday */
                day = month + (r->day - weekday + 7) % 7 + (r->week - 1) * 7;
                while (day >= next)
                        day -= 7;
                break;
        }
        case 'J': {
                bool leap = days_of_date(year, 3, 1) - first == 60;
                day = first + r->day - 1 + (leap && r->day >= 60);
                break;
        }
        default:
                day = first + r->day;
        }
        return day * DAY + r->second;
}

static int32_t rules_offset(const struct zone *z, int64_t t)
{
        if (!z->has_dst)
                return z->std;
        int64_t year = year_of(t + z->std);
        int64_t begin = rule_time(&z->begin, year) - z->std, end = rule_time(&z->end, year) - z->dst;
        bool summer = begin < end ? t >= begin && t < end : t >= begin || t < end;
        return summer ? z->dst : z->std;
}

/* -- the file -- */

static uint32_t be32(const uint8_t *p)
{
        return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static int64_t be64(const uint8_t *p)
{
        return (int64_t)((uint64_t)be32(p) << 32 | be32(p + 4));
}

struct tzif_block {
        uint32_t times, types;
        size_t size; /* of the data behind the header */
};

/* `width`: bytes of a time, 4 in the first block and 8 in the second. */
static int tzif_header(const uint8_t *p, size_t n, unsigned width, struct tzif_block *ret)
{
        if (n < TZIF_HEADER || memcmp(p, "TZif", 4) != 0 || p[4] < '2')
                return -EBADMSG;
        uint64_t isut = be32(p + 20), isstd = be32(p + 24), leap = be32(p + 28), times = be32(p + 32),
                 types = be32(p + 36), chars = be32(p + 40);
        uint64_t size = times * (width + 1) + types * 6 + chars + leap * (width + 4) + isstd + isut;
        if (types == 0 || types > 256 || size > n - TZIF_HEADER)
                return -EBADMSG;
        *ret = (struct tzif_block){.times = (uint32_t)times, .types = (uint32_t)types, .size = (size_t)size};
        return 0;
}

static int read_block(struct zone *z, const uint8_t *p, const struct tzif_block *b)
{
        z->time = calloc(b->times + 1, sizeof(*z->time));
        z->type = calloc(b->times + 1, 1);
        z->offset = calloc(b->types, sizeof(*z->offset));
        if (!z->time || !z->type || !z->offset)
                return -ENOMEM;
        z->n_times = b->times;
        z->n_types = b->types;
        const uint8_t *types = p + (size_t)b->times * 8, *infos = types + b->times;
        for (uint32_t i = 0; i < b->times; i++) {
                z->time[i] = be64(p + (size_t)i * 8);
                z->type[i] = types[i];
                if (types[i] >= b->types || (i > 0 && z->time[i] <= z->time[i - 1]))
                        return -EBADMSG;
        }
        for (uint32_t i = 0; i < b->types; i++) {
                z->offset[i] = (int32_t)be32(infos + (size_t)i * 6);
                if (z->offset[i] < -2 * DAY || z->offset[i] > 2 * DAY)
                        return -EBADMSG;
        }
        return 0;
}

int zone_parse(const void *data, size_t n, struct zone **ret)
{
        const uint8_t *p = data;
        struct tzif_block b;
        char footer[256];

        int r = tzif_header(p, n, 4, &b);
        if (r < 0)
                return r;
        p += TZIF_HEADER + b.size;
        n -= TZIF_HEADER + b.size;
        r = tzif_header(p, n, 8, &b);
        if (r < 0)
                return r;

        _cleanup_(zone_free_cleanup) struct zone *z = calloc(1, sizeof(*z));
        if (!z)
                return -ENOMEM;
        r = read_block(z, p + TZIF_HEADER, &b);
        if (r < 0)
                return r;

        p += TZIF_HEADER + b.size;
        n -= TZIF_HEADER + b.size;
        if (n < 2 || p[0] != '\n' || p[n - 1] != '\n' || n - 2 >= sizeof(footer))
                return -EBADMSG;
        memcpy(footer, p + 1, n - 2);
        footer[n - 2] = 0;
        if (footer[0] && !parse_rules(z, footer))
                return -EBADMSG;
        *ret = TAKE_PTR(z);
        return 0;
}

/* A name comes from a command line or a request: it must not lead out of the directory. */
static bool name_ok(const char *name)
{
        if (!isalpha((unsigned char)name[0]) || strlen(name) > 64 || strstr(name, "//"))
                return false;
        for (const char *p = name; *p; p++)
                if (!isalnum((unsigned char)*p) && !strchr("_+-/", *p))
                        return false;
        return true;
}

int zone_open(const char *name, struct zone **ret)
{
        char path[128];

        if (!name) {
                struct zone *z = calloc(1, sizeof(*z));
                if (!z)
                        return -ENOMEM;
                z->local = true;
                *ret = z;
                return 0;
        }
        if (!name_ok(name))
                return -ENOENT;
        snprintf(path, sizeof(path), "/usr/share/zoneinfo/%s", name);
        _cleanup_buf_ struct buf b = {0};
        int r = read_file(path, TZIF_MAX_SIZE, &b);
        if (r < 0)
                return r == -EISDIR || r == -ENOTDIR ? -ENOENT : r;
        return zone_parse(b.data, b.len, ret);
}

struct zone *zone_free(struct zone *z)
{
        if (!z)
                return NULL;
        free(z->time);
        free(z->type);
        free(z->offset);
        free(z);
        return NULL;
}

int32_t zone_offset(const struct zone *z, int64_t t)
{
        if (z->local) {
                time_t tt = (time_t)t;
                struct tm tm;
                return localtime_r(&tt, &tm) ? (int32_t)tm.tm_gmtoff : 0;
        }
        if (z->n_times == 0 || t >= z->time[z->n_times - 1]) {
                if (z->has_rules)
                        return rules_offset(z, t);
                return z->offset[z->n_times ? z->type[z->n_times - 1] : 0];
        }
        if (t < z->time[0])
                return z->offset[0]; /* RFC 8536, section 3.2: type 0 rules before the first transition */
        uint32_t lo = 0, hi = z->n_times - 1;
        while (hi - lo > 1) {
                uint32_t mid = lo + (hi - lo) / 2;
                if (z->time[mid] <= t)
                        lo = mid;
                else
                        hi = mid;
        }
        return z->offset[z->type[lo]];
}

int64_t zone_to_utc(const struct zone *z, int64_t local)
{
        /* No zone changes its offset twice within two days, nor by more than one. */
        int64_t lo = local - DAY, hi = local + DAY;
        int32_t before = zone_offset(z, lo), after = zone_offset(z, hi);

        if (zone_offset(z, local - before) == before)
                return local - before;
        if (zone_offset(z, local - after) == after)
                return local - after;
        while (hi - lo > 1) {
                int64_t mid = lo + (hi - lo) / 2;
                if (zone_offset(z, mid) == before)
                        lo = mid;
                else
                        hi = mid;
        }
        return hi;
}
