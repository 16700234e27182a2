/* The debug files that were fetched, in a directory that the symbolizer looks in: .build-id/xx/yyyy.debug.
 * What no server had is remembered for a day, so that it is not asked for again and again.
 *
 * One process uses a directory at a time. Files appear whole, by rename. When they are too large together,
 * those go whose object was in no profile for the longest time. */
#ifndef TOOLS_DEBUG_CACHE_H
#define TOOLS_DEBUG_CACHE_H

#include <limits.h>
#include <stdint.h>

struct debug_cache {
        const char *directory;
        uint64_t max; /* bytes of all files together */
        /* Where files are put before they are added: one, and the dwz file that it refers to. */
        char temporary[PATH_MAX], alt_temporary[PATH_MAX];
        int lock_fd;
};

enum debug_cached {
        DEBUG_CACHED,  /* the file is there */
        DEBUG_MISSING, /* it was asked for today, and there was none */
        DEBUG_UNKNOWN,
};

/* Makes the directory where it is missing, and takes its lock. STATUS_DONE or STATUS_FAILED (said). */
int debug_cache_open(struct debug_cache *c, const char *directory, uint64_t max);
void debug_cache_close(struct debug_cache *c);

/* Forgets what is a day old, and links of files that are gone. */
void debug_cache_tidy(const struct debug_cache *c);

/* Asking counts as use. */
enum debug_cached debug_cache_look(const struct debug_cache *c, const char *build_id);
/* 0 or -errno. */
int debug_cache_set_missing(const struct debug_cache *c, const char *build_id);

/* Takes over one of the temporary files. -ENOSPC: it does not fit, but in place of files used since
 * `since_s` (wall clock); other errors are those of the file system. On error the file is removed. */
int debug_cache_add(const struct debug_cache *c, const char *build_id, const char *temporary,
                    int64_t since_s);
/* Using the one will count as use of the other. 0 or -errno. */
int debug_cache_link(const struct debug_cache *c, const char *build_id, const char *alt_build_id);

#endif
