/* Points in time as systemd.time(7) writes them, and RFC 3339.
 *
 * The text is taken apart from its end: a zone, then the kinds of time are tried by how they begin. A date
 * and a time of day are put together as if they were UTC, and the zone moves the result. Beyond systemd's
 * syntax: "yesterday 02:10", and with it "today" and "tomorrow". */
#include "base/parse.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/zone.h"

#define DAY      86400
#define TEXT_MAX 256
#define TIME_MAX (INT64_MAX / (int64_t)NSEC_PER_SEC)

struct local_time {
        int64_t days;    /* since the epoch */
        int64_t seconds; /* of the day */
        uint64_t ns;
};

static int from_seconds(int64_t seconds, uint64_t ns, uint64_t *ret)
{
        if (seconds < 0 || seconds >= TIME_MAX)
                return -ERANGE;
        *ret = (uint64_t)seconds * NSEC_PER_SEC + ns;
        return 0;
}

/* Exactly `min` to `max` digits. */
static bool digits(const char **s, unsigned min, unsigned max, unsigned *ret)
{
        unsigned n = 0, v = 0;

        while (n < max && isdigit((unsigned char)(*s)[n]))
                v = v * 10 + (unsigned)((*s)[n++] - '0');
        if (n < min || isdigit((unsigned char)(*s)[n]))
                return false;
        *s += n;
        *ret = v;
        return true;
}

static bool fraction(const char **s, uint64_t *ret)
{
        uint64_t v = 0, scale = NSEC_PER_SEC;

        if (!isdigit((unsigned char)**s))
                return false;
        for (; isdigit((unsigned char)**s); (*s)++)
                if (scale > 1) {
                        scale /= 10;
                        v += (uint64_t)(**s - '0') * scale;
                }
        *ret = v;
        return true;
}

static bool time_of_day(const char **s, struct local_time *t)
{
        unsigned h, m, sec = 0;

        if (!digits(s, 1, 2, &h) || *(*s)++ != ':' || !digits(s, 1, 2, &m))
                return false;
        if (**s == ':') {
                (*s)++;
                if (!digits(s, 1, 2, &sec))
                        return false;
                if (**s == '.') {
                        (*s)++;
                        if (!fraction(s, &t->ns))
                                return false;
                }
        }
        if (h > 23 || m > 59 || sec > 60) /* 60: a leap second is the first of the next minute */
                return false;
        t->seconds = h * 3600 + m * 60 + sec;
        return true;
}

static bool date(const char **s, struct local_time *t)
{
        unsigned y, m, d;
        const char *p = *s;

        if (!digits(&p, 4, 4, &y)) {
                p = *s;
                if (!digits(&p, 2, 2, &y))
                        return false;
                y += y < 69 ? 2000 : 1900;
        }
        if (*p++ != '-' || !digits(&p, 1, 2, &m) || *p++ != '-' || !digits(&p, 1, 2, &d))
                return false;
        if (m < 1 || m > 12 || d < 1)
                return false;
        t->days = days_of_date(y, m, d);
        int64_t next = m == 12 ? days_of_date(y + 1, 1, 1) : days_of_date(y, m + 1, 1);
        if (t->days >= next)
                return false;
        *s = p;
        return true;
}

static const char *skip_space(const char *s)
{
        while (isspace((unsigned char)*s))
                s++;
        return s;
}

/* A word at the beginning, alone or before a space. */
static bool word(const char **s, const char *w)
{
        size_t n = strlen(w);

        if (strncasecmp(*s, w, n) != 0 || ((*s)[n] && !isspace((unsigned char)(*s)[n])))
                return false;
        *s = skip_space(*s + n);
        return true;
}

static int weekday(const char **s)
{
        static const char *const names[] = {"sunday",   "monday", "tuesday", "wednesday",
                                            "thursday", "friday", "saturday"};
        for (int i = 0; i < 7; i++) {
                char brief[4] = {names[i][0], names[i][1], names[i][2], 0};
                if (word(s, names[i]) || word(s, brief))
                        return i;
        }
        return -1;
}

/* "+01:00", "-0530", "+01" at the end of a time: the offset, and the text without it. */
static bool cut_offset(char *s, int32_t *ret)
{
        unsigned h, m = 0;

        /* The date has dashes of its own: the sign is looked for behind the first colon, the time's. */
        char *p = strchr(s, ':');
        p = p ? strpbrk(p, "+-") : NULL;
        if (!p)
                return false;
        const char *q = p + 1;
        if (strlen(q) == 4 && strspn(q, "0123456789") == 4) {
                h = (unsigned)(q[0] - '0') * 10 + (unsigned)(q[1] - '0');
                m = (unsigned)(q[2] - '0') * 10 + (unsigned)(q[3] - '0');
        } else {
                if (!digits(&q, 2, 2, &h))
                        return false;
                if (*q == ':') {
                        q++;
                        if (!digits(&q, 2, 2, &m))
                                return false;
                }
                if (*q)
                        return false;
        }
        if (h > 23 || m > 59)
                return false;
        *ret = (int32_t)(h * 3600 + m * 60) * (*p == '-' ? -1 : 1);
        while (p > s && p[-1] == ' ')
                p--;
        *p = 0;
        return true;
}

struct when_zone {
        bool fixed;
        int32_t offset;        /* when fixed */
        struct zone *zone;     /* else */
        char abbreviation[16]; /* "CEST": of the two, the local time that bears it; "" */
};

/* The name of the local zone in force around `t`, as the C library has it. */
static bool local_abbreviation(int64_t t, const char *name)
{
        time_t tt = (time_t)t;
        struct tm tm;

        return localtime_r(&tt, &tm) && tm.tm_zone && !strcasecmp(tm.tm_zone, name);
}

