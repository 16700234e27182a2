/* What sampling slows a CPU-bound job down by: chunks of about 30 ms of the same work, in pairs, one with a
 * tool sampling at the rate and one without, in random order; the median of the pairs' quotients. The tools
 * take turns within one run: none (two chunks without: how far the method can be trusted), a BPF program
 * that does nothing, both stacks into the kernel's stack map, profd's program with tables, and perf record,
 * switched by its control descriptor. What the tools do in user space (drain, write) happens between the
 * chunks or on other CPUs, and is not in the figure.
 *
 *   slowdown [HZ [PAIRS]]        needs root, and profd-worker beside it or installed */
#include <errno.h>
#include <linux/perf_event.h>
#include <math.h>
#include <poll.h>
#include <sched.h>
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
#include "empty.skel.h"
#include "profd_half.h"
#include "slowdown_job.h"
#include "stackmap.skel.h"

#define CHUNK_NS (30 * NSEC_PER_MSEC)
#define WARM_UP  30 /* pairs of each tool, in which tables are built */
#define MAX_CPUS 64

/* Events of a program of our own: one a CPU. */
struct events {
        int fd[MAX_CPUS];
        int n;
};

/* perf record with its control and acknowledgement pipes. */
struct perf {
        pid_t pid;
        int control, ack;
};

struct bench {
        uint32_t frequency, steps;
        struct events empty, stackmap;
        struct profd_half profd;
        struct perf perf_fp, perf_dwarf;
};

