/* Bounded reads of call frame information: LEB128, fixed sizes, encoded pointers.
 *
 * A read past the end gives 0, moves to the end and sets `bad`; a caller reads on and checks once. */
#ifndef SYMBOLIZER_CFI_READER_H
#define SYMBOLIZER_CFI_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct cfi_reader {
        const uint8_t *p, *end;
        bool bad;
};

static inline size_t cfi_left(const struct cfi_reader *r)
{
        return (size_t)(r->end - r->p);
}

static inline void cfi_fail(struct cfi_reader *r)
{
        r->bad = true;
        r->p = r->end;
}

/* Both ELF files and profd's hosts are little-endian (elf_image refuses others). */
#define CFI_READ_FIXED(type, name)                    \
        static inline type name(struct cfi_reader *r) \
        {                                             \
                type v = 0;                           \
                                                      \
                if (cfi_left(r) < sizeof(v)) {        \
                        cfi_fail(r);                  \
                        return 0;                     \
                }                                     \
                memcpy(&v, r->p, sizeof(v));          \
                r->p += sizeof(v);                    \
                return v;                             \
        }

CFI_READ_FIXED(uint8_t, cfi_u8)
CFI_READ_FIXED(uint16_t, cfi_u16)
CFI_READ_FIXED(uint32_t, cfi_u32)
CFI_READ_FIXED(uint64_t, cfi_u64)

/* Bits beyond 64 are dropped, as every reader of DWARF does. */
static inline uint64_t cfi_uleb(struct cfi_reader *r)
{
        uint64_t v = 0;
        unsigned shift = 0;

        while (r->p < r->end) {
                uint8_t b = *r->p++;

                if (shift < 64)
                        v |= (uint64_t)(b & 0x7f) << shift;
                if (!(b & 0x80))
                        return v;
                shift += 7;
        }
        r->bad = true;
        return 0;
}

static inline int64_t cfi_sleb(struct cfi_reader *r)
{
        uint64_t v = 0;
        unsigned shift = 0;

        while (r->p < r->end) {
                uint8_t b = *r->p++;

                if (shift < 64)
                        v |= (uint64_t)(b & 0x7f) << shift;
                shift += 7;
                if (!(b & 0x80)) {
                        if (shift < 64 && (b & 0x40))
                                v |= -(1ull << shift);
                        return (int64_t)v;
                }
        }
        r->bad = true;
        return 0;
}

static inline void cfi_skip(struct cfi_reader *r, uint64_t n)
{
        if (n > cfi_left(r))
                cfi_fail(r);
        else
                r->p += n;
}

/* Splits off the next n bytes. */
static inline struct cfi_reader cfi_take(struct cfi_reader *r, uint64_t n)
{
        struct cfi_reader part = {.p = r->p, .end = r->p};

        if (n > cfi_left(r)) {
                cfi_fail(r);
                part.bad = true;
        } else {
                r->p += n;
                part.end = r->p;
        }
        return part;
}

/* Pointer encodings: LSB core 5.0, section 10.5.1 (DW_EH_PE_*). */
#define CFI_PE_ABSPTR   0x00
#define CFI_PE_ULEB128  0x01
#define CFI_PE_UDATA2   0x02
#define CFI_PE_UDATA4   0x03
#define CFI_PE_UDATA8   0x04
#define CFI_PE_SLEB128  0x09
#define CFI_PE_SDATA2   0x0a
#define CFI_PE_SDATA4   0x0b
#define CFI_PE_SDATA8   0x0c
#define CFI_PE_FORMAT   0x0f
#define CFI_PE_BASE     0x70
#define CFI_PE_PCREL    0x10
#define CFI_PE_DATAREL  0x30
#define CFI_PE_INDIRECT 0x80

/* A pointer of 64-bit code. `address` is the ELF address of r->p; `data` the base of DW_EH_PE_datarel. Text-
 * and function-relative, aligned and indirect pointers do not occur for code addresses: `bad`. */
static inline uint64_t cfi_pointer(struct cfi_reader *r, uint8_t encoding, uint64_t address, uint64_t data)
{
        uint64_t v;

        switch (encoding & CFI_PE_FORMAT) {
        case CFI_PE_ABSPTR:
        case CFI_PE_UDATA8:
        case CFI_PE_SDATA8:
                v = cfi_u64(r);
                break;
        case CFI_PE_SDATA4:
                v = (uint64_t)(int64_t)(int32_t)cfi_u32(r);
                break;
        case CFI_PE_UDATA4:
                v = cfi_u32(r);
                break;
        case CFI_PE_SDATA2:
                v = (uint64_t)(int64_t)(int16_t)cfi_u16(r);
                break;
        case CFI_PE_UDATA2:
                v = cfi_u16(r);
                break;
        case CFI_PE_ULEB128:
                v = cfi_uleb(r);
                break;
        case CFI_PE_SLEB128:
                v = (uint64_t)cfi_sleb(r);
                break;
        default:
                cfi_fail(r);
                return 0;
        }
        switch (encoding & (CFI_PE_BASE | CFI_PE_INDIRECT)) {
        case 0:
                return v;
        case CFI_PE_PCREL:
                return v + address;
        case CFI_PE_DATAREL:
                return v + data;
        default:
                cfi_fail(r);
                return 0;
        }
}

#endif
