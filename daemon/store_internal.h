/* What the files of the store share. Functions named index_... want `lock` held, unless they say otherwise.
 */
#ifndef DAEMON_STORE_INTERNAL_H
#define DAEMON_STORE_INTERNAL_H

#include <pthread.h>
#include <sys/stat.h>

#include "daemon/store.h"
#include "daemon/store_facts.h"

#define STORE_MAX_ENTRIES 200000u
#define STORE_MAX_PENDING 64u
#define STORE_MAX_FILE    (256u << 20) /* bytes of one window's file */
#define STORE_MAX_PROFILE (1u << 30)   /* bytes of one window inflated */

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
        uint64_t replaced_at; /* reader ticket, see struct store_reader */
};

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

        bool merge_rests; /* it failed: wait for a window that could be stored */
        char boot_id[STORE_BOOT_ID_SIZE];
        uint64_t *foreign; /* hashes of names that were reported */
        uint32_t n_foreign;
        uint64_t bad_files, write_errors, merges, deleted;
        char error[256];
};

static inline uint64_t entry_end(const struct store_entry *e)
{
        return e->facts.start_ns + e->facts.duration_ns;
}

static inline bool entry_visible(const struct store_entry *e)
{
        return !e->bad && !e->replaced;
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
int store_unlink(int dir_fd, const char *id);
/* A window's profile; no lock needed. -EBADMSG: `*ret_why` says why. */
int store_read_window(int dir_fd, const char *id, struct profile **ret, const char **ret_why);

/* The same, merged into a profile, in less time. After an error `into` holds part of the window. */
int store_merge_window(int dir_fd, const char *id, struct profile *into, const char **ret_why);

/* -- store_gaps.c -- */

void gaps_note(struct store *s, uint64_t start_ns, uint64_t end_ns, const char *reason);
void gaps_flush(struct store *s);
const char *gaps_reason(int err); /* of a failed write */
extern const char gaps_stopped[];

/* -- store.c -- */

/* Adds windows to a profile that is new. Takes and releases `lock` by itself to mark damaged files.
 * -ENODATA: none could be read. With `strict`, any window that cannot be read is a failure. */
int store_add_windows(struct store *s, int dir_fd, char (*ids)[STORE_ID_SIZE], uint32_t n,
                      const struct selection *sel, bool strict, struct profile **ret);

#endif
