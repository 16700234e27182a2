/* Writing the protocol buffers wire format (protobuf.dev, "Encoding"). proto3 leaves out what is 0, and so
 * does all here but wire_put_varint(). Errors stay in the buffer. */
#ifndef PROFILE_WIRE_OUT_H
#define PROFILE_WIRE_OUT_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* A bare varint, as in a packed field. */
void wire_put_varint(struct buf *b, uint64_t v);

void wire_put_number(struct buf *b, uint32_t field, uint64_t v);
void wire_put_fixed64(struct buf *b, uint32_t field, uint64_t v);

/* Written even when empty: an element of a repeated field may be. */
void wire_put_bytes(struct buf *b, uint32_t field, const void *data, size_t n);

/* Puts `from` as a field into `to`, and empties it. An error in it becomes one of `to`. */
void wire_put_message(struct buf *to, uint32_t field, struct buf *from);

#endif
