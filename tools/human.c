#include "tools/human.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"

const char *human_count(char *out, uint64_t n)
{
        char digits[24];
        int len = snprintf(digits, sizeof(digits), "%" PRIu64, n), o = 0;

        for (int i = 0; i < len; i++) {
                if (i > 0 && (len - i) % 3 == 0)
                        out[o++] = ',';
                out[o++] = digits[i];
        }
        out[o] = 0;
        return out;
}

const char *human_bytes(char *out, uint64_t n)
{
        static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
        double v = (double)n;
        unsigned u = 0;

        while (v >= 1023.95 && u + 1 < ARRAY_SIZE(unit)) {
                v /= 1024;
                u++;
        }
        snprintf(out, HUMAN_MAX, u ? "%.1f %s" : "%.0f %s", v, unit[u]);
        return out;
}

const char *human_duration(char *out, uint64_t ns)
{
        double s = (double)ns / NSEC_PER_SEC;
        uint64_t minutes = (ns / NSEC_PER_SEC + 30) / 60;

        if (ns < 1000)
                snprintf(out, HUMAN_MAX, "%" PRIu64 " ns", ns);
        else if (ns < 1000000)
                snprintf(out, HUMAN_MAX, "%.1f us", s * 1e6);
        else if (ns < NSEC_PER_SEC)
                snprintf(out, HUMAN_MAX, "%.1f ms", s * 1e3);
        else if (s < 99.95)
                snprintf(out, HUMAN_MAX, "%.1f s", s);
        else if (minutes < 100)
                snprintf(out, HUMAN_MAX, "%" PRIu64 " min %02d s", (uint64_t)s / 60,
                         (int)((uint64_t)s % 60));
        else if (minutes < 48 * 60)
                snprintf(out, HUMAN_MAX, "%" PRIu64 " h %02d min", minutes / 60, (int)(minutes % 60));
        else
                snprintf(out, HUMAN_MAX, "%" PRIu64 " d %d h", minutes / 1440, (int)(minutes % 1440 / 60));
        return out;
}

static const char *local(char *out, uint64_t ns, const char *format)
{
        time_t t = (time_t)(ns / NSEC_PER_SEC);
        struct tm tm;

        if (!localtime_r(&t, &tm) || strftime(out, HUMAN_MAX, format, &tm) == 0)
                snprintf(out, HUMAN_MAX, "@%" PRIu64, (uint64_t)(ns / NSEC_PER_SEC));
        return out;
}

const char *human_time(char *out, uint64_t ns)
{
        return local(out, ns, "%Y-%m-%d %H:%M:%S");
}

const char *human_clock(char *out, uint64_t ns)
{
        return local(out, ns, "%H:%M:%S");
}

const char *human_zone(char *out, uint64_t ns)
{
        return local(out, ns, "%Z");
}

const char *human_value(char *out, const char *unit, int64_t value)
{
        uint64_t v = value < 0 ? -(uint64_t)value : (uint64_t)value;

        if (value < 0)
                *out++ = '-';
        if (!strcmp(unit, "nanoseconds"))
                human_duration(out, v);
        else
                human_count(out, v);
        return value < 0 ? out - 1 : out;
}

void human_range(struct buf *out, uint64_t start_ns, uint64_t end_ns)
{
        char a[HUMAN_MAX], b[HUMAN_MAX], c[HUMAN_MAX], za[HUMAN_MAX], zb[HUMAN_MAX];

        human_time(a, start_ns);
        human_time(b, end_ns);
        human_zone(za, start_ns);
        human_zone(zb, end_ns);
        bool same_day = !strncmp(a, b, 11), same_zone = !strcmp(za, zb);
        buf_addf(out, "%s%s%s to %s %s", a, same_zone ? "" : " ", same_zone ? "" : za,
                 same_day ? human_clock(c, end_ns) : b, zb);
}
