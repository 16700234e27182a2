/* The profile model: what one pprof file says, in memory, for building and for reading.
 *
 * Follows profile.proto of pprof (github.com/google/pprof, proto/profile.proto): everything is interned, ids
 * of mappings, functions and locations are 1..n in order of first use, 0 is "none". Strings are indices into
 * a table whose entry 0 is "". Equal samples (same locations, labels) are one, their values added.
 *
 * Adding functions return the id or index (>= 0), or -ENOMEM, or -E2BIG past the profile's limits. */
#ifndef PROFILE_PROFILE_H
#define PROFILE_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/cleanup.h"

#define PROFILE_MAX_TYPES    16
#define PROFILE_MAX_FRAMES   4096 /* locations of one sample */
#define PROFILE_MAX_LABELS   64   /* of one sample */
#define PROFILE_MAX_COMMENTS 1024

struct profile_value_type {
        uint32_t type, unit; /* strings: "samples" "count" */
};

struct profile_mapping {
        uint64_t start, limit, offset;
        uint32_t file, build_id; /* strings; build ID in lower-case hex */
        bool has_functions, has_filenames, has_lines, has_inline;
};

struct profile_function {
        uint32_t name, system_name, file; /* strings */
        int64_t start_line;
};

struct profile_line {
        uint32_t function; /* id */
        int64_t line;
};

struct profile_location {
        uint64_t address;
        uint32_t mapping;    /* id, 0 none */
        uint32_t first_line; /* of `line`: innermost inlined function first */
        uint32_t n_lines;    /* 0: no name */
        bool folded;
};

struct profile_label {
        uint32_t key; /* string */
        uint32_t str; /* string; 0: a number */
        int64_t num;
        uint32_t unit; /* string, of num */
};

/* A stretch of `sample_location` (a stack) or of `label` (a label set). */
struct profile_span {
        uint32_t first, n;
};

struct profile_sample {
        uint32_t first_location, n_locations; /* in `sample_location`, leaf first; shared by equal stacks */
        uint32_t first_label, n_labels;       /* in `label`, sorted by key; shared by equal sets */
        uint32_t stack, label_set;            /* which: equal numbers, equal stacks or sets */
        /* its values: value[index * n_types + type] */
};

struct profile {
        /* Read these directly; change them by the functions below only. Index 0 of mapping, function and
         * location is not used, so that an id is an index. */
        struct profile_value_type type[PROFILE_MAX_TYPES];
        uint32_t n_types;
        const char **string;
        uint32_t n_strings;
        struct profile_mapping *mapping;
        uint32_t n_mappings; /* with the unused one: ids are 1..n_mappings - 1; likewise below */
        struct profile_function *function;
        uint32_t n_functions;
        struct profile_line *line;
        uint32_t n_lines;
        struct profile_location *location;
        uint32_t n_locations;
        struct profile_label *label;
        uint32_t n_labels;
        uint32_t *sample_location;
        uint32_t n_sample_locations;
        struct profile_span *stack, *label_set;
        uint32_t n_stacks, n_label_sets;
        struct profile_sample *sample;
        uint32_t n_samples;
        int64_t *value;

        int64_t time_ns; /* start, since the epoch */
        int64_t duration_ns;
        struct profile_value_type period_type;
        int64_t period;
        uint32_t default_type; /* string */
        uint32_t *comment;     /* strings */
        uint32_t n_comments;

        struct profile_index *index; /* interning tables, private */
};

int profile_new(struct profile **ret);
struct profile *profile_free(struct profile *p);
DEFINE_CLEANUP(struct profile, profile_free);
#define _cleanup_profile_ _cleanup_(profile_free_cleanup)

/* A text that is not valid UTF-8 is made so (U+FFFD); one with a NUL ends there. */
int64_t profile_string(struct profile *p, const char *s);
int64_t profile_string_n(struct profile *p, const char *s, size_t n);
/* Index; finds or adds. A type added to samples that are there already has the value 0 in them. */
int64_t profile_type(struct profile *p, const char *type, const char *unit);
/* Equal mappings but for the has_ flags are one; the flags are or-ed. */
int64_t profile_mapping(struct profile *p, const struct profile_mapping *m);
int64_t profile_function(struct profile *p, const struct profile_function *f);
/* lines: innermost first. Equal locations (mapping, address, lines) are one. */
int64_t profile_location(struct profile *p, uint32_t mapping, uint64_t address,
                         const struct profile_line *lines, uint32_t n_lines);
