/* What a storm is made of. One process, one CPU, until it is killed; says "ready" when it begins, and once a
 * second on a line of its own how many it has made so far.
 *
 *   storm_load processes PROGRAM   starts PROGRAM as fast as it can, waits for each
 *   storm_load objects DIRECTORY   maps every shared object of the directory and runs a function of each in
 * turn storm_load stacks              no two calls come by the same way: 20 levels of two functions each
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_OBJECTS 20000
#define DEPTH       20
#define BURN        300 /* rounds of a call: some microseconds */

#define FRAME __attribute__((noinline))

static volatile uint64_t sink;

static double now(void)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void count(uint64_t made)
{
        static double last;
        double t = now();

        if (t - last < 1)
                return;
        last = t;
        printf("%llu\n", (unsigned long long)made);
        fflush(stdout);
}

static void ready(void)
{
        printf("ready\n");
        fflush(stdout);
}

static int processes(char *program)
{
        char *args[] = {program, NULL}, *env[] = {NULL};
        pid_t pid;

        ready();
        for (uint64_t made = 0;; made++) {
                int r = posix_spawn(&pid, program, NULL, NULL, args, env);
                if (r) {
                        fprintf(stderr, "storm_load: cannot start %s: %s\n", program, strerror(r));
                        return 1;
                }
                if (waitpid(pid, NULL, 0) < 0)
                        return 1;
                count(made);
        }
}

#ifndef STATIC /* cannot load objects */
static int objects(const char *directory)
{
        uint64_t (**work)(uint64_t) = calloc(MAX_OBJECTS, sizeof(*work));
        DIR *d = opendir(directory);
        struct dirent *e;
        uint32_t n = 0;

        if (!work || !d) {
                fprintf(stderr, "storm_load: cannot read %s: %s\n", directory, strerror(errno));
                return 1;
        }
        ready();
        while ((e = readdir(d)) && n < MAX_OBJECTS) {
                char path[4096];
                snprintf(path, sizeof(path), "%s/%s", directory, e->d_name);
                if (!strstr(e->d_name, ".so"))
                        continue;
                void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
                work[n] = object ? (uint64_t(*)(uint64_t))dlsym(object, "storm_work") : NULL;
                if (!work[n]) {
                        fprintf(stderr, "storm_load: cannot load %s: %s\n", path, dlerror());
                        return 1;
                }
                sink = work[n++](sink);
                count(n);
        }
        for (uint32_t i = 0;; i = (i + 1) % n) {
                sink = work[i](sink);
                count(n);
        }
}

#endif

static FRAME uint64_t left(uint64_t way, int depth);

static FRAME uint64_t right(uint64_t way, int depth)
{
        if (depth == 0) {
                uint64_t x = way;
                for (int i = 0; i < BURN; i++)
                        x = x * 6364136223846793005u + 1442695040888963407u;
                return x;
        }
        uint64_t x = way & 1 ? left(way >> 1, depth - 1) : right(way >> 1, depth - 1);
        return x ^ (uint64_t)depth;
}

static FRAME uint64_t left(uint64_t way, int depth)
{
        if (depth == 0)
                return right(way, 0);
        uint64_t x = way & 1 ? left(way >> 1, depth - 1) : right(way >> 1, depth - 1);
        return x + (uint64_t)depth;
}

static int stacks(void)
{
        ready();
        for (uint64_t made = 0; made < UINT64_MAX; made++) {
                sink = right(made * 0x9e3779b97f4a7c15u >> 20, DEPTH);
                if (made % 1024 == 0)
                        count(made);
        }
        return 0;
}

int main(int argc, char **argv)
{
        if (argc == 3 && strcmp(argv[1], "processes") == 0)
                return processes(argv[2]);
#ifndef STATIC
        if (argc == 3 && strcmp(argv[1], "objects") == 0)
                return objects(argv[2]);
#endif
        if (argc == 2 && strcmp(argv[1], "stacks") == 0)
                return stacks();
        fprintf(stderr, "usage: storm_load processes PROGRAM | objects DIRECTORY | stacks\n");
        return 2;
}
