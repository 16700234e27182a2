/* The store: a directory of standard pprof files, one per window, `<start>_<seconds>.pb.gz`.
 *
 * Written to a temporary name, fsync'ed, renamed. Older windows are merged into coarser ones, the oldest
 * deleted by size and by age. Files that are not ours, or damaged, are reported, left alone and passed over.
 * All functions may be called from any thread.
 *
 * Names. `<start>` is the window's first second as 20261201T021000Z (UTC), and with `<seconds>` the window's
 * ID. No two windows of a store begin in the same second: when the clock was set back and a window would
 * begin in the second of another one, it is named after the next free second. What happened when is told by
 * the profile (time_nanos) and by the sequence number that each window carries in the file's gzip comment,
 * see daemon/store_facts.h; listings by time go by the former, resumed pulls by the latter.
 *
 * Ledger. Comments "lost.<cause>: N" are summed into store_window.lost; the sums of the sample type
 * "samples" are store_window.samples. "boot" (the boot ID) and "boot_end_ns" (CLOCK_BOOTTIME at the window's
 * end) tell apart a clock that was set from a host that was down; where the profile does not say,
 * store_put() takes what is so when it is called.
 *
 * Only one store at a time writes to a directory (flock on it); any other one reads, and its store_put()
 * answers -EBUSY. */
#ifndef DAEMON_STORE_H
#define DAEMON_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "profile/profile.h"
#include "profile/selection.h"

#define STORE_ID_SIZE      40
#define STORE_MERGE_LEVELS 2

struct store;

struct store_config {
        const char *directory;                 /* made when it is missing, its parent must exist */
        uint64_t max_size;                     /* bytes of all windows; 0: no limit */
        uint64_t max_age_ns;                   /* 0: no limit */
        uint64_t window_ns;                    /* of a new window */
        uint64_t merge_ns[STORE_MERGE_LEVELS]; /* widths that windows are merged into: 10 min, 1 h; 0: not
                                                  merged */
        uint64_t merge_after_ns[STORE_MERGE_LEVELS]; /* age at which */
};

struct store_window {
        char id[STORE_ID_SIZE]; /* "<start>_<seconds>" */
        uint64_t start_ns;      /* since the epoch */
        uint64_t duration_ns;
        uint64_t size;                /* bytes on disk */
        uint64_t samples, lost;       /* from its ledger */
        uint64_t first_seq, last_seq; /* numbers of the windows in it, in the order they were stored; 0: not
                                         known */
        bool overlaps; /* of store_after(): a merged window, part of which was stored before the one asked
                          for */
};

/* Why there is no window over a stretch of time. */
struct store_gap {
        uint64_t start_ns, end_ns;
        const char *reason; /* "stopped", "killed", "host down", "disk full", "not writable", "write failed",
                             * "clock set", "unknown"; static */
};

/* A directory that cannot be written is no failure here: the store reads what is there, and says what is
 * wrong in store_stats.error. */
int store_open(struct store **ret, const struct store_config *config);

/* Notes in the directory that the store was left in order, when this one wrote to it. */
struct store *store_free(struct store *s);
DEFINE_CLEANUP(struct store, store_free);

/* Stores one window. The profile's time_ns and duration_ns name it; its ledger comments are kept. -ENOSPC,
 * -EROFS and the like: nothing was changed; the stretch becomes a gap with its reason. */
int store_put(struct store *s, const struct profile *p);

/* New limits and widths (SIGHUP); the directory stays. */
void store_configure(struct store *s, const struct store_config *config);

/* Merges and deletes what is due; at most about `budget_ns` of CPU at a time. Returns 1 when more is due, 0
 * when done, or -errno (said in store_stats.error, merging rests until the next window was stored). */
int store_maintain(struct store *s, uint64_t now_ns, uint64_t budget_ns);

/* Windows that overlap [since, until), oldest first; the caller frees *ret. */
int store_list(struct store *s, uint64_t since_ns, uint64_t until_ns, struct store_window **ret,
               uint32_t *ret_n);
int store_gaps(struct store *s, uint64_t since_ns, uint64_t until_ns, struct store_gap **ret,
               uint32_t *ret_n);

/* Windows that were stored after the one named, in the order they were stored, at most `max`; all when id is
 * NULL. An ID that is not there any more stands for its place in time. -EINVAL: not an ID. The caller frees
 * *ret. */
int store_after(struct store *s, const char *id, uint32_t max, struct store_window **ret, uint32_t *ret_n);

/* The merged selection over [since, until): windows that overlap it, whole. -ENODATA: there are none;
 * -ENOENT: none of them has the event that is selected.
 *
 * Without `processes` the samples have no labels "pid" and "thread_id", and the sums that the store keeps of
 * ten minutes, an hour and six hours answer. With them, an answer of more than STORE_MAX_ROWS samples that
 * differ loses them too: a ledger line STORE_LEFT_OUT then says so. What is more than that still is folded,
 * the smallest into PROFILE_REMAINDER, counted in "folded.stacks" and "folded.samples". */
#define STORE_MAX_ROWS 400000u
#define STORE_LEFT_OUT "labels.left_out"
int store_query(struct store *s, uint64_t since_ns, uint64_t until_ns, const struct selection *sel,
                bool processes, struct profile **ret);

/* An open descriptor on one window's file; -ENOENT. */
int store_open_window(struct store *s, const char *id);

struct store_stats {
        uint64_t size, windows, oldest_ns, newest_ns;
        uint64_t bad_files, write_errors, merges, deleted;
        char error[256]; /* the last failure that still stands; "" */
};
void store_stats(struct store *s, struct store_stats *ret);

#endif
