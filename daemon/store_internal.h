/* What the files of the store share. Functions named index_... want `lock` held, unless they say otherwise.
 */
#ifndef DAEMON_STORE_INTERNAL_H
#define DAEMON_STORE_INTERNAL_H

#include <pthread.h>
#include <sys/stat.h>

#include "daemon/store.h"
#include "daemon/store_facts.h"
#include "profile/pprof.h"

#define STORE_MAX_ENTRIES 200000u
#define STORE_MAX_PENDING 64u
#define STORE_MAX_FILE    (256u << 20) /* bytes of one window's file */
#define STORE_MAX_PROFILE (1u << 30)   /* bytes of one window inflated */

#define STORE_SUMS        "summaries" /* directory of the sums, in the store's */
#define STORE_SOURCE_SIZE 56u

/* A file whose name is a window's. */
struct store_entry {
        char id[STORE_ID_SIZE];
        struct store_facts facts;
        ino_t ino;
        off_t disk_size;
        struct timespec mtime;
        bool ours;            /* written by a store: it has a sequence number */
        bool bad;             /* damaged: reported, passed over */
        bool replaced;        /* a merged window that is there has all of it */
        bool verified;        /* read whole, or written by this process */
        bool seen;            /* by the scan under way */
        bool apart;           /* could not be merged with its neighbours: not tried again */
        bool unsummed;        /* likewise, into a sum */
        uint64_t replaced_at; /* reader ticket, see struct store_reader */
};

/* A file that holds what some windows add up to, without the labels of single processes. */
struct store_sum {
        struct store_facts facts; /* which windows: first_seq to last_seq; no `from` */
        uint64_t disk_size;
        bool bad; /* could not be read: it goes at the next chance */
};

/* A file to read: a window's ID, or "summaries/<first>-<last>". */
struct store_source {
        char name[STORE_SOURCE_SIZE];
        bool is_sum;
};

/* What a query reads. */
struct store_plan {
        struct store_source *source;
        uint32_t n;
};

static inline void store_plan_done(struct store_plan *p)
{
        free(p->source);
}

/* A query under way. A replaced file is removed only after the queries that began before it was replaced. */
struct store_reader {
        uint64_t ticket;
        struct store_reader *next;
};

/* A stretch that could not be stored, or the moment of an orderly stop. */
struct store_mark {
        uint64_t start_ns, end_ns;
        const char *reason;
};

struct store {
        struct store_config config;    /* config.directory is owned */
        pthread_mutex_t lock;          /* all below */
        pthread_mutex_t maintain_lock; /* one store_maintain() at a time; taken before `lock` */

        int dir_fd;  /* -1: not there yet */
        bool writer; /* holds the directory's lock */
        bool put;    /* has written a window */
        bool gone;   /* the directory is not the one at the path any more */

        struct store_entry **entry; /* by ID, which is by time */
        uint32_t n_entries, cap_entries;
        struct timespec scanned; /* the directory's time of change at the last scan */
        bool scan_again;         /* it may have changed since, within the clock's grain */

        uint64_t next_seq;
        uint64_t next_ticket;
        struct store_reader *readers;

        struct store_mark pending[STORE_MAX_PENDING]; /* not yet in the log of gaps */
        uint32_t n_pending;

        struct store_sum *sum; /* see store_sums.c */
        uint32_t n_sums, cap_sums;
        bool sums_known; /* the directory's were looked at */

        bool merge_rests; /* it failed: wait for a window that could be stored */
        char boot_id[STORE_BOOT_ID_SIZE];
        uint64_t *foreign; /* hashes of names that were reported */
        uint32_t n_foreign;
        uint64_t bad_files, write_errors, merges, deleted;
        char error[256];
        const char *failed_what; /* of it: a literal, */
        int failed_err;          /* and why */
};

static inline uint64_t entry_end(const struct store_entry *e)
{
        return e->facts.start_ns + e->facts.duration_ns;
}

static inline bool entry_visible(const struct store_entry *e)
{
        return !e->bad && !e->replaced;
}

