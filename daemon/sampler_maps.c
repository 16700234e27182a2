/* Sizes of the maps, loading of the BPF object, and the maps in our memory. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "base/log.h"
#include "bpf/lines.h"
#include "daemon/sampler_impl.h"
#include "profd.skel.h"

#define DEFAULT_DRAIN_MS 1000
#define MIN_MEMORY       (16u << 20)
#define STEP_BYTES       (STEP_CACHE * sizeof(struct step_entry) + sizeof(struct step_index)) /* for a CPU */
#define STACK_BYTES      400   /* of a new stack in the ring, kernel part included, on average */
#define MAX_ROWS_PER_CPU 32768 /* fits into a slot of index_line */
#define LOG_TAIL         3000  /* bytes of the verifier log that are worth a look */
/* What an entry of a preallocated hash map takes in the kernel besides key and value: struct htab_elem (48)
 * and a bucket (16), kernel/bpf/hashtab.c. */
#define HASH_ENTRY_BYTES 64

static uint32_t round_up_pow2(uint64_t n)
{
        uint32_t p = 1;

        while (p < n && p < 1u << 30)
                p <<= 1;
        return p;
}

static uint64_t clamp_u64(uint64_t v, uint64_t low, uint64_t high)
{
        return v < low ? low : v > high ? high : v;
}

/* Rows and rings hold all that a drain interval can bring, at twice the rate for a drain that comes late;
 * the rest of the memory is for unwind tables. */
void sampler_plan(struct sampler_sizes *ret, const struct sampler_config *config, uint32_t cpus)
{
        uint64_t memory = MAX_OF(config->memory, (uint64_t)MIN_MEMORY);
        uint64_t interval = config->drain_ms ? config->drain_ms : DEFAULT_DRAIN_MS;
        uint64_t samples = (uint64_t)config->frequency * config->n_events * interval * 2 / 1000 +
                           64; /* of a CPU */
        uint64_t caches = MIN_OF((uint64_t)cpus * STEP_BYTES, memory / 8);
        uint64_t most = (memory / 4 - caches) / cpus / (2 * (sizeof(struct abi_row) + 8));
        struct sampler_sizes z = {.cpus = cpus};

        z.rows_per_cpu = (uint32_t)clamp_u64(MIN_OF(samples, most), 64, MAX_ROWS_PER_CPU);
        z.index_lines = round_up_pow2((z.rows_per_cpu + INDEX_SLOTS - 1) / INDEX_SLOTS);
        z.seen_lines = round_up_pow2(
                        clamp_u64((uint64_t)z.rows_per_cpu * cpus * 4 / SEEN_SLOTS, 64, memory / 2048));
        z.stacks_ring = round_up_pow2(clamp_u64(samples * cpus * STACK_BYTES / 2, 512 << 10, memory / 16));
        z.raws_ring = round_up_pow2(clamp_u64(cpus * (1ull << 20), 2 << 20, memory / 16));
        z.processes = (uint32_t)clamp_u64(memory >> 14, 1024, 32768);
        z.mappings = (uint32_t)clamp_u64(memory >> 12, 4096, 131072);
        z.pages = (uint32_t)clamp_u64(memory >> 9, 65536, 1 << 20);
        z.shards = 0;
        *ret = z;
}

uint64_t sampler_fixed_bytes(const struct sampler_sizes *z)
{
        return (uint64_t)z->cpus * sizeof(struct abi_cpu) +
               2ull * z->cpus *
                               (z->rows_per_cpu * sizeof(struct abi_row) +
                                z->index_lines * sizeof(struct index_line)) +
               2ull * z->seen_lines * sizeof(struct seen_line) + z->stacks_ring + z->raws_ring +
               (uint64_t)z->processes * (sizeof(struct abi_process) + 8 + HASH_ENTRY_BYTES) +
               (uint64_t)z->mappings * sizeof(struct abi_mapping) + (uint64_t)z->pages * 8 +
               ABI_MAX_RULES * 8ull + (uint64_t)z->cpus * ((32 << 10) + STEP_BYTES); /* scratch */
}

