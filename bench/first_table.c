/* first_table [-n] RUNS PROGRAM [ARGUMENT...]: runs a program so many times and says how long after its
 * first sample the kernel half has its mappings and the program's unwind table, so that samples are walked
 * when they are taken: median, 90th percentile and longest. With -n each run is of a copy of the program, a
 * file that was never seen. Needs root, and profd-worker beside it or installed. */
#include <bpf/bpf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "profd_half.h"

#define HZ         997
#define DRAIN_MS   1000
#define WARM_UP_NS (3 * NSEC_PER_SEC)
#define GAP_NS     (100 * NSEC_PER_MSEC) /* between runs */

struct bench {
        struct profd_half half;
        struct unwind_maps maps;
        uint64_t drained_ns;
        /* of the run */
        uint32_t pid;
        uint64_t stamp, first_ns; /* of its latest image; 0: no sample yet */
        uint64_t text;            /* where its code begins; 0: not known yet */
};

static int take_row(void *ctx, const struct sample_row *row)
{
        return 0;
}

static void take_raw(void *ctx, const struct abi_raw *raw, const uint64_t *kernel, uint32_t n)
{
        struct bench *b = ctx;

        if (raw->key.tgid == b->pid && raw->stamp != b->stamp) {
                b->stamp = raw->stamp;
                b->first_ns = raw->time_ns;
        }
        tracker_defer(b->half.tracker, raw, kernel, n);
}

static void turn(struct bench *b, int timeout_ms)
{
        struct pollfd p[] = {{sampler_fd(b->half.sampler), POLLIN, 0},
                             {tracker_fd(b->half.tracker), POLLIN, 0},
                             {symclient_fd(b->half.symbols), POLLIN, 0}};

        poll(p, 3, timeout_ms);
        tracker_poll(b->half.tracker);
        symclient_dispatch(b->half.symbols);
        sampler_poll(b->half.sampler, take_raw, b);
        tracker_poll(b->half.tracker);
        if (now_monotonic_ns() - b->drained_ns > DRAIN_MS * NSEC_PER_MSEC) {
                sampler_drain(b->half.sampler, take_row, take_raw, b);
                tracker_drain(b->half.tracker, take_row, b);
                tracker_drained(b->half.tracker);
                b->drained_ns = now_monotonic_ns();
        }
}

/* Where the code of a program is in the process; 0: not yet. */
static uint64_t text_of(uint32_t pid, const char *program)
{
        char path[64], line[512];
        uint64_t start, found = 0;

        snprintf(path, sizeof(path), "/proc/%u/maps", pid);
        _cleanup_fclose_ FILE *f = fopen(path, "re");
        while (f && !found && fgets(line, sizeof(line), f))
                if (strstr(line, " r-xp ") && strstr(line, program) && sscanf(line, "%" SCNx64, &start) == 1)
                        found = start;
        return found;
}

/* Whether the kernel half has the list of the process's image, and rows of the program: of a large one those
 * that were asked for. */
static bool has_table(struct bench *b, const char *program)
{
        struct abi_process p;

        if (!b->first_ns || bpf_map_lookup_elem(b->maps.processes_fd, &b->pid, &p) < 0 ||
            p.stamp != b->stamp)
                return false;
        if (!b->text)
                b->text = text_of(b->pid, program);
        for (uint32_t i = 0; i < p.n && b->text; i++) {
                const struct abi_mapping *m = &b->maps.mappings[p.first + i];
                for (uint32_t k = 0; m->start == b->text && k < m->n_pages; k++)
                        if (b->maps.pages[m->page + k])
                                return true;
        }
        return false;
}

static int copy_file(const char *from, const char *to)
{
        _cleanup_close_ int in = open(from, O_RDONLY | O_CLOEXEC);
        _cleanup_close_ int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
        struct stat st;

        if (in < 0 || out < 0 || fstat(in, &st) < 0)
                return -errno;
        for (off_t left = st.st_size; left > 0;) {
                ssize_t n = sendfile(out, in, NULL, (size_t)left);

                if (n <= 0)
                        return n ? -errno : -EIO;
                left -= n;
        }
        return 0;
}

/* ns; 0 when the program ended before. */
static uint64_t run(struct bench *b, const char *program, char **argv)
{
        uint64_t took = 0;
        int status;
        pid_t pid = fork();

        if (pid == 0) {
                int null = open("/dev/null", O_RDWR | O_CLOEXEC);

                dup2(null, STDOUT_FILENO);
                dup2(null, STDERR_FILENO);
                execv(program, argv);
                _exit(127);
        }
        if (pid < 0)
                return 0;
        b->pid = (uint32_t)pid;
        b->stamp = b->first_ns = b->text = 0;
        while (waitpid(pid, &status, WNOHANG) == 0) {
                turn(b, 1);
                if (has_table(b, program)) {
                        took = now_monotonic_ns() - b->first_ns;
                        kill(pid, SIGKILL);
                        waitpid(pid, &status, 0);
                        return took;
                }
        }
        return 0;
}

static int by_value(const void *a, const void *b)
{
        const double *x = a, *y = b;

        return *x > *y ? 1 : *x < *y ? -1 : 0;
}

static void pass(struct bench *b, uint64_t ns)
{
        for (uint64_t end = now_monotonic_ns() + ns; now_monotonic_ns() < end;)
                turn(b, 20);
}

int main(int argc, char **argv)
{
        bool anew = argc > 1 && strcmp(argv[1], "-n") == 0;
        int first = anew ? 2 : 1, runs = argc > first ? atoi(argv[first]) : 0, n = 0;
        char copy[] = "/tmp/first_table-XXXXXX", path[sizeof(copy) + 16];
        _cleanup_free_ double *ms = NULL;
        struct bench b = {0};

        if (runs < 1 || argc < first + 2) {
                fprintf(stderr, "usage: %s [-n] RUNS PROGRAM [ARGUMENT...]\n", argv[0]);
                return 2;
        }
        ms = calloc((size_t)runs, sizeof(*ms));
        if (!ms || !mkdtemp(copy) || profd_half_open(&b.half, HZ, DRAIN_MS) < 0) {
                fprintf(stderr, "first_table: needs root, BPF and profd-worker\n");
                return 1;
        }
        sampler_unwind_maps(b.half.sampler, &b.maps);
        pass(&b, WARM_UP_NS);
        for (int i = 0; i < runs; i++) {
                uint64_t took;

                snprintf(path, sizeof(path), "%s/%d", copy, i);
                if (anew && copy_file(argv[first + 1], path) < 0)
                        break;
                took = run(&b, anew ? path : argv[first + 1], argv + first + 1);
                if (took)
                        ms[n++] = (double)took / 1e6;
                if (anew)
                        unlink(path);
                pass(&b, GAP_NS);
        }
        rmdir(copy);
        profd_half_close(&b.half);
        if (!n) {
                fprintf(stderr, "first_table: the program always ended before its tables were there\n");
                return 1;
        }
        qsort(ms, (size_t)n, sizeof(*ms), by_value);
        printf("%d of %d runs: p50 %.1f ms, p90 %.1f ms, longest %.1f ms\n", n, runs, ms[n / 2],
               ms[n * 9 / 10], ms[n - 1]);
        return 0;
}
