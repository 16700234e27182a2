/* Trouble of a program that goes on by itself: what lasts is said once, and again when it is another. */
#ifndef TOOLS_TROUBLE_H
#define TOOLS_TROUBLE_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct trouble {
        char what[512]; /* "": none */
};

/* Whether it is another than the one before. */
static inline bool trouble_is_new(struct trouble *t, const char *what)
{
        if (strncmp(t->what, what, sizeof(t->what) - 1) == 0)
                return false;
        snprintf(t->what, sizeof(t->what), "%s", what);
        return true;
}

/* Whether there was any. */
static inline bool trouble_ends(struct trouble *t)
{
        bool had = t->what[0];

        t->what[0] = 0;
        return had;
}

#endif
