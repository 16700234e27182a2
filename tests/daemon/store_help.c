#include "store_help.h"

#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

static void must(int64_t r, const char *what)
{
        if (r < 0) {
                fprintf(stderr, "%s: %s\n", what, strerror((int)-r));
                abort();
        }
}

void help_directory(char path[64])
{
        strcpy(path, "/tmp/profd-test-XXXXXX");
        if (!mkdtemp(path))
                abort();
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
        return remove(path);
}

void help_remove(const char *path)
{
        nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static uint32_t add_frame(struct profile *p, const char *prefix, uint32_t i)
{
        char name[64];

        snprintf(name, sizeof(name), "%sfunction_%u", prefix, i);
        int64_t s = profile_string(p, name);
        must(s, "string");
        const struct profile_function f = {.name = (uint32_t)s, .system_name = (uint32_t)s};
        int64_t id = profile_function(p, &f);
        must(id, "function");
        const struct profile_line line = {.function = (uint32_t)id};
        id = profile_location(p, 0, 0x1000 + i, &line, 1);
        must(id, "location");
        return (uint32_t)id;
}

static struct profile_label number(struct profile *p, const char *key, int64_t v)
{
        int64_t k = profile_string(p, key);

        must(k, "key");
        return (struct profile_label){.key = (uint32_t)k, .num = v};
}

static struct profile_label text(struct profile *p, const char *key, const char *v)
{
        int64_t k = profile_string(p, key), s = profile_string(p, v);

        must(k, "key");
        must(s, "text");
        return (struct profile_label){.key = (uint32_t)k, .str = (uint32_t)s};
}

struct profile *help_profile(uint64_t start_s, uint64_t seconds, uint32_t n, uint32_t seed)
{
        struct profile *p;

        must(profile_new(&p), "profile");
        must(profile_type(p, "samples", "count"), "type");
        must(profile_type(p, "cpu", "nanoseconds"), "type");
        for (uint32_t i = 0; i < n; i++) {
                uint32_t x = (seed * 31 + i * 7) % (n > 1000 ? n : 64), ids[3];
                bool secret = i & 1;
                const char *prefix = secret ? "secret_" : "";
                for (uint32_t k = 0; k < ARRAY_SIZE(ids); k++)
                        ids[k] = add_frame(p, prefix, (x >> k) + k * 100);
                const struct profile_label labels[] = {
                                number(p, "pid", 4000 + secret),
                                number(p, "uid", 1000 + secret),
                                text(p, "comm", secret ? "secretd" : "opend"),
                                text(p, "user", secret ? "secretuser" : "openuser"),
                                text(p, "unit", secret ? "secret.service" : "open.service"),
                };
                const int64_t values[] = {1 + x % 3, (1 + x % 3) * 10101010};
                must(profile_sample(p, ids, 3, labels, ARRAY_SIZE(labels), values), "sample");
        }
        p->time_ns = (int64_t)(start_s * SEC);
        p->duration_ns = (int64_t)(seconds * SEC);
        must(profile_comment(p, "host: testhost"), "comment");
        must(profile_comment(p, "lost.counts_full: 2"), "comment");
        must(profile_comment(p, "secret.ledger: 7"), "comment");
        return p;
}

static int compare_lines(const void *a, const void *b)
{
        return strcmp(*(char *const *)a, *(char *const *)b);
}

static void dump_sample(const struct profile *p, uint32_t i, struct buf *b)
{
        const struct profile_sample *s = &p->sample[i];

        for (uint32_t k = 0; k < s->n_locations; k++) {
                const struct profile_location *l = &p->location[p->sample_location[s->first_location + k]];
                for (uint32_t m = 0; m < l->n_lines; m++)
                        buf_addf(b, "%s;",
                                 profile_str(p, p->function[p->line[l->first_line + m].function].name));
        }
        for (uint32_t k = 0; k < s->n_labels; k++) {
                const struct profile_label *l = &p->label[s->first_label + k];
                if (l->str)
                        buf_addf(b, " %s=%s", profile_str(p, l->key), profile_str(p, l->str));
                else
                        buf_addf(b, " %s=%lld", profile_str(p, l->key), (long long)l->num);
        }
        for (uint32_t k = 0; k < p->n_types; k++)
                buf_addf(b, " %lld", (long long)profile_values(p, i)[k]);
}

char *help_dump(const struct profile *p)
{
        _cleanup_free_ char **line = calloc(p->n_samples + 1u, sizeof(char *));
        struct buf all = {0};

        for (uint32_t i = 0; i < p->n_samples; i++) {
                struct buf b = {0};
                dump_sample(p, i, &b);
                line[i] = buf_take(&b);
        }
        qsort(line, p->n_samples, sizeof(char *), compare_lines);
        for (uint32_t i = 0; i < p->n_samples; i++) {
                buf_addf(&all, "%s\n", line[i]);
                free(line[i]);
        }
        buf_adds(&all, "");
        return all.len ? buf_take(&all) : strdup("");
}

int64_t help_sum(const struct profile *p, const char *type)
{
        int t = profile_find_type(p, type);
        int64_t sum = 0;

        for (uint32_t i = 0; t >= 0 && i < p->n_samples; i++)
                sum += profile_values(p, i)[t];
        return sum;
}

struct store_config help_config(const char *directory)
{
        return (struct store_config){
                        .directory = directory,
                        .max_size = 1ull << 30,
                        .max_age_ns = 14 * 86400 * SEC,
                        .window_ns = 60 * SEC,
                        .merge_ns = {600 * SEC, 3600 * SEC},
                        .merge_after_ns = {7200 * SEC, 86400 * SEC},
        };
}

void help_names(const char *path, struct buf *out)
{
        struct dirent **e;
        int n = scandir(path, &e, NULL, alphasort);

        for (int i = 0; i < n; i++) {
                if (strcmp(e[i]->d_name, ".") != 0 && strcmp(e[i]->d_name, "..") != 0 &&
                    strcmp(e[i]->d_name, "summaries") != 0)
                        buf_addf(out, "%s ", e[i]->d_name);
                free(e[i]);
        }
        free(e);
}
