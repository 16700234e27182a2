#include "profile/profile.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define MORE "(more)"

/* Where the value of a "key: value" line begins, and the key's length; NULL: not such a line. */
static const char *value_of(const char *line, size_t *ret_key)
{
        const char *colon = strstr(line, ": ");

        if (!colon || colon == line)
                return NULL;
        *ret_key = (size_t)(colon - line);
        return colon + 2;
}

static bool is_count(const char *value, int64_t *ret)
{
        char *end;

        if (value[0] != '-' && (value[0] < '0' || value[0] > '9'))
                return false;
        errno = 0;
        long long v = strtoll(value, &end, 10);
        if (errno || *end || end == value)
                return false;
        *ret = v;
        return true;
}

/* Index of the last line with this key; -1. */
static int64_t find_line(const struct profile *p, const char *key, size_t key_len)
{
        for (uint32_t i = p->n_comments; i-- > 0;) {
                const char *line = p->string[p->comment[i]];
                if (!strncmp(line, key, key_len) && line[key_len] == ':' && line[key_len + 1] == ' ')
                        return i;
        }
        return -1;
}

const char *profile_ledger(const struct profile *p, const char *key)
{
        size_t n = strlen(key);
        int64_t i = find_line(p, key, n);

        return i < 0 ? NULL : p->string[p->comment[i]] + n + 2;
}

int64_t profile_ledger_count(const struct profile *p, const char *key, int64_t otherwise)
{
        const char *value = profile_ledger(p, key);
        int64_t v;

        return value && is_count(value, &v) ? v : otherwise;
}

static int set_line(struct profile *p, const char *key, size_t key_len, int64_t value)
{
        _cleanup_free_ char *line = NULL;

        if (key_len > INT_MAX || asprintf(&line, "%.*s: %" PRId64, (int)key_len, key, value) < 0)
                return -ENOMEM;
        int64_t i = find_line(p, key, key_len);
        if (i < 0)
                return profile_comment(p, line);
        int64_t s = profile_string(p, line);
        if (s < 0)
                return (int)s;
        p->comment[i] = (uint32_t)s;
        return 0;
}

int profile_ledger_set(struct profile *p, const char *key, int64_t value)
{
        return set_line(p, key, strlen(key), value);
}

int profile_ledger_add(struct profile *p, const char *key, int64_t value)
{
        int64_t sum;

        if (__builtin_add_overflow(profile_ledger_count(p, key, 0), value, &sum))
                sum = INT64_MAX;
        return profile_ledger_set(p, key, sum);
}

static bool has_comment(const struct profile *p, uint32_t string)
{
        for (uint32_t i = 0; i < p->n_comments; i++)
                if (p->comment[i] == string)
                        return true;
        return false;
}

static uint32_t count_lines(const struct profile *p, const char *key, size_t key_len)
{
        uint32_t n = 0;

        for (uint32_t i = 0; i < p->n_comments; i++) {
                const char *line = p->string[p->comment[i]];
                if (!strncmp(line, key, key_len) && line[key_len] == ':')
                        n++;
        }
        return n;
}

static int merge_text(struct profile *into, const char *line, const char *key, size_t key_len)
{
        _cleanup_free_ char *more = NULL;
        int64_t s = profile_string(into, line);

        if (s < 0)
                return (int)s;
        if (has_comment(into, (uint32_t)s))
                return 0;
        uint32_t n = key ? count_lines(into, key, key_len) : 0;
        if (n < PROFILE_MAX_TEXTS)
                return profile_comment(into, line);
        if (n > PROFILE_MAX_TEXTS)
                return 0;
        if (asprintf(&more, "%.*s: " MORE, (int)key_len, key) < 0)
                return -ENOMEM;
        return profile_comment(into, more);
}

/* A number that is no count: of merged windows the last one's stays. */
static bool is_moment(const char *line, size_t key_len)
{
        return key_len == strlen(PROFILE_BOOT_END) && !strncmp(line, PROFILE_BOOT_END, key_len);
}

static int merge_line(struct profile *into, const char *line)
{
        size_t key_len;
        int64_t value, old, sum;
        const char *text = value_of(line, &key_len);

        if (!text)
                return merge_text(into, line, NULL, 0);
        if (!is_count(text, &value))
                return merge_text(into, line, line, key_len);

        int64_t i = find_line(into, line, key_len);
        if (i < 0)
                return profile_comment(into, line);
        if (!is_count(into->string[into->comment[i]] + key_len + 2, &old))
                return merge_text(into, line, line, key_len);
        if (is_moment(line, key_len))
                sum = MAX_OF(old, value);
        else if (__builtin_add_overflow(old, value, &sum))
                sum = value < 0 ? INT64_MIN : INT64_MAX;
        return set_line(into, line, key_len, sum);
}

int profile_ledger_merge(struct profile *into, const struct profile *from)
{
        for (uint32_t i = 0; i < from->n_comments; i++) {
                int r = merge_line(into, from->string[from->comment[i]]);
                if (r < 0)
                        return r;
        }
        return 0;
}

int64_t profile_observed_ns(const struct profile *p)
{
        return profile_ledger_count(p, PROFILE_OBSERVED, p->duration_ns);
}
