#include "tests/profile/synthetic.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

#define N_CALLEES 6
#define MAX_DEPTH 90
#define N_SITES   5 /* addresses at which a function is a leaf */
#define PERIOD_NS (1000000000 / 99)

struct function {
        char name[120];
        char file[64];
        uint32_t callee[N_CALLEES];
        uint32_t n_callees;
        uint32_t inlined; /* a function inlined at some of its sites; 0: none */
        double leaf;      /* odds that a sample is here, against further down */
};

struct program {
        char path[64], build_id[41], comm[16], unit[32];
        struct function *function;
        uint64_t text; /* address of the first function */
};

struct synthetic {
        struct synthetic_options o;
        struct program *program; /* the last one is the kernel */
        uint64_t random;
        uint32_t slow_function;
        double slow_factor;
};

/* xorshift64*, Vigna 2014. */
static uint64_t draw_u64(struct synthetic *s)
{
        s->random ^= s->random >> 12;
        s->random ^= s->random << 25;
        s->random ^= s->random >> 27;
        return s->random * 0x2545F4914F6CDD1Dull;
}

static double draw(struct synthetic *s)
{
        return (double)(draw_u64(s) >> 11) / 9007199254740992.0;
}

/* 0 .. n - 1, each half as likely as the one before or so. */
static uint32_t draw_uneven(struct synthetic *s, uint32_t n)
{
        double x = draw(s);
        return (uint32_t)((double)n * pow(x, 8));
}

static void name_function(struct synthetic *s, struct function *f, bool kernel)
{
        static const char *const words[] = {"buffer", "page",  "index",  "query", "tuple",  "hash",
                                            "sort",   "scan",  "lock",   "read",  "write",  "plan",
                                            "node",   "cache", "stream", "parse", "emit",   "visit",
                                            "token",  "list",  "map",    "flush", "commit", "alloc"};
        const char *w[4];

        for (int i = 0; i < 4; i++)
                w[i] = words[draw_u64(s) % ARRAY_SIZE(words)];
        uint32_t n = (uint32_t)(draw_u64(s) % 1000);
        if (kernel || draw(s) < 0.4)
                snprintf(f->name, sizeof(f->name), "%s_%s_%s_%u", w[0], w[1], w[2], n);
        else
                snprintf(f->name, sizeof(f->name), "%s::%s<%s_%s>::%s%u(%s const&, unsigned long)", w[0],
                         w[1], w[2], w[3], w[1], n, w[2]);
        snprintf(f->file, sizeof(f->file), "/build/src/%s/%s_%s.%s", w[0], w[1], w[2], kernel ? "c" : "cc");
}

static int make_program(struct synthetic *s, uint32_t number)
{
        static const char *const names[] = {"postgres", "nginx",  "java",   "cc1plus", "redis", "envoy",
                                            "python3",  "mysqld", "clickh", "rustc",   "node",  "haproxy"};
        struct program *p = &s->program[number];
        bool kernel = number == s->o.n_programs;
        uint32_t n = s->o.n_functions;

        p->function = calloc(n, sizeof(*p->function));
        if (!p->function)
                return -ENOMEM;
        if (kernel) {
                snprintf(p->path, sizeof(p->path), "[kernel.kallsyms]");
                p->text = 0xffffffff81000000;
        } else {
                snprintf(p->comm, sizeof(p->comm), "%s%.0u", names[number % ARRAY_SIZE(names)],
                         number / (uint32_t)ARRAY_SIZE(names));
                snprintf(p->path, sizeof(p->path), "/usr/lib/%.15s/bin/%.15s", p->comm, p->comm);
                snprintf(p->unit, sizeof(p->unit), "%.15s.service", p->comm);
                snprintf(p->build_id, sizeof(p->build_id), "%016llx%016llx%08x",
                         (unsigned long long)draw_u64(s), (unsigned long long)draw_u64(s), number);
                p->text = 0x401000 + draw_u64(s) % 0x100000 * 16;
        }
        for (uint32_t i = 0; i < n; i++) {
                struct function *f = &p->function[i];
                name_function(s, f, kernel);
                f->leaf = 0.02 + 0.4 * draw(s) * draw(s) * draw(s) * (double)i / n * 3;
                if (draw(s) < 0.3)
                        f->inlined = 1 + (uint32_t)(draw_u64(s) % (n - 1));
                /* Mostly later functions, so that stacks go down; now and then one back up. */
                f->n_callees = i + 2 < n ? 1 + (uint32_t)(draw_u64(s) % N_CALLEES) : 0;
                for (uint32_t k = 0; k < f->n_callees; k++) {
                        uint32_t span = MIN_OF(n - i - 1, n / 12);
                        f->callee[k] = draw(s) < 0.04 && i > 20 ? i - (uint32_t)(draw_u64(s) % 20)
                                                                : i + 1 + (uint32_t)(draw_u64(s) % span);
                }
        }
        return 0;
}

