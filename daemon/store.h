/* The store: a directory of standard pprof files, one per window, `<start>_<seconds>.pb.gz`.
 *
 * Written to a temporary name, fsync'ed, renamed. Older windows are merged into coarser ones, the oldest
 * deleted by size and by age. Files that are not ours, or damaged, are reported, left alone and passed over.
 * All functions may be called from any thread. */
#ifndef DAEMON_STORE_H
#define DAEMON_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "profile/profile.h"
#include "profile/selection.h"

struct store;

struct store_config {
        const char *directory;
        uint64_t max_size;   /* bytes of all windows */
        uint64_t max_age_ns;
        uint64_t window_ns;  /* of a new window */
        uint64_t merge_ns[2];       /* widths that windows are merged into: 10 min, 1 h */
        uint64_t merge_after_ns[2]; /* age at which: 2 h, 24 h */
};

struct store_window {
        char id[40];          /* "<start>_<seconds>" */
        uint64_t start_ns;    /* since the epoch */
        uint64_t duration_ns;
        uint64_t size;        /* bytes on disk */
        uint64_t samples, lost; /* from its ledger */
};

/* Why there is no window over a stretch of time. */
struct store_gap {
        uint64_t start_ns, end_ns;
        const char *reason; /* "stopped", "host down", "disk full", "unknown"; static */
};

/* A directory that cannot be written is no failure here: the store reads what is there, and says what is wrong
 * in store_error(). */
int store_open(struct store **ret, const struct store_config *config);
struct store *store_free(struct store *s);

/* Stores one window. The profile's time_ns and duration_ns name it; its ledger comments are kept. -ENOSPC,
 * -EROFS and the like: nothing was changed. */
int store_put(struct store *s, const struct profile *p);

/* Merges and deletes what is due; at most about `budget_ns` of CPU at a time. Returns 1 when more is due. */
int store_maintain(struct store *s, uint64_t now_ns, uint64_t budget_ns);

/* Windows that overlap [since, until), oldest first; the caller frees *ret. */
int store_list(struct store *s, uint64_t since_ns, uint64_t until_ns, struct store_window **ret, uint32_t *ret_n);
int store_gaps(struct store *s, uint64_t since_ns, uint64_t until_ns, struct store_gap **ret, uint32_t *ret_n);

/* The merged selection over [since, until): windows that overlap it, whole. -ENODATA: there are none. */
int store_query(struct store *s, uint64_t since_ns, uint64_t until_ns, const struct selection *sel,
                struct profile **ret);

/* An open descriptor on one window's file; -ENOENT. */
int store_open_window(struct store *s, const char *id);

struct store_stats {
        uint64_t size, windows, oldest_ns, newest_ns;
        uint64_t bad_files, write_errors, merges, deleted;
        char error[256]; /* the last failure that still stands; "" */
};
void store_stats(struct store *s, struct store_stats *ret);

#endif
