// A second unit, so that link-time optimization has something to inline across units.
#include "shapes.h"

namespace outer {
int risky(int n);
}

extern "C" int plain_step(int n);

int module_entry(int n);

int module_entry(int n)
{
        return outer::risky(n) + plain_step(square_of(n));
}