/* What libbpf says, at debug level. Of a long text (the verifier's log) the end, where the reason is. */
static int print_libbpf(enum libbpf_print_level level, const char *format, va_list ap)
{
        _cleanup_free_ char *text = NULL;
        char *line, *save = NULL;
        int n;

        if (level == LIBBPF_DEBUG)
                return 0;
        n = vasprintf(&text, format, ap);
        if (n < 0)
                return 0;
        line = n > LOG_TAIL ? text + n - LOG_TAIL : text;
        for (line = strtok_r(line, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
                log_debug("%s", line);
        return 0;
}

/* What a person can do about it. */
static int explain_load(int r)
{
        _cleanup_buf_ struct buf lockdown = {0};
        struct stat btf;
        const char *what;

        if (read_file("/sys/kernel/security/lockdown", 4096, &lockdown) >= 0 &&
            strstr(buf_text(&lockdown), "[confidentiality]"))
                what = "kernel lockdown is at confidentiality, where BPF may not read memory; boot with "
                       "lockdown=integrity";
        else if (stat("/sys/kernel/btf/vmlinux", &btf) < 0 || btf.st_size == 0)
                what = "this kernel has no BTF (/sys/kernel/btf/vmlinux); a kernel built with "
                       "CONFIG_DEBUG_INFO_BTF=y is needed";
        else if (r == -EPERM)
                what = "run profd as root or with CAP_BPF and CAP_PERFMON (on 5.10 also with "
                       "LimitMEMLOCK=infinity); kernel lockdown forbids it too";
        else if (r == -EMFILE || r == -ENFILE)
                what = "raise the limit of open files (LimitNOFILE=)";
        else if (r == -ENOMEM)
                what = "not enough memory for the maps: lower [Limits] Memory=";
        else if (r == -EINVAL || r == -E2BIG || r == -EACCES)
                what = "the kernel's verifier refused them: profd needs Linux 5.10 or later; please report "
                       "this with "
                       "the output of profd at debug level";
        else
                what = "profd needs Linux 5.10 or later with CONFIG_BPF_SYSCALL=y";
        log_error("cannot load the BPF programs: %s: %s", strerror(-r), what);
        return r;
}

static int map_memory(struct mapped *ret, const struct bpf_map *map)
{
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        size_t entry = (bpf_map__value_size(map) + 7) & ~(size_t)7;
        size_t size = (entry * bpf_map__max_entries(map) + page - 1) & ~(page - 1);
        void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(map), 0);

        if (p == MAP_FAILED) {
                int r = -errno;
                log_error("cannot map BPF map %s: %s", bpf_map__name(map), strerror(-r));
                return r;
        }
        *ret = (struct mapped){p, size};
        return 0;
}

static void unmap(struct mapped *m)
{
        if (m->data)
                munmap(m->data, m->size);
        *m = (struct mapped){0};
}

#define INITIAL_PIDNS_INODE 0xEFFFFFFCu /* PROC_PID_INIT_INO, include/linux/proc_ns.h */

/* In a container with a pid namespace of its own, /proc and perf's records count processes as it does. */
static void set_pidns(struct profd_bpf *k)
{
        struct stat st;

        if (stat("/proc/self/ns/pid", &st) < 0 || st.st_ino == INITIAL_PIDNS_INODE)
                return;
        /* as the kernel has it: MKDEV(), include/linux/kdev_t.h */
        k->rodata->pidns_device = (uint64_t)major(st.st_dev) << 20 | minor(st.st_dev);
        k->rodata->pidns_inode = st.st_ino;
}

static void set_constants(struct sampler *s, const struct sampler_config *config, uint64_t seed)
{
        struct profd_bpf *k = s->skel;
        const struct sampler_sizes *z = &s->sizes;

#ifdef __aarch64__
        k->rodata->arm64 = 1;
        if (sysconf(_SC_PAGESIZE) == 65536)
                k->rodata->thread_size = 65536;
#endif
        k->rodata->keep_threads = config->threads;
        k->rodata->n_cpus = z->cpus;
        k->rodata->rows_per_cpu = z->rows_per_cpu;
        k->rodata->index_mask = z->index_lines - 1;
        k->rodata->seen_mask = z->seen_lines - 1;
        k->rodata->stacks_size = z->stacks_ring;
        k->rodata->raws_size = z->raws_ring;
        k->rodata->hash_seed = seed;
        set_pidns(k);
}

static int set_sizes(struct sampler *s)
{
        struct profd_bpf *k = s->skel;
        const struct sampler_sizes *z = &s->sizes;
        const struct {
                struct bpf_map *map;
                uint32_t n;
        } sizes[] = {
                        {k->maps.cpus, z->cpus},
                        {k->maps.counts, 2 * z->cpus * z->rows_per_cpu},
                        {k->maps.row_index, 2 * z->cpus * z->index_lines},
                        {k->maps.seen, 2 * z->seen_lines},
                        {k->maps.stacks, z->stacks_ring},
                        {k->maps.raws, z->raws_ring},
                        {k->maps.processes, z->processes},
                        {k->maps.mappings, z->mappings},
                        {k->maps.pages, z->pages},
                        {k->maps.shards, z->shards},
                        {k->maps.step_cache, z->cpus * STEP_CACHE},
                        {k->maps.step_indexes, z->cpus},
        };

        for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
                int r = bpf_map__set_max_entries(sizes[i].map, sizes[i].n);
                if (r < 0)
                        return r;
        }
        return 0;
}

