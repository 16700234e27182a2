/* The table of a profile as text and as a browser. */
#ifndef TOOLS_REPORT_H
#define TOOLS_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "profile/profile.h"
#include "tools/layout.h"

struct report_options {
        const char *event; /* sample type; NULL: the profile's default */
        uint32_t keys;     /* TABLE_ bits */
        enum row_order order;
        bool callers, callees;
        bool no_inline;
        bool only_self;    /* no lines of functions that were never running themselves */
        uint32_t max_rows; /* 0: all */
};

struct report_options report_defaults(void);

/* Writes the table to the standard output `fd`, as wide as its terminal. Returns the exit status. */
int report_text(const struct profile *p, const struct report_options *o, int fd);

/* The two lines that say what a profile is of, each after `begin`. */
void report_head(const struct profile *p, int type, const char *begin, struct buf *out);

/* The browser, until the user leaves it. Returns the exit status. */
int report_browse(const struct profile *p, const struct report_options *o);

#endif
