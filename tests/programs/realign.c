/* Frames of a size only known at run time, on a stack that is realigned for vectors: the CFA is read from
 * memory, or counted from the frame pointer. */
#include <alloca.h>
#include <string.h>

#include "tests/programs/truth.h"

#define DEPTH 10

typedef double vector __attribute__((vector_size(32)));

static volatile double sink;

TRUTH_FRAME double inner(const double *p, int n)
{
        double s = 0;

        for (int k = 0; k < 4000; k++)
                for (int i = 0; i < n; i++) {
                        s += p[i] * p[i];
                        __asm__ volatile("" : "+x"(s));
                }
        return s;
}

TRUTH_FRAME double grows(int n, int depth)
{
        vector v[16] __attribute__((aligned(64)));
        volatile char *more = alloca((size_t)n * 3 + 16);
        double r;

        more[n] = (char)n;
        for (int i = 0; i < 16; i++)
                v[i] = (vector){i, more[n], n, depth};
        __asm__ volatile("" : : "r"(v), "r"(more) : "memory");
        r = depth ? grows(n + 1, depth - 1) : inner((const double *)v, 64);
        return r + v[3][1] + more[n];
}

/* Realigned, of a fixed size. */
TRUTH_FRAME double aligned(int n)
{
        vector v[4] __attribute__((aligned(64)));

        v[0] = (vector){n, n, n, n};
        __asm__ volatile("" : : "r"(v) : "memory");
        return grows(n, DEPTH) + v[0][2];
}

int main(int argc, char **argv)
{
        double end = truth_deadline(argc, argv);

        printf("pid %d\nchain inner", getpid());
        for (int i = 0; i <= DEPTH; i++)
                printf(";grows");
        printf(";aligned;main;" TRUTH_START "\n");
        TRUTH_CLOCK();
        truth_ready();
        while (truth_now() < end)
                sink = aligned(20);
        return 0;
}