static bool is_local_abbreviation(const char *name, int64_t now)
{
        for (int month = -6; month <= 6; month += 3) /* both halves of the year */
                if (local_abbreviation(now + (int64_t)month * 30 * DAY, name))
                        return true;
        return false;
}

/* Cuts the zone off the end of the text: else the local one is meant. */
static int cut_zone(char *s, int64_t now, struct when_zone *z)
{
        size_t n = strlen(s);

        if (n > 1 && (s[n - 1] == 'Z' || s[n - 1] == 'z') && isdigit((unsigned char)s[n - 2])) {
                s[n - 1] = 0;
                z->fixed = true;
                return 0;
        }
        if (cut_offset(s, &z->offset)) {
                z->fixed = true;
                return 0;
        }
        char *p = strrchr(s, ' ');
        if (!p || !isalpha((unsigned char)p[1]))
                return zone_open(NULL, &z->zone);
        if (!strcasecmp(p + 1, "UTC")) {
                z->fixed = true;
        } else if (strlen(p + 1) < sizeof(z->abbreviation) && is_local_abbreviation(p + 1, now)) {
                strcpy(z->abbreviation, p + 1);
                int r = zone_open(NULL, &z->zone);
                if (r < 0)
                        return r;
        } else {
                int r = zone_open(p + 1, &z->zone);
                if (r < 0)
                        return r;
        }
        while (p > s && isspace((unsigned char)p[-1]))
                p--;
        *p = 0;
        return 0;
}

static int32_t offset_at(const struct when_zone *z, int64_t t)
{
        return z->fixed ? z->offset : zone_offset(z->zone, t);
}

static int64_t to_utc(const struct when_zone *z, int64_t local)
{
        if (z->fixed)
                return local - z->offset;
        int64_t t = zone_to_utc(z->zone, local);
        if (z->abbreviation[0] && !local_abbreviation(t, z->abbreviation)) {
                /* The hour that occurs twice, by its second name. */
                int64_t later = local - zone_offset(z->zone, local + DAY);
                if (local_abbreviation(later, z->abbreviation))
                        return later;
        }
        return t;
}

/* "5min ago", "5min left", "+5min", "-5min", "@1764554400.5", "now". 1: it was one of them. */
static int relative(char *s, uint64_t now_ns, uint64_t *ret)
{
        uint64_t d;
        int sign;
        char *p = strrchr(s, ' ');

        if (!strcasecmp(s, "now")) {
                *ret = now_ns;
                return 1;
        }
        if (*s == '@') {
                uint64_t v = 0, ns = 0;
                const char *q = s + 1;
                size_t n = strspn(q, "0123456789");
                if (n == 0 || n > 12)
                        return -EINVAL;
                for (; n > 0; n--)
                        v = v * 10 + (uint64_t)(*q++ - '0');
                if (*q == '.') {
                        q++;
                        if (!fraction(&q, &ns))
                                return -EINVAL;
                }
                if (*q)
                        return -EINVAL;
                int r = from_seconds((int64_t)v, ns, ret);
                return r < 0 ? r : 1;
        }
        if (*s == '+' || *s == '-') {
                sign = *s++ == '-' ? -1 : 1;
        } else if (p && (!strcasecmp(p, " ago") || !strcasecmp(p, " left"))) {
                sign = p[1] == 'a' || p[1] == 'A' ? -1 : 1;
                *p = 0;
        } else {
                return 0;
        }
        int r = parse_duration(s, &d);
        if (r < 0)
                return r;
        if (sign < 0 ? d > now_ns : d > (uint64_t)INT64_MAX - now_ns)
                return -ERANGE;
        *ret = sign < 0 ? now_ns - d : now_ns + d;
        return 1;
}

static int absolute(const char *s, const struct when_zone *z, uint64_t now_ns, uint64_t *ret)
{
        int64_t now = (int64_t)(now_ns / NSEC_PER_SEC);
        int64_t local_now = now + offset_at(z, now);
        struct local_time t = {.days = local_now / DAY};
        bool whole_day = true;

        int wday = weekday(&s);
        if (word(&s, "yesterday")) {
                t.days--;
        } else if (word(&s, "tomorrow")) {
                t.days++;
        } else if (date(&s, &t)) {
                whole_day = *s != 'T' && *s != 't';
                s = whole_day ? skip_space(s) : s + 1;
        } else if (!word(&s, "today")) {
                whole_day = false;
        }
        if ((*s || !whole_day) && (!time_of_day(&s, &t) || *s))
                return -EINVAL;
        if (wday >= 0 && wday != (int)((t.days + 4) % 7)) /* 1 January 1970 was a Thursday */
                return -EINVAL;
        return from_seconds(to_utc(z, t.days * DAY + t.seconds), t.ns, ret);
}

int parse_time(const char *text, uint64_t now_ns, uint64_t *ret_ns)
{
        char s[TEXT_MAX];
        struct when_zone z = {0};

        text = skip_space(text);
        size_t n = strlen(text);
        while (n > 0 && isspace((unsigned char)text[n - 1]))
                n--;
        if (n == 0 || n >= sizeof(s))
                return -EINVAL;
        memcpy(s, text, n);
        s[n] = 0;

        int r = relative(s, now_ns, ret_ns);
        if (r != 0)
                return r < 0 ? r : 0;
        r = cut_zone(s, (int64_t)(now_ns / NSEC_PER_SEC), &z);
        if (r >= 0)
                r = absolute(s, &z, now_ns, ret_ns);
        zone_free(z.zone);
        return r == -ENOMEM || r == -ERANGE ? r : r < 0 ? -EINVAL : 0;
}
