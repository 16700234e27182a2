/* The symbolizer's worker as its client sees it: start, first answer, round trips, names and unwind tables a
 * second, memory, restart after a kill. Usage: symbolizer_bench OBJECT [ADDRESSES] */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "symbolizer/client.h"

#define BATCH 1000u

struct tally {
        int err;
        uint32_t named, with_line, frames, rows;
};

static void on_open(void *ctx, int err, struct symobj *obj, const struct sym_info *info)
{
        ((struct tally *)ctx)->err = err;
}

static void on_table(void *ctx, int err, const struct sym_table *table)
{
        struct tally *t = ctx;

        t->err = err;
        t->rows = table ? table->n_rows : 0;
}

static void on_names(void *ctx, int err, const struct sym_result *results, uint32_t n)
{
        struct tally *t = ctx;

        t->err = err;
        for (uint32_t i = 0; i < n; i++) {
                t->named += results[i].n > 0;
                t->with_line += results[i].n > 0 && results[i].frame[0].line > 0;
                t->frames += results[i].n;
        }
}

static double ms_since(uint64_t start)
{
        return (now_monotonic_ns() - start) / 1e6;
}

static double cpu_ms(struct symclient *c)
{
        struct symclient_stats s;

        symclient_stats(c, &s);
        return s.cpu_ns / 1e6;
}

static double memory_mib(struct symclient *c)
{
        struct symclient_stats s;

        symclient_stats(c, &s);
        return s.memory / 1048576.0;
}

static struct symobj *open_object(struct symclient *c, const char *path, struct tally *t)
{
        struct sym_source source = {.path = path};
        int fd = open(path, O_RDONLY | O_CLOEXEC);

        return fd < 0 ? NULL : symclient_open(c, fd, &source, on_open, t);
}

static void ask(struct symclient *c, struct symobj *o, const uint64_t *address, uint32_t n, const char *what)
{
        struct tally t = {};
        double cpu = cpu_ms(c);
        uint64_t start = now_monotonic_ns();

        for (uint32_t i = 0; i < n; i += BATCH)
                symclient_names(c, o, address + i, MIN_OF(n - i, BATCH), on_names, &t);
        symclient_wait(c, 600000);

        double wall = ms_since(start), used = cpu_ms(c) - cpu;

        printf("  %s: %u addresses, %u named, %u with a line, %.2f frames each: %.1f ms, worker CPU %.1f ms "
               "= %.0f "
               "k/s; worker %.1f MiB\n",
               what, n, t.named, t.with_line, t.named ? (double)t.frames / t.named : 0, wall, used, n / used,
               memory_mib(c));
}

static double own_cpu_ms(void)
{
        struct timespec t;

        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
        return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

/* Fills a cache on disk, and names the same addresses with a new client. */
static int restart(const char *path, const uint64_t *address, uint32_t n)
{
        char dir[] = "/tmp/symbolizer-bench.XXXXXX", command[64];
        struct symclient_options options = {.cache_dir = dir};

        if (!mkdtemp(dir))
                return 1;
        for (int i = 0; i < 2; i++) {
                struct symclient_stats stats;
                struct tally t = {};
                struct symclient *c;
                struct symobj *o;
                double cpu = own_cpu_ms();

                if (symclient_new(&c, &options) < 0)
                        return 1;
                o = open_object(c, path, &t);
                symclient_table(c, o, on_table, &t);
                for (uint32_t k = 0; k < n; k += BATCH)
                        symclient_names(c, o, address + k, MIN_OF(n - k, BATCH), on_names, &t);
                symclient_wait(c, 600000);
                symobj_close(c, o);
                symclient_stats(c, &stats);
                symclient_free(c);
                printf("  with the disk %s: table and %u names, CPU %.1f ms in the client and %.1f ms in "
                       "the worker; "
                       "%lu KiB on disk\n",
                       i ? "warm" : "cold", t.named, own_cpu_ms() - cpu, stats.cpu_ns / 1e6,
                       (unsigned long)stats.cache_bytes >> 10);
        }
        snprintf(command, sizeof(command), "rm -r %s", dir);
        return system(command) != 0;
}

int main(int argc, char **argv)
{
        uint32_t n = argc > 2 ? (uint32_t)atoi(argv[2]) : 10000;
        _cleanup_free_ uint64_t *address = malloc((n + 1) * sizeof(*address));
        struct tally t = {};
        struct symclient *c;
        struct symobj *o;
        uint64_t start, seed = 88172645463325252ull;
        double best = 1e9, cpu;

        if (argc < 2 || !address || n == 0) {
                fprintf(stderr, "usage: symbolizer_bench OBJECT [ADDRESSES]\n");
                return 2;
        }
        for (int i = 0; i < 10; i++) {
                start = now_monotonic_ns();
                if (symclient_new(&c, NULL) < 0)
                        return 1;
                o = open_object(c, argv[1], &t);
                if (!o || symclient_wait(c, 60000) < 0 || t.err < 0) {
                        fprintf(stderr, "%s: %s\n", argv[1], strerror(o ? -t.err : errno));
                        return 1;
                }
                best = MIN_OF(best, ms_since(start));
                if (i < 9) {
                        symobj_close(c, o);
                        symclient_free(c);
                }
        }
        printf("%s\n  worker started and object opened: %.2f ms (best of 10), worker CPU %.2f ms, %.1f "
               "MiB\n",
               argv[1], best, cpu_ms(c), memory_mib(c));

        start = now_monotonic_ns();
        cpu = cpu_ms(c);
        symclient_table(c, o, on_table, &t);
        symclient_wait(c, 60000);
        printf("  unwind table: %u rows in %.1f ms, worker CPU %.1f ms; worker %.1f MiB\n", t.rows,
               ms_since(start), cpu_ms(c) - cpu, memory_mib(c));

        const struct sym_info *info = symobj_info(o);
        const struct sym_segment *text = &info->segment[0];

        for (uint32_t i = 1; i < info->n_segments; i++)
                if (info->segment[i].filesz > text->filesz)
                        text = &info->segment[i];

        for (uint32_t i = 0; i < n; i++) {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                address[i] = text->vaddr + seed % text->filesz;
        }
        ask(c, o, address, 1, "first address");
        ask(c, o, address, n, "cold");
        ask(c, o, address, n, "warm");
        start = now_monotonic_ns();
        for (int i = 0; i < 1000; i++) {
                symclient_names(c, o, address, 1, on_names, &t);
                symclient_wait(c, 60000);
        }
        printf("  round trip of one address: %.1f us\n", ms_since(start));
        symobj_close(c, o);
        symclient_free(c);
        return restart(argv[1], address, n);
}
