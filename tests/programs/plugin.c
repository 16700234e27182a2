/* What dlopen.c loads. */
#include "tests/programs/truth.h"

uint64_t plugin_work(uint64_t x);

static TRUTH_FRAME uint64_t plugin_leaf(uint64_t x)
{
        TRUTH_BURN(x, 100000);
        return x;
}

uint64_t plugin_work(uint64_t x)
{
        x = plugin_leaf(x);
        TRUTH_KEEP();
        return x + 1;
}
