#include "daemon/unwind_space.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

#define GRACE_TICKS 2

struct waiting {
        uint32_t first, n;
        uint32_t tick; /* at which it was given back */
};

struct unwind_space {
        uint32_t n, usable, border;
        uint32_t hint; /* where the last run ended */
        uint32_t used, n_waiting_units;
        uint32_t tick;
        struct waiting *waiting; /* oldest first */
        uint32_t n_waiting, cap_waiting;
        uint64_t taken[]; /* bitmap */
};

int unwind_space_new(struct unwind_space **ret, uint32_t n, uint32_t usable, uint32_t border)
{
        struct unwind_space *s = calloc(1, sizeof(*s) + ((size_t)n + 63) / 64 * 8);

        if (!s)
                return -ENOMEM;
        s->n = n;
        s->usable = MIN_OF(usable, n);
        s->border = border;
        *ret = s;
        return 0;
}

struct unwind_space *unwind_space_free(struct unwind_space *s)
{
        if (s) {
                free(s->waiting);
                free(s);
        }
        return NULL;
}

static bool is_taken(const struct unwind_space *s, uint32_t i)
{
        return s->taken[i / 64] >> (i % 64) & 1;
}

static void mark(struct unwind_space *s, uint32_t first, uint32_t n, bool taken)
{
        for (uint32_t i = first; i < first + n; i++) {
                if (taken)
                        s->taken[i / 64] |= 1ull << (i % 64);
                else
                        s->taken[i / 64] &= ~(1ull << (i % 64));
        }
}

/* A free run within [from, to); false when there is none. */
static bool find_run(const struct unwind_space *s, uint32_t from, uint32_t to, uint32_t n, uint32_t *ret)
{
        uint32_t start = from;

        for (uint32_t i = from; i < to;) {
                if (i % 64 == 0 && s->taken[i / 64] == UINT64_MAX) {
                        i += 64;
                        start = i;
                        continue;
                }
                if (is_taken(s, i)) {
                        i++;
                        start = i;
                        continue;
                }
                if (s->border && start / s->border != i / s->border)
                        start = i;
                i++;
                if (i - start == n) {
                        *ret = start;
                        return true;
                }
        }
        return false;
}

int unwind_space_take(struct unwind_space *s, uint32_t n, uint32_t *ret_first)
{
        uint32_t first;

        if (n == 0 || n > s->usable || (s->border && n > s->border))
                return -ENOSPC;
        if (!find_run(s, s->hint, s->usable, n, &first) && !find_run(s, 0, s->usable, n, &first))
                return -ENOSPC;
        mark(s, first, n, true);
        s->hint = first + n;
        s->used += n;
        *ret_first = first;
        return 0;
}

static void release(struct unwind_space *s, const struct waiting *w)
{
        mark(s, w->first, w->n, false);
        s->n_waiting_units -= w->n;
}

void unwind_space_give(struct unwind_space *s, uint32_t first, uint32_t n)
{
        if (n == 0)
                return;
        s->used -= n;
        s->n_waiting_units += n;
        if (s->n_waiting == s->cap_waiting) {
                uint32_t cap = s->cap_waiting ? s->cap_waiting * 2 : 64;
                struct waiting *bigger = reallocarray(s->waiting, cap, sizeof(*bigger));
                if (!bigger)
                        return; /* stays taken for good: safe, and memory has run out anyway */
                s->waiting = bigger;
                s->cap_waiting = cap;
        }
        s->waiting[s->n_waiting++] = (struct waiting){.first = first, .n = n, .tick = s->tick};
}

static void release_older(struct unwind_space *s, uint32_t ticks)
{
        uint32_t i = 0;

        while (i < s->n_waiting && s->tick - s->waiting[i].tick >= ticks)
                release(s, &s->waiting[i++]);
        s->n_waiting -= i;
        if (i)
                memmove(s->waiting, s->waiting + i, s->n_waiting * sizeof(*s->waiting));
}

void unwind_space_tick(struct unwind_space *s)
{
        s->tick++;
        release_older(s, GRACE_TICKS);
}

void unwind_space_quiet(struct unwind_space *s)
{
        release_older(s, 0);
}

void unwind_space_grow(struct unwind_space *s, uint32_t usable)
{
        s->usable = MIN_OF(usable, s->n);
}

uint32_t unwind_space_usable(const struct unwind_space *s)
{
        return s->usable;
}

uint32_t unwind_space_used(const struct unwind_space *s)
{
        return s->used;
}

uint32_t unwind_space_waiting(const struct unwind_space *s)
{
        return s->n_waiting_units;
}
