/* callback HZ SECONDS hot|cold [ROUNDS]: how long the callback of a sample takes, median and 99th
 * percentile, of the whole of what the kernel does in it: for profd's kernel half, a stack map, perf record
 * -g and perf record --call-graph dwarf, one after the other in each round, on bench/frames as the load.
 * Needs root, and profd-worker beside it or installed; perf is left out where it is not installed. */
#include <bpf/bpf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "callback.skel.h"
#include "frames_load.h"
#include "latency.h"
#include "profd_half.h"
#include "stackmap.skel.h"

#define DRAIN_MS   1000
#define WARM_UP_NS (2 * NSEC_PER_SEC)
#define MAX_ROUNDS 32

struct bench {
        struct callback_bpf *k;
        uint32_t frequency;
        uint64_t measure_ns;
};

struct figure {
        uint64_t samples;
        double p50, p99; /* us */
};

static int take_row(void *ctx, const struct sample_row *row)
{
        return 0;
}

/* All CPUs together so far. */
static int read_latency(const struct bench *b, struct latency *ret)
{
        int cpus = libbpf_num_possible_cpus(), r = -ENOMEM;
        struct latency *all = calloc((size_t)cpus, sizeof(*all));
        uint32_t zero = 0;

        *ret = (struct latency){0};
        if (all)
                r = bpf_map_lookup_elem(bpf_map__fd(b->k->maps.latencies), &zero, all);
        for (int i = 0; i < cpus && r == 0; i++)
                for (uint32_t k = 0; k < LATENCY_BUCKETS; k++)
                        ret->runs[k] += all[i].runs[k];
        free(all);
        return r;
}

static struct figure figure_of(const struct latency *from, const struct latency *to)
{
        struct figure f = {0};
        uint64_t below = 0;

        for (uint32_t i = 0; i < LATENCY_BUCKETS; i++)
                f.samples += to->runs[i] - from->runs[i];
        for (uint32_t i = 0; i < LATENCY_BUCKETS; i++) {
                below += to->runs[i] - from->runs[i];
                if (!f.p50 && below * 2 >= f.samples && below)
                        f.p50 = (double)latency_ns(i) / 1000;
                if (!f.p99 && below * 100 >= f.samples * 99 && below)
                        f.p99 = (double)latency_ns(i) / 1000;
        }
        return f;
}

/* Waits for so long; with `h` does what the daemon does meanwhile. */
static void pass(uint64_t ns, struct profd_half *h)
{
        uint64_t end = now_monotonic_ns() + ns, drained = now_monotonic_ns();

        while (now_monotonic_ns() < end) {
                struct pollfd p[] = {{h ? sampler_fd(h->sampler) : -1, POLLIN, 0},
                                     {h ? tracker_fd(h->tracker) : -1, POLLIN, 0},
                                     {h ? symclient_fd(h->symbols) : -1, POLLIN, 0}};

                poll(p, 3, 50);
                if (!h)
                        continue;
                profd_half_poll(h);
                if (now_monotonic_ns() - drained > DRAIN_MS * NSEC_PER_MSEC) {
                        profd_half_drain(h, take_row, NULL);
                        drained = now_monotonic_ns();
                }
        }
}

static int measure(const struct bench *b, struct profd_half *h, struct figure *ret)
{
        struct latency from, to;
        int r;

        pass(WARM_UP_NS, h);
        r = read_latency(b, &from);
        pass(b->measure_ns, h);
        if (r == 0)
                r = read_latency(b, &to);
        if (r == 0)
                *ret = figure_of(&from, &to);
        return r;
}

static int with_profd(const struct bench *b, struct figure *ret)
{
        struct profd_half h;
        int r = profd_half_open(&h, b->frequency, DRAIN_MS);

        if (r < 0)
                return r;
        r = measure(b, &h, ret);
        profd_half_close(&h);
        return r;
}

