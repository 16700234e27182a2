/* Names as perf's own parser has them (perf list); numbers from include/uapi/linux/perf_event.h. */
#include "daemon/events.h"

#include <dirent.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "base/parse.h"

#define RAW_MAX_DIGITS 16

static const struct {
        const char *name;
        uint32_t type;
        uint64_t config;
        enum event_weight weight;
} named[] = {
                {"cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES, EVENT_WEIGHT_CYCLES},
                {"cpu-cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES, EVENT_WEIGHT_CYCLES},
                {"instructions", PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS, EVENT_WEIGHT_PERIOD},
                {"cache-references", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_REFERENCES,
                 EVENT_WEIGHT_PERIOD},
                {"cache-misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES, EVENT_WEIGHT_PERIOD},
                {"branches", PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_INSTRUCTIONS, EVENT_WEIGHT_PERIOD},
                {"branch-instructions", PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_INSTRUCTIONS,
                 EVENT_WEIGHT_PERIOD},
                {"branch-misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_MISSES, EVENT_WEIGHT_PERIOD},
                {"bus-cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_BUS_CYCLES, EVENT_WEIGHT_PERIOD},
                {"stalled-cycles-frontend", PERF_TYPE_HARDWARE, PERF_COUNT_HW_STALLED_CYCLES_FRONTEND,
                 EVENT_WEIGHT_PERIOD},
                {"idle-cycles-frontend", PERF_TYPE_HARDWARE, PERF_COUNT_HW_STALLED_CYCLES_FRONTEND,
                 EVENT_WEIGHT_PERIOD},
                {"stalled-cycles-backend", PERF_TYPE_HARDWARE, PERF_COUNT_HW_STALLED_CYCLES_BACKEND,
                 EVENT_WEIGHT_PERIOD},
                {"idle-cycles-backend", PERF_TYPE_HARDWARE, PERF_COUNT_HW_STALLED_CYCLES_BACKEND,
                 EVENT_WEIGHT_PERIOD},
                {"ref-cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_REF_CPU_CYCLES, EVENT_WEIGHT_PERIOD},

                {"cpu-clock", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK, EVENT_WEIGHT_CLOCK},
                {"page-faults", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS, EVENT_WEIGHT_PERIOD},
                {"faults", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS, EVENT_WEIGHT_PERIOD},
                {"minor-faults", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS_MIN, EVENT_WEIGHT_PERIOD},
                {"major-faults", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS_MAJ, EVENT_WEIGHT_PERIOD},
                {"context-switches", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CONTEXT_SWITCHES,
                 EVENT_WEIGHT_PERIOD},
                {"cs", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CONTEXT_SWITCHES, EVENT_WEIGHT_PERIOD},
                {"cpu-migrations", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_MIGRATIONS, EVENT_WEIGHT_PERIOD},
                {"migrations", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_MIGRATIONS, EVENT_WEIGHT_PERIOD},
                {"alignment-faults", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_ALIGNMENT_FAULTS,
                 EVENT_WEIGHT_PERIOD},
                {"emulation-faults", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_EMULATION_FAULTS,
                 EVENT_WEIGHT_PERIOD},
};

/* Hardware cache events: <cache>-<operation>, config = cache | operation << 8 | result << 16. */
static const struct {
        const char *name;
        uint32_t id;
} caches[] = {
                {"L1-dcache", PERF_COUNT_HW_CACHE_L1D}, {"L1-icache", PERF_COUNT_HW_CACHE_L1I},
                {"LLC", PERF_COUNT_HW_CACHE_LL},        {"dTLB", PERF_COUNT_HW_CACHE_DTLB},
                {"iTLB", PERF_COUNT_HW_CACHE_ITLB},     {"branch", PERF_COUNT_HW_CACHE_BPU},
                {"node", PERF_COUNT_HW_CACHE_NODE},
};
static const struct {
        const char *name;
        uint32_t operation, result;
} operations[] = {
                {"loads", PERF_COUNT_HW_CACHE_OP_READ, PERF_COUNT_HW_CACHE_RESULT_ACCESS},
                {"load-misses", PERF_COUNT_HW_CACHE_OP_READ, PERF_COUNT_HW_CACHE_RESULT_MISS},
                {"stores", PERF_COUNT_HW_CACHE_OP_WRITE, PERF_COUNT_HW_CACHE_RESULT_ACCESS},
                {"store-misses", PERF_COUNT_HW_CACHE_OP_WRITE, PERF_COUNT_HW_CACHE_RESULT_MISS},
                {"prefetches", PERF_COUNT_HW_CACHE_OP_PREFETCH, PERF_COUNT_HW_CACHE_RESULT_ACCESS},
                {"prefetch-misses", PERF_COUNT_HW_CACHE_OP_PREFETCH, PERF_COUNT_HW_CACHE_RESULT_MISS},
};

static int cache_by_name(const char *name, uint64_t *ret)
{
        for (size_t i = 0; i < ARRAY_SIZE(caches); i++) {
                size_t n = strlen(caches[i].name);
                if (strncmp(name, caches[i].name, n) || name[n] != '-')
                        continue;
                for (size_t k = 0; k < ARRAY_SIZE(operations); k++) {
                        if (strcmp(name + n + 1, operations[k].name))
                                continue;
                        *ret = caches[i].id | operations[k].operation << 8 | operations[k].result << 16;
                        return 0;
                }
        }
        return -EINVAL;
}

/* "r" and hexadecimal digits, as perf takes it. */
static int raw_by_name(const char *name, uint64_t *ret)
{
        if (name[0] != 'r')
                return -EINVAL;
        size_t n = strspn(name + 1, "0123456789abcdefABCDEF");
        if (!n || n > RAW_MAX_DIGITS || name[1 + n])
                return -EINVAL;
        *ret = strtoull(name + 1, NULL, 16);
        return 0;
}

int event_by_name(const char *name, struct event_kind *ret)
{
        uint64_t config;

        for (size_t i = 0; i < ARRAY_SIZE(named); i++) {
                if (strcmp(name, named[i].name))
                        continue;
                *ret = (struct event_kind){named[i].type, named[i].config, named[i].weight,
                                           named[i].type == PERF_TYPE_HARDWARE};
                return 0;
        }
        if (!cache_by_name(name, &config)) {
                *ret = (struct event_kind){PERF_TYPE_HW_CACHE, config, EVENT_WEIGHT_PERIOD, true};
                return 0;
        }
        if (!raw_by_name(name, &config)) {
                *ret = (struct event_kind){PERF_TYPE_RAW, config, EVENT_WEIGHT_PERIOD, true};
                return 0;
        }
        return -EINVAL;
}

void cpu_set_free(struct cpu_set *s)
{
        free(s->bits);
        *s = (struct cpu_set){0};
}

uint32_t cpu_set_count(const struct cpu_set *s)
{
        uint32_t count = 0;

        for (uint32_t i = 0; i < (s->n + 63) / 64; i++)
                count += (uint32_t)__builtin_popcountll(s->bits[i]);
        return count;
}

int cpu_set_parse(const char *list, uint32_t max, struct cpu_set *ret)
{
        _cleanup_free_ uint64_t *bits = calloc((max + 63) / 64 + 1, sizeof(uint64_t));

        if (!bits)
                return -ENOMEM;
        list += strspn(list, " \t\n");
        while (*list) {
                char *end;
                unsigned long first, last;

                if (*list < '0' || *list > '9')
                        return -EINVAL;
                first = last = strtoul(list, &end, 10);
                if (*end == '-') {
                        list = end + 1;
                        if (*list < '0' || *list > '9')
                                return -EINVAL;
                        last = strtoul(list, &end, 10);
                }
                if (first > last || last >= max)
                        return -EINVAL;
                for (; first <= last; first++)
                        bits[first / 64] |= 1ull << first % 64;
                list = end;
                if (*list == ',')
                        list++;
                else
                        list += strspn(list, " \t\n");
        }
        ret->bits = TAKE_PTR(bits);
        ret->n = max;
        return 0;
}

int cpu_set_read(const char *path, uint32_t max, struct cpu_set *ret)
{
        _cleanup_buf_ struct buf b = {0};
        int r = read_file(path, 64 * 1024, &b);

        if (r < 0)
                return r;
        return cpu_set_parse(buf_text(&b), max, ret);
}

void core_pmus_free(struct core_pmus *p)
{
        for (uint32_t i = 0; i < p->n; i++)
                cpu_set_free(&p->pmu[i].cpus);
        p->n = 0;
}

/* The kernel names them cpu_<kind>; the single PMU of other machines is "cpu". */
int core_pmus_read(const char *sysfs, uint32_t max_cpus, struct core_pmus *ret)
{
        struct core_pmus p = {0};
        struct dirent *e;
        DIR *dir = opendir(sysfs);

        if (!dir) {
                *ret = p;
                return errno == ENOENT ? 0 : -errno;
        }
        while ((e = readdir(dir)) && p.n < EVENTS_MAX_PMUS) {
                char path[512];
                int64_t type;

                if (strncmp(e->d_name, "cpu_", 4) || strlen(e->d_name) >= sizeof(p.pmu[0].name))
                        continue;
                snprintf(path, sizeof(path), "%s/%s/type", sysfs, e->d_name);
                if (read_file_i64(path, &type) < 0 || type < 0 || type > UINT32_MAX)
                        continue;
                snprintf(path, sizeof(path), "%s/%s/cpus", sysfs, e->d_name);
                if (cpu_set_read(path, max_cpus, &p.pmu[p.n].cpus) < 0)
                        continue;
                p.pmu[p.n].type = (uint32_t)type;
                strcpy(p.pmu[p.n].name, e->d_name);
                p.n++;
        }
        closedir(dir);
        *ret = p;
        return 0;
}

void event_on_cpu(const struct event_kind *kind, const struct core_pmus *pmus, uint32_t cpu,
                  uint32_t *ret_type, uint64_t *ret_config)
{
        *ret_type = kind->type;
        *ret_config = kind->config;
        if (!kind->hardware)
                return;
        for (uint32_t i = 0; i < pmus->n; i++) {
                if (!cpu_set_has(&pmus->pmu[i].cpus, cpu))
                        continue;
                if (kind->type == PERF_TYPE_RAW)
                        *ret_type = pmus->pmu[i].type;
                else /* the extended type of 5.13 */
                        *ret_config = (uint64_t)pmus->pmu[i].type << 32 | kind->config;
                return;
        }
}
