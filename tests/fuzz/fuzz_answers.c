/* What a worker says that has been taken over: the client takes it for sound only if all of it may be read.
 * And names, which its demanglers meet: in bounded time and space. */
#include <stdlib.h>
#include <string.h>

#include "symbolizer/client_internal.h"
#include "symbolizer/demangle.h"
#include "tests/fuzz/fuzz.h"

#define REQUIRE(condition)        \
        do {                      \
                if (!(condition)) \
                        abort();  \
        } while (0)

static void use_names(const uint8_t *data, size_t size)
{
        _cleanup_names_ struct names names = {}, copy = {};
        struct sym_frame f;

        if (names_decode(data, size, &names) < 0)
                return;
        for (uint32_t i = 0; i < names.n_results; i++) {
                struct name_result r = names.result[i];

                REQUIRE(r.n <= SYM_MAX_INLINE);
                for (uint32_t k = 0; k < r.n; k++) {
                        names_frame(&names, r.first + k, &f);
                        REQUIRE(!f.function || strlen(f.function) < size);
                        REQUIRE(!f.linkage || strlen(f.linkage) < size);
                        REQUIRE(!f.file || strlen(f.file) < size);
                }
                REQUIRE(names_copy(&copy, &names, i) == 0);
        }
        REQUIRE(copy.n_frames == names.n_frames);
}

static void use_demangle(const uint8_t *data, size_t size)
{
        char text[DEMANGLE_MAX], *name = malloc(size + 1);

        REQUIRE(name);
        memcpy(name, data, size);
        name[size] = 0;
        if (demangle(name, text))
                REQUIRE(memchr(text, 0, sizeof(text)));
        free(name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct buf b = {};

        buf_add(&b, data, size); /* aligned, as what is received */
        if (size > 0) {
                table_is_sound(&b);
                functions_are_sound(&b);
        }
        buf_free(&b);
        use_names(data, size);
        use_demangle(data, size);
        return 0;
}