int synthetic_new(struct synthetic **ret, const struct synthetic_options *o)
{
        _cleanup_synthetic_ struct synthetic *s = calloc(1, sizeof(*s));

        if (!s)
                return -ENOMEM;
        s->o = *o;
        s->random = hash_u64(o->seed, 7) | 1;
        s->program = calloc(o->n_programs + 1, sizeof(*s->program));
        if (!s->program)
                return -ENOMEM;
        for (uint32_t i = 0; i <= o->n_programs; i++) {
                int r = make_program(s, i);
                if (r < 0)
                        return r;
        }
        *ret = TAKE_PTR(s);
        return 0;
}

struct synthetic *synthetic_free(struct synthetic *s)
{
        if (!s)
                return NULL;
        for (uint32_t i = 0; s->program && i <= s->o.n_programs; i++)
                free(s->program[i].function);
        free(s->program);
        free(s);
        return NULL;
}

void synthetic_slow_down(struct synthetic *s, uint32_t function, double factor)
{
        s->slow_function = function;
        s->slow_factor = factor;
}

const char *synthetic_name(const struct synthetic *s, uint32_t function)
{
        return s->program[0].function[function].name;
}

struct target {
        struct synthetic *s;
        struct profile *p;
        uint32_t *mapping;   /* by program */
        uint32_t **function; /* by program and function: id + 1 */
};

static void target_done(struct target *t)
{
        for (uint32_t i = 0; t->function && i <= t->s->o.n_programs; i++)
                free(t->function[i]);
        free(t->function);
        free(t->mapping);
        profile_free(t->p);
}

/* The synthetic host is not short of memory: an error leaves an id of 0. */
static uint32_t string(struct profile *p, const char *text)
{
        int64_t id = profile_string(p, text);

        return id < 0 ? 0 : (uint32_t)id;
}

static uint32_t function_id(struct target *t, uint32_t program, uint32_t number)
{
        const struct function *f = &t->s->program[program].function[number];
        uint32_t *slot = &t->function[program][number];

        if (!*slot) {
                struct profile_function pf = {.name = string(t->p, f->name),
                                              .system_name = string(t->p, f->name),
                                              .file = string(t->p, f->file),
                                              .start_line = 10 + number % 900};
                int64_t id = profile_function(t->p, &pf);
                *slot = id < 0 ? 0 : (uint32_t)id;
        }
        return *slot;
}

static uint32_t location(struct target *t, uint32_t program, uint32_t number, uint32_t site)
{
        const struct program *prog = &t->s->program[program];
        const struct function *f = &prog->function[number];
        struct profile_line lines[2];
        uint32_t n = 0;

        if (f->inlined && site % 2)
                lines[n++] = (struct profile_line){.function = function_id(t, program, f->inlined),
                                                   .line = 20 + number % 700 + site};
        lines[n++] = (struct profile_line){.function = function_id(t, program, number),
                                           .line = 12 + number % 900 + site * 3};
        int64_t id = profile_location(t->p, t->mapping[program],
                                      prog->text + number * 272ull + site * 24ull + 7, lines, n);
        return id < 0 ? 0 : (uint32_t)id;
}

static bool stops_at(struct synthetic *s, uint32_t program, uint32_t number, double leaf)
{
        if (program == 0 && s->slow_factor > 0 && number == s->slow_function)
                leaf *= s->slow_factor;
        return draw(s) < leaf;
}

