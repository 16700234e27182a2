#include "base/json_out.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* The length of the valid UTF-8 sequence at s, 0 when there is none (RFC 3629, section 4). */
static size_t utf8_len(const unsigned char *s)
{
        if (s[0] < 0x80)
                return 1;
        if (s[0] >= 0xc2 && s[0] <= 0xdf)
                return (s[1] & 0xc0) == 0x80 ? 2 : 0;
        if (s[0] >= 0xe0 && s[0] <= 0xef) {
                unsigned char lo = s[0] == 0xe0 ? 0xa0 : 0x80, hi = s[0] == 0xed ? 0x9f : 0xbf;
                return s[1] >= lo && s[1] <= hi && (s[2] & 0xc0) == 0x80 ? 3 : 0;
        }
        if (s[0] >= 0xf0 && s[0] <= 0xf4) {
                unsigned char lo = s[0] == 0xf0 ? 0x90 : 0x80, hi = s[0] == 0xf4 ? 0x8f : 0xbf;
                return s[1] >= lo && s[1] <= hi && (s[2] & 0xc0) == 0x80 && (s[3] & 0xc0) == 0x80 ? 4 : 0;
        }
        return 0;
}

static void quoted(struct buf *b, const char *text)
{
        const unsigned char *s = (const unsigned char *)text;

        buf_addc(b, '"');
        while (*s) {
                size_t n = utf8_len(s);
                if (n == 0) {
                        buf_adds(b, "\xef\xbf\xbd");
                        s++;
                        continue;
                }
                if (*s == '"' || *s == '\\')
                        buf_addf(b, "\\%c", *s);
                else if (*s == '\n')
                        buf_adds(b, "\\n");
                else if (*s < 0x20 || *s == 0x7f)
                        buf_addf(b, "\\u%04x", *s);
                else
                        buf_add(b, s, n);
                s += n;
        }
        buf_addc(b, '"');
}

static void before_value(struct json_out *j, const char *key)
{
        if (j->depth == 0) {
                assert(!key);
                return;
        }
        assert(j->in_object[j->depth - 1] == (key != NULL));
        if (j->has_items[j->depth - 1])
                buf_addc(j->out, ',');
        j->has_items[j->depth - 1] = true;
        if (key) {
                quoted(j->out, key);
                buf_addc(j->out, ':');
        }
}

static void begin(struct json_out *j, const char *key, bool object)
{
        before_value(j, key);
        assert(j->depth < JSON_MAX_DEPTH);
        j->in_object[j->depth] = object;
        j->has_items[j->depth] = false;
        j->depth++;
        buf_addc(j->out, object ? '{' : '[');
}

static void end(struct json_out *j, bool object)
{
        assert(j->depth > 0 && j->in_object[j->depth - 1] == object);
        j->depth--;
        buf_addc(j->out, object ? '}' : ']');
}

void json_object_begin(struct json_out *j, const char *key)
{
        begin(j, key, true);
}

void json_object_end(struct json_out *j)
{
        end(j, true);
}

void json_array_begin(struct json_out *j, const char *key)
{
        begin(j, key, false);
}

void json_array_end(struct json_out *j)
{
        end(j, false);
}

void json_string(struct json_out *j, const char *key, const char *value)
{
        before_value(j, key);
        if (value)
                quoted(j->out, value);
        else
                buf_adds(j->out, "null");
}

void json_u64(struct json_out *j, const char *key, uint64_t value)
{
        before_value(j, key);
        buf_addf(j->out, "%" PRIu64, value);
}

void json_i64(struct json_out *j, const char *key, int64_t value)
{
        before_value(j, key);
        buf_addf(j->out, "%" PRId64, value);
}

void json_double(struct json_out *j, const char *key, double value)
{
        before_value(j, key);
        if (isfinite(value))
                buf_addf(j->out, "%.9g", value);
        else
                buf_adds(j->out, "null");
}

void json_bool(struct json_out *j, const char *key, bool value)
{
        before_value(j, key);
        buf_adds(j->out, value ? "true" : "false");
}