static inline bool entry_overlaps(const struct store_entry *e, uint64_t since_ns, uint64_t until_ns)
{
        return entry_visible(e) && e->facts.start_ns < until_ns && entry_end(e) > since_ns;
}

/* -- store_index.c -- */

/* Looks at the directory when it changed. A failure is in `error`; what was known stays. */
void index_refresh(struct store *s);
struct store_entry *index_find(struct store *s, const char *id);
/* Position of the first entry whose ID is not less. */
uint32_t index_position(const struct store *s, const char *id);
/* Enters a file just written; facts are taken over. 0 or -errno. */
int index_add(struct store *s, const char *id, struct store_facts *facts, bool verified);
void index_remove(struct store *s, const char *id);
/* Marks which entries merged ones replace. */
void index_replaced(struct store *s);
void index_bad(struct store *s, struct store_entry *e, const char *why);
void index_free(struct store *s);
/* Visible windows of ours in the order they were stored, NULL without memory; free() the array only. */
struct store_entry **index_in_order(struct store *s, uint32_t *ret_n);
/* Whether a window that is or was there begins in this second. */
bool index_second_taken(struct store *s, uint64_t second);

/* -- store_io.c: without `lock` where it says so -- */

void store_fail(struct store *s, const char *what, const char *on, int err,
                const char *hint); /* sets error */
int store_open_directory(struct store *s);
int store_become_writer(struct store *s);
/* Writes a temporary file, synced; no lock needed. `ret_name` has room for 64. */
int store_write_temp(int dir_fd, const char *kind, uint64_t number, const struct buf *b, char *ret_name);
/* Renames it; -EEXIST when the name is taken. No lock needed. */
int store_publish(int dir_fd, const char *temp, const char *id);
/* Makes names last. Slow disks: without `lock`. */
void store_sync_directory(int dir_fd);
int store_unlink(int dir_fd, const char *name);
/* The profile of a window (its ID) or a sum (its name); no lock needed. -EBADMSG: `*ret_why` says why. */
int store_read_window(int dir_fd, const char *name, struct profile **ret, const char **ret_why);

/* The same, what is chosen of it, merged into a profile, in less time. After an error `into` holds part of
 * the window. */
int store_merge_window(int dir_fd, const char *name, const struct pprof_choice *choice, struct profile *into,
                       const char **ret_why);

/* -- store_gaps.c -- */

void gaps_note(struct store *s, uint64_t start_ns, uint64_t end_ns, const char *reason);
void gaps_flush(struct store *s);
const char *gaps_reason(int err); /* of a failed write */
extern const char gaps_stopped[];

/* -- store_sums.c -- */

/* Finds the sums that are there; once. */
void sums_find(struct store *s);
/* Makes and removes one sum that is due: 1, done, look again; 0, nothing is due; or -errno. Releases and
 * takes `lock`. */
int sums_maintain(struct store *s, uint64_t now_ns);
/* Which files to read for these windows; with `s`, sums in the place of windows that they hold. The windows
 * of ours come first, in the order they were stored. */
int sums_plan(const struct store *s, struct store_entry *const *v, uint32_t n, struct store_plan *ret);
/* Whether a sum's file has in it what its name says; other names are not looked at. */
bool sums_is_own(int fd, const char *file, uint64_t size);
void sums_bad(struct store *s, const char *name);
uint64_t sums_size(const struct store *s);
void sums_free(struct store *s);

/* -- store_query.c -- */

/* How windows are added up. */
struct store_reading {
        const struct selection *selection; /* NULL: all */
        bool no_processes;
        bool strict;       /* any file that cannot be read is a failure */
        uint32_t max_rows; /* samples that differ, 0: no bound. Beyond it: -EOVERFLOW */
        bool fold;         /* the smallest are folded instead */
};

/* Adds files to a profile that is new. Takes and releases `lock` by itself to mark damaged files. -ENODATA:
 * none could be read. -EAGAIN: a damaged one has others that take its place; a new plan is needed. */
int store_add_up(struct store *s, int dir_fd, const struct store_plan *plan, const struct store_reading *how,
                 struct profile **ret);

#endif
