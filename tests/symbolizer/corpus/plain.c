/* C as the DWARF reader has to read it, free of headers so that it also builds for other machines: static
 * functions, inlining in lexical blocks, partial inlining, a cold path, code nobody calls, and where the
 * compiler has them, functions within functions, whose DIEs stand in the body of another's. */
#include "shapes.h"

int plain_work(int n);
int plain_unused(int n);
int plain_step(int n);

static volatile int sink;

__attribute__((noinline, cold)) static void complain(int n)
{
        sink = n;
}

/* Large enough that compilers inline the test alone and leave the rest outside. */
static int checked(int n)
{
        if (n == 0)
                return 0;
        for (int i = 0; i < n % 50; i++) {
                sink += i * n;
                sink ^= square_of(i);
                sink -= clamp_to(n, i);
                sink += sink << 3;
                sink ^= sink >> 5;
                sink += i;
        }
        return sink;
}

static inline int weigh(int n)
{
        int w = 0;

        for (int i = 0; i < 4; i++) {
                int local = n + i;

                if (local & 1) {
                        int odd = square_of(local);

                        w += odd + clamp_to(odd, 100);
                }
        }
        return w;
}

__attribute__((noinline)) int plain_step(int n)
{
        if (n < 0) {
                complain(n);
                n = -n;
        }
        return weigh(n) + checked(n);
}

int plain_unused(int n)
{
        return weigh(n) * 3;
}

static int depth(int n)
{
        return n <= 1 ? 1 : depth(n - 1) + depth(n - 2) + plain_step(n);
}

#ifdef __clang__
static int nest(int n)
{
        return n;
}
#else
__attribute__((noinline)) static int nest(int n)
{
        __attribute__((noinline)) int inner(int k)
        {
                __attribute__((noinline)) int innermost(int j)
                {
                        return weigh(j) + square_of(j);
                }
                return innermost(k + 1) + clamp_to(k, 9);
        }
        return inner(n) + inner(n / 3);
}
#endif

int plain_work(int n)
{
        int s = checked(n & 15) + checked(n & 3) + nest(n);

        s += depth(n & 7);
        for (int i = 0; i < 3; i++)
                s += plain_step(n + i);
        return s;
}
