/* Symbol tables and demangling, each on its own: load time, memory, look-ups and names a second. CPU time,
 * best of rounds. Usage: symbols_bench OBJECT... */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "symbolizer/demangle.h"
#include "symbolizer/symtab.h"

#define ROUNDS  5
#define LOOKUPS 1000000u

static double cpu_ms(void)
{
        struct timespec t;

        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
        return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static uint64_t random_u64(uint64_t *state)
{
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        return *state;
}

static double lookup_ms(const struct symtab *t, const uint64_t *address)
{
        double best = 1e9;
        uint64_t found = 0;
        struct symbol s;

        for (int round = 0; round < ROUNDS; round++) {
                double start = cpu_ms();

                for (uint32_t i = 0; i < LOOKUPS; i++)
                        found += symtab_find(t, address[i], &s);
                best = MIN_OF(best, cpu_ms() - start);
        }
        if (found < LOOKUPS)
                printf("(%lu of %u found) ", found, LOOKUPS);
        return best;
}

static double demangle_rate(const struct symtab *t, uint32_t n, uint32_t *ret_names)
{
        char text[DEMANGLE_MAX];
        double best = 0;

        for (int round = 0; round < ROUNDS; round++) {
                double start = cpu_ms();
                struct symbol s;

                *ret_names = 0;
                for (uint32_t i = 0; i < n; i++)
                        *ret_names += symtab_at(t, i, &s) && demangle(s.name, text);
                best = MAX_OF(best, *ret_names / (cpu_ms() - start));
        }
        return best;
}

static int bench(const char *path)
{
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
        _cleanup_free_ uint64_t *address = malloc(LOOKUPS * sizeof(*address));
        struct elf_image *e;
        struct symtab *t = NULL;
        double load = 1e9;
        uint64_t state = 88172645463325252ull;
        struct symbol s;
        uint32_t n = 0, names;
        int r;

        if (fd < 0 || !address)
                return -errno;
        r = elf_image_open(fd, 0, &e);
        if (r < 0)
                return r;
        for (int round = 0; round < ROUNDS && r == 0; round++) {
                double start = cpu_ms();

                symtab_free(t);
                t = NULL;
                r = symtab_new(&t, &e, 1);
                load = MIN_OF(load, cpu_ms() - start);
        }
        if (r < 0) {
                elf_image_free(e);
                return r;
        }
        while (symtab_at(t, n, &s))
                n++;
        for (uint32_t i = 0; i < LOOKUPS; i++) {
                symtab_at(t, random_u64(&state) % n, &s);
                address[i] = s.start + random_u64(&state) % s.size;
        }

        double per_s = demangle_rate(t, n, &names), lookup = lookup_ms(t, address);

        printf("%-40s %u symbols: load %.1f ms (%.1f ms per 150,000), %.1f bytes each; %.1f M look-ups/s; "
               "%u names at %.0f k/s\n",
               path, n, load, load * 150000 / n, (double)symtab_memory(t) / n, LOOKUPS / lookup / 1e3, names,
               per_s);
        symtab_free(t);
        elf_image_free(e);
        return 0;
}

int main(int argc, char **argv)
{
        if (argc < 2) {
                fprintf(stderr, "usage: symbols_bench OBJECT...\n");
                return 2;
        }
        for (int i = 1; i < argc; i++) {
                int r = bench(argv[i]);

                if (r < 0)
                        printf("%s: %s\n", argv[i], strerror(-r));
        }
        return 0;
}
