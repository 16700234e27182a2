/* What was upgraded or restarted, found in the stored windows. */
#ifndef TOOLS_CHANGE_FIND_H
#define TOOLS_CHANGE_FIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/query.h"

struct change {
        char *name;                 /* the unit, or the object's path */
        bool unit;                  /* a unit that was restarted; else an object that was replaced */
        char *before, *after;       /* build IDs of an object */
        uint64_t at_ns;             /* start of the window in which it was seen first */
        uint64_t after_ns;          /* end of that window: it may hold some of both */
        uint64_t from_ns, until_ns; /* how far back, and forth, nothing else happened to it */
};

struct changes {
        struct change *change; /* by time */
        size_t n;
        size_t windows; /* that were looked at */
        uint64_t start_ns, end_ns;
};

/* STATUS_DONE, or STATUS_FAILED (said). */
int changes_find(const struct query *q, struct changes *ret);
void changes_free(struct changes *c);

#endif