static int with_stackmap(const struct bench *b, struct figure *ret)
{
        struct stackmap_bpf *k = stackmap_bpf__open_and_load();
        int cpus = (int)sysconf(_SC_NPROCESSORS_ONLN), fd[FRAMES_LOAD_MAX], r = k ? 0 : -errno;

        for (int cpu = 0; cpu < cpus && cpu < FRAMES_LOAD_MAX && r == 0; cpu++) {
                struct perf_event_attr a = {.type = PERF_TYPE_SOFTWARE,
                                            .config = PERF_COUNT_SW_CPU_CLOCK,
                                            .size = sizeof(a),
                                            .sample_period = NSEC_PER_SEC / b->frequency};

                fd[cpu] = (int)syscall(SYS_perf_event_open, &a, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
                if (fd[cpu] < 0 ||
                    ioctl(fd[cpu], PERF_EVENT_IOC_SET_BPF, bpf_program__fd(k->progs.stackmap)) < 0)
                        r = -errno;
        }
        if (r == 0)
                r = measure(b, NULL, ret);
        for (int cpu = 0; cpu < cpus && cpu < FRAMES_LOAD_MAX && k; cpu++)
                close(fd[cpu]);
        stackmap_bpf__destroy(k);
        return r;
}

static int with_perf(const struct bench *b, const char *graph, struct figure *ret)
{
        char frequency[16];
        pid_t pid;
        int r, status;

        snprintf(frequency, sizeof(frequency), "%u", b->frequency);
        pid = fork();
        if (pid == 0) {
                int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

                dup2(null, STDOUT_FILENO);
                dup2(null, STDERR_FILENO);
                execlp("perf", "perf", "record", "-a", "-e", "cpu-clock", "-F", frequency, "--call-graph",
                       graph, "-o", "/dev/null", NULL);
                _exit(127);
        }
        if (pid < 0)
                return -errno;
        r = measure(b, NULL, ret);
        kill(pid, SIGINT);
        waitpid(pid, &status, 0);
        return r;
}

static int with_perf_fp(const struct bench *b, struct figure *ret)
{
        return with_perf(b, "fp", ret);
}

static int with_perf_dwarf(const struct bench *b, struct figure *ret)
{
        return with_perf(b, "dwarf", ret);
}

static uint64_t address_of(const char *function)
{
        _cleanup_fclose_ FILE *f = fopen("/proc/kallsyms", "re");
        unsigned long long address;
        char name[128];

        while (f && fscanf(f, "%llx %*c %127s%*[^\n]", &address, name) == 2)
                if (strcmp(name, function) == 0)
                        return address;
        return 0;
}

static int by_value(const void *a, const void *b)
{
        const double *x = a, *y = b;

        return *x > *y ? 1 : *x < *y ? -1 : 0;
}

static double median(double *v, int n)
{
        qsort(v, (size_t)n, sizeof(*v), by_value);
        return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

int main(int argc, char **argv)
{
        static const struct {
                const char *name;
                int (*run)(const struct bench *b, struct figure *ret);
        } who[] = {{"profd", with_profd},
                   {"stack map", with_stackmap},
                   {"perf -g", with_perf_fp},
                   {"perf dwarf", with_perf_dwarf}};
        static double p50[ARRAY_SIZE(who)][MAX_ROUNDS], p99[ARRAY_SIZE(who)][MAX_ROUNDS];
        uint64_t samples[ARRAY_SIZE(who)] = {0};
        int rounds = argc > 4 ? atoi(argv[4]) : 3, r = 0;
        struct frames_load load;
        struct bench b = {0};

        if (argc < 4 || atoi(argv[1]) < 1 || atoi(argv[2]) < 1 || rounds < 1 || rounds > MAX_ROUNDS) {
                fprintf(stderr, "usage: %s HZ SECONDS hot|cold [ROUNDS]\n", argv[0]);
                return 2;
        }
        b.frequency = (uint32_t)atoi(argv[1]);
        b.measure_ns = (uint64_t)atoi(argv[2]) * NSEC_PER_SEC;
        b.k = callback_bpf__open();
        if (b.k)
                b.k->rodata->callback = address_of("perf_swevent_hrtimer");
        if (!b.k || callback_bpf__load(b.k) < 0 || callback_bpf__attach(b.k) < 0) {
                fprintf(stderr, "callback: needs root, BPF and the kernel's timer tracepoints\n");
                return 1;
        }
        if (frames_load_start(&load, argv[0], argv[3]) < 0)
                return 1;
        for (int round = 0; round < rounds && r == 0; round++)
                for (size_t i = 0; i < ARRAY_SIZE(who) && r == 0; i++) {
                        struct figure f = {0};

                        r = who[i].run(&b, &f);
                        samples[i] += f.samples;
                        p50[i][round] = f.p50;
                        p99[i][round] = f.p99;
                }
        frames_load_stop(&load);
        callback_bpf__destroy(b.k);
        if (r < 0) {
                fprintf(stderr, "callback: %s\n", strerror(-r));
                return 1;
        }
        for (size_t i = 0; i < ARRAY_SIZE(who); i++)
                if (samples[i])
                        printf("%-10s p50 %.2f us, p99 %.2f us (%llu samples)\n", who[i].name,
                               median(p50[i], rounds), median(p99[i], rounds),
                               (unsigned long long)samples[i]);
        return 0;
}
