/* CPU time and peak memory of a query over a store: store_query DIRECTORY SINCE UNTIL [NAME=VALUE]...
 * [processes], times in seconds since the epoch, selections as in the API; with or without the labels of
 * single processes. Prints one line. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/cleanup.h"
#include "daemon/store.h"
#include "profile/profile.h"

static double cpu_s(void)
{
        struct timespec t;

        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
        return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
        struct store_config config = {.directory = argc > 1 ? argv[1] : NULL};
        struct selection sel = selection_any();
        struct store_window *w;
        struct rusage usage;
        struct store *store;
        struct profile *p;
        uint32_t n;

        if (argc < 4) {
                fprintf(stderr, "usage: store_query DIRECTORY SINCE UNTIL [NAME=VALUE]... [processes]\n");
                return 2;
        }
        bool processes = argc > 4 && strcmp(argv[argc - 1], "processes") == 0;
        for (int i = 4; i < argc - processes; i++) {
                char *value = strchr(argv[i], '=');
                if (value)
                        *value++ = 0;
                if (!value || selection_set(&sel, argv[i], value) < 0)
                        return 2;
        }
        uint64_t since = strtoull(argv[2], NULL, 10) * NSEC_PER_SEC,
                 until = strtoull(argv[3], NULL, 10) * NSEC_PER_SEC;
        double begin = cpu_s();
        if (store_open(&store, &config) < 0)
                return 1;
        double opened = cpu_s();
        if (store_list(store, since, until, &w, &n) < 0)
                return 1;
        int r = store_query(store, since, until, &sel, processes, &p);
        if (r < 0) {
                fprintf(stderr, "store_query: %s\n", strerror(-r));
                return 1;
        }
        double end = cpu_s();
        int64_t samples = 0;
        int type = profile_find_type(p, "samples");
        for (uint32_t i = 0; type >= 0 && i < p->n_samples; i++)
                samples += profile_values(p, i)[type];
        getrusage(RUSAGE_SELF, &usage);
        printf("windows %u open_cpu_s %.3f query_cpu_s %.3f rows %u samples %" PRId64 " peak_mib %.1f\n", n,
               opened - begin, end - opened, p->n_samples, samples, (double)usage.ru_maxrss / 1024);
        free(w);
        profile_free(p);
        store_free(store);
        return 0;
}
