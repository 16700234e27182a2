/* pprof files: whatever the bytes say, what is read is a sound model, equal bytes are written of it again
 * and again, and everything that is made of profiles takes it. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "profile/diff.h"
#include "profile/export.h"
#include "profile/limit.h"
#include "profile/pprof.h"
#include "profile/table.h"
#include "profile/weight.h"
#include "tests/fuzz/fuzz.h"

#define MAX_BYTES (4u << 20)

#define REQUIRE(condition)        \
        do {                      \
                if (!(condition)) \
                        abort();  \
        } while (0)

static void check_model(const struct profile *p)
{
        REQUIRE(p->n_types > 0 && p->n_types <= PROFILE_MAX_TYPES && p->string[0][0] == 0);
        for (uint32_t i = 1; i < p->n_locations; i++) {
                const struct profile_location *l = &p->location[i];
                REQUIRE(l->mapping < p->n_mappings && (uint64_t)l->first_line + l->n_lines <= p->n_lines);
                for (uint32_t k = 0; k < l->n_lines; k++) {
                        uint32_t f = p->line[l->first_line + k].function;
                        REQUIRE(f > 0 && f < p->n_functions && p->function[f].name < p->n_strings);
                }
        }
        for (uint32_t i = 0; i < p->n_samples; i++) {
                const struct profile_sample *s = &p->sample[i];
                REQUIRE(s->stack < p->n_stacks && s->label_set < p->n_label_sets);
                REQUIRE((uint64_t)s->first_location + s->n_locations <= p->n_sample_locations);
                REQUIRE((uint64_t)s->first_label + s->n_labels <= p->n_labels);
                for (uint32_t k = 0; k < s->n_locations; k++) {
                        uint32_t l = p->sample_location[s->first_location + k];
                        REQUIRE(l > 0 && l < p->n_locations);
                }
                for (uint32_t k = 0; k < s->n_labels; k++)
                        REQUIRE(p->label[s->first_label + k].key < p->n_strings &&
                                p->label[s->first_label + k].str < p->n_strings);
        }
}

static void check_bytes(const struct profile *p)
{
        _cleanup_profile_ struct profile *again = NULL, *merged = NULL;
        _cleanup_buf_ struct buf first = {0}, second = {0};

        REQUIRE(pprof_write(p, false, &first) == 0);
        REQUIRE(pprof_read(first.data, first.len, 0, &again, NULL) == 0);
        REQUIRE(again->n_samples == p->n_samples);
        REQUIRE(pprof_write(again, false, &second) == 0);
        REQUIRE(first.len == second.len && memcmp(first.data, second.data, first.len) == 0);
        REQUIRE(profile_new(&merged) == 0);
        REQUIRE(pprof_merge(first.data, first.len, 0, NULL, merged, NULL) == 0);
        REQUIRE(merged->n_samples == p->n_samples);
        int r = pprof_merge(first.data, first.len, 0, NULL, merged, NULL);
        REQUIRE(r == 0 || r == -7 /* E2BIG: twice the comments */);
        if (r == 0)
                REQUIRE(merged->n_samples == p->n_samples);
}

static int64_t count_records(const struct profile *p, uint32_t type)
{
        struct weight w = weight_of_type(p, type);
        int64_t sum = 0;

        for (uint32_t i = 0; i < p->n_samples && sum < 1000; i++) {
                int64_t n = weight_samples(&w, profile_values(p, i));
                sum += n > 1000 ? 1000 : n > 0 ? n : 0;
        }
        return sum;
}

static void use(const struct profile *p)
{
        struct export_options o = {.type = profile_default_type(p)};
        struct table_options t = {.keys = TABLE_SYMBOL | TABLE_OBJECT | TABLE_LINE | TABLE_COMM | TABLE_PID,
                                  .type = o.type};
        _cleanup_table_ struct table *table = NULL, *edges = NULL;
        _cleanup_profile_ struct profile *small = NULL;
        _cleanup_diff_ struct diff *d = NULL;

        for (int f = 0; f < EXPORT_FORMATS; f++) {
                _cleanup_buf_ struct buf b = {0};
                if (f == EXPORT_PPROF || (f == EXPORT_PERF_SCRIPT && count_records(p, o.type) >= 1000))
                        continue;
                REQUIRE(export_profile((enum export_format)f, p, &o, &b) == 0);
        }
        REQUIRE(table_new(&table, p, &t) == 0);
        if (table->n && table->row[0].symbol)
                REQUIRE(table_edges(&edges, p, &t, TABLE_CALLERS, table->row[0].symbol, NULL) == 0);
        REQUIRE(profile_limit(p, 2, 200, &small) == 0);
        REQUIRE(diff_new(&d, p, small, &(struct diff_options){.by = DIFF_FUNCTION}) == 0);
}

/* Those of one process name only, without the labels of processes: what is passed over is not looked at, so
 * damage there may not show. */
static void choose(const uint8_t *data, size_t size)
{
        _cleanup_profile_ struct profile *chosen = NULL;
        struct selection sel = selection_any();
        const struct pprof_choice choice = {.selection = &sel, .no_processes = true};

        sel.comm = "postgres";
        REQUIRE(profile_new(&chosen) == 0);
        if (pprof_merge(data, size, MAX_BYTES, &choice, chosen, NULL) < 0)
                return;
        check_model(chosen);
        check_bytes(chosen);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        _cleanup_profile_ struct profile *p = NULL;
        const char *error = NULL;
        /* In memory of its own size, so that a byte read behind the input is seen. */
        _cleanup_free_ uint8_t *copy = malloc(size ? size : 1);

        REQUIRE(copy);
        if (size)
                memcpy(copy, data, size);
        choose(copy, size);
        int r = pprof_read(copy, size, MAX_BYTES, &p, &error);
        if (r < 0) {
                REQUIRE(error && *error);
                return 0;
        }
        check_model(p);
        check_bytes(p);
        use(p);
        return 0;
}
