/* A made-up world for the walk: mappings, tables and a stack, walked by the kernel half (walk_probe.bpf.c)
 * and by the user-space twin. */
#ifndef TESTS_BPF_WALK_FIXTURE_H
#define TESTS_BPF_WALK_FIXTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "bpf/abi.h"
#include "tests/bpf/walk_probe.h"

#define FIXTURE_SHARDS   2
#define FIXTURE_MAPPINGS 64
#define FIXTURE_PAGES    4096
#define FIXTURE_SEED     0x1234567890abcdefull /* of the hash */

struct walk_fixture {
        struct walk_probe_bpf *skel;
        bool arm64;
        struct walk_probe *probe;
        struct abi_mapping *mappings;
        uint64_t *pages;
        struct unwind_rule *rules;
        uint32_t *shard[FIXTURE_SHARDS]; /* rows */
};

struct walk_result {
        uint32_t n, walked, walk;
        bool defer;
        uint64_t hash;
        uint64_t frame[ABI_MAX_FRAMES];
};

/* 0 or -errno. */
int walk_fixture_new(struct walk_fixture *f, bool arm64);
void walk_fixture_free(struct walk_fixture *f);

/* Both walk from f->probe's input. */
int walk_kernel(struct walk_fixture *f, struct walk_result *ret);
/* ns of the kernel's own frame-pointer walk of a stack of `frames` frames, mean of `repeat` + 1;
 * p->fp_frames. */
double walk_frame_pointers(struct walk_fixture *f, uint32_t frames, uint32_t repeat);
void walk_twin(struct walk_fixture *f, struct walk_result *ret);

#endif
