/* Maps as the sampler makes them, without its programs: for tests of what writes them. Those that are mapped
 * are plain memory. */
#ifndef TESTS_BPF_MAPS_H
#define TESTS_BPF_MAPS_H

#include "daemon/sampler.h"

/* 0, or -errno when this user may not make maps. */
int bpf_maps_new(struct unwind_maps *ret, uint32_t n_shards, uint32_t n_pages);
void bpf_maps_free(struct unwind_maps *m);

#endif
