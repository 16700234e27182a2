/* UTF-8 as RFC 3629, section 4, defines it. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stddef.h>

#define UTF8_REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/* The length of the valid sequence at s, 0 when there is none. Reads no further than the first byte that
 * does not fit, so a text that ends in NUL is safe; a NUL itself counts as one byte. */
static inline size_t utf8_len(const unsigned char *s)
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

#endif
