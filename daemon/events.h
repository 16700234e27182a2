/* Names of perf events to what perf_event_open(2) takes, and which CPUs it is opened on. */
#ifndef DAEMON_EVENTS_H
#define DAEMON_EVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define EVENTS_SYSFS "/sys/bus/event_source/devices"

/* How the weight of a sample comes about. */
enum event_weight {
        EVENT_WEIGHT_PERIOD, /* events since the last sample, as the kernel says */
        EVENT_WEIGHT_CLOCK,  /* a tick of CPU time, always the same */
        EVENT_WEIGHT_CYCLES, /* a fixed number of cycles, converted to CPU time */
};

struct event_kind {
        uint32_t type; /* perf_event_attr.type and .config */
        uint64_t config;
        enum event_weight weight;
        bool hardware; /* counted by a core PMU: on hybrid machines one event for each kind of core */
};

/* Knows "cycles", "cache-misses", "page-faults", "L1-dcache-load-misses", "r1a8" and all other names that
 * perf lists as hardware, software, hardware cache and raw events. -EINVAL on others. */
int event_by_name(const char *name, struct event_kind *ret);

/* A set of CPU numbers. */
struct cpu_set {
        uint64_t *bits;
        uint32_t n; /* bits */
};
void cpu_set_free(struct cpu_set *s);
static inline bool cpu_set_has(const struct cpu_set *s, uint32_t cpu)
{
        return cpu < s->n && s->bits[cpu / 64] >> cpu % 64 & 1;
}
uint32_t cpu_set_count(const struct cpu_set *s);

/* A CPU list as sysfs writes it ("0-3,5,8-11"), of CPUs below max; -EINVAL on anything else. An empty list
 * is an empty set. */
int cpu_set_parse(const char *list, uint32_t max, struct cpu_set *ret);
int cpu_set_read(const char *path, uint32_t max, struct cpu_set *ret);

/* The kinds of core of a hybrid x86 machine (cpu_core, cpu_atom, ...) with their PMU types; none elsewhere.
 */
#define EVENTS_MAX_PMUS 8
struct core_pmus {
        uint32_t n;
        struct {
                char name[32];
                uint32_t type;
                struct cpu_set cpus;
        } pmu[EVENTS_MAX_PMUS];
};
int core_pmus_read(const char *sysfs, uint32_t max_cpus, struct core_pmus *ret);
void core_pmus_free(struct core_pmus *p);

/* type and config of an event on one CPU. */
void event_on_cpu(const struct event_kind *kind, const struct core_pmus *pmus, uint32_t cpu,
                  uint32_t *ret_type, uint64_t *ret_config);

#endif
