/* Prints the inline chain of every address read from standard input, as `addr2line -afi` lays it out: for
 * the tests that compare it with other readers, and for benchmarks.
 *
 *   dwarf_lookup [-d DWP] [-a ALT] [-w DIRECTORY OF DWO FILES] [-r ROUNDS] [-s] [-q] [-m BYTES] FILE <
 * ADDRESSES
 *
 *   -s  statistics on standard error    -q  no output
 *
 * A function is printed as "NAME<tab>SHORT NAME". */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/io.h"
#include "base/parse.h"
#include "symbolizer/dwarf_index.h"

#define INFLATE_BUDGET (4ull << 30)
#define MAX_DWOS       4096
#define MAX_FRAMES     64

struct dwo_files {
        const char *dir;
        struct elf_image *image[MAX_DWOS];
        uint32_t n;
};

static int open_image(const char *path, struct elf_image **ret)
{
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
        int r = fd < 0 ? -errno : elf_image_open(fd, INFLATE_BUDGET, ret);

        if (r < 0)
                fprintf(stderr, "%s: %s\n", path, strerror(-r));
        return r;
}

static struct elf_image *find_dwo(void *ctx, const char *comp_dir, const char *name, uint64_t dwo_id)
{
        struct dwo_files *f = ctx;
        char path[8192];

        if (name[0] == '/')
                snprintf(path, sizeof(path), "%s", name);
        else
                snprintf(path, sizeof(path), "%s/%s", f->dir ? f->dir : comp_dir ? comp_dir : ".", name);
        if (f->n == MAX_DWOS || open_image(path, &f->image[f->n]) < 0)
                return NULL;
        return f->image[f->n++];
}

static double cpu_seconds(void)
{
        struct timespec t;

        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
        return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void print(uint64_t address, const struct dwarf_frame *f, int n)
{
        printf("0x%llx\n", (unsigned long long)address);
        for (int i = 0; i < n; i++) {
                printf("%s\t%s\n%s:%u\n", f[i].name ? f[i].name : "??",
                       f[i].short_name ? f[i].short_name : "??", f[i].file ? f[i].file : "??", f[i].line);
        }
        if (n <= 0)
                printf("??\t??\n??:0\n");
}

static int read_addresses(uint64_t **ret, size_t *ret_n)
{
        _cleanup_free_ uint64_t *a = NULL;
        unsigned long long v;
        size_t n = 0, cap = 0;

        while (scanf("%llx", &v) == 1) {
                if (n == cap) {
                        uint64_t *grown = realloc(a, (cap = cap * 2 + 1024) * sizeof(*a));
                        if (!grown)
                                return -ENOMEM;
                        a = grown;
                }
                a[n++] = v;
        }
        *ret = TAKE_PTR(a);
        *ret_n = n;
        return 0;
}

static void look_up_all(struct dwarf_index *d, const uint64_t *a, size_t n, bool quiet)
{
        struct dwarf_frame f[MAX_FRAMES];

        for (size_t i = 0; i < n; i++) {
                int k = dwarf_index_find(d, a[i], f, ARRAY_SIZE(f));

                if (k < 0)
                        fprintf(stderr, "0x%llx: %s\n", (unsigned long long)a[i], strerror(-k));
                if (!quiet)
                        print(a[i], f, k);
        }
}

int main(int argc, char **argv)
{
        struct dwo_files dwos = {0};
        struct dwarf_sources sources = {.find_dwo = find_dwo,
                                        .ctx = &dwos,
                                        .max_memory = 4ull << 30,
                                        .max_dies = 1ull << 40};
        struct dwarf_index *d = NULL;
        struct dwarf_stats stats;
        _cleanup_free_ uint64_t *address = NULL;
        size_t n = 0;
        int opt, rounds = 1;
        bool quiet = false, statistics = false;
        double t0, t1;

        while ((opt = getopt(argc, argv, "a:d:w:r:m:qs")) != -1) {
                switch (opt) {
                case 'a':
                        if (open_image(optarg, &sources.alt) < 0)
                                return 1;
                        break;
                case 'd':
                        if (open_image(optarg, &sources.dwp) < 0)
                                return 1;
                        break;
                case 'w':
                        dwos.dir = optarg;
                        break;
                case 'r':
                        rounds = atoi(optarg);
                        break;
                case 'm':
                        if (parse_size(optarg, &sources.max_memory) < 0)
                                return 2;
                        break;
                case 'q':
                        quiet = true;
                        break;
                case 's':
                        statistics = true;
                        break;
                default:
                        return 2;
                }
        }
        if (optind >= argc || read_addresses(&address, &n) < 0)
                return 2;

        t0 = cpu_seconds();
        if (open_image(argv[optind], &sources.main) < 0)
                return 1;
        if (dwarf_index_new(&d, &sources) < 0) {
                fprintf(stderr, "%s: no DWARF that can be read\n", argv[optind]);
                return 1;
        }
        t1 = cpu_seconds();
        if (statistics)
                fprintf(stderr, "open %.1f ms\n", (t1 - t0) * 1e3);
        for (int i = 0; i < rounds; i++) {
                t0 = cpu_seconds();
                look_up_all(d, address, n, quiet || i > 0);
                t1 = cpu_seconds();
                if (statistics)
                        fprintf(stderr, "round %d: %zu addresses in %.1f ms, %.0f/s\n", i + 1, n,
                                (t1 - t0) * 1e3, (double)n / (t1 - t0));
        }
        if (statistics) {
                struct rusage u;

                getrusage(RUSAGE_SELF, &u);
                dwarf_index_stats(d, &stats);
                fprintf(stderr, "index %.1f MB, %llu of %llu units walked, work %llu, peak RSS %.1f MB\n",
                        (double)stats.memory / 1e6, (unsigned long long)stats.walked,
                        (unsigned long long)stats.units, (unsigned long long)stats.work,
                        (double)u.ru_maxrss / 1e3);
        }
        dwarf_index_free(d);
        for (uint32_t i = 0; i < dwos.n; i++)
                elf_image_free(dwos.image[i]);
        elf_image_free(sources.alt);
        elf_image_free(sources.dwp);
        elf_image_free(sources.main);
        return 0;
}
