/* Writes the windows that a busy host would have stored: synth_windows DIRECTORY DAYS [CPUS [HZ
 * [EVENTS [STACKS [FINE-DAYS]]]]].
 *
 * The model, fixed by its seed: 12 services with 1 to 16 worker processes each and one busy binary with
 * libraries; 2,500 (STACKS) distinct user stacks a service, about 30 frames deep, that share their roots as
 * call trees do; every fourth sample in one of 300 kernel stacks; how often a service and a stack is hit
 * falls by Zipf's law; 60 short-lived processes a minute. All CPUs are busy all the time. With two events
 * (default 1), each sample of CPU time has one of cache-misses beside it, of another stack. The store merges
 * as it would have done meanwhile. Before the last FINE-DAYS (default: all are fine) an hour is drawn
 * at once instead of minute by minute: the same samples in the sum, in a fraction of the time. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "daemon/store.h"
#include "profile/profile.h"

#define SERVICES  12
#define FUNCTIONS 1500
#define STACKS    2500 /* at most, of a service */
#define MAX_DEPTH 64
#define KERNEL    300
#define SHORT     60            /* processes that live less than a window */
#define START     1796083200ull /* 2026-12-01T00:00:00Z */
#define WINDOW    60
#define COARSE    60 /* minutes of a window drawn as one */
#define UNKNOWN   UINT32_MAX

struct stack {
        uint16_t n;
        uint16_t frame[MAX_DEPTH]; /* leaf first */
};

struct model {
        uint64_t state;  /* of the random numbers */
        uint32_t stacks; /* of a service */
        struct stack user[SERVICES][STACKS];
        struct stack kernel[KERNEL];
        double zipf_services[SERVICES], zipf_stacks[STACKS];
};

static uint64_t next(uint64_t *state) /* splitmix64 */
{
        uint64_t z = *state += 0x9E3779B97F4A7C15ull;

        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
        z = (z ^ z >> 27) * 0x94D049BB133111EBull;
        return z ^ z >> 31;
}

static uint32_t below(struct model *m, uint32_t n)
{
        return (uint32_t)(next(&m->state) % n);
}

static void make_zipf(double *cumulated, uint32_t n, double exponent)
{
        double sum = 0;

        for (uint32_t i = 0; i < n; i++)
                cumulated[i] = sum += pow(i + 1, -exponent);
        for (uint32_t i = 0; i < n; i++)
                cumulated[i] /= sum;
}

static uint32_t pick(struct model *m, const double *cumulated, uint32_t n)
{
        double x = (double)(next(&m->state) >> 11) / (double)(1ull << 53);
        uint32_t lo = 0, hi = n - 1;

        while (lo < hi) {
                uint32_t mid = (lo + hi) / 2;
                if (cumulated[mid] < x)
                        lo = mid + 1;
                else
                        hi = mid;
        }
        return lo;
}

/* Each stack leaves an earlier one somewhere and goes on by itself: a call tree. */
static void make_stacks(struct model *m, struct stack *s, uint32_t n, uint32_t functions, uint32_t depth)
{
        for (uint32_t i = 0; i < n; i++) {
                uint16_t root_first[MAX_DEPTH];
                uint32_t len = depth / 2 + below(m, depth), shared = 0;
                if (i > 0) {
                        const struct stack *p = &s[below(m, i)];
                        shared = 1 + below(m, p->n);
                        for (uint32_t k = 0; k < shared; k++)
                                root_first[k] = p->frame[p->n - 1 - k];
                }
                len = MIN_OF(MAX_OF(len, shared + 1), (uint32_t)MAX_DEPTH);
                shared = MIN_OF(shared, len - 1);
                for (uint32_t k = shared; k < len; k++)
                        root_first[k] = (uint16_t)below(m, functions);
                s[i].n = (uint16_t)len;
                for (uint32_t k = 0; k < len; k++)
                        s[i].frame[k] = root_first[len - 1 - k];
        }
}

