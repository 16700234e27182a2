/* A JSON writer that keeps track of scope: commas, quoting and escaping are its own business.
 *
 * Invalid UTF-8 in a string becomes U+FFFD. Misuse (a value without a key in an object) is a programming
 * error and asserts. The result is in `out`; check buf_error() once at the end. */
#ifndef BASE_JSON_OUT_H
#define BASE_JSON_OUT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

#define JSON_MAX_DEPTH 32

struct json_out {
        struct buf *out;
        uint32_t depth;
        bool in_object[JSON_MAX_DEPTH];
        bool has_items[JSON_MAX_DEPTH];
};

/* `key` is NULL in arrays and for the outermost value. */
void json_object_begin(struct json_out *j, const char *key);
void json_object_end(struct json_out *j);
void json_array_begin(struct json_out *j, const char *key);
void json_array_end(struct json_out *j);
void json_string(struct json_out *j, const char *key, const char *value); /* NULL: null */
void json_u64(struct json_out *j, const char *key, uint64_t value);
void json_i64(struct json_out *j, const char *key, int64_t value);
void json_double(struct json_out *j, const char *key, double value); /* not finite: null */
void json_bool(struct json_out *j, const char *key, bool value);

#endif
