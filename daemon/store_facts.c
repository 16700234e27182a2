#include "daemon/store_facts.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/parse.h"
#include "profile/gzip.h"
#include "profile/pprof.h"

#define MAGIC        "profd-window 1"
#define SIZE_DIGITS  12
#define MAX_SECONDS  9999999u /* 115 days */
#define FLAG_COMMENT 0x10

void store_facts_free(struct store_facts *f)
{
        free(f->from);
        f->from = NULL;
}

int store_id_format(uint64_t start_s, uint64_t seconds, char ret[STORE_ID_SIZE])
{
        struct tm tm;
        time_t t = (time_t)start_s;

        if (start_s > 253402300799ull || seconds > MAX_SECONDS || !gmtime_r(&t, &tm))
                return -ERANGE;
        snprintf(ret, STORE_ID_SIZE, "%04u%02u%02uT%02u%02u%02uZ_%u", (unsigned)tm.tm_year + 1900,
                 (unsigned)tm.tm_mon + 1, (unsigned)tm.tm_mday, (unsigned)tm.tm_hour, (unsigned)tm.tm_min,
                 (unsigned)tm.tm_sec, (unsigned)seconds);
        return 0;
}

static unsigned digits(const char *s, unsigned n)
{
        unsigned v = 0;

        while (n--)
                v = v * 10 + (unsigned)(*s++ - '0');
        return v;
}

int store_id_parse(const char *id, uint64_t *ret_start_s, uint64_t *ret_seconds)
{
        static const char pattern[] = "ddddddddTddddddZ_";
        char again[STORE_ID_SIZE];
        struct tm tm = {0};
        uint64_t seconds;

        for (const char *p = pattern, *c = id; *p; p++, c++)
                if (*p == 'd' ? !isdigit((unsigned char)*c) : *c != *p)
                        return -EINVAL;
        if (parse_u64(id + sizeof(pattern) - 1, 1, MAX_SECONDS, &seconds) < 0)
                return -EINVAL;
        tm.tm_year = (int)digits(id, 4) - 1900;
        tm.tm_mon = (int)digits(id + 4, 2) - 1;
        tm.tm_mday = (int)digits(id + 6, 2);
        tm.tm_hour = (int)digits(id + 9, 2);
        tm.tm_min = (int)digits(id + 11, 2);
        tm.tm_sec = (int)digits(id + 13, 2);
        time_t t = timegm(&tm);
        /* There and back again refuses 20261399T..., "_060" and the like. */
        if (t < 0 || store_id_format((uint64_t)t, seconds, again) < 0 || strcmp(again, id) != 0)
                return -EINVAL;
        *ret_start_s = (uint64_t)t;
        *ret_seconds = seconds;
        return 0;
}

int store_id_from_name(const char *name, char ret[STORE_ID_SIZE])
{
        uint64_t start, seconds;
        char id[STORE_ID_SIZE];
        size_t n = strlen(name), suffix = strlen(STORE_SUFFIX);

        if (n <= suffix || n - suffix >= sizeof(id) || strcmp(name + n - suffix, STORE_SUFFIX) != 0)
                return -EINVAL;
        memcpy(id, name, n - suffix);
        id[n - suffix] = 0;
        int r = store_id_parse(id, &start, &seconds);
        if (r < 0)
                return r;
        memcpy(ret, id, sizeof(id));
        return 0;
}

uint64_t store_seconds(uint64_t duration_ns)
{
        uint64_t s = (duration_ns + NSEC_PER_SEC / 2) / NSEC_PER_SEC;

        return MIN_OF(MAX_OF(s, 1u), MAX_SECONDS);
}

bool store_from_has(const char *from, const char *id)
{
        size_t n = strlen(id);

        for (const char *p = from; p && (p = strstr(p, id)); p += n)
                if ((p == from || p[-1] == ',') && (p[n] == ',' || p[n] == 0))
                        return true;
        return false;
}

/* -- facts of a profile -- */

static uint64_t sum_losses(const struct profile *p)
{
        uint64_t lost = 0;

        for (uint32_t i = 0; i < p->n_comments; i++) {
                const char *c = profile_str(p, p->comment[i]), *colon = strstr(c, ": ");
                uint64_t n;
                if (strncmp(c, "lost.", 5) == 0 && colon && parse_u64(colon + 2, 0, INT64_MAX, &n) == 0)
                        lost += n;
        }
        return lost;
}

static uint64_t sum_samples(const struct profile *p)
{
        int type = profile_find_type(p, "samples");
        uint64_t samples = 0;

        if (type < 0)
                return p->n_samples;
        for (uint32_t i = 0; i < p->n_samples; i++) {
                int64_t v = p->value[(size_t)i * p->n_types + (uint32_t)type];
                if (v > 0)
                        samples += (uint64_t)v;
        }
        return samples;
}

int store_facts_from_profile(const struct profile *p, struct store_facts *ret)
{
        struct store_facts f = {0};
        const char *boot_id = profile_ledger(p, "boot"), *boot_time = profile_ledger(p, PROFILE_BOOT_END);

        if (p->time_ns <= 0 || p->duration_ns < 0 || p->time_ns > INT64_MAX - p->duration_ns)
                return -EBADMSG;
        f.start_ns = (uint64_t)p->time_ns;
        f.duration_ns = (uint64_t)p->duration_ns;
        f.samples = sum_samples(p);
        f.lost = sum_losses(p);
        if (boot_id)
                snprintf(f.boot_id, sizeof(f.boot_id), "%s", boot_id);
        if (boot_time)
                parse_u64(boot_time, 0, INT64_MAX, &f.boot_end_ns);
        *ret = f;
        return 0;
}

