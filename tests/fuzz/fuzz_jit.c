/* A JIT's file that grows between two readings: the first byte says which kind, the second where it is cut.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/io.h"
#include "symbolizer/jit_file.h"
#include "tests/fuzz/fuzz.h"

#define REQUIRE(condition)        \
        do {                      \
                if (!(condition)) \
                        abort();  \
        } while (0)

#define PID 7 /* what the dumps of the corpus name */

static void name_some(struct jit_file *j)
{
        _cleanup_names_ struct names names = {};

        for (uint64_t a = 0; a < 512; a++)
                REQUIRE(jit_file_name(j, a * 61, &names) == 0);
        REQUIRE(jit_file_name(j, UINT64_MAX, &names) == 0);
        REQUIRE(names.n_results == 513 && names_are_sound(&names));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct jit_file *j;
        size_t cut;
        int fd;

        if (size < 2)
                return 0;
        cut = (size - 2) * data[1] / 255;
        fd = memfd_create("jit", MFD_CLOEXEC);
        REQUIRE(fd >= 0 && write_all(fd, data + 2, cut) == 0);
        REQUIRE(jit_file_open(fd, data[0] & 1 ? WIRE_JIT_MAP : WIRE_JIT_DUMP, PID, &j) == 0);
        jit_file_refresh(j);
        name_some(j);
        REQUIRE(write_all(fd, data + 2 + cut, size - 2 - cut) == 0);
        jit_file_refresh(j);
        name_some(j);
        jit_file_free(j);
        return 0;
}
