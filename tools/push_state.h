/* What profctl push remembers, in a directory of its own: how far it came, and the windows it sent lately,
 * byte for byte. Every change is whole on disk before the next step is taken. */
#ifndef TOOLS_PUSH_STATE_H
#define TOOLS_PUSH_STATE_H

#include <stdint.h>

#include "base/buf.h"
#include "profile/profile.h"

#define PUSH_ID_MAX 64

struct push_state {
        const char *directory;
        char after[PUSH_ID_MAX]; /* the window acknowledged last; "": none yet */
        uint64_t since_ns;       /* where the first one is looked for */
        uint64_t last_seq;       /* of that window */
        /* Totals. */
        uint64_t windows, samples; /* acknowledged */
        uint64_t rejected;         /* profiles that the receiver took none of */
        uint64_t refused;          /* windows that the receiver called wrong: not sent again */
        uint64_t missed;           /* windows that the store had deleted before they were sent */
};

/* Reads it; a directory without one is at `since_ns`. STATUS_DONE or STATUS_FAILED (said). */
int push_state_read(struct push_state *ret, const char *directory, uint64_t since_ns);
int push_state_write(const struct push_state *s);

/* Keeps a window that was sent, for as long as it may become part of a merged one that is not. */
int push_state_keep(const struct push_state *s, const char *id, const void *data, size_t n);

/* Takes what was sent already out of a merged window: the windows kept that lie in it. The samples left are
 * those that were not sent. 0 or -errno. */
int push_state_subtract(const struct push_state *s, struct profile *p);

#endif