/* Walks down from the program's root; root first. */
static uint32_t walk(struct target *t, uint32_t program, uint32_t *root_first, uint32_t depth)
{
        struct synthetic *s = t->s;
        uint32_t number = 0;

        for (;;) {
                const struct function *f = &s->program[program].function[number];
                if (depth + 1 >= MAX_DEPTH || !f->n_callees ||
                    (depth > 2 && stops_at(s, program, number, f->leaf))) {
                        root_first[depth++] =
                                        location(t, program, number, N_CALLEES + draw_uneven(s, N_SITES));
                        return depth;
                }
                uint32_t k = draw_uneven(s, f->n_callees);
                root_first[depth++] = location(t, program, number, k);
                number = f->callee[k];
        }
}

static int add_sample(struct target *t)
{
        struct synthetic *s = t->s;
        uint32_t root_first[MAX_DEPTH * 2], leaf_first[MAX_DEPTH * 2], n;
        uint32_t process = draw_uneven(s, s->o.n_processes), program = process % s->o.n_programs;
        const struct program *p = &s->program[program];
        char thread[32];

        n = walk(t, program, root_first, 0);
        if (draw(s) < 0.2 && n < MAX_DEPTH / 2)
                n = walk(t, s->o.n_programs, root_first, n);
        for (uint32_t i = 0; i < n; i++)
                leaf_first[i] = root_first[n - 1 - i];
        snprintf(thread, sizeof(thread), "%.10s-w%u", p->comm, draw_uneven(s, 8));
        struct profile_label labels[] = {
                        {.key = string(t->p, "pid"), .num = 1000 + process * 37},
                        {.key = string(t->p, "comm"), .str = string(t->p, p->comm)},
                        {.key = string(t->p, "thread_name"), .str = string(t->p, thread)},
                        {.key = string(t->p, "unit"), .str = string(t->p, p->unit)},
                        {.key = string(t->p, "user"),
                         .str = string(t->p, process % 3 ? "www-data" : "root")},
        };
        int64_t values[] = {1, PERIOD_NS};
        return profile_sample(t->p, leaf_first, n, labels, ARRAY_SIZE(labels), values);
}

static int begin(struct target *t)
{
        struct synthetic *s = t->s;
        uint32_t n = s->o.n_programs + 1;

        int r = profile_new(&t->p);
        if (r < 0)
                return r;
        t->mapping = calloc(n, sizeof(*t->mapping));
        t->function = calloc(n, sizeof(*t->function));
        if (!t->mapping || !t->function || profile_type(t->p, "samples", "count") < 0 ||
            profile_type(t->p, "cpu", "nanoseconds") < 0)
                return -ENOMEM;
        for (uint32_t i = 0; i < n; i++) {
                struct profile_mapping m = {.start = s->program[i].text & ~0xfffull,
                                            .limit = (s->program[i].text & ~0xfffull) + 0x1000000,
                                            .file = string(t->p, s->program[i].path),
                                            .build_id = string(t->p, s->program[i].build_id),
                                            .has_functions = true,
                                            .has_lines = true,
                                            .has_inline = true};
                int64_t id = profile_mapping(t->p, &m);
                t->function[i] = calloc(s->o.n_functions, sizeof(**t->function));
                if (id < 0 || !t->function[i])
                        return -ENOMEM;
                t->mapping[i] = (uint32_t)id;
        }
        return 0;
}

int synthetic_profile(struct synthetic *s, uint64_t draw_number, uint32_t samples, int64_t start_ns,
                      int64_t duration_ns, struct profile **ret)
{
        _cleanup_(target_done) struct target t = {.s = s};

        int r = begin(&t);
        if (r < 0)
                return r;
        s->random = hash_u64(s->o.seed, draw_number + 11) | 1;
        for (uint32_t i = 0; i < samples; i++) {
                r = add_sample(&t);
                if (r < 0)
                        return r;
        }
        struct profile *p = t.p;
        p->time_ns = start_ns;
        p->duration_ns = duration_ns;
        p->period_type = (struct profile_value_type){.type = string(p, "cpu"),
                                                     .unit = string(p, "nanoseconds")};
        p->period = PERIOD_NS;
        if (profile_comment(p, "host: synthetic") < 0 || profile_ledger_set(p, "samples.taken", samples) < 0)
                return -ENOMEM;
        *ret = TAKE_PTR(t.p);
        return 0;
}
