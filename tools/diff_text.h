/* A comparison as text, for diff and changes. */
#ifndef TOOLS_DIFF_TEXT_H
#define TOOLS_DIFF_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "profile/diff.h"

struct diff_text {
        int columns; /* -1: as long as a line takes */
        bool grey;   /* lines within the noise in a terminal's faint style */
        enum diff_by by;
        bool absolute;                   /* CPUs, instead of shares, with the interval of their change */
        uint32_t max_changed, max_noise; /* lines */
};

/* What the two sides are of, and how much changed in all. */
void diff_text_sides(const struct profile *a, const struct profile *b, const struct diff *d,
                     struct buf *out);
/* The rows: those that changed; then, apart, those that did not as far as can be told. */
void diff_text_rows(const struct diff *d, const struct diff_text *how, struct buf *out);

#endif
