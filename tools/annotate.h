/* profctl annotate: a function's samples by source line and by instruction. Only samples whose innermost
 * code is the function's, or was inlined into it, count: where the CPU itself was. */
#ifndef TOOLS_ANNOTATE_H
#define TOOLS_ANNOTATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "profile/profile.h"

/* A line of the output. */
struct annotated_line {
        char *text;
        double share; /* of the function's samples, 0..1; < 0: it is no code */
};

struct annotated {
        struct annotated_line *line;
        uint32_t n;
};

/* Appends a line; share < 0: a heading or a note. 0 or -ENOMEM. */
int annotated_add(struct annotated *a, double share, const char *fmt, ...)
                __attribute__((format(printf, 3, 4)));
void annotated_free(struct annotated *a);

/* A location at which the function was running. */
struct place {
        uint32_t location;
        uint32_t depth; /* of its lines: the function's own frame; what is before it was inlined into it */
        int64_t value;
        int64_t other; /* of the second event */
};

struct focus {
        const struct profile *p;
        uint32_t type;
        const char *function; /* as the profile has it */
        struct place *place;
        uint32_t n_places;
        int64_t value, whole; /* of the function, of all samples */
        uint64_t samples;     /* of the function, where the profile counts them */
        int other; /* another sample type that the function has, shown beside the first; -1: none */
        int64_t other_value; /* of the function */
        int64_t pid;         /* of a process that ran it, -1: not known */
};

/* Finds the function that is meant: by its exact name, by its name without parameters, by a part of its name
 * when only one has it. -ENOENT: none or several; `why` says which. -ENOMEM. */
int focus_find(const struct profile *p, uint32_t type, const char *name, struct focus *ret, struct buf *why);
void focus_free(struct focus *f);

struct annotate_options {
        const char *const *source_dir; /* NULL-terminated */
        const char *object;            /* the file to take instructions from; NULL: found by the mapping */
        bool no_source, no_asm;
};

/* The column of the second event: its share, blank where there is none, nothing when there is no second
 * event. */
void focus_put_other(const struct focus *f, int64_t value, struct buf *out);

/* Append the source lines, and the instructions. What is missing is said in lines of its own. */
int annotate_source(const struct focus *f, const struct annotate_options *o, struct annotated *a);
int annotate_instructions(const struct focus *f, const struct annotate_options *o, struct annotated *a);

/* Shows a function on the screen that is open, until the user goes back. Negative errno, with `why` for
 * people: there is nothing to show. */
int annotate_browse(const struct profile *p, uint32_t type, const char *function, struct buf *why);

#endif