/* One program for each event: those not needed are not verified. */
static int choose_programs(struct sampler *s)
{
        for (uint32_t i = 0; i < ABI_MAX_EVENTS; i++) {
                char name[24];
                struct bpf_program *p;

                snprintf(name, sizeof(name), "sample_%u", i);
                p = bpf_object__find_program_by_name(s->skel->obj, name);
                if (!p)
                        return -ENOENT;
                bpf_program__set_autoload(p, i < s->n_events);
        }
        return 0;
}

int sampler_load(struct sampler *s, const struct sampler_config *config)
{
        uint64_t seed, fixed;
        int n = libbpf_num_possible_cpus(), r;

        if (n <= 0)
                return n ? n : -ENODEV;
        sampler_plan(&s->sizes, config, (uint32_t)n);
        fixed = sampler_fixed_bytes(&s->sizes);
        if (fixed + (2u << 20) > config->memory) {
                log_error("the memory limit of %llu MiB is too small for %d CPUs at %u Hz: %llu MiB are "
                          "needed; raise "
                          "[Limits] Memory= or lower [Sampling] Frequency=",
                          (unsigned long long)config->memory >> 20, n, config->frequency,
                          (unsigned long long)(fixed >> 20) + 3);
                return -ENOMEM;
        }
        s->sizes.shards = (uint32_t)clamp_u64((config->memory - fixed) >> 20, 2, ABI_MAX_SHARDS);
        if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
                return -EIO;

        libbpf_set_print(print_libbpf);
        s->skel = profd_bpf__open();
        if (!s->skel)
                return explain_load(-errno);
        set_constants(s, config, seed);
        r = set_sizes(s);
        if (r < 0)
                return explain_load(r);
        r = choose_programs(s);
        if (r < 0)
                return explain_load(r);
        r = profd_bpf__load(s->skel);
        if (r < 0)
                return explain_load(r);
        if (!s->skel->bss) /* libbpf goes on without global variables where its own probe for them failed */
                return explain_load(-ENOMEM);

        const struct {
                struct mapped *to;
                const struct bpf_map *map;
        } maps[] = {
                        {&s->cpus_map, s->skel->maps.cpus},         {&s->counts_map, s->skel->maps.counts},
                        {&s->index_map, s->skel->maps.row_index},   {&s->seen_map, s->skel->maps.seen},
                        {&s->mappings_map, s->skel->maps.mappings}, {&s->pages_map, s->skel->maps.pages},
                        {&s->rules_map, s->skel->maps.rules},
        };
        for (size_t i = 0; i < ARRAY_SIZE(maps); i++) {
                r = map_memory(maps[i].to, maps[i].map);
                if (r < 0)
                        return r;
        }
        s->cpus = s->cpus_map.data;
        s->rows = s->counts_map.data;
        s->grace_inner_fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "profd_grace", 4, 8, 1, NULL);
        if (s->grace_inner_fd < 0)
                return explain_load(s->grace_inner_fd);
        return 0;
}

void sampler_unload(struct sampler *s)
{
        unmap(&s->cpus_map);
        unmap(&s->counts_map);
        unmap(&s->index_map);
        unmap(&s->seen_map);
        unmap(&s->mappings_map);
        unmap(&s->pages_map);
        unmap(&s->rules_map);
        if (s->grace_inner_fd >= 0)
                close(s->grace_inner_fd);
        s->grace_inner_fd = -1;
        profd_bpf__destroy(s->skel);
        s->skel = NULL;
}

void sampler_unwind_maps(const struct sampler *s, struct unwind_maps *ret)
{
        *ret = (struct unwind_maps){
                        .processes_fd = bpf_map__fd(s->skel->maps.processes),
                        .shards_fd = bpf_map__fd(s->skel->maps.shards),
                        .mappings = s->mappings_map.data,
                        .pages = s->pages_map.data,
                        .rules = s->rules_map.data,
                        .n_processes = s->sizes.processes,
                        .n_mappings = s->sizes.mappings,
                        .n_pages = s->sizes.pages,
                        .n_shards = s->sizes.shards,
        };
}

uint64_t sampler_memory(const struct sampler *s)
{
        return sampler_fixed_bytes(&s->sizes);
}
