#include "tools/doctor.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "tools/debug_wanted.h"
#include "tools/package.h"

#define MAX_LINES        5
#define MIN_SHARE        0.001 /* of all samples: below, nobody would install a package for it */
#define TRUNCATED        "[truncated: "
#define KERNEL           "[kernel.kallsyms]"
#define KERNEL_MIN_SHARE 0.1      /* its debug package is large */
#define RUN_TIME         "//anon" /* the kernel's name of memory without a file */

/* What one object (by its mapping's file) is in the way of. */
struct object_counts {
        uint32_t file;    /* string */
        uint32_t mapping; /* one of it */
        int64_t unnamed;  /* samples that have a frame of it without a name */
        int64_t no_lines; /* samples whose innermost code is in it, named but without source lines */
        int64_t ends;     /* samples whose stack ends in it before its root */
        const char *end;  /* how they end */
        uint32_t stamp;   /* the last sample that counted as unnamed, + 1 */
};

struct counting {
        const struct profile *p;
        struct object_counts *object; /* by string */
        int count_type;
        int64_t samples;
        int64_t kernel_no_lines; /* samples whose innermost code is the kernel's, without source lines */
};

static bool is_file(const struct profile *p, const struct profile_location *l)
{
        return l->mapping && p->string[p->mapping[l->mapping].file][0] == '/';
}

static void count_sample(struct counting *c, uint32_t i)
{
        const struct profile *p = c->p;
        const struct profile_sample *s = &p->sample[i];
        int64_t n = c->count_type >= 0 ? profile_values(p, i)[c->count_type] : 1;

        c->samples += n;
        if (s->n_locations > 0) {
                const struct profile_location *leaf = &p->location[p->sample_location[s->first_location]];
                if (!strcmp(p->string[p->mapping[leaf->mapping].file], KERNEL) &&
                    !location_has_lines(p, leaf))
                        c->kernel_no_lines += n;
        }
        for (uint32_t k = 0; k < s->n_locations; k++) {
                const struct profile_location *l = &p->location[p->sample_location[s->first_location + k]];
                if (!is_file(p, l))
                        continue;
                struct object_counts *o = &c->object[p->mapping[l->mapping].file];
                o->mapping = l->mapping;
                if (location_is_unnamed(p, l)) {
                        o->unnamed += o->stamp == i + 1 ? 0 : n;
                        o->stamp = i + 1;
                } else if (k == 0 && !location_has_lines(p, l)) {
                        o->no_lines += n;
                }
        }
        if (s->n_locations < 2)
                return;
        const uint32_t *root = &p->sample_location[s->first_location + s->n_locations - 1];
        const struct profile_location *last = &p->location[root[-1]];
        const char *end = location_name(p, &p->location[*root]);
        if (!strncmp(end, TRUNCATED, strlen(TRUNCATED)) && is_file(p, last)) {
                c->object[p->mapping[last->mapping].file].ends += n;
                c->object[p->mapping[last->mapping].file].end = end + strlen(TRUNCATED);
        }
}

static int64_t value_of(const struct object_counts *o, int what)
{
        return what == 0 ? o->unnamed : what == 1 ? o->no_lines : o->ends;
}

static void say_end(struct doctor *d, const char *path, double share, const char *end)
{
        int n = (int)strcspn(end, "]");

        if (!strcmp(path, RUN_TIME))
                doctor_say(d, FINDING_NOTE, "stacks end early",
                           "in code made at run time, %.1f%% of all samples: %.*s; most JITs can keep frame "
                           "pointers "
                           "(java -XX:+PreserveFramePointer, node --interpreted-frames-native-stack)",
                           share, n, end);
        else if (!strncmp(end, "no unwind information", 21))
                doctor_say(d, FINDING_NOTE, "stacks end early",
                           "in %s, %.1f%% of all samples: %.*s; build it with -fno-omit-frame-pointer or "
                           "-fasynchronous-unwind-tables",
                           path, share, n, end);
        else
                doctor_say(d, FINDING_NOTE, "stacks end early", "in %s, %.1f%% of all samples: %.*s", path,
                           share, n, end);
}