static void make_model(struct model *m)
{
        m->state = 42;
        for (uint32_t i = 0; i < SERVICES; i++)
                make_stacks(m, m->user[i], m->stacks, FUNCTIONS, 30);
        make_stacks(m, m->kernel, KERNEL, 800, 14);
        make_zipf(m->zipf_services, SERVICES, 0.8);
        make_zipf(m->zipf_stacks, m->stacks, 1.0);
}

/* -- one window -- */

static void check(int64_t r)
{
        if (r < 0) {
                fprintf(stderr, "synth_windows: %s\n", strerror((int)-r));
                exit(1);
        }
}

static uint32_t str(struct profile *p, const char *s)
{
        int64_t r = profile_string(p, s);

        check(r);
        return (uint32_t)r;
}

struct window {
        struct profile *profile;
        uint32_t mapping[SERVICES + 3]; /* a binary each, two libraries, the kernel */
        uint32_t location[SERVICES + 1][FUNCTIONS];
        uint32_t stack[SERVICES][STACKS][5], labels[SERVICES][16]; /* UNKNOWN: not there yet */
};

static void add_mapping(struct window *w, uint32_t i, const char *file)
{
        char id[41];

        for (uint32_t k = 0; k < 40; k++)
                snprintf(id + k, 2, "%x", (i * 7 + k * 5) & 15);
        const struct profile_mapping map = {
                        .start = 0x400000,
                        .limit = 0x4000000,
                        .file = str(w->profile, file),
                        .build_id = str(w->profile, id),
                        .has_functions = true,
                        .has_filenames = true,
                        .has_lines = true,
                        .has_inline = true,
        };
        int64_t r = profile_mapping(w->profile, &map);
        check(r);
        w->mapping[i] = (uint32_t)r;
}

static uint32_t add_location(struct window *w, uint32_t service, uint32_t f)
{
        static const char *const words[] = {"parse", "encode", "handle",   "flush",  "lookup", "insert",
                                            "merge", "poll",   "dispatch", "commit", "scan",   "hash",
                                            "visit", "update", "filter",   "send"};
        struct profile_line lines[2];
        char name[96], file[96];
        /* A fifth of a service's functions are a library's, every fourth location has an inlined call. */
        bool kernel = service == SERVICES, library = !kernel && f % 5 == 0;
        uint32_t n = !kernel && f % 4 == 0 ? 2 : 1;

        if (w->location[service][f])
                return w->location[service][f];
        for (uint32_t k = 0; k < n; k++) {
                uint32_t id = f * 2 + k;
                if (kernel)
                        snprintf(name, sizeof(name), "%s_%s_%u", words[id % 16], words[id / 16 % 16], id);
                else
                        snprintf(name, sizeof(name), "service%u::%s::%s_%s<%u>", library ? 99 : service,
                                 words[id % 16], words[id / 16 % 16], words[id / 7 % 16], id);
                snprintf(file, sizeof(file), "/build/service%u/src/%s/%s.cc", library ? 99 : service,
                         words[id / 16 % 16], words[id / 64 % 16]);
                const struct profile_function fn = {.name = str(w->profile, name),
                                                    .system_name = str(w->profile, name),
                                                    .file = kernel ? 0 : str(w->profile, file),
                                                    .start_line = kernel ? 0 : 10 + id * 13 % 3000};
                int64_t r = profile_function(w->profile, &fn);
                check(r);
                lines[k] = (struct profile_line){.function = (uint32_t)r,
                                                 .line = kernel ? 0 : fn.start_line + id % 40};
        }
        int64_t r = profile_location(w->profile,
                                     w->mapping[kernel    ? SERVICES + 2
                                                : library ? SERVICES + f % 2
                                                          : service],
                                     0x401000 + f * 64ull + service * 7, lines, n);
        check(r);
        return w->location[service][f] = (uint32_t)r;
}

