#include "daemon/counters.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/io.h"

static uint64_t own_cpu_ns(int who)
{
        struct rusage u;

        if (getrusage(who, &u) < 0)
                return 0;
        return ((uint64_t)u.ru_utime.tv_sec + (uint64_t)u.ru_stime.tv_sec) * NSEC_PER_SEC +
               ((uint64_t)u.ru_utime.tv_usec + (uint64_t)u.ru_stime.tv_usec) * 1000;
}

static uint64_t own_resident(void)
{
        _cleanup_buf_ struct buf b = {0};
        unsigned long size, resident;

        if (read_file("/proc/self/statm", 256, &b) < 0 ||
            sscanf(buf_text(&b), "%lu %lu", &size, &resident) != 2)
                return 0;
        return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

int counters_read(struct counters *ret, struct sampler *sampler, struct tracker *tracker,
                  struct pipeline *pipeline, struct symclient *symbols, struct writer *writer)
{
        struct counters c = {.at_ns = now_monotonic_ns()};

        int r = sampler_stats(sampler, c.stat);
        if (r < 0)
                return r;
        tracker_stats(tracker, &c.tracker);
        pipeline_stats(pipeline, &c.pipeline);
        symclient_stats(symbols, &c.symbols);
        if (writer)
                writer_stats(writer, &c.writer);
        c.cost = (struct cost){
                        .daemon_ns = own_cpu_ns(RUSAGE_SELF),
                        .loop_ns = own_cpu_ns(RUSAGE_THREAD),
                        .worker_ns = c.symbols.cpu_ns,
                        .kernel_ns = c.stat[ABI_STAT_RUN_NS],
                        .resident = own_resident(),
                        .worker_resident = c.symbols.memory,
                        .maps = sampler_memory(sampler) +
                                c.tracker.shards * ABI_SHARD_ROWS * sizeof(uint32_t),
        };
        *ret = c;
        return 0;
}

void counters_losses(const struct counters *before, const struct counters *now,
                     struct loss ret[COUNTERS_LOSSES])
{
        static const struct counters none;

        if (!before)
                before = &none;
#define SINCE(field) (now->field - before->field)
        const struct loss losses[COUNTERS_LOSSES] = {
                        {"counts_full",
                         "more distinct rows between two drains than the map holds: raise Memory=",
                         SINCE(stat[ABI_STAT_LOST_COUNTS_FULL])},
                        {"stacks_full",
                         "more new stacks between two drains than the ring holds: raise Memory=",
                         SINCE(stat[ABI_STAT_LOST_STACKS_FULL])},
                        {"busy", "a sample interrupted the kernel while it changed the same map",
                         SINCE(stat[ABI_STAT_LOST_BUSY])},
                        {"nested", "two events fired on top of each other on one CPU",
                         SINCE(stat[ABI_STAT_LOST_NESTED])},
                        {"missed",
                         "the kernel left out a tick: another BPF program ran, or the virtual machine did "
                         "not",
                         SINCE(stat[ABI_STAT_MISSED])},
                        {"restart", "samples that a daemon before this one had in hand when it was killed",
                         SINCE(stat[ABI_STAT_LOST_RESTART])},
                        {"upgrade",
                         "samples in maps of another version of profd, which this one cannot read",
                         SINCE(stat[ABI_STAT_LOST_UPGRADE])},
                        {"deferred",
                         "the daemon had no memory for a sample that waited for its unwind table: raise "
                         "Memory=",
                         SINCE(tracker.deferred_lost)},
                        {"no_memory",
                         "the daemon had no memory for the row: raise Memory=", SINCE(pipeline.lost_memory)},
                        {"store", "a finished window could not be written: see the store's error",
                         SINCE(writer.lost_samples)},
        };
#undef SINCE
        memcpy(ret, losses, sizeof(losses));
}

uint64_t counters_delivered(const struct counters *c)
{
        uint64_t gone = c->pipeline.lost_memory + c->writer.lost_samples;

        return c->pipeline.samples > gone ? c->pipeline.samples - gone : 0;
}

uint64_t counters_waiting(const struct counters *c)
{
        /* rows that came to the pipeline, whatever became of them there */
        uint64_t done = c->pipeline.samples + c->tracker.deferred_lost + c->stat[ABI_STAT_LOST_COUNTS_FULL] +
                        c->stat[ABI_STAT_LOST_STACKS_FULL] + c->stat[ABI_STAT_LOST_BUSY] +
                        c->stat[ABI_STAT_LOST_NESTED] + c->stat[ABI_STAT_LOST_RESTART] +
                        c->stat[ABI_STAT_LOST_UPGRADE];

        return c->stat[ABI_STAT_TAKEN] > done ? c->stat[ABI_STAT_TAKEN] - done : 0;
}