static void say_unnamed(struct doctor *d, const char *path, const char *build_id, double share,
                        bool lines_only)
{
        const char *subject = lines_only ? "no source lines" : "names missing";

        if (!strcmp(path, RUN_TIME)) {
                doctor_say(d, FINDING_NOTE, subject,
                           "of code made at run time, %.1f%% of all samples: start the program so that it "
                           "writes a perf "
                           "map (node --perf-basic-prof, python -X perf, java with libperf-jvmti)",
                           share);
                return;
        }
        _cleanup_package_ struct package package = {0};
        if (package_of(path, build_id, &package) < 0)
                doctor_say(d, FINDING_NOTE, subject, "in %s, %.1f%% of all samples: %s", path, share,
                           lines_only ? "build it with -g1 or more (Rust: debug = \"line-tables-only\")"
                                      : "do not strip it, or keep its debug file in "
                                        "/usr/lib/debug/.build-id");
        else if (package.outdated)
                doctor_say(d, FINDING_NOTE, subject,
                           "in %s, %.1f%% of all samples: it is not the file that package %s %s has here: "
                           "start what runs it again, or install %s in its version (or by debuginfod, build "
                           "ID %s)",
                           path, share, package.name, package.version, package.debug, build_id);
        else
                doctor_say(d, FINDING_NOTE, subject,
                           "in %s, %.1f%% of all samples: install %s=%s, the debug symbols of package %s "
                           "(or "
                           "by debuginfod)",
                           path, share, package.debug, package.version, package.name);
}

static void say_object(struct doctor *d, const struct counting *c, const struct object_counts *o, int what)
{
        double share = 100.0 * (double)value_of(o, what) / (double)c->samples;

        if (what == 2)
                say_end(d, c->p->string[o->file], share, o->end);
        else
                say_unnamed(d, c->p->string[o->file], c->p->string[c->p->mapping[o->mapping].build_id],
                            share, what == 1);
}

static void say_most(struct doctor *d, struct counting *c, int what)
{
        for (int line = 0; line < MAX_LINES; line++) {
                struct object_counts *most = NULL;
                for (uint32_t i = 1; i < c->p->n_strings; i++) {
                        struct object_counts *o = &c->object[i];
                        if (value_of(o, what) > (most ? value_of(most, what) : 0)) {
                                most = o;
                                o->file = i;
                        }
                }
                if (!most || (double)value_of(most, what) < MIN_SHARE * (double)c->samples)
                        return;
                say_object(d, c, most, what);
                *(what == 0 ? &most->unnamed : what == 1 ? &most->no_lines : &most->ends) = 0;
        }
}

static void say_kernel(struct doctor *d, const struct counting *c)
{
        double share = (double)c->kernel_no_lines / (double)c->samples;

        if (share >= KERNEL_MIN_SHARE)
                doctor_say(d, FINDING_NOTE, "no source lines",
                           "of the kernel, %.1f%% of all samples: install its debug package, if functions "
                           "are "
                           "not enough (Debian: linux-image-RELEASE-dbg)",
                           100 * share);
}

static void say_stacks(struct doctor *d, const struct profile *p)
{
        int64_t all = 0, whole = profile_ledger_count(p, "stacks.complete", 0);

        for (uint32_t i = 0; i < p->n_comments; i++) {
                const char *line = p->string[p->comment[i]], *value = strstr(line, ": ");
                if (!strncmp(line, "stacks.", 7) && value)
                        all += strtoll(value + 2, NULL, 10);
        }
        if (all <= 0)
                return;
        double share = 100.0 * (double)whole / (double)all;
        doctor_say(d, share >= 99 ? FINDING_GOOD : FINDING_NOTE, "complete stacks", "%.2f%%", share);
}

void doctor_symbols(struct doctor *d, const struct profile *p)
{
        _cleanup_free_ struct object_counts *object = calloc(p->n_strings, sizeof(*object));
        struct counting c = {.p = p, .object = object, .count_type = profile_find_type(p, "samples")};

        if (!object)
                return;
        for (uint32_t i = 0; i < p->n_samples; i++)
                count_sample(&c, i);
        if (c.samples == 0)
                return;
        say_stacks(d, p);
        for (int what = 0; what < 3; what++)
                say_most(d, &c, what);
        say_kernel(d, &c);
}
