/* What a sample costs in the kernel, on whatever this host is doing: profd's programs with tracker and
 * tables, and beside them, on events of their own with the same rate, what most profilers do (both stacks by
 * frame pointer into a stack map). BPF run time by the kernel's own clock (kernel.bpf_stats_enabled).
 *
 * With `hot` or `cold` the load is bench/frames on each CPU, whose stacks both find whole: the same frames,
 * so that the two can be compared.
 *
 *   sample_bench [HZ [SECONDS [hot|cold]]]        needs root, and profd-worker beside it or installed */
#include <errno.h>
#include <linux/perf_event.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bpf/bpf.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/log.h"
#include "frames_load.h"
#include "profd_half.h"
#include "stackmap.skel.h"

#define STATS_PATH "/proc/sys/kernel/bpf_stats_enabled"
#define DRAIN_S    5             /* as the daemon does */
#define WARM_UP    (1 * DRAIN_S) /* seconds, in which tables are built */
#define MAX_CPUS   1024

struct bench {
        struct profd_half profd;
        uint64_t samples, user_frames, kernel_frames, walk[ABI_WALK_MAX];
};

static int take_row(void *ctx, const struct sample_row *row)
{
        struct bench *b = ctx;

        b->samples += row->samples;
        b->user_frames += row->samples * row->n_user;
        b->kernel_frames += row->samples * row->n_kernel;
        b->walk[row->key->walk] += row->samples;
        return 0;
}

static int interval(struct bench *b)
{
        uint64_t end = now_monotonic_ns() + DRAIN_S * NSEC_PER_SEC;

        while (now_monotonic_ns() < end) {
                struct pollfd p[] = {{sampler_fd(b->profd.sampler), POLLIN, 0},
                                     {tracker_fd(b->profd.tracker), POLLIN, 0},
                                     {symclient_fd(b->profd.symbols), POLLIN, 0}};
                poll(p, 3, 50);
                profd_half_poll(&b->profd);
        }
        return profd_half_drain(&b->profd, take_row, b);
}