/* -- the file -- */

int store_facts_encode(const struct profile *p, struct store_facts *facts, int level, struct buf *out)
{
        _cleanup_buf_ struct buf plain = {0}, comment = {0};
        char size[SIZE_DIGITS + 1];
        size_t begin = out->len;

        int r = pprof_write(p, false, &plain);
        if (r < 0)
                return r;
        buf_adds(&comment, MAGIC " size=");
        size_t size_at = comment.len;
        buf_addf(&comment, "%0*d start=%llu duration=%llu samples=%llu lost=%llu seq=%llu-%llu", SIZE_DIGITS,
                 0, (unsigned long long)facts->start_ns, (unsigned long long)facts->duration_ns,
                 (unsigned long long)facts->samples, (unsigned long long)facts->lost,
                 (unsigned long long)facts->first_seq, (unsigned long long)facts->last_seq);
        if (facts->boot_id[0])
                buf_addf(&comment, " boot=%s", facts->boot_id);
        buf_addf(&comment, " boot_end=%llu", (unsigned long long)facts->boot_end_ns);
        if (facts->from)
                buf_addf(&comment, " from=%s", facts->from);
        if (buf_error(&comment))
                return buf_error(&comment);
        if (comment.len > STORE_MAX_COMMENT)
                return -E2BIG;
        r = gzip_deflate(plain.data, plain.len, level, comment.data, out);
        if (r < 0)
                return r;
        facts->size = out->len - begin;
        snprintf(size, sizeof(size), "%0*llu", SIZE_DIGITS, (unsigned long long)facts->size);
        memcpy(out->data + begin + GZIP_COMMENT_AT + size_at, size, SIZE_DIGITS);
        return 0;
}

static int parse_seq(char *value, struct store_facts *f)
{
        char *dash = strchr(value, '-');

        if (!dash)
                return -EBADMSG;
        *dash = 0;
        if (parse_u64(value, 1, INT64_MAX, &f->first_seq) < 0 ||
            parse_u64(dash + 1, f->first_seq, INT64_MAX, &f->last_seq) < 0)
                return -EBADMSG;
        return 0;
}

static int parse_fact(const char *key, char *value, struct store_facts *f)
{
        static const struct {
                const char *key;
                size_t offset;
        } numbers[] = {
                        {"size", offsetof(struct store_facts, size)},
                        {"start", offsetof(struct store_facts, start_ns)},
                        {"duration", offsetof(struct store_facts, duration_ns)},
                        {"samples", offsetof(struct store_facts, samples)},
                        {"lost", offsetof(struct store_facts, lost)},
                        {"boot_end", offsetof(struct store_facts, boot_end_ns)},
        };

        for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
                if (strcmp(key, numbers[i].key) == 0)
                        return parse_u64(value, 0, INT64_MAX / 2,
                                         (uint64_t *)(void *)((char *)f + numbers[i].offset));
        if (strcmp(key, "seq") == 0)
                return parse_seq(value, f);
        if (strcmp(key, "boot") == 0) {
                if (strlen(value) >= sizeof(f->boot_id))
                        return -EBADMSG;
                strcpy(f->boot_id, value);
                return 0;
        }
        if (strcmp(key, "from") != 0)
                return 0; /* a later version's */
        free(f->from);
        f->from = strdup(value);
        return f->from ? 0 : -ENOMEM;
}

static int parse_comment(char *comment, struct store_facts *ret)
{
        _cleanup_facts_ struct store_facts f = {0};
        char *save = NULL;

        if (strncmp(comment, MAGIC " ", strlen(MAGIC) + 1) != 0)
                return -ENODATA;
        for (char *w = strtok_r(comment + strlen(MAGIC), " ", &save); w; w = strtok_r(NULL, " ", &save)) {
                char *value = strchr(w, '=');
                if (!value)
                        return -EBADMSG;
                *value++ = 0;
                int r = parse_fact(w, value, &f);
                if (r < 0)
                        return r == -ENOMEM ? r : -EBADMSG;
        }
        if (f.size == 0 || f.start_ns == 0 || f.first_seq == 0)
                return -EBADMSG;
        *ret = f;
        f.from = NULL;
        return 0;
}

int store_facts_read(int fd, struct store_facts *ret)
{
        char small[4096];
        _cleanup_free_ char *large = NULL;
        char *head = small;
        size_t room = sizeof(small);

        for (;;) {
                ssize_t n = pread(fd, head, room - 1, 0);
                if (n < 0) {
                        if (errno == EINTR)
                                continue;
                        return -errno;
                }
                if ((size_t)n < (size_t)GZIP_COMMENT_AT || (uint8_t)head[0] != 0x1f ||
                    (uint8_t)head[1] != 0x8b)
                        return -EBADMSG;
                if ((uint8_t)head[3] != FLAG_COMMENT)
                        return -ENODATA;
                head[n] = 0;
                char *comment = head + (size_t)GZIP_COMMENT_AT;
                size_t most = (size_t)n - (size_t)GZIP_COMMENT_AT, len = strnlen(comment, most);
                if (len < most)
                        return parse_comment(comment, ret);
                if (strncmp(comment, MAGIC, MIN_OF(len, strlen(MAGIC))) != 0)
                        return -ENODATA;
                if (large || (size_t)n < room - 1)
                        return -EBADMSG; /* it does not end */
                room = STORE_MAX_COMMENT + 1;
                large = malloc(room);
                if (!large)
                        return -ENOMEM;
                head = large;
        }
}
