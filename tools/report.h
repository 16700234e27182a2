/* The table of a profile as text and as a browser. */
#ifndef TOOLS_REPORT_H
#define TOOLS_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "profile/profile.h"

struct report_options {
        const char *event; /* sample type; NULL: the profile's default */
        const char *sort;  /* keys, comma-separated; NULL: the default */
        bool callers, callees;
        bool no_inline;
        uint32_t max_rows; /* 0: all that have a share worth a line */
};

struct report_options report_defaults(void);

/* Writes the table to a descriptor, as wide as its terminal. Returns the exit status. */
int report_text(const struct profile *p, const struct report_options *o, int fd);

/* The browser, until the user leaves it. Returns the exit status. */
int report_browse(struct profile *p, const struct report_options *o);

#endif