/* A stack in a window: of a service, with none of the kernel's on top or one of four. */
static uint32_t add_stack(struct model *m, struct window *w, uint32_t service, uint32_t which,
                          uint32_t kernel)
{
        uint32_t ids[2 * MAX_DEPTH], n = 0, *known = &w->stack[service][which][kernel];
        const struct stack *s = &m->user[service][which];

        if (*known != UNKNOWN)
                return *known;
        if (kernel > 0) {
                const struct stack *k = &m->kernel[(service * STACKS + which + kernel - 1) % KERNEL];
                for (uint32_t i = 0; i < k->n; i++)
                        ids[n++] = add_location(w, SERVICES, k->frame[i]);
        }
        for (uint32_t i = 0; i < s->n; i++)
                ids[n++] = add_location(w, service, s->frame[i]);
        int64_t r = profile_stack(w->profile, ids, n);
        check(r);
        return *known = (uint32_t)r;
}

static uint32_t add_labels(struct window *w, uint32_t service, int64_t pid, bool is_short)
{
        struct profile *p = w->profile;
        struct profile_label labels[8];
        char comm[32], unit[40];
        uint32_t n = 0;

        snprintf(comm, sizeof(comm), is_short ? "job" : "service%u", service);
        snprintf(unit, sizeof(unit), is_short ? "cron.service" : "service%u.service", service);
        labels[n++] = (struct profile_label){.key = str(p, "pid"), .num = pid};
        labels[n++] = (struct profile_label){.key = str(p, "uid"), .num = 100 + service};
        labels[n++] = (struct profile_label){.key = str(p, "comm"), .str = str(p, comm)};
        labels[n++] = (struct profile_label){.key = str(p, "thread_name"), .str = str(p, comm)};
        labels[n++] = (struct profile_label){.key = str(p, "unit"), .str = str(p, unit)};
        labels[n++] = (struct profile_label){.key = str(p, "user"), .str = str(p, "www-data")};
        int64_t r = profile_label_set(p, labels, n);
        check(r);
        return (uint32_t)r;
}

static void add_sample(struct model *m, struct window *w, uint64_t minute, uint32_t event, uint32_t hz)
{
        uint32_t service = pick(m, m->zipf_services, SERVICES);
        uint32_t which = pick(m, m->zipf_stacks, m->stacks);
        bool is_short = below(m, 40) == 0;
        uint32_t worker = below(m, 1 + service * 5 % 16), labels;
        uint32_t stack = add_stack(m, w, service, which, which % 4 == 0 ? 1 + below(m, 4) : 0);

        if (is_short) {
                int64_t pid = (int64_t)(10000 + (minute * SHORT + below(m, SHORT)) % 4000000);
                labels = add_labels(w, service, pid, true);
        } else {
                uint32_t *known = &w->labels[service][worker];
                if (*known == UNKNOWN)
                        *known = add_labels(w, service, 1000 + service * 16 + worker, false);
                labels = *known;
        }
        const int64_t cpu[] = {1, 1000000000 / hz, 0}, misses[] = {0, 0, 20000 + below(m, 1000)};
        check(profile_sample_at(w->profile, stack, labels, event ? misses : cpu));
}

