/* The perf events: one for each configured event and online CPU, with the BPF program on it.
 *
 * A tick of cpu-clock weighs its period, ns of CPU time; hardware cycles see sampler_cycles.c; a sample of
 * another event weighs the events since the last one, as the kernel says. */
#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/log.h"
#include "daemon/sampler_impl.h"
#include "profd.skel.h"

#define ONLINE_PATH   "/sys/devices/system/cpu/online"
#define MAX_RATE_PATH "/proc/sys/kernel/perf_event_max_sample_rate"
#define PARANOID_PATH "/proc/sys/kernel/perf_event_paranoid"

static int perf_event_open(struct perf_event_attr *attr, int cpu)
{
        int fd = (int)syscall(SYS_perf_event_open, attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
        return fd < 0 ? -errno : fd;
}

/* The rate that the kernel allows now, at most what was asked. */
static uint32_t allowed_rate(uint32_t asked)
{
        int64_t max;

        if (read_file_i64(MAX_RATE_PATH, &max) < 0 || max < 1)
                return asked;
        return max < asked ? (uint32_t)max : asked;
}

static int program_fd(const struct sampler *s, uint32_t event)
{
        char name[24];

        snprintf(name, sizeof(name), "sample_%u", event);
        return bpf_program__fd(bpf_object__find_program_by_name(s->skel->obj, name));
}

static void fill_attr(struct sampler *s, struct sampler_open_event *e, uint32_t cpu,
                      struct perf_event_attr *attr)
{
        struct cycle_rate *rate = &e->rate[cpu];
        uint32_t type;
        uint64_t config;

        *attr = (struct perf_event_attr){
                        .size = sizeof(*attr),
                        .disabled = 1,
                        .read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING,
        };
        event_on_cpu(&e->kind, &s->pmus, cpu, &type, &config);
        attr->type = type;
        attr->config = config;
        e->period[cpu] = 0;
        switch (e->kind.weight) {
        case EVENT_WEIGHT_CLOCK:
                e->period[cpu] = NSEC_PER_SEC / e->info.frequency;
                break;
        case EVENT_WEIGHT_CYCLES:
                if (!rate->measured) {
                        if (!s->probed_rate)
                                s->probed_rate = sampler_cycles_probe(attr);
                        rate->rate = s->probed_rate;
                }
                e->period[cpu] = (uint64_t)(rate->rate / e->info.frequency);
                break;
        case EVENT_WEIGHT_PERIOD:
                attr->freq = 1;
                attr->sample_freq = e->info.frequency;
                return;
        }
        attr->sample_period = e->period[cpu];
}

/* ns of CPU time of a sample; 0: its period, whatever it counts. */
static uint64_t weight(const struct sampler_open_event *e, uint32_t cpu)
{
        switch (e->kind.weight) {
        case EVENT_WEIGHT_CLOCK:
                return e->period[cpu];
        case EVENT_WEIGHT_CYCLES:
                return (uint64_t)((double)e->period[cpu] * 1e9 / e->rate[cpu].rate);
        case EVENT_WEIGHT_PERIOD:
                break;
        }
        return 0;
}

static void kept_name(char name[32], uint32_t event, uint32_t cpu)
{
        snprintf(name, 32, "event-%u-%u", event, cpu);
}

/* A link can be pinned, and holds the event then; since 5.15. */
static bool attach_pinned(struct sampler *s, uint32_t event, uint32_t cpu, int fd)
{
        char name[32];
        _cleanup_close_ int link = bpf_link_create(program_fd(s, event), fd, BPF_PERF_EVENT, NULL);

        kept_name(name, event, cpu);
        return link >= 0 && keep_fd(s->keep, name, link) == 0;
}

/* Puts the program on an event, and keeps it. */
static int attach(struct sampler *s, uint32_t event, uint32_t cpu, int fd)
{
        char name[32];

        if (keep_pins(s->keep) && attach_pinned(s, event, cpu, fd))
                return 0;
        if (ioctl(fd, PERF_EVENT_IOC_SET_BPF, program_fd(s, event)) < 0)
                return -errno;
        kept_name(name, event, cpu);
        if (s->keep && !keep_pins(s->keep))
                (void)keep_fd(s->keep, name, fd); /* said there; sampled all the same */
        return 0;
}

/* Opens an event on a CPU and puts the program on it. A descriptor or -errno. */
static int open_on(struct sampler *s, uint32_t event, uint32_t cpu)
{
        struct sampler_open_event *e = &s->event[event];
        struct perf_event_attr attr;
        _cleanup_close_ int fd = -1;

        fill_attr(s, e, cpu, &attr);
        fd = perf_event_open(&attr, (int)cpu);
        if (fd == -EINVAL && allowed_rate(e->info.frequency) < e->info.frequency) {
                /* The kernel lowered its limit, as it does when sampling interrupts take too long. */
                e->info.frequency = allowed_rate(e->info.frequency);
                log_warning("%s: the kernel allows %u Hz only (kernel.perf_event_max_sample_rate): sampling "
                            "at that",
                            e->name, e->info.frequency);
                fill_attr(s, e, cpu, &attr);
                fd = perf_event_open(&attr, (int)cpu);
        }
        if (fd < 0)
                return fd;
        e->rate[cpu].last_ns = 0; /* a new counter */
        s->cpus[cpu].scale[event] = 0;
        s->cpus[cpu].weight[event] = weight(e, cpu);
        int r = attach(s, event, cpu, fd);
        if (r < 0)
                return r;
        if (ioctl(fd, PERF_EVENT_IOC_ENABLE, 0) < 0)
                return -errno;
        return TAKE_FD(fd);
}

static int refused(int r)
{
        int64_t paranoid;

        if (r == -EACCES || r == -EPERM) {
                if (read_file_i64(PARANOID_PATH, &paranoid) < 0)
                        paranoid = -2;
                log_error("the kernel does not let us sample (kernel.perf_event_paranoid=%d): run profd as "
                          "root, or with "
                          "CAP_PERFMON and kernel.perf_event_paranoid=2 or lower",
                          (int)paranoid);
        } else {
                log_error("cannot open any perf event: %s%s", strerror(-r),
                          r == -EMFILE ? ": raise the limit of open files (LimitNOFILE=)" : "");
        }
        return r;
}

static const char *cause(int r)
{
        switch (r) {
        case -ENOENT:
        case -EOPNOTSUPP:
        case -ENODEV:
                return "this machine has no hardware counter for it";
        case -EBUSY:
                return COUNTERS_HELD;
        case -EINVAL:
                return "the kernel does not know it here";
        case -EMFILE:
                return "too many open files (raise LimitNOFILE=)";
        default:
                return strerror(-r);
        }
}

/* Why an event cannot be beside those before it; NULL: it can. A profile has one type of each name, and CPU
 * time that two events measure would be there twice. */
static const char *clash(const struct sampler *s, uint32_t event)
{
        const struct sampler_open_event *e = &s->event[event];

        for (uint32_t i = 0; i < event; i++) {
                const struct sampler_open_event *other = &s->event[i];
                if (!strcmp(other->name, e->name))
                        return "it is named twice";
                if (!other->off && other->kind.weight != EVENT_WEIGHT_PERIOD &&
                    e->kind.weight != EVENT_WEIGHT_PERIOD)
                        return "an event before it measures CPU time already";
        }
        return NULL;
}

static void turn_off(struct sampler_open_event *e, const char *why)
{
        snprintf(e->why, sizeof(e->why), "%s", why);
        e->info.why = e->why;
        e->off = true;
}

int sampler_events_init(struct sampler *s, const struct sampler_config *config)
{
        int r;

        if (config->n_events < 1 || config->n_events > ABI_MAX_EVENTS || !config->frequency)
                return -EINVAL;
        s->n_events = config->n_events;
        s->frequency = config->frequency;
        for (uint32_t i = 0; i < s->n_events; i++) {
                struct sampler_open_event *e = &s->event[i];

                if (strlen(config->events[i]) >= sizeof(e->name)) {
                        log_error("event name too long: %.80s", config->events[i]);
                        return -EINVAL;
                }
                strcpy(e->name, config->events[i]);
                e->info = (struct sampler_event){.name = e->name, .requested = config->frequency};
                if (event_by_name(e->name, &e->kind) < 0)
                        turn_off(e, "no perf event of this name");
                else if (clash(s, i))
                        turn_off(e, clash(s, i));
        }
        r = core_pmus_read(EVENTS_SYSFS, s->sizes.cpus, &s->pmus);
        if (r < 0)
                log_warning("cannot read " EVENTS_SYSFS ": %s: taken as a machine with one kind of core",
                            strerror(-r));
        for (uint32_t i = 0; i < s->n_events; i++) {
                s->event[i].fd = malloc(s->sizes.cpus * sizeof(int));
                for (uint32_t cpu = 0; s->event[i].fd && cpu < s->sizes.cpus; cpu++)
                        s->event[i].fd[cpu] = -1; /* also when the rest fails: it is closed all the same */
                s->event[i].trial = malloc(s->sizes.cpus * sizeof(int));
                for (uint32_t cpu = 0; s->event[i].trial && cpu < s->sizes.cpus; cpu++)
                        s->event[i].trial[cpu] = -1;
                s->event[i].period = calloc(s->sizes.cpus, sizeof(uint64_t));
                s->event[i].rate = calloc(s->sizes.cpus, sizeof(struct cycle_rate));
                s->event[i].watch = calloc(s->sizes.cpus, sizeof(struct event_watch));
                if (!s->event[i].fd || !s->event[i].period || !s->event[i].rate || !s->event[i].watch ||
                    !s->event[i].trial)
                        return -ENOMEM;
        }
        return 0;
}

void sampler_event_close(struct sampler *s, uint32_t event, uint32_t cpu)
{
        struct sampler_open_event *e = &s->event[event];

        if (e->fd[cpu] >= 0) {
                if (s->keep && !s->leaving) {
                        char name[32];

                        ioctl(e->fd[cpu], PERF_EVENT_IOC_DISABLE, 0);
                        kept_name(name, event, cpu);
                        keep_drop(s->keep, name);
                }
                close(e->fd[cpu]);
                e->fd[cpu] = -1;
                e->info.cpus--;
                watch_end(s, event, cpu);
        }
}

int sampler_online(const struct sampler *s, struct cpu_set *ret)
{
        return cpu_set_read(ONLINE_PATH, s->sizes.cpus, ret);
}

int sampler_event_open(struct sampler *s, uint32_t event)
{
        struct sampler_open_event *e = &s->event[event];
        int first = 0;

        for (uint32_t cpu = 0; cpu < s->sizes.cpus; cpu++) {
                int fd;

                if (!cpu_set_has(&s->online, cpu) || e->fd[cpu] >= 0)
                        continue;
                fd = open_on(s, event, cpu);
                if (fd >= 0) {
                        e->fd[cpu] = fd;
                        e->info.cpus++;
                        watch_begin(s, event, cpu);
                } else if (!first && fd != -ENODEV) { /* the CPU went just now */
                        first = fd;
                }
        }
        if (first && e->info.cpus && first != e->open_error)
                log_warning("%s: sampled on %u of %u CPUs: %s", e->name, e->info.cpus,
                            cpu_set_count(&s->online), cause(first));
        e->open_error = first;
        if (e->info.cpus)
                return 0;
        return first ? first : -ENODEV;
}

static int start_event(struct sampler *s, uint32_t event)
{
        struct sampler_open_event *e = &s->event[event];
        bool cycles = e->kind.weight == EVENT_WEIGHT_CYCLES;
        int r;

        e->info.frequency = allowed_rate(s->frequency);
        e->info.actual = e->name;
        r = sampler_event_open(s, event);
        if (!r && cycles && !counters_granted(s, event))
                r = -EBUSY;
        if (r == -EBUSY && cycles) {
                r = counters_fall_back(s, event);
        } else if (r == -EBUSY && e->kind.hardware) {
                log_notice("%s: %s: nothing is sampled until they are free", e->name, COUNTERS_HELD);
                counters_say_held(e);
                r = 0;
        } else if (r < 0 && r != -EACCES && r != -EPERM) {
                snprintf(e->why, sizeof(e->why), "%s", cause(r));
                e->info.why = e->why;
                if (cycles) {
                        int hardware = r;

                        event_by_name("cpu-clock", &e->kind);
                        e->info.actual = "cpu-clock";
                        r = sampler_event_open(s, event);
                        if (!r)
                                log_notice("%s: %s: sampling cpu-clock instead", e->name, cause(hardware));
                } else {
                        e->info.actual = NULL;
                        e->off = true;
                        log_notice("%s: off: %s", e->name, e->why);
                        return 0;
                }
        }
        if (r < 0)
                return r;
        e->info.time = e->kind.weight != EVENT_WEIGHT_PERIOD;
        if (e->info.frequency < e->info.requested)
                log_notice("%s: sampling at %u Hz, not %u: kernel.perf_event_max_sample_rate is lower",
                           e->name, e->info.frequency, e->info.requested);
        return 0;
}

int sampler_events_open(struct sampler *s)
{
        bool any = false;
        int r = sampler_online(s, &s->online);

        if (r < 0) {
                log_error("cannot read " ONLINE_PATH ": %s", strerror(-r));
                return r;
        }
        for (uint32_t i = 0; i < s->n_events; i++) {
                if (s->event[i].off) {
                        log_warning("%s: off: %s", s->event[i].name, s->event[i].why);
                        continue;
                }
                r = start_event(s, i);
                if (r < 0)
                        return refused(r);
                any |= !s->event[i].off;
        }
        if (!any) {
                log_error("none of the configured events can be sampled on this machine; cpu-clock always "
                          "can");
                return -ENODEV;
        }
        return 0;
}

void sampler_events_close(struct sampler *s)
{
        sampler_stop(s);
        for (uint32_t i = 0; i < s->n_events; i++) {
                counters_end_trial(s, i);
                free(s->event[i].trial);
                free(s->event[i].fd);
                free(s->event[i].period);
                free(s->event[i].rate);
                free(s->event[i].watch);
                s->event[i].fd = NULL;
                s->event[i].trial = NULL;
        }
        core_pmus_free(&s->pmus);
        cpu_set_free(&s->online);
}

void sampler_stop(struct sampler *s)
{
        for (uint32_t i = 0; i < s->n_events; i++)
                for (uint32_t cpu = 0; s->event[i].fd && cpu < s->sizes.cpus; cpu++)
                        sampler_event_close(s, i, cpu);
}

/* Gives an open event the rate in force. */
static int set_rate(struct sampler *s, uint32_t event, uint32_t cpu)
{
        struct sampler_open_event *e = &s->event[event];
        uint64_t value = e->info.frequency;

        if (e->kind.weight == EVENT_WEIGHT_CLOCK)
                value = e->period[cpu] = NSEC_PER_SEC / e->info.frequency;
        else if (e->kind.weight == EVENT_WEIGHT_CYCLES)
                value = e->period[cpu] = (uint64_t)(e->rate[cpu].rate / e->info.frequency);
        if (ioctl(e->fd[cpu], PERF_EVENT_IOC_PERIOD, &value) < 0)
                return -errno;
        s->cpus[cpu].weight[event] = weight(e, cpu);
        watch_end(s, event, cpu);
        watch_begin(s, event, cpu);
        return 0;
}

int sampler_set_frequency(struct sampler *s, uint32_t frequency)
{
        if (!frequency)
                return -EINVAL;
        s->frequency = frequency;
        for (uint32_t i = 0; i < s->n_events; i++) {
                struct sampler_open_event *e = &s->event[i];

                e->info.requested = frequency;
                if (e->off)
                        continue;
                e->info.frequency = allowed_rate(frequency);
                for (uint32_t cpu = 0; cpu < s->sizes.cpus; cpu++) {
                        int r = e->fd[cpu] < 0 ? 0 : set_rate(s, i, cpu);
                        if (r < 0)
                                return r;
                }
        }
        return 0;
}

uint32_t sampler_n_events(const struct sampler *s)
{
        return s->n_events;
}

const struct sampler_event *sampler_event(const struct sampler *s, uint32_t i)
{
        return &s->event[i].info;
}

uint64_t sampler_run_time_ns(const struct sampler *s)
{
        uint64_t ns = 0;

        for (uint32_t i = 0; i < s->n_events; i++) {
                struct bpf_prog_info info = {0};
                uint32_t size = sizeof(info);

                if (!bpf_obj_get_info_by_fd(program_fd(s, i), &info, &size))
                        ns += info.run_time_ns;
        }
        return ns;
}
