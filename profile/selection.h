/* The selection that every reading command and HTTP request takes (which samples), without its time range.
 */
#ifndef PROFILE_SELECTION_H
#define PROFILE_SELECTION_H

#include <stdbool.h>
#include <stdint.h>

#include "profile/profile.h"

enum selection_side { SELECT_BOTH = 0, SELECT_KERNEL_ONLY = 1, SELECT_USER_ONLY = 2 };

struct selection {
        const char *event; /* sample type; NULL: all are kept. "cpu", "samples", "cycles" and "cpu-clock" all
                            * mean samples/count and cpu/nanoseconds */
        int64_t pid;       /* -1: any */
        const char *comm;  /* NULL: any; likewise below */
        const char *thread_name;
        const char *unit;         /* "x.service"; "x" means the same */
        const char *container;    /* a prefix of the ID, 12 characters or more are usual */
        const char *user;         /* as the label has it: the name, or the uid when it had none */
        enum selection_side side; /* keep only the frames of this side; samples without any are dropped */
};

static inline struct selection selection_any(void)
{
        return (struct selection){.pid = -1};
}

/* Whether an event of this name is in the profile as CPU time, of the type "cpu". */
bool selection_is_cpu_event(const char *name);

/* Sets one field by its name as in a query string ("event", "pid", "comm", "thread_name", "unit",
 * "container", "user", "side" = "kernel"|"user"); the value must outlive the selection. -ENOENT: no such
 * name; -EINVAL: not a value for it. */
int selection_set(struct selection *s, const char *name, const char *value);

/* Appends the selection as query parameters ("pid=7&comm=x", escaped). */
struct buf;
void selection_query(const struct selection *s, struct buf *out);

/* Whether a sample with these labels is selected: all but the event and the side. */
bool selection_matches_labels(const struct selection *s, const struct profile *p,
                              const struct profile_label *labels, uint32_t n);
bool selection_matches(const struct selection *s, const struct profile *p,
                       const struct profile_sample *sample);

/* A new profile of what is selected: only the event's types, and of those samples that have any of them;
 * time range and comments kept. -ENOENT: the profile has no such event. */
int selection_apply(const struct selection *s, const struct profile *p, struct profile **ret);

#endif
