#ifndef TESTS_BPF_WALK_PROBE_H
#define TESTS_BPF_WALK_PROBE_H

#include "bpf/abi.h"

#define WALK_PROBE_MAX_REPEAT 128

struct walk_probe {
        /* in */
        struct abi_registers registers;
        uint32_t first, n_mappings, settled, version;
        uint32_t repeat; /* the walk is done this many times more, for its time */
        /* out */
        uint64_t hash, ns;
        uint32_t n, walked, walk, defer, fp_frames;
        uint64_t frame[ABI_MAX_FRAMES];
};

#endif
