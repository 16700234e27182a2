#include "tests/daemon/bpf_maps.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/cleanup.h"

#define N_MAPPINGS  4096
#define N_PROCESSES 1024

int bpf_maps_new(struct unwind_maps *ret, uint32_t n_shards, uint32_t n_pages)
{
        LIBBPF_OPTS(bpf_map_create_opts, inner, .map_flags = BPF_F_MMAPABLE);
        LIBBPF_OPTS(bpf_map_create_opts, outer);
        struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};

        setrlimit(RLIMIT_MEMLOCK, &all);
        _cleanup_close_ int template =
                        bpf_map_create(BPF_MAP_TYPE_ARRAY, "t_shard", 4, ABI_SHARD_ROWS * 4, 1, &inner);
        if (template <0)
                return -errno;
        outer.inner_map_fd = (uint32_t) template;
        _cleanup_close_ int shards =
                        bpf_map_create(BPF_MAP_TYPE_ARRAY_OF_MAPS, "t_shards", 4, 4, n_shards, &outer);
        if (shards < 0)
                return -errno;
        int processes = bpf_map_create(BPF_MAP_TYPE_HASH, "t_processes", 4, sizeof(struct abi_process),
                                       N_PROCESSES, NULL);
        if (processes < 0)
                return -errno;
        *ret = (struct unwind_maps){
                        .processes_fd = processes,
                        .shards_fd = TAKE_FD(shards),
                        .mappings = calloc(N_MAPPINGS, sizeof(struct abi_mapping)),
                        .pages = calloc(n_pages, sizeof(uint64_t)),
                        .rules = calloc(ABI_MAX_RULES, sizeof(struct unwind_rule)),
                        .n_processes = N_PROCESSES,
                        .n_mappings = N_MAPPINGS,
                        .n_pages = n_pages,
                        .n_shards = n_shards,
        };
        return 0;
}

void bpf_maps_free(struct unwind_maps *m)
{
        close(m->processes_fd);
        close(m->shards_fd);
        free(m->mappings);
        free(m->pages);
        free(m->rules);
}
