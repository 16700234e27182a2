/* Rows inferred from any bytes as code: ascending, within the code, of kinds that the walk knows. The first
 * byte says how far apart the entries of functions are. */
#include <stdlib.h>

#include "symbolizer/cfi_infer.h"
#include "tests/fuzz/fuzz.h"

#define BASE 0x401000

struct last {
        uint64_t address, end;
};

static void ignore_entry(void *ctx, uint64_t address) {}

static void check_row(void *ctx, uint64_t address, const struct unwind_rule *rule)
{
        struct last *last = ctx;
        int kind = UNWIND_RULE_KIND(rule);

        if (address < last->address || address > last->end)
                abort();
        if (kind != UNWIND_NONE && kind != UNWIND_SP && kind != UNWIND_FP)
                abort();
        if (kind != UNWIND_NONE && (rule->cfa_offset < 8 || UNWIND_RULE_FP(rule) > UNWIND_FP_UNDEFINED))
                abort();
        last->address = address + 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct last last = {BASE, BASE + size};
        struct cfi_infer *x;

        if (size < 2 || cfi_infer_new(&x, BASE, (struct span){data + 1, size - 1}, ignore_entry, NULL) < 0)
                return 0;
        for (size_t at = 0; at < size; at += 1 + data[0] % 64)
                cfi_infer_entry(x, BASE + at);
        if (cfi_infer_run(x) >= 0)
                cfi_infer_rows(x, check_row, &last);
        cfi_infer_free(x);
        return 0;
}
