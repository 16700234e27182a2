#include "base/json_out.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/utf8.h"

static void quoted(struct buf *b, const char *text)
{
        const unsigned char *s = (const unsigned char *)text;

        buf_addc(b, '"');
        while (*s) {
                size_t n = utf8_len(s);
                if (n == 0) {
                        buf_adds(b, UTF8_REPLACEMENT);
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
