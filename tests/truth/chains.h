/* The chains that a workload of tests/programs says its stacks have (tests/programs/truth.h), and whether a
 * stack is one of them. */
#ifndef TESTS_TRUTH_CHAINS_H
#define TESTS_TRUTH_CHAINS_H

#include <stdbool.h>
#include <stdint.h>

#define TRUTH_MAX_CHAINS 64
/* As a frame: an unknown number of frames is left out here. */
#define TRUTH_FOLDED "..."

struct truth_chains {
        struct truth_chain {
                char **token;
                uint32_t n;
                bool other;
        } chain[TRUTH_MAX_CHAINS];
        uint32_t n;
};

enum truth_match { TRUTH_WRONG, TRUTH_OTHER, TRUTH_EXACT };

/* A line of the workload's output; others than "chain" and "other" are ignored. */
void truth_chains_add(struct truth_chains *c, const char *line);
void truth_chains_done(struct truth_chains *c);

/* `frame`: names, leaf first; NULL where there is no name. */
enum truth_match truth_chains_match(const struct truth_chains *c, const char *const *frame, uint32_t n);

#endif
