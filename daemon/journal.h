/* The samples of a window that is not stored yet, in memory that is kept (daemon/keep.h): what a daemon that
 * is killed has drained already is here for the next one.
 *
 * Records follow each other: a stack once, a row once for each key, whose counts grow in place. Frames are
 * as the kernel half gives them; see daemon/kept_state.h for their objects. */
#ifndef DAEMON_JOURNAL_H
#define DAEMON_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/keep.h"
#include "daemon/sample.h"

struct journal;

struct journal_head {
        uint64_t magic;
        uint64_t start_ns, start_real_ns; /* of the window, monotonic and wall clock */
        uint64_t end_ns;                  /* 0: it goes on */
        uint64_t before[ABI_STAT_MAX];    /* of sampler_stats(), at the start */
        uint64_t after[ABI_STAT_MAX];     /* and at the end */
        uint64_t used;                    /* bytes of records that follow */
        uint64_t skipped;                 /* samples that found no room */
};

/* Begins one under a name of its own. bytes: the most it may take. */
int journal_new(struct journal **ret, struct keep *keep, uint32_t number, size_t bytes);
/* Its window is stored: forgets it. */
struct journal *journal_free(struct journal *j);
/* It stays for the next daemon. */
struct journal *journal_leave(struct journal *j);

struct journal_head *journal_head(struct journal *j);

/* Stacks that come before their rows; rows with stacks, noted when they are new. */
void journal_stack(struct journal *j, uint64_t hash, const uint64_t *frame, uint32_t n);
void journal_add(struct journal *j, const struct sample_row *row);

/* Reads one that was found. Bytes that make no sense end it. */
struct journal_reader {
        void (*stack)(void *ctx, uint64_t hash, const uint64_t *frame, uint32_t n);
        void (*row)(void *ctx, const struct abi_key *key, const struct abi_count *count);
        void *ctx;
};
void journal_read(const void *memory, size_t size, const struct journal_reader *reader);
bool journal_is_one(const void *memory, size_t size);

#endif
