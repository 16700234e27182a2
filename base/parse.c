#include "base/parse.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"

#define MAX_DURATION_NS (100ull * 365 * 86400 * NSEC_PER_SEC)

/* systemd.time(7), "Parsing Time Spans". */
static const struct {
        const char *name;
        uint64_t ns;
} duration_units[] = {
                {"ns", 1},
                {"nsec", 1},
                {"us", 1000},
                {"usec", 1000},
                {"ms", NSEC_PER_MSEC},
                {"msec", NSEC_PER_MSEC},
                {"", NSEC_PER_SEC},
                {"s", NSEC_PER_SEC},
                {"sec", NSEC_PER_SEC},
                {"second", NSEC_PER_SEC},
                {"seconds", NSEC_PER_SEC},
                {"m", 60 * NSEC_PER_SEC},
                {"min", 60 * NSEC_PER_SEC},
                {"minute", 60 * NSEC_PER_SEC},
                {"minutes", 60 * NSEC_PER_SEC},
                {"h", 3600 * NSEC_PER_SEC},
                {"hr", 3600 * NSEC_PER_SEC},
                {"hour", 3600 * NSEC_PER_SEC},
                {"hours", 3600 * NSEC_PER_SEC},
                {"d", 86400 * NSEC_PER_SEC},
                {"day", 86400 * NSEC_PER_SEC},
                {"days", 86400 * NSEC_PER_SEC},
                {"w", 7 * 86400 * NSEC_PER_SEC},
                {"week", 7 * 86400 * NSEC_PER_SEC},
                {"weeks", 7 * 86400 * NSEC_PER_SEC},
                {"M", 2629800 * NSEC_PER_SEC},
                {"month", 2629800 * NSEC_PER_SEC},
                {"months", 2629800 * NSEC_PER_SEC},
                {"y", 31557600 * NSEC_PER_SEC},
                {"year", 31557600 * NSEC_PER_SEC},
                {"years", 31557600 * NSEC_PER_SEC},
};

static const char *skip_space(const char *s)
{
        while (isspace((unsigned char)*s))
                s++;
        return s;
}

static int find_unit(const char *s, size_t n, uint64_t *ret)
{
        for (size_t i = 0; i < ARRAY_SIZE(duration_units); i++)
                if (strlen(duration_units[i].name) == n && !strncmp(duration_units[i].name, s, n)) {
                        *ret = duration_units[i].ns;
                        return 0;
                }
        return -EINVAL;
}

int parse_duration(const char *s, uint64_t *ret_ns)
{
        double total = 0;

        s = skip_space(s);
        if (!*s)
                return -EINVAL;
        while (*s) {
                char *end;
                uint64_t unit;

                if (!isdigit((unsigned char)*s) && *s != '.')
                        return -EINVAL;
                double v = strtod(s, &end);
                if (end == s || !isfinite(v))
                        return -EINVAL;
                s = skip_space(end);
                size_t n = 0;
                while (isalpha((unsigned char)s[n]))
                        n++;
                if (find_unit(s, n, &unit) < 0)
                        return -EINVAL;
                total += v * (double)unit;
                if (total > (double)MAX_DURATION_NS)
                        return -ERANGE;
                s = skip_space(s + n);
        }
        *ret_ns = (uint64_t)(total + 0.5);
        return 0;
}

int parse_u64(const char *s, uint64_t min, uint64_t max, uint64_t *ret)
{
        char *end;

        if (!isdigit((unsigned char)*s))
                return -EINVAL;
        errno = 0;
        unsigned long long v = strtoull(s, &end, 10);
        if (*end)
                return -EINVAL;
        if (errno || v < min || v > max)
                return -ERANGE;
        *ret = v;
        return 0;
}

int parse_size(const char *s, uint64_t *ret_bytes)
{
        static const char units[] = "KMGT";
        char *end;

        if (!isdigit((unsigned char)*s))
                return -EINVAL;
        errno = 0;
        unsigned long long v = strtoull(s, &end, 10);
        if (errno)
                return -ERANGE;
        unsigned shift = 0;
        if (*end) {
                const char *u = strchr(units, *end);
                if (!u || !*u)
                        return -EINVAL;
                shift = 10 * (unsigned)(u - units + 1);
                end++;
                if (*end == 'i')
                        end++;
                if (*end == 'B')
                        end++;
        }
        if (*end)
                return -EINVAL;
        if (v > UINT64_MAX >> shift)
                return -ERANGE;
        *ret_bytes = (uint64_t)v << shift;
        return 0;
}

int parse_percent(const char *s, uint32_t *ret_ppm)
{
        char *end;

        if (!isdigit((unsigned char)*s))
                return -EINVAL;
        double v = strtod(s, &end);
        if (strcmp(end, "%") != 0)
                return -EINVAL;
        if (!isfinite(v) || v > 100)
                return -ERANGE;
        *ret_ppm = (uint32_t)(v * 10000 + 0.5);
        return 0;
}

int parse_bool(const char *s)
{
        static const char *const yes[] = {"yes", "true", "1", "on", "y", "t"};
        static const char *const no[] = {"no", "false", "0", "off", "n", "f"};

        for (size_t i = 0; i < ARRAY_SIZE(yes); i++)
                if (!strcasecmp(s, yes[i]))
                        return 1;
        for (size_t i = 0; i < ARRAY_SIZE(no); i++)
                if (!strcasecmp(s, no[i]))
                        return 0;
        return -EINVAL;
}
