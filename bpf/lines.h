/* Values of the maps that only the programs read and write; the daemon, which makes the maps, needs their
 * sizes. */
#ifndef BPF_LINES_H
#define BPF_LINES_H

#include "bpf/abi.h"

/* Which row may have a key: a line of slots by the key's hash, holding 16 further bits of the hash, so that
 * only a row that is probably the one is touched, and row + 1; 0: free. A full line makes a second row with
 * the same key, no loss. */
#define INDEX_SLOTS 16
struct index_line {
        uint32_t slot[INDEX_SLOTS];
};

/* Hashes of the stacks sent in the epoch. */
#define SEEN_SLOTS 8
struct seen_line {
        uint64_t hash[SEEN_SLOTS];
};

/* Per CPU, what addresses were found to be: mostly the same few hundred in sample after sample, and half a
 * cache line in place of the dozen that mapping list, page index, rows and rule are in. An entry is of one
 * version of a mapping list and so never goes stale: what a list says is at an address does not change, and
 * the unwind table of that object neither; only what is found in a loaded table is kept here.
 *
 * Return addresses are kept in the order in which walks met them, so that a chain that was walked before is
 * one run of entries, which the processor fetches ahead of the walk: at 99 Hz the caches are the program's,
 * and misses one after the other are what a walk costs. STEP_INDEX tells where to go on when a chain turns
 * off. Interrupted instructions are many, each seen rarely: they have places of their own, by their hash,
 * and remember where their callers' run is. */
#define STEP_LOG_BITS   10
#define STEP_LOG        (1u << STEP_LOG_BITS) /* entries per CPU, of return addresses, oldest overwritten */
#define STEP_LEAF_BITS  9
#define STEP_LEAF       (1u << STEP_LEAF_BITS) /* of interrupted instructions, behind them */
#define STEP_CACHE      (STEP_LOG + STEP_LEAF)
#define STEP_INDEX_BITS 11
#define STEP_INDEX      (1u << STEP_INDEX_BITS)
struct step_entry {
        uint64_t ip, frame, rule;
        uint32_t version;
        uint16_t flags;
        uint16_t caller; /* of an interrupted instruction: where in the log its caller was found last */
};
_Static_assert(sizeof(struct step_entry) == 32, "two in a cache line");

struct step_index {
        uint16_t at[STEP_INDEX]; /* place in the CPU's log, by the hash of address and version */
};

#endif
