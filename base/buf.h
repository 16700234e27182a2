/* A growable byte buffer with a sticky error.
 *
 * Appending to a buffer that failed (out of memory, or over its limit) does nothing, so a writer checks
 * once, at the end, with buf_error(). A zeroed struct is an empty buffer without a limit. The bytes are
 * always followed by a NUL that is not counted, so that text can be used as a C string. */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
        char *data; /* owned; NULL while empty */
        size_t len;
        size_t cap;
        size_t limit; /* most bytes it may hold; 0: no limit */
        int error;    /* 0, -ENOMEM, or -E2BIG when the limit was hit */
};

/* Room for `n` more bytes; NULL on error. The bytes count only after buf_commit(). */
void *buf_reserve(struct buf *b, size_t n);
void buf_commit(struct buf *b, size_t n);

void buf_add(struct buf *b, const void *data, size_t n);
void buf_addc(struct buf *b, char c);
void buf_adds(struct buf *b, const char *s);
void buf_addf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_vaddf(struct buf *b, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));

static inline int buf_error(const struct buf *b)
{
        return b->error;
}

/* The text, "" while empty. Valid until the next change. */
const char *buf_text(const struct buf *b);

/* The text for the caller to free(), the buffer left empty; NULL on error. */
char *buf_take(struct buf *b);

void buf_clear(struct buf *b); /* forgets the bytes and the error, keeps the memory */
void buf_free(struct buf *b);

#define _cleanup_buf_ __attribute__((cleanup(buf_free)))

#endif
