/* A build ID as text: hexadecimal digits, as profiles, file names and debuginfod have it. */
#ifndef SYMBOLIZER_BUILD_ID_H
#define SYMBOLIZER_BUILD_ID_H

#include <stdint.h>
#include <stdio.h>

#define SYM_BUILD_ID_MAX  32
#define BUILD_ID_TEXT_MAX (2 * SYM_BUILD_ID_MAX + 1)

/* Of a build ID below a directory of debug files, from its text (twice, the second from its third digit on):
 * gdb manual, "Debugging Information in Separate Files". */
#define BUILD_ID_FILE ".build-id/%.2s/%s.debug"

static inline void build_id_text(const uint8_t *id, uint32_t n, char text[BUILD_ID_TEXT_MAX])
{
        text[0] = 0;
        for (uint32_t i = 0; i < n && i < SYM_BUILD_ID_MAX; i++)
                snprintf(text + 2 * i, 3, "%02x", id[i]);
}

#endif
