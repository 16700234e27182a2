/* Costs of the profile model and its codecs on synthetic hosts: sizes and CPU time.
 *
 *   profile_bench window   one 60 s window: bytes a sample, encode, decode
 *   profile_bench day      24 files of one hour: read, merge, and sum up by function
 *   profile_bench make DIR [SAMPLES] N   writes N windows into DIR
 *   profile_bench read FILE... reads and merges files, and sums up by function */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/io.h"
#include "profile/pprof.h"
#include "profile/table.h"
#include "tests/profile/synthetic.h"

#define START_NS INT64_C(1764554400000000000)

static double cpu_seconds(void)
{
        struct timespec t;

        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
        return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int fail(const char *what, int r)
{
        fprintf(stderr, "profile_bench: %s: %s\n", what, strerror(-r));
        return 1;
}

static int new_host(struct synthetic **ret)
{
        return synthetic_new(ret, &(struct synthetic_options){.seed = 1,
                                                              .n_programs = 12,
                                                              .n_processes = 40,
                                                              .n_functions = 1500});
}

static int bench_window(uint32_t samples)
{
        _cleanup_synthetic_ struct synthetic *s = NULL;
        _cleanup_profile_ struct profile *p = NULL;
        _cleanup_buf_ struct buf plain = {0}, gz = {0};

        int r = new_host(&s);
        if (r == 0)
                r = synthetic_profile(s, 0, samples, START_NS, INT64_C(60000000000), &p);
        if (r == 0)
                r = pprof_write(p, false, &plain);
        double t0 = cpu_seconds();
        if (r == 0)
                r = pprof_write(p, true, &gz);
        double t1 = cpu_seconds();
        struct profile *back = NULL;
        if (r == 0)
                r = pprof_read(gz.data, gz.len, 0, &back, NULL);
        double t2 = cpu_seconds();
        if (r < 0)
                return fail("window", r);
        printf("window of %u samples: %u rows, %.1f frames a row, %u locations\n", samples, p->n_samples,
               (double)p->n_sample_locations / p->n_stacks, p->n_locations);
        printf("  %zu bytes plain, %zu gzip: %.1f bytes a sample, %.1f a row\n", plain.len, gz.len,
               (double)gz.len / samples, (double)gz.len / p->n_samples);
        printf("  encode %.1f ms (%.1f a thousand samples), decode %.1f ms\n", (t1 - t0) * 1e3,
               (t1 - t0) * 1e6 / samples, (t2 - t1) * 1e3);
        profile_free(back);
        return 0;
}

static int bench_day(uint32_t samples)
{
        _cleanup_synthetic_ struct synthetic *s = NULL;
        _cleanup_profile_ struct profile *day = NULL;
        _cleanup_table_ struct table *t = NULL;
        struct buf file[24] = {0};
        double read = 0, start;
        uint64_t rows = 0, bytes = 0;

        int r = new_host(&s);
        for (uint64_t h = 0; r == 0 && h < 24; h++) {
                _cleanup_profile_ struct profile *p = NULL;
                r = synthetic_profile(s, h, samples, START_NS + (int64_t)h * INT64_C(3600000000000),
                                      INT64_C(3600000000000), &p);
                if (r == 0)
                        r = pprof_write(p, true, &file[h]);
                if (r == 0) {
                        rows += p->n_samples;
                        bytes += file[h].len;
                }
        }
        if (r == 0)
                r = profile_new(&day);
        for (int h = 0; r == 0 && h < 24; h++) {
                start = cpu_seconds();
                r = pprof_merge(file[h].data, file[h].len, 0, NULL, day, NULL);
                read += cpu_seconds() - start;
        }
        start = cpu_seconds();
        if (r == 0)
                r = table_new(&t, day,
                              &(struct table_options){.keys = TABLE_SYMBOL | TABLE_OBJECT, .type = 1});
        double table = cpu_seconds() - start;
        if (r < 0)
                return fail("day", r);
        printf("day of 24 files: %" PRIu64 " rows, %" PRIu64
               " bytes; merged %u rows, %u stacks, %u locations\n",
               rows, bytes, day->n_samples, day->n_stacks, day->n_locations);
        printf("  read and merge %.3f s, table of %u functions %.3f s: %.3f s\n", read, t->n, table,
               read + table);
        for (int h = 0; h < 24; h++)
                buf_free(&file[h]);
        return 0;
}

static int make_files(const char *directory, uint32_t n, uint32_t samples)
{
        _cleanup_synthetic_ struct synthetic *s = NULL;

        int r = new_host(&s);
        for (uint32_t i = 0; r == 0 && i < n; i++) {
                _cleanup_profile_ struct profile *p = NULL;
                char path[4096];
                r = synthetic_profile(s, i, samples, START_NS + i * INT64_C(60000000000),
                                      INT64_C(60000000000), &p);
                snprintf(path, sizeof(path), "%s/%u.pb.gz", directory, i);
                if (r == 0)
                        r = pprof_write_file(p, path);
        }
        return r < 0 ? fail("make", r) : 0;
}

static int bench_files(char **path, int n)
{
        _cleanup_profile_ struct profile *p = NULL;
        _cleanup_table_ struct table *t = NULL;
        const char *error = NULL;
        uint64_t size = 0;
        double start = cpu_seconds();

        int r = profile_new(&p);
        for (int i = 0; r == 0 && i < n; i++) {
                _cleanup_buf_ struct buf file = {0};
                r = read_file(path[i], SIZE_MAX / 4, &file);
                if (r == 0)
                        r = pprof_merge(buf_text(&file), file.len, 0, NULL, p, &error);
                size += file.len;
        }
        double read = cpu_seconds() - start;
        if (r == 0)
                r = table_new(&t, p,
                              &(struct table_options){.keys = TABLE_SYMBOL | TABLE_OBJECT,
                                                      .type = profile_default_type(p)});
        if (r < 0)
                return fail(error ? error : "read", r);
        printf("%d files, %" PRIu64 " bytes; merged %u rows, %u stacks, %u locations\n", n, size,
               p->n_samples, p->n_stacks, p->n_locations);
        printf("  read and merge %.3f s, table of %u functions %.3f s\n", read, t->n,
               cpu_seconds() - start - read);
        return 0;
}

int main(int argc, char **argv)
{
        uint32_t n = argc > 2 ? (uint32_t)strtoul(argv[argc - 1], NULL, 10) : 0;

        if (argc >= 2 && !strcmp(argv[1], "window"))
                return bench_window(n ? n : 20000);
        if (argc >= 2 && !strcmp(argv[1], "day"))
                return bench_day(n ? n : 100000);
        if (argc >= 4 && !strcmp(argv[1], "make"))
                return make_files(argv[2], n, argc > 4 ? (uint32_t)strtoul(argv[3], NULL, 10) : 20000);
        if (argc >= 3 && !strcmp(argv[1], "read"))
                return bench_files(argv + 2, argc - 2);
        fprintf(stderr, "usage: profile_bench window|day [SAMPLES] | make DIR [SAMPLES] N | read FILE...\n");
        return 2;
}