static int events_open(struct events *e, uint32_t frequency, int program)
{
        int cpus = (int)sysconf(_SC_NPROCESSORS_ONLN);

        for (int cpu = 0; cpu < cpus && cpu < MAX_CPUS; cpu++) {
                struct perf_event_attr a = {.type = PERF_TYPE_SOFTWARE,
                                            .config = PERF_COUNT_SW_CPU_CLOCK,
                                            .size = sizeof(a),
                                            .disabled = 1,
                                            .sample_period = NSEC_PER_SEC / frequency};
                int fd = (int)syscall(SYS_perf_event_open, &a, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
                if (fd < 0 || ioctl(fd, PERF_EVENT_IOC_SET_BPF, program) < 0)
                        return -errno;
                e->fd[e->n++] = fd;
        }
        return 0;
}

static int events_switch(const struct events *e, bool on)
{
        for (int i = 0; i < e->n; i++)
                if (ioctl(e->fd[i], on ? PERF_EVENT_IOC_ENABLE : PERF_EVENT_IOC_DISABLE, 0) < 0)
                        return -errno;
        return 0;
}

static int no_row(void *ctx, const struct sample_row *row)
{
        return 0;
}

/* What the daemon does at its leisure, done between the chunks. */
static int profd_turn(struct profd_half *p)
{
        profd_half_poll(p);
        return profd_half_drain(p, no_row, NULL);
}

/* Its events stay open: one tick a second is as good as none. */
static int profd_switch(struct profd_half *p, bool on, uint32_t frequency)
{
        if (!on) {
                int r = profd_turn(p);
                if (r < 0)
                        return r;
        }
        return sampler_set_frequency(p->sampler, on ? frequency : 1);
}

/* -errno; -ENOENT when perf is not installed. */
static int perf_open(struct perf *p, uint32_t frequency, const char *call_graph)
{
        int control[2], ack[2];

        if (access("/usr/bin/perf", X_OK) < 0)
                return -errno;
        if (pipe(control) < 0 || pipe(ack) < 0)
                return -errno;
        p->pid = fork();
        if (p->pid < 0)
                return -errno;
        if (!p->pid) {
                char rate[16], fds[32];

                snprintf(rate, sizeof(rate), "%u", frequency);
                snprintf(fds, sizeof(fds), "fd:%d,%d", control[0], ack[1]);
                close(control[1]);
                close(ack[0]);
                execl("/usr/bin/perf", "perf", "record", "-q", "-a", "-D", "-1", "-F", rate, "-e",
                      "cpu-clock", "--call-graph", call_graph, "--control", fds, "-o", "/dev/null",
                      (char *)NULL);
                _exit(127);
        }
        close(control[0]);
        close(ack[1]);
        p->control = control[1];
        p->ack = ack[0];
        return 0;
}

static int perf_switch(const struct perf *p, bool on)
{
        const char *command = on ? "enable\n" : "disable\n";
        struct pollfd poll_ack = {p->ack, POLLIN, 0};
        char answer[16];

        if (write(p->control, command, strlen(command)) < 0)
                return -errno;
        if (poll(&poll_ack, 1, 10000) != 1 || read(p->ack, answer, sizeof(answer)) < 4)
                return -EIO;
        return 0;
}

static void perf_close(struct perf *p)
{
        if (!p->pid)
                return;
        kill(p->pid, SIGINT);
        waitpid(p->pid, NULL, 0);
        p->pid = 0;
}

enum tool { TOOL_NONE, TOOL_EMPTY, TOOL_STACKMAP, TOOL_PROFD, TOOL_PERF_FP, TOOL_PERF_DWARF, TOOL_MAX };

static const char *const tool_name[TOOL_MAX] = {
                [TOOL_NONE] = "nothing (A/A)",        [TOOL_EMPTY] = "empty BPF program",
                [TOOL_STACKMAP] = "kernel stack map", [TOOL_PROFD] = "profd",
                [TOOL_PERF_FP] = "perf record -g",    [TOOL_PERF_DWARF] = "perf record --call-graph dwarf",
};

static int tool_switch(struct bench *b, enum tool t, bool on)
{
        switch (t) {
        case TOOL_EMPTY:
                return events_switch(&b->empty, on);
        case TOOL_STACKMAP:
                return events_switch(&b->stackmap, on);
        case TOOL_PROFD:
                return profd_switch(&b->profd, on, b->frequency);
        case TOOL_PERF_FP:
                return perf_switch(&b->perf_fp, on);
        case TOOL_PERF_DWARF:
                return perf_switch(&b->perf_dwarf, on);
        default:
                return 0;
        }
}

/* ns of a chunk; what it computes must not be optimized away. */
static uint64_t chunk(uint32_t steps)
{
        static volatile uint64_t sink;
        uint64_t begin = now_monotonic_ns();

        sink += slowdown_job(steps);
        return now_monotonic_ns() - begin;
}

/* Steps that take about CHUNK_NS. */
static uint32_t calibrate(void)
{
        uint32_t n = 1000;

        while (chunk(n) < CHUNK_NS / 2)
                n *= 2;
        return (uint32_t)((double)n * (double)CHUNK_NS / (double)chunk(n));
}

/* One pair: the chunk with the tool by the chunk without. */
static int pair(struct bench *b, enum tool t, double *ret)
{
        bool first = random() & 1;
        uint64_t ns[2];

        for (int i = 0; i < 2; i++) {
                bool on = (i == 0) == first;
                int r = on ? tool_switch(b, t, true) : 0;
                if (r < 0)
                        return r;
                chunk(b->steps / 16); /* the caches are the job's again */
                ns[on] = chunk(b->steps);
                r = on ? tool_switch(b, t, false) : 0;
                if (r < 0)
                        return r;
        }
        *ret = (double)ns[1] / (double)ns[0];
        return 0;
}

static int compare(const void *a, const void *b)
{
        double x = *(const double *)a, y = *(const double *)b;
        return (x > y) - (x < y);
}

/* The median, and its 95 % interval by the ranks (binomial, normal approximation). */
static void print_tool(enum tool t, double *q, int n)
{
        int half = (int)ceil(0.98 * sqrt(n));

        qsort(q, (size_t)n, sizeof(*q), compare);
        printf("%-32s %+7.2f %%   [%+.2f, %+.2f]\n", tool_name[t], 100 * (q[n / 2] - 1),
               100 * (q[n / 2 - half > 0 ? n / 2 - half : 0] - 1),
               100 * (q[n / 2 + half < n ? n / 2 + half : n - 1] - 1));
}

int main(int argc, char **argv)
{
        int frequency = argc > 1 ? atoi(argv[1]) : 999, pairs = argc > 2 ? atoi(argv[2]) : 600;
        struct empty_bpf *empty = empty_bpf__open_and_load();
        struct stackmap_bpf *stackmap = stackmap_bpf__open_and_load();
        _cleanup_free_ double *quotients = NULL;
        struct bench b = {.frequency = (uint32_t)frequency};
        bool off[TOOL_MAX] = {false};
        cpu_set_t one;
        int r;

        if (frequency < 1 || pairs < 10 || pairs > 100000) {
                fprintf(stderr, "slowdown [HZ [PAIRS]]: at least 1 Hz, 10 to 100,000 pairs\n");
                return 2;
        }
        quotients = calloc((size_t)pairs * TOOL_MAX, sizeof(*quotients));
        if (!quotients || !empty || !stackmap ||
            events_open(&b.empty, b.frequency, bpf_program__fd(empty->progs.empty)) < 0 ||
            events_open(&b.stackmap, b.frequency, bpf_program__fd(stackmap->progs.stackmap)) < 0 ||
            profd_half_open(&b.profd, 1, 0) < 0) {
                fprintf(stderr, "slowdown: needs root, BPF and profd-worker\n");
                return 1;
        }
        off[TOOL_PERF_FP] = perf_open(&b.perf_fp, b.frequency, "fp") < 0;
        off[TOOL_PERF_DWARF] = off[TOOL_PERF_FP] || perf_open(&b.perf_dwarf, b.frequency, "dwarf") < 0;
        /* after the tools have started, so that they have the other CPUs */
        CPU_ZERO(&one);
        CPU_SET(0, &one);
        sched_setaffinity(0, sizeof(one), &one);
        b.steps = calibrate();

        for (int i = -WARM_UP; i < pairs; i++)
                for (int t = 0; t < TOOL_MAX; t++) {
                        double q = 1;
                        r = off[t] ? 0 : pair(&b, (enum tool)t, &q);
                        if (r < 0) {
                                fprintf(stderr, "slowdown: %s: cannot be switched: %s\n", tool_name[t],
                                        strerror(-r));
                                return 1;
                        }
                        if (i >= 0)
                                quotients[t * pairs + i] = q;
                }
        printf("slow-down of a CPU-bound job at %d Hz, medians of %d pairs of %.0f ms, 95 %% interval\n",
               frequency, pairs, (double)CHUNK_NS / NSEC_PER_MSEC);
        for (int t = 0; t < TOOL_MAX; t++)
                if (off[t])
                        printf("%-32s not installed\n", tool_name[t]);
                else
                        print_tool((enum tool)t, quotients + (size_t)t * (size_t)pairs, pairs);
        perf_close(&b.perf_fp);
        perf_close(&b.perf_dwarf);
        profd_half_close(&b.profd);
        return 0;
}
