/* A program with something to find: most of its time goes into one function that a profile names at once. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define N 4096

static inline double distance(const double *a, const double *b)
{
        double dx = a[0] - b[0], dy = a[1] - b[1];

        return sqrt(dx * dx + dy * dy);
}

/* Compares every point with every other: the part worth making faster. */
__attribute__((noinline)) static double nearest_pair(double (*points)[2], int n)
{
        double best = 1e9;

        for (int i = 0; i < n; i++)
                for (int k = i + 1; k < n; k++) {
                        double d = distance(points[i], points[k]);
                        if (d < best)
                                best = d;
                }
        return best;
}

static int by_x(const void *a, const void *b)
{
        double x = *(const double *)a, y = *(const double *)b;

        return (x > y) - (x < y);
}

__attribute__((noinline)) static void make_points(double (*points)[2], int n)
{
        for (int i = 0; i < n; i++) {
                points[i][0] = rand() / (double)RAND_MAX;
                points[i][1] = rand() / (double)RAND_MAX;
        }
        qsort(points, (size_t)n, sizeof(*points), by_x);
}

int main(void)
{
        static double points[N][2];
        double sum = 0;
        time_t end = time(NULL) + 5;

        while (time(NULL) < end) {
                make_points(points, N);
                sum += nearest_pair(points, N);
        }
        printf("%g\n", sum);
        return 0;
}
