/* From the C library back into the program: its frames, which keep no frame pointer, in the middle of a
 * chain. */
#include <search.h>
#include <string.h>

#include "tests/programs/truth.h"

#define N 5000

static volatile uint64_t sink;

static int compare(const void *a, const void *b)
{
        int x = *(const int *)a, y = *(const int *)b;

        return (x > y) - (x < y);
}

static void visit(const void *node, VISIT which, int depth)
{
        uint64_t x = (uint64_t)depth;

        TRUTH_BURN(x, 50);
        sink = x;
}

TRUTH_FRAME void sorts(int *a)
{
        for (int i = 0; i < N; i++)
                a[i] = (int)((uint32_t)i * 2654435761u >> 8);
        qsort(a, N, sizeof(*a), compare);
        TRUTH_KEEP();
}

TRUTH_FRAME void walks(const void *root)
{
        twalk(root, visit);
        TRUTH_KEEP();
}

int main(int argc, char **argv)
{
        double end = truth_deadline(argc, argv);
        static int a[N];
        void *root = NULL;

        sorts(a);
        for (int i = 0; i < N; i += 7)
                tsearch(&a[i], &root, compare);
        printf("pid %d\n", getpid());
        printf("chain compare;*;sorts;main;" TRUTH_START "\n");
        printf("chain visit;*;walks;main;" TRUTH_START "\n");
        printf("chain *;sorts;main;" TRUTH_START "\n"); /* the library's own work */
        printf("chain *;walks;main;" TRUTH_START "\n");
        TRUTH_CLOCK();
        truth_ready();
        while (truth_now() < end) {
                sorts(a);
                walks(root);
        }
        return 0;
}