int profile_comment(struct profile *p, const char *text);

/* Adds to the sample with these locations (leaf first) and labels (any order; they are sorted), which is
 * made when there is none. `values` has n_types entries; sums that leave the range of int64_t stay at its
 * end. */
int profile_sample(struct profile *p, const uint32_t *locations, uint32_t n_locations,
                   const struct profile_label *labels, uint32_t n_labels, const int64_t *values);

/* The same in steps, for callers that know a stack or a label set already: number of a stack, of a label
 * set, and the sample made of the two. */
int64_t profile_stack(struct profile *p, const uint32_t *locations, uint32_t n);
int64_t profile_label_set(struct profile *p, const struct profile_label *labels, uint32_t n);
int profile_sample_at(struct profile *p, uint32_t stack, uint32_t label_set, const int64_t *values);

/* -- reading helpers -- */

static inline const char *profile_str(const struct profile *p, uint32_t i)
{
        return p->string[i];
}

/* Index of a sample type by its name ("cpu", "samples", "cache-misses"); -ENOENT. */
int profile_find_type(const struct profile *p, const char *type);

/* The type shown when none is asked for: the file's default, else "cpu", else the last, as pprof does. A
 * profile without types: 0. */
uint32_t profile_default_type(const struct profile *p);

/* The label of a sample with this key, NULL when it has none. */
const struct profile_label *profile_find_label(const struct profile *p, const struct profile_sample *s,
                                               const char *key);

/* The same among n labels, of a sample that is not made yet. */
const struct profile_label *profile_find_among(const struct profile *p, const struct profile_label *label,
                                               uint32_t n, const char *key);

/* Labels that tell single processes and threads apart. */
static inline bool profile_is_process_label(const char *key)
{
        return !strcmp(key, "pid") || !strcmp(key, "thread_id");
}

/* The values of sample i, n_types of them. */
static inline const int64_t *profile_values(const struct profile *p, uint32_t i)
{
        return p->value + (size_t)i * p->n_types;
}

/* Whether an object is the kernel's: "[kernel.kallsyms]" or a module, "[name]". The bracketed names of
 * user mappings ("[vdso]", "[heap]", "[stack]", "[anon...") are not. */
bool profile_object_is_kernel(const char *object);

/* The same of a mapping. 0, no mapping, is not the kernel's. */
bool profile_mapping_is_kernel(const struct profile *p, uint32_t mapping);

/* -- the ledger: comments that read "key: value" --
 *
 * A value that is a decimal integer as a whole is a count: merging adds it. Any other value is a text:
 * merging keeps equal texts once and differing texts both, at most PROFILE_MAX_TEXTS of one key, then one
 * that reads "(more)". A rate is therefore best told by two counts (samples expected, samples taken). */
#define PROFILE_MAX_TEXTS 16
/* The one number that is no count: CLOCK_BOOTTIME in ns at the end. Merging keeps the larger. */
#define PROFILE_BOOT_END "boot_end_ns"

/* The value of the last comment with this key, or NULL. */
const char *profile_ledger(const struct profile *p, const char *key);

/* The value of a count, `otherwise` when there is none. */
int64_t profile_ledger_count(const struct profile *p, const char *key, int64_t otherwise);

/* Sets a count, or adds to it; the line is made when missing. */
int profile_ledger_set(struct profile *p, const char *key, int64_t value);
int profile_ledger_add(struct profile *p, const char *key, int64_t value);

/* Adds the ledger and the other comments of `from` to those of `into`, as profile_merge() does. */
int profile_ledger_merge(struct profile *into, const struct profile *from);

/* The time that was observed, the sum over all that was merged: the ledger's "observed_ns", else the
 * duration. Smaller than duration_ns when there are gaps, larger when several hosts were merged. */
#define PROFILE_OBSERVED "observed_ns"
int64_t profile_observed_ns(const struct profile *p);

/* Adds all of `from` to `into`: exact, values of equal samples are added; sample types are matched by name
 * and unit and made when missing; the time range becomes the union, observed_ns the sum; the ledger lines
 * are combined as said above; other comments are kept once. */
int profile_merge(struct profile *into, const struct profile *from);

#endif