static void put_window(struct model *m, struct store *store, uint64_t minute, uint32_t minutes,
                       uint32_t cpus, uint32_t hz, uint32_t events)
{
        _cleanup_free_ struct window *w = calloc(1, sizeof(*w));
        char file[64], line[64];

        if (!w)
                check(-ENOMEM);
        memset(w->stack, 0xff, sizeof(w->stack));
        memset(w->labels, 0xff, sizeof(w->labels));
        check(profile_new(&w->profile));
        struct profile *p = w->profile;
        check(profile_type(p, "samples", "count"));
        check(profile_type(p, "cpu", "nanoseconds"));
        if (events > 1)
                check(profile_type(p, "cache-misses", "count"));
        for (uint32_t i = 0; i < SERVICES; i++) {
                snprintf(file, sizeof(file), "/usr/lib/service%u/bin/service%u", i, i);
                add_mapping(w, i, file);
        }
        add_mapping(w, SERVICES, "/usr/lib/x86_64-linux-gnu/libc.so.6");
        add_mapping(w, SERVICES + 1, "/usr/lib/x86_64-linux-gnu/libstdc++.so.6.0.30");
        add_mapping(w, SERVICES + 2, "[kernel.kallsyms]");
        uint32_t samples = cpus * hz * WINDOW * minutes;
        for (uint32_t e = 0; e < events; e++)
                for (uint32_t i = 0; i < samples; i++)
                        add_sample(m, w, minute + i % minutes, e, hz);
        p->time_ns = (int64_t)((START + minute * WINDOW) * NSEC_PER_SEC);
        p->duration_ns = (int64_t)(WINDOW * minutes * NSEC_PER_SEC);
        p->period = 1000000000 / hz;
        check(profile_comment(p, "profd: synthetic"));
        snprintf(line, sizeof(line), "boot_end_ns: %llu",
                 (uint64_t)(minute + minutes + 99) * WINDOW * NSEC_PER_SEC);
        check(profile_comment(p, line));
        check(store_put(store, p));
        profile_free(p);
}

static double cpu_s(void)
{
        struct timespec t;

        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
        return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
        if (argc < 3) {
                fprintf(stderr,
                        "usage: synth_windows DIRECTORY DAYS [CPUS [HZ [EVENTS [STACKS [FINE-DAYS]]]]]\n");
                return 2;
        }
        uint64_t minutes = (uint64_t)(atof(argv[2]) * 1440);
        uint32_t cpus = argc > 3 ? (uint32_t)atoi(argv[3]) : 8, hz = argc > 4 ? (uint32_t)atoi(argv[4]) : 99;
        uint32_t events = argc > 5 ? (uint32_t)atoi(argv[5]) : 1;
        const struct store_config config = {
                        .directory = argv[1],
                        .max_age_ns = 30ull * 86400 * NSEC_PER_SEC,
                        .window_ns = WINDOW * NSEC_PER_SEC,
                        .merge_ns = {600 * NSEC_PER_SEC, 3600 * NSEC_PER_SEC},
                        .merge_after_ns = {7200 * NSEC_PER_SEC, 86400 * NSEC_PER_SEC},
        };
        _cleanup_free_ struct model *m = calloc(1, sizeof(*m));
        struct store_stats st;
        struct store *store;
        double merging = 0;

        uint32_t stacks = argc > 6 ? (uint32_t)atoi(argv[6]) : STACKS;
        if (!m || events < 1 || events > 2 || stacks < 1 || stacks > STACKS)
                return 2;
        m->stacks = stacks;
        check(store_open(&store, &config));
        make_model(m);
        uint64_t fine = argc > 7 ? (uint64_t)(atof(argv[7]) * 1440) : minutes;
        for (uint64_t i = 0, n; i < minutes; i += n) {
                n = i + fine + COARSE <= minutes ? COARSE : 1;
                put_window(m, store, i, (uint32_t)n, cpus, hz, events);
                double before = cpu_s();
                check(store_maintain(store, (START + (i + n) * WINDOW) * NSEC_PER_SEC, UINT64_MAX));
                merging += cpu_s() - before;
        }
        store_stats(store, &st);
        printf("windows %" PRIu64 " bytes %" PRIu64 " samples %" PRIu64
               " bytes_per_sample %.2f merges %" PRIu64 " merge_cpu_s %.2f\n",
               st.windows, st.size, minutes * cpus * hz * WINDOW * events,
               (double)st.size / (double)(minutes * cpus * hz * WINDOW * events), st.merges, merging);
        store_free(store);
        return 0;
}
