/* Makes a pprof file from lines of text on the standard input, for the tests of profctl:
 *
 *   # key: value                     a comment (the ledger)
 *   @ START SECONDS                  the time, in seconds since the epoch
 *   COMM PID UNIT SAMPLES STACK      samples of 10 ms; UNIT "-": none. STACK is root first, frames separated
 *                                    by ';', each function@object; "outer+inner@object" has `inner` inlined;
 *                                    an object "[...]" or "/..." is as it is, others are in /usr/bin; behind
 *                                    a '^' its build ID can follow. function "?" has no name; "name:7" is at
 *                                    line 7; "...#1f0@" has the address 0x1f0.
 *   misses COMM PID N STACK          N cache misses */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "profile/pprof.h"
#include "profile/profile.h"

#define PERIOD_NS 10000000

static const char *source = "main.c"; /* of all functions */

static uint32_t id(int64_t v)
{
        assert(v >= 0);
        return (uint32_t)v;
}

static uint32_t string(struct profile *p, const char *s)
{
        return id(profile_string(p, s));
}

static uint32_t mapping(struct profile *p, char *object)
{
        char path[256], build_id[64], *given = strchr(object, '^');

        if (given)
                *given++ = 0;
        snprintf(path, sizeof(path), "%s%s", strchr("[/", *object) ? "" : "/usr/bin/", object);
        snprintf(build_id, sizeof(build_id), "%016" PRIx64, (uint64_t)hash_bytes(object, strlen(object)));
        if (given)
                snprintf(build_id, sizeof(build_id), "%s", given);
        return id(profile_mapping(p, &(struct profile_mapping){.start = 0x1000,
                                                               .limit = 0x100000,
                                                               .file = string(p, path),
                                                               .build_id = string(p, build_id)}));
}

static uint32_t location(struct profile *p, char *frame)
{
        struct profile_line line[8];
        uint32_t n = 0;
        uint64_t address = 0x1000 + hash_bytes(frame, strlen(frame)) % 0xffff;
        char *object = strchr(frame, '@');

        assert(object);
        *object++ = 0;
        uint32_t m = mapping(p, object);
        char *hash = strchr(frame, '#');
        if (hash) {
                address = strtoull(hash + 1, NULL, 16);
                *hash = 0;
        }
        if (!strcmp(frame, "?"))
                return id(profile_location(p, m, 0x1234, NULL, 0));
        for (char *name; (name = strrchr(frame, '+') ? strrchr(frame, '+') + 1 : frame);) {
                char *colon = strrchr(name, ':');
                int64_t at = colon && colon > name && colon[-1] != ':' ? atoll(colon + 1) : 10;
                if (at != 10)
                        *colon = 0;
                uint32_t f = id(profile_function(p, &(struct profile_function){.name = string(p, name),
                                                                               .file = string(p, source)}));
                line[n++] = (struct profile_line){.function = f, .line = at};
                if (name == frame)
                        break;
                name[-1] = 0;
        }
        return id(profile_location(p, m, address, line, n));
}

static uint32_t stack(struct profile *p, char *text, uint32_t *ret)
{
        uint32_t first[256], n = 0;

        for (char *frame; (frame = strsep(&text, ";"));)
                first[n++] = location(p, frame);
        for (uint32_t i = 0; i < n; i++)
                ret[i] = first[n - 1 - i];
        return n;
}

static void add(struct profile *p, const char *comm, const char *pid, const char *unit, char *text,
                const int64_t *values)
{
        uint32_t locations[256], n = stack(p, text, locations), n_labels = 0;
        struct profile_label label[3];

        label[n_labels++] = (struct profile_label){.key = string(p, "comm"), .str = string(p, comm)};
        label[n_labels++] = (struct profile_label){.key = string(p, "pid"), .num = atoll(pid)};
        if (strcmp(unit, "-") != 0)
                label[n_labels++] = (struct profile_label){.key = string(p, "unit"), .str = string(p, unit)};
        assert(profile_sample(p, locations, n, label, n_labels, values) == 0);
}

static void take_line(struct profile *p, char *line)
{
        char a[64], b[64], c[64];
        long long n;
        int at;

        line[strcspn(line, "\n")] = 0;
        if (!strncmp(line, "# ", 2)) {
                assert(profile_comment(p, line + 2) == 0);
        } else if (sscanf(line, "@ %63s %63s", a, b) == 2) {
                p->time_ns = atoll(a) * (int64_t)NSEC_PER_SEC;
                p->duration_ns = atoll(b) * (int64_t)NSEC_PER_SEC;
        } else if (sscanf(line, "misses %63s %63s %lld %n", a, b, &n, &at) == 3) {
                add(p, a, b, "-", line + at, (int64_t[]){0, 0, n});
        } else if (sscanf(line, "%63s %63s %63s %lld %n", a, b, c, &n, &at) == 4) {
                add(p, a, b, c, line + at, (int64_t[]){n, n * PERIOD_NS, 0});
        } else {
                assert(!*line);
        }
}

int main(int argc, char **argv)
{
        _cleanup_profile_ struct profile *p = NULL;
        char line[4096];

        assert((argc == 2 || argc == 3) && profile_new(&p) == 0);
        if (argc == 3)
                source = argv[2];
        id(profile_type(p, "samples", "count"));
        id(profile_type(p, "cpu", "nanoseconds"));
        id(profile_type(p, "cache-misses", "count"));
        p->period_type.type = string(p, "cpu");
        p->period_type.unit = string(p, "nanoseconds");
        p->period = PERIOD_NS;
        while (fgets(line, sizeof(line), stdin))
                take_line(p, line);
        return pprof_write_file(p, argv[1]) < 0;
}
