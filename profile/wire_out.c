#include "profile/wire_out.h"

#include "profile/pprof_format.h"

void wire_put_varint(struct buf *b, uint64_t v)
{
        unsigned char *p = buf_reserve(b, WIRE_MAX_VARINT);
        size_t n = 0;

        if (!p)
                return;
        while (v >= 0x80) {
                p[n++] = (unsigned char)(v | 0x80);
                v >>= 7;
        }
        p[n++] = (unsigned char)v;
        buf_commit(b, n);
}

void wire_put_number(struct buf *b, uint32_t field, uint64_t v)
{
        if (!v)
                return;
        wire_put_varint(b, WIRE_TAG(field, WIRE_VARINT));
        wire_put_varint(b, v);
}

void wire_put_fixed64(struct buf *b, uint32_t field, uint64_t v)
{
        unsigned char bytes[8];

        if (!v)
                return;
        for (int i = 0; i < 8; i++)
                bytes[i] = (unsigned char)(v >> (8 * i));
        wire_put_varint(b, WIRE_TAG(field, WIRE_FIXED64));
        buf_add(b, bytes, sizeof(bytes));
}

void wire_put_bytes(struct buf *b, uint32_t field, const void *data, size_t n)
{
        wire_put_varint(b, WIRE_TAG(field, WIRE_BYTES));
        wire_put_varint(b, n);
        buf_add(b, data, n);
}

void wire_put_message(struct buf *to, uint32_t field, struct buf *from)
{
        if (from->error && !to->error)
                to->error = from->error;
        wire_put_bytes(to, field, from->data, from->len);
        buf_clear(from);
}
