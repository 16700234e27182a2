/* cfi_check [-n ROWS] [-p DIFFERENCES] [-q] FILE...: the unwind tables of files against libdw, with their
 * figures. Names of files may also come one a line on stdin ("-"). Exit 1 when a row differs. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "tests/symbolizer/cfi_oracle.h"

#define SLOTS (1u << 20)

struct totals {
        uint64_t files, without, unreadable, fdes, rows, differ, refused, unsupported, bad;
        uint64_t eh_bytes, table_rows, table_bytes, text_functions, n_rules;
        double ms;
        uint64_t max_rows;
        uint32_t print;
        bool quiet;
        uint64_t *slot; /* distinct rules of all files */
};

static void count_rule(struct totals *t, const struct unwind_rule *rule)
{
        uint64_t bits;
        uint32_t at;

        memcpy(&bits, rule, sizeof(bits));
        for (at = (uint32_t)(bits * 0x9e3779b97f4a7c15ull >> 44); t->slot[at]; at = (at + 1) % SLOTS)
                if (t->slot[at] == bits)
                        return;
        t->slot[at] = bits;
        t->n_rules++;
}

static void check(struct totals *t, const char *path)
{
        struct cfi_oracle_result r;
        int k = cfi_oracle_compare(path, t->max_rows, t->print, &r);

        if (k == -ENODATA || k == -ENOEXEC) {
                t->without++;
                return;
        }
        if (k < 0) {
                t->unreadable++;
                printf("%s: %s\n", path, strerror(-k));
                return;
        }
        t->files++;
        t->fdes += r.fdes;
        t->rows += r.rows;
        t->differ += r.differ;
        t->refused += r.refused;
        t->unsupported += r.unsupported;
        t->bad += r.table->bad_fdes;
        t->eh_bytes += r.eh_bytes;
        t->table_rows += r.table->n_rows;
        t->table_bytes += r.table->n_rows * 4ull + r.table->n_pages * 8ull;
        t->ms += r.build_ms;
        for (uint32_t i = 0; i < r.table->n_rules; i++)
                count_rule(t, &r.table->rule[i]);
        if (!t->quiet || r.differ || r.refused || r.table->bad_fdes)
                printf("%s: %" PRIu64 " functions, %" PRIu64 " rows compared, %" PRIu64 " differ, %" PRIu64
                       " refused, %" PRIu64
                       " unsupported, %u damaged; table %u rows, %u rules, %.2f ms, %.0f MB/s\n",
                       path, r.fdes, r.rows, r.differ, r.refused, r.unsupported, r.table->bad_fdes,
                       r.table->n_rows, r.table->n_rules, r.build_ms, (double)r.eh_bytes / 1e3 / r.build_ms);
        cfi_table_free(r.table);
}

int main(int argc, char **argv)
{
        struct totals t = {.print = 4};
        int option;

        while ((option = getopt(argc, argv, "n:p:q")) != -1)
                switch (option) {
                case 'n':
                        t.max_rows = strtoull(optarg, NULL, 10);
                        break;
                case 'p':
                        t.print = (uint32_t)strtoul(optarg, NULL, 10);
                        break;
                case 'q':
                        t.quiet = true;
                        break;
                default:
                        fprintf(stderr, "usage: %s [-n ROWS] [-p DIFFERENCES] [-q] FILE...|-\n", argv[0]);
                        return 2;
                }
        t.slot = calloc(SLOTS, sizeof(*t.slot));
        if (!t.slot)
                return 2;
        for (int i = optind; i < argc; i++) {
                _cleanup_free_ char *line = NULL;
                size_t size = 0;

                if (strcmp(argv[i], "-") != 0) {
                        check(&t, argv[i]);
                        continue;
                }
                while (getline(&line, &size, stdin) > 0) {
                        line[strcspn(line, "\n")] = 0;
                        check(&t, line);
                }
        }
        printf("%" PRIu64 " files (%" PRIu64 " without, %" PRIu64 " unreadable): %" PRIu64
               " functions, %" PRIu64 " rows compared, %" PRIu64 " differ, %" PRIu64
               " refused by libdw, %" PRIu64 " unsupported, %" PRIu64
               " damaged; .eh_frame %.1f MB in %.0f ms (%.0f MB/s), %" PRIu64 " rows, %.1f MB, %" PRIu64
               " rules\n",
               t.files, t.without, t.unreadable, t.fdes, t.rows, t.differ, t.refused, t.unsupported, t.bad,
               (double)t.eh_bytes / 1e6, t.ms, (double)t.eh_bytes / 1e3 / (t.ms > 0 ? t.ms : 1),
               t.table_rows, (double)t.table_bytes / 1e6, t.n_rules);
        free(t.slot);
        return t.differ || t.unreadable ? 1 : 0;
}
