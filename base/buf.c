#include "base/buf.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *buf_reserve(struct buf *b, size_t n)
{
        if (b->error)
                return NULL;
        if (n > SIZE_MAX / 2 - b->len || (b->limit && b->len + n > b->limit)) {
                b->error = -E2BIG;
                return NULL;
        }

        size_t need = b->len + n + 1;
        if (need > b->cap) {
                size_t cap = b->cap ? b->cap : 64;
                while (cap < need)
                        cap += cap / 2 + 1;
                char *p = realloc(b->data, cap);
                if (!p) {
                        b->error = -ENOMEM;
                        return NULL;
                }
                b->data = p;
                b->cap = cap;
        }
        return b->data + b->len;
}

void buf_commit(struct buf *b, size_t n)
{
        b->len += n;
        b->data[b->len] = 0;
}

void buf_add(struct buf *b, const void *data, size_t n)
{
        void *p = buf_reserve(b, n);
        if (!p)
                return;
        if (n)
                memcpy(p, data, n);
        buf_commit(b, n);
}

void buf_addc(struct buf *b, char c)
{
        buf_add(b, &c, 1);
}

void buf_adds(struct buf *b, const char *s)
{
        buf_add(b, s, strlen(s));
}

void buf_vaddf(struct buf *b, const char *fmt, va_list ap)
{
        va_list copy;

        va_copy(copy, ap);
        int n = vsnprintf(NULL, 0, fmt, copy);
        va_end(copy);
        if (n < 0) {
                b->error = b->error ? b->error : -EINVAL;
                return;
        }
        char *p = buf_reserve(b, (size_t)n);
        if (!p)
                return;
        vsnprintf(p, (size_t)n + 1, fmt, ap);
        buf_commit(b, (size_t)n);
}

void buf_addf(struct buf *b, const char *fmt, ...)
{
        va_list ap;

        va_start(ap, fmt);
        buf_vaddf(b, fmt, ap);
        va_end(ap);
}

const char *buf_text(const struct buf *b)
{
        return b->data ? b->data : "";
}

char *buf_take(struct buf *b)
{
        if (!b->data)
                buf_add(b, "", 0);
        if (b->error) {
                buf_free(b);
                return NULL;
        }
        char *p = b->data;
        *b = (struct buf){.limit = b->limit};
        return p;
}

void buf_clear(struct buf *b)
{
        b->len = 0;
        b->error = 0;
        if (b->data)
                b->data[0] = 0;
}

void buf_free(struct buf *b)
{
        free(b->data);
        *b = (struct buf){.limit = b->limit};
}
