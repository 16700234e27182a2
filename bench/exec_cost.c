/* exec_cost [SECONDS [RATE]]: CPU that following processes takes, per exec.
 *
 * A child starts RATE short-lived processes a second (/bin/true) for SECONDS; the tracker follows them as in
 * the daemon, polled each 100 ms and drained each second, without sampling. Its CPU time over the same time
 * without the load is taken off. Prints one line. */
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "daemon/sampler.h"
#include "daemon/tracker.h"
#include "symbolizer/client.h"

extern char **environ;

static uint64_t cpu_ns(void)
{
        struct timespec t;

        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
        return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

static void sleep_until(uint64_t ns)
{
        struct timespec t = {.tv_sec = (time_t)(ns / NSEC_PER_SEC), .tv_nsec = (long)(ns % NSEC_PER_SEC)};

        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

static void load(unsigned rate)
{
        char *const argv[] = {"/bin/true", NULL};
        uint64_t next = now_monotonic_ns();
        pid_t pid;

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) {
                next += NSEC_PER_SEC / rate;
                sleep_until(next);
                if (posix_spawn(&pid, argv[0], NULL, NULL, argv, environ) == 0)
                        waitpid(pid, NULL, 0);
        }
}

static int no_row(void *ctx, const struct sample_row *row)
{
        return 0;
}

/* CPU time of `seconds` of following. */
static uint64_t follow(struct tracker *t, unsigned seconds)
{
        uint64_t begin = cpu_ns(), next = now_monotonic_ns();

        for (unsigned i = 1; i <= seconds * 10; i++) {
                next += 100 * NSEC_PER_MSEC;
                sleep_until(next);
                tracker_poll(t);
                if (i % 10 == 0) {
                        tracker_drain(t, no_row, NULL);
                        tracker_drained(t);
                }
        }
        return cpu_ns() - begin;
}

int main(int argc, char **argv)
{
        unsigned seconds = argc > 1 ? (unsigned)atoi(argv[1]) : 5,
                 rate = argc > 2 ? (unsigned)atoi(argv[2]) : 200;
        static const char *const events[] = {"cpu-clock"};
        struct sampler_config config = {
                        .events = events, .n_events = 1, .frequency = 99, .memory = 64 << 20};
        struct symclient_options options = {0};
        struct symclient *symbols;
        struct sampler *sampler;
        struct tracker *tracker;
        struct unwind_maps maps;
        struct tracker_stats before, after;

        int r = symclient_new(&symbols, &options);
        if (r == 0)
                r = sampler_new(&sampler, &config);
        if (r == 0) {
                sampler_unwind_maps(sampler, &maps);
                r = tracker_new(&tracker, &maps, symbols, 32 << 20);
        }
        if (r < 0)
                return 1;
        uint64_t begin = cpu_ns();
        r = tracker_start(tracker);
        if (r < 0)
                return 1;
        uint64_t start = cpu_ns() - begin;

        uint64_t idle = follow(tracker, seconds);
        pid_t pid = fork();
        if (pid == 0)
                load(rate);
        follow(tracker, 1);
        tracker_stats(tracker, &before);
        uint64_t busy = follow(tracker, seconds);
        tracker_stats(tracker, &after);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);

        double execs = (double)(after.execs - before.execs);
        printf("exec_cost: %.0f execs/s, %.1f us CPU per exec (%.1f records each), idle %.2f ms/s, start "
               "%.2f ms "
               "for %u processes, %.0f KiB state, lost %llu\n",
               execs / seconds, ((double)busy - (double)idle) / execs / 1e3,
               (double)(after.records - before.records) / execs, (double)idle / seconds / 1e6,
               (double)start / 1e6, before.processes, (double)after.memory / 1024,
               (unsigned long long)after.records_lost);
        tracker_free(tracker);
        sampler_free(sampler);
        symclient_free(symbols);
        return 0;
}