/* Opens the other program's events on each CPU. */
static int start_other(struct stackmap_bpf *k, uint32_t frequency)
{
        int cpus = (int)sysconf(_SC_NPROCESSORS_ONLN);

        for (int cpu = 0; cpu < cpus && cpu < MAX_CPUS; cpu++) {
                struct perf_event_attr a = {.type = PERF_TYPE_SOFTWARE,
                                            .config = PERF_COUNT_SW_CPU_CLOCK,
                                            .size = sizeof(a),
                                            .sample_period = NSEC_PER_SEC / frequency};
                int fd = (int)syscall(SYS_perf_event_open, &a, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
                if (fd < 0 || ioctl(fd, PERF_EVENT_IOC_SET_BPF, bpf_program__fd(k->progs.stackmap)) < 0)
                        return -errno;
        }
        return 0;
}

static void program_stats(int fd, uint64_t *ret_ns, uint64_t *ret_runs)
{
        struct bpf_prog_info info = {0};
        uint32_t size = sizeof(info);

        bpf_obj_get_info_by_fd(fd, &info, &size);
        *ret_ns = info.run_time_ns;
        *ret_runs = info.run_cnt;
}

/* User frames that the other program's samples have on average, without those of which the stack map kept
 * none because its place was taken. */
static double other_frames(struct stackmap_bpf *k)
{
        struct stackmap_key {
                uint64_t tgid;
                int32_t user, kernel;
                char comm[16];
        } key, *last = NULL;
        int counted = bpf_map__fd(k->maps.counted), traces = bpf_map__fd(k->maps.traces);
        uint64_t count, samples = 0, frames = 0, address[127];

        for (; bpf_map_get_next_key(counted, last, &key) == 0; last = &key) {
                if (bpf_map_lookup_elem(counted, &key, &count) < 0)
                        continue;
                memset(address, 0, sizeof(address));
                if (key.user < 0 || bpf_map_lookup_elem(traces, &key.user, address) < 0)
                        continue;
                samples += count;
                for (int i = 0; i < 127 && address[i]; i++)
                        frames += count;
        }
        return samples ? (double)frames / (double)samples : 0;
}

static int write_number(const char *path, int n)
{
        _cleanup_fclose_ FILE *f = fopen(path, "w");
        return f && fprintf(f, "%d", n) > 0 && !fflush(f) ? 0 : -errno;
}

int main(int argc, char **argv)
{
        uint32_t frequency = argc > 1 ? (uint32_t)atoi(argv[1]) : 99;
        int seconds = argc > 2 ? atoi(argv[2]) : 15;
        struct bench b = {0};
        struct stackmap_bpf *other = stackmap_bpf__open_and_load();
        uint64_t ours, begin[ABI_STAT_MAX], end[ABI_STAT_MAX], ns0, runs0, ns1, runs1;
        int64_t stats_before = 0;
        struct frames_load load = {.n = 0};
        int r;

        read_file_i64(STATS_PATH, &stats_before);
        if (!other || frequency < 1 || seconds < 1 || write_number(STATS_PATH, 1) < 0 ||
            profd_half_open(&b.profd, frequency, DRAIN_S * 1000) < 0 || start_other(other, frequency) < 0) {
                fprintf(stderr, "sample_bench: needs root, BPF and profd-worker\n");
                return 1;
        }
        if (argc > 3 && frames_load_start(&load, argv[0], argv[3]) < 0)
                return 1;
        for (int i = 0; i < WARM_UP; i += DRAIN_S)
                interval(&b);
        b = (struct bench){.profd = b.profd};
        ours = sampler_run_time_ns(b.profd.sampler);
        sampler_stats(b.profd.sampler, begin);
        program_stats(bpf_program__fd(other->progs.stackmap), &ns0, &runs0);
        for (int i = 0; i < seconds; i += DRAIN_S) {
                r = interval(&b);
                if (r < 0)
                        return 1;
        }
        ours = sampler_run_time_ns(b.profd.sampler) - ours;
        sampler_stats(b.profd.sampler, end);
        program_stats(bpf_program__fd(other->progs.stackmap), &ns1, &runs1);
        for (int i = 0; i < ABI_STAT_MAX; i++)
                end[i] -= begin[i];
        write_number(STATS_PATH, (int)stats_before);
        frames_load_stop(&load);

        if (!end[ABI_STAT_TAKEN] || !b.samples || runs1 == runs0) {
                fprintf(stderr, "sample_bench: the host was idle\n");
                return 1;
        }
        printf("samples %llu, deferred %.1f %%, complete %.1f %%, user frames %.1f, kernel frames %.1f a "
               "sample\n",
               (unsigned long long)end[ABI_STAT_TAKEN],
               100.0 * (double)end[ABI_STAT_DEFERRED] / (double)end[ABI_STAT_TAKEN],
               100.0 *
                               (double)(b.walk[ABI_WALK_COMPLETE] + b.walk[ABI_WALK_FOLDED] +
                                        b.walk[ABI_WALK_NONE]) /
                               (double)b.samples,
               (double)b.user_frames / (double)b.samples, (double)b.kernel_frames / (double)b.samples);
        printf("stack map: user frames %.1f a sample\n", other_frames(other));
        printf("profd %.2f us a tick, stack map %.2f us a tick, ratio %.2f\n",
               (double)ours / (double)(end[ABI_STAT_TAKEN] + end[ABI_STAT_IDLE]) / 1000,
               (double)(ns1 - ns0) / (double)(runs1 - runs0) / 1000,
               (double)ours / (double)(end[ABI_STAT_TAKEN] + end[ABI_STAT_IDLE]) /
                               ((double)(ns1 - ns0) / (double)(runs1 - runs0)));
        profd_half_close(&b.profd);
        return 0;
}
