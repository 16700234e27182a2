#include "tests/bpf/own_text.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cleanup.h"

#define ROW   100 /* of shard 0 */
#define RULE  9
#define FIRST 1 /* entry of mappings and of pages */

/* From the linker. */
extern char __executable_start, etext;

/* One row for all pages: CFA = fp + 16, the caller's fp at CFA - 16. */
static int make_table(const struct unwind_maps *m, uint32_t pages)
{
        LIBBPF_OPTS(bpf_map_create_opts, opts, .map_flags = BPF_F_MMAPABLE);
        _cleanup_close_ int fd =
                        bpf_map_create(BPF_MAP_TYPE_ARRAY, "shard", 4, ABI_SHARD_ROWS * 4, 1, &opts);
        uint32_t zero = 0, *rows;

        if (fd < 0)
                return fd;
        rows = mmap(NULL, ABI_SHARD_ROWS * 4, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (rows == MAP_FAILED)
                return -errno;
        rows[ROW] = UNWIND_ROW(0, RULE);
        munmap(rows, ABI_SHARD_ROWS * 4);
        m->rules[RULE] = (struct unwind_rule){UNWIND_FP | UNWIND_FP_AT_CFA << 4, 0, -2, 16};
#ifdef __aarch64__
        m->rules[RULE].aux = UNWIND_AUX_BESIDE_FP;
#endif
        for (uint32_t i = 0; i < pages; i++)
                m->pages[FIRST + i] = ABI_PAGE(0, ROW, 1);
        return bpf_map_update_elem(m->shards_fd, &zero, &fd, BPF_ANY);
}

int own_text_map(struct sampler *sampler, uint64_t stamp, bool table)
{
        uint64_t start = (uintptr_t)&__executable_start & ~4095ull,
                 end = ((uintptr_t)&etext + 4095) & ~4095ull;
        uint32_t pid = (uint32_t)getpid(), pages = (uint32_t)((end - start) >> UNWIND_PAGE_SHIFT);
        struct abi_process p = {.stamp = stamp,
                                .first = FIRST,
                                .n = 1,
                                .flags = ABI_PROCESS_SETTLED,
                                .version = 1 + table};
        struct abi_mapping mapping = {.start = start, .end = end, .page = FIRST, .object = OWN_TEXT_OBJECT};
        struct unwind_maps m;

        sampler_unwind_maps(sampler, &m);
        if (table) {
                int r = make_table(&m, pages);
                if (r < 0)
                        return r;
                mapping.n_pages = pages;
                mapping.first_page = (uint32_t)(start >> UNWIND_PAGE_SHIFT);
        } else {
                mapping.flags = ABI_MAPPING_FP;
        }
        m.mappings[FIRST] = mapping;
        return bpf_map_update_elem(m.processes_fd, &pid, &p, BPF_ANY);
}
