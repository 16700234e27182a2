/* truth_run [-e EVENT] [-f HZ] [-m PERCENT] [-v] [-w] SECONDS PROGRAM [ARGUMENT...]: runs a workload of
 * tests/programs under the sampler and the tracker and compares the stack of each sample of it and its
 * children with what the workload says they are.
 *
 * Succeeds when at most 0.5 % are wrong, or as many as -m says; when the workload's true share is that, a
 * run fails by chance less often than once in 10,000. Samples in exec and exit, which have no user stack,
 * are counted apart. A run in which the host kept the tracker from its work is repeated.
 *
 * With -w the workload's tables are loaded before: for stacks of which not all is copied
 * while a table is on its way. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "base/io.h"
#include "daemon/sampler.h"
#include "daemon/tracker.h"
#include "symbolizer/client.h"
#include "tests/truth/chains.h"
#include "tests/truth/names.h"

#define SKIP        77
#define WRONG_SHARE 0.005 /* unless -m says another */
#define ATTEMPTS    3     /* on a host so busy that the tracker cannot keep up */
#define SIGMAS      4.0   /* of a share of WRONG_SHARE: once in 30,000 */
#define DRAIN_NS    (500 * NSEC_PER_MSEC)
/* How soon a new process is known, at the latest. */
#define TURN_MS     3
#define WARM_NS     (300 * NSEC_PER_MSEC)
#define SETTLE_NS   (30 * NSEC_PER_SEC)
#define PATIENCE_NS (120 * NSEC_PER_SEC) /* beyond the workload's time */

struct stack {
        char *text; /* names joined by ';', behind the walk's number */
        uint64_t samples;
        uint8_t walk;
        bool wrong;
};

struct run {
        struct sampler *sampler;
        struct tracker *tracker;
        struct symclient *symbols;
        struct truth_names *names;
        struct truth_chains chains;
        uint32_t mark;
        pid_t child;
        struct stack *stack;
        uint32_t n_stacks, max_stacks;
        uint64_t exact, other, wrong, apart, complete, all;
        double wrong_share; /* that is allowed */
        uint64_t waits;     /* so far; see say_state() */
        bool verbose;
};

enum outcome { GOOD, BAD, BUSY };

static const char *const walk_names[ABI_WALK_MAX] = {
                "none",       "complete", "folded",      "depth",      "no process",
                "no mapping", "no table", "unsupported", "unreadable", "bad stack",
                "fp end",     "exited",   "in exec",     "compat",     "page missing",
};

static void count_stack(struct run *r, const char *text, uint8_t walk, uint64_t samples, bool wrong)
{
        struct stack *p;

        for (uint32_t i = 0; i < r->n_stacks; i++)
                if (r->stack[i].walk == walk && strcmp(r->stack[i].text, text) == 0) {
                        r->stack[i].samples += samples;
                        return;
                }
        if (r->n_stacks == r->max_stacks) {
                r->max_stacks = r->max_stacks ? r->max_stacks * 2 : 256;
                p = realloc(r->stack, r->max_stacks * sizeof(*p));
                if (!p)
                        abort();
                r->stack = p;
        }
        r->stack[r->n_stacks++] = (struct stack){
                        .text = strdup(text), .walk = walk, .samples = samples, .wrong = wrong};
}

/* The loader's code before main(), and what runs after it. */
static bool outside_main(const struct object *root, const char *const *frame, uint32_t n)
{
        const char *slash = root ? strrchr(root->path, '/') : NULL;

        for (uint32_t i = 0; i < n; i++)
                if (frame[i] && strcmp(frame[i], "main") == 0)
                        return false;
        return n && ((frame[n - 1] && strcmp(frame[n - 1], "_start") == 0) ||
                     (slash && strncmp(slash, "/ld-", 4) == 0));
}

static int on_row(void *ctx, const struct sample_row *row)
{
        struct run *r = ctx;
        const struct process *p = tracker_process(r->tracker, row->key->tgid, row->key->start_ns);
        const char *frame[ABI_MAX_FRAMES + 1];
        _cleanup_buf_ struct buf text = {0};
        enum truth_match match;
        struct object *o = NULL; /* of the root, in the end */
        uint8_t walk = row->key->walk;
        uint32_t n = MIN_OF(row->n_user, (uint32_t)ABI_MAX_FRAMES + 1);

        if (row->key->tgid != (uint32_t)r->child && (!p || !(p->marks & r->mark)))
                return 0;
        r->all += row->samples;
        for (uint32_t i = 0; i < n; i++) {
                uint64_t f = row->user[i];

                if (f == ABI_FRAME_FOLDED) {
                        frame[i] = TRUTH_FOLDED;
                        buf_addf(&text, "%s%s", i ? ";" : "", TRUTH_FOLDED);
                        continue;
                }
                o = tracker_object(r->tracker, ABI_FRAME_OBJECT(f));
                if (o) {
                        frame[i] = truth_name(r->names, o->path, ABI_FRAME_ADDRESS(f));
                } else { /* the frames of 32-bit processes are plain addresses */
                        uint64_t mapped;
                        const char *path = tracker_mapping_name(r->tracker, row->key->tgid,
                                                                ABI_FRAME_ADDRESS(f), &mapped);

                        frame[i] = path && *path == '/' ? truth_name_in_text(r->names, path,
                                                                             ABI_FRAME_ADDRESS(f) - mapped)
                                                        : NULL;
                }
                if (frame[i])
                        buf_addf(&text, "%s%s", i ? ";" : "", frame[i]);
                else
                        buf_addf(&text, "%s[%s+%" PRIx64 "]", i ? ";" : "", o ? o->path : "",
                                 (uint64_t)ABI_FRAME_ADDRESS(f));
        }
        match = truth_chains_match(&r->chains, frame, n);
        if (match == TRUTH_WRONG && walk == ABI_WALK_COMPLETE && outside_main(o, frame, n))
                match = TRUTH_OTHER;
        if (walk == ABI_WALK_EXITED || walk == ABI_WALK_IN_EXEC || (walk == ABI_WALK_NONE && !n)) {
                r->apart += row->samples;
                match = TRUTH_OTHER;
        } else if (walk != ABI_WALK_COMPLETE && walk != ABI_WALK_FOLDED && walk != ABI_WALK_COMPAT) {
                r->wrong += row->samples;
                match = TRUTH_WRONG;
        } else {
                r->complete += row->samples;
                *(match == TRUTH_EXACT   ? &r->exact
                  : match == TRUTH_OTHER ? &r->other
                                         : &r->wrong) += row->samples;
        }
        count_stack(r, buf_text(&text), walk, row->samples, match == TRUTH_WRONG);
        return 0;
}

static void on_raw(void *ctx, const struct abi_raw *raw, const uint64_t *kernel, uint32_t n_kernel)
{
        struct run *r = ctx;

        tracker_defer(r->tracker, raw, kernel, n_kernel);
}

static int drain(struct run *r)
{
        int k = tracker_poll(r->tracker);

        if (k >= 0)
                k = sampler_drain(r->sampler, on_row, on_raw, r);
        if (k >= 0)
                k = tracker_drain(r->tracker, on_row, r);
        if (k >= 0)
                tracker_drained(r->tracker);
        return k;
}

/* Everything that is ready, for at most so long. */
static int turn(struct run *r, int timeout_ms)
{
        struct pollfd fds[] = {
                        {.fd = sampler_fd(r->sampler), .events = POLLIN},
                        {.fd = tracker_fd(r->tracker), .events = POLLIN},
                        {.fd = symclient_fd(r->symbols), .events = POLLIN},
        };
        int k;

        if (poll(fds, ARRAY_SIZE(fds), timeout_ms) < 0 && errno != EINTR)
                return -errno;
        k = tracker_poll(r->tracker);
        if (k >= 0)
                k = symclient_dispatch(r->symbols);
        if (k >= 0)
                k = sampler_poll(r->sampler, on_raw, r);
        return k;
}

/* The child waits for a byte, so that it is followed from its first instruction. */
static pid_t start(char **argv, int *ret_go, int *ret_output)
{
        int go[2], output[2];
        pid_t pid;

        if (pipe(go) < 0 || pipe(output) < 0)
                return -1;
        pid = fork();
        if (pid == 0) {
                char byte;

                setpriority(PRIO_PROCESS, 0, 0);
                dup2(output[1], STDOUT_FILENO);
                close(output[0]);
                close(output[1]);
                close(go[1]);
                if (read(go[0], &byte, 1) != 1)
                        _exit(126);
                close(go[0]);
                execv(argv[0], argv);
                perror(argv[0]);
                _exit(127);
        }
        close(go[0]);
        close(output[1]);
        *ret_go = go[1];
        *ret_output = output[0];
        return pid;
}

static void say_output(struct run *r, FILE *f)
{
        _cleanup_free_ char *line = NULL;
        size_t size = 0;

        while (getline(&line, &size, f) > 0)
                if (strncmp(line, "truth ", 6) == 0)
                        fputs(line, stdout);
}

static int by_samples(const void *a, const void *b)
{
        const struct stack *x = a, *y = b;

        return x->samples > y->samples ? -1 : x->samples < y->samples;
}

/* Says what tells why stacks are wrong; returns how many samples could not wait for what they needed. */
static uint64_t say_state(struct run *r)
{
        uint64_t stats[ABI_STAT_MAX], before = r->waits;
        struct tracker_stats t;

        if (sampler_stats(r->sampler, stats) < 0)
                return 0;
        tracker_stats(r->tracker, &t);
        printf("  host: %" PRIu64 " samples, %" PRIu64 " deferred (%" PRIu64 " finished, %" PRIu64
               " hurried, %" PRIu64 " lost), ring full for %" PRIu64 "; records %" PRIu64 ", lost %" PRIu64
               "; lists %u, no room %" PRIu64 "\n",
               stats[ABI_STAT_TAKEN], t.deferred, t.deferred_complete, t.deferred_hurried, t.deferred_lost,
               stats[ABI_STAT_RAWS_FULL], t.records, t.records_lost, t.published, t.no_room);
        printf("  tables: %u objects, %" PRIu64
               " rows, %u rules; a deferred sample waited %.1f ms for its own\n",
               t.tables, t.rows, t.rules,
               t.deferred ? (double)t.deferred_wait_ns / (double)t.deferred / 1e6 : 0.0);
        r->waits = t.deferred_hurried + t.deferred_lost + stats[ABI_STAT_RAWS_FULL];
        return r->waits - before;
}

static enum outcome report(struct run *r, const char *name)
{
        uint64_t judged = r->exact + r->other + r->wrong;
        double limit = r->wrong_share * (double)judged, slack = SIGMAS * sqrt(limit) + 1;
        uint64_t waits;
        uint32_t shown = 0;

        qsort(r->stack, r->n_stacks, sizeof(*r->stack), by_samples);
        printf("%s: %" PRIu64 " samples: %" PRIu64 " exact, %" PRIu64 " other, %" PRIu64
               " wrong (%.3f %%), %" PRIu64 " without a user stack\n",
               name, r->all, r->exact, r->other, r->wrong,
               judged ? 100.0 * (double)r->wrong / (double)judged : 0.0, r->apart);
        waits = say_state(r);
        for (uint32_t i = 0; i < r->n_stacks && (r->verbose || shown < 12); i++)
                if (r->stack[i].wrong || r->verbose) {
                        printf("  %" PRIu64 " %s%s: %.1500s\n", r->stack[i].samples,
                               r->stack[i].wrong ? "WRONG " : "", walk_names[r->stack[i].walk],
                               r->stack[i].text);
                        shown++;
                }
        if (r->exact < 20) {
                printf("FAILED: too few samples to judge by\n");
                return BAD;
        }
        if ((double)r->wrong > limit + slack) {
                printf("FAILED: more than %.1f %% of the stacks are wrong\n", r->wrong_share * 100);
                return waits >= r->wrong ? BUSY : BAD;
        }
        return GOOD;
}

/* Waits until the tables of what runs already are there. */
static int settle(struct run *r)
{
        uint64_t end = now_monotonic_ns() + SETTLE_NS;
        struct symclient_stats s;
        int idle = 0, k = 0;

        while (k >= 0 && idle < 5 && now_monotonic_ns() < end) {
                k = turn(r, 20);
                symclient_stats(r->symbols, &s);
                idle = s.outstanding ? 0 : idle + 1;
        }
        return k;
}

static int prepare(struct run *r, const char *event, uint32_t frequency)
{
        const char *const events[] = {event};
        struct unwind_maps maps;
        int k = sampler_new(&r->sampler, &(struct sampler_config){.events = events,
                                                                  .n_events = 1,
                                                                  .frequency = frequency,
                                                                  .memory = 128 << 20,
                                                                  .drain_ms = 500});

        if (k < 0)
                return k;
        sampler_unwind_maps(r->sampler, &maps);
        k = symclient_new(&r->symbols, &(struct symclient_options){0});
        if (k >= 0)
                k = tracker_new(&r->tracker, &maps, r->symbols, 64 << 20);
        if (k >= 0)
                k = tracker_start(r->tracker);
        if (k >= 0)
                k = sampler_start(r->sampler);
        return k < 0 ? k : settle(r);
}

static int follow(struct run *r)
{
        int k = -ESRCH;

        for (int i = 0; i < 200 && k == -ESRCH; i++) {
                k = turn(r, 10);
                if (k >= 0)
                        k = tracker_follow(r->tracker, (uint32_t)r->child, &r->mark);
        }
        return k;
}

static int watch(struct run *r, FILE *output, double seconds)
{
        uint64_t next = now_monotonic_ns() + DRAIN_NS,
                 last = now_monotonic_ns() + (uint64_t)(seconds * 1e9) + PATIENCE_NS;
        _cleanup_free_ char *line = NULL;
        size_t size = 0;
        int status, k = 0;

        while (getline(&line, &size, output) > 0 && strcmp(line, "ready\n") != 0)
                truth_chains_add(&r->chains, line);
        while (waitpid(r->child, &status, WNOHANG) == 0) {
                if (now_monotonic_ns() > last) {
                        printf("FAILED: the workload does not end\n");
                        kill(r->child, SIGKILL);
                        return -ETIME;
                }
                k = turn(r, TURN_MS);
                if (k >= 0 && now_monotonic_ns() >= next) {
                        k = drain(r);
                        next = now_monotonic_ns() + DRAIN_NS;
                }
                if (k < 0)
                        return k;
        }
        for (int i = 0; i < 3 && k >= 0; i++) { /* both epochs, and what was deferred */
                for (int t = 0; t < 8 && k >= 0; t++)
                        k = turn(r, 50);
                if (k >= 0)
                        k = drain(r);
        }
        say_output(r, output);
        if (!WIFEXITED(status) || WEXITSTATUS(status)) {
                printf("FAILED: the workload ended with status %d\n", status);
                return -EIO;
        }
        return k;
}

static enum outcome attempt(struct run *r, char **argv, double seconds)
{
        const char *slash = strrchr(argv[0], '/');
        enum outcome outcome = BAD;
        int go = -1, fd = -1, k;
        FILE *output;

        r->child = start(argv, &go, &fd);
        output = r->child > 0 ? fdopen(fd, "r") : NULL;
        if (!output) {
                perror("cannot start the workload");
                return BAD;
        }
        k = follow(r);
        if (k >= 0 && write(go, "x", 1) == 1)
                k = watch(r, output, seconds);
        close(go);
        if (k < 0)
                printf("FAILED: %s\n", strerror(-k));
        else
                outcome = report(r, slash ? slash + 1 : argv[0]);
        fclose(output);
        return outcome;
}

/* Runs the workload unjudged until its tables are there, and leaves it stopped, so that they stay. */
static pid_t warm_up(struct run *r, char **argv)
{
        uint64_t end = now_monotonic_ns() + WARM_NS;
        int go = -1, fd = -1;
        pid_t pid = start(argv, &go, &fd);

        if (pid > 0 && write(go, "x", 1) == 1)
                while (now_monotonic_ns() < end && turn(r, 20) >= 0)
                        ;
        if (pid > 0)
                kill(pid, SIGSTOP);
        close(go);
        if (settle(r) >= 0 && drain(r) >= 0)
                (void)drain(r);
        return pid;
}

static void forget(struct run *r)
{
        for (uint32_t i = 0; i < r->n_stacks; i++)
                free(r->stack[i].text);
        r->n_stacks = 0;
        r->exact = r->other = r->wrong = r->apart = r->complete = r->all = 0;
        truth_chains_done(&r->chains);
}

int main(int argc, char **argv)
{
        struct run r = {.names = truth_names_new(), .wrong_share = WRONG_SHARE};
        uint32_t frequency = 499;
        const char *event = "cpu-clock";
        enum outcome outcome = BAD;
        char *seconds;
        bool warm = false;
        pid_t warmer = 0;
        int option, k;

        setvbuf(stdout, NULL, _IOLBF, 0);
        while ((option = getopt(argc, argv, "+e:f:m:vw")) != -1)
                if (option == 'e')
                        event = optarg;
                else if (option == 'f')
                        frequency = (uint32_t)atoi(optarg);
                else if (option == 'm')
                        r.wrong_share = atof(optarg) / 100;
                else if (option == 'v')
                        r.verbose = true;
                else if (option == 'w')
                        warm = true;
        if (argc - optind < 2) {
                fprintf(stderr,
                        "usage: %s [-e EVENT] [-f HZ] [-m PERCENT] [-v] [-w] SECONDS PROGRAM "
                        "[ARGUMENT...]\n",
                        argv[0]);
                return 2;
        }
        if (geteuid() != 0) {
                printf("skipped: sampling needs root\n");
                return SKIP;
        }
        if (access(argv[optind + 1], X_OK) < 0) {
                printf("skipped: %s was not built, there is no compiler for it\n", argv[optind + 1]);
                return SKIP;
        }
        /* On a busy host what is measured must not starve what measures. */
        setpriority(PRIO_PROCESS, 0, -10);
        k = prepare(&r, event, frequency);
        if (k < 0) {
                printf("FAILED: cannot start sampling: %s\n", strerror(-k));
                return 1;
        }
        seconds = argv[optind];
        argv[optind] = argv[optind + 1]; /* PROGRAM SECONDS ARGUMENT... */
        argv[optind + 1] = seconds;
        if (warm)
                warmer = warm_up(&r, argv + optind);
        for (int i = 0; i < ATTEMPTS; i++) {
                outcome = attempt(&r, argv + optind, atof(seconds));
                if (outcome != BUSY)
                        break;
                printf("the host is too busy: more samples than that gave up waiting for their table\n");
                forget(&r);
        }
        if (outcome == BUSY)
                printf("skipped: the host was too busy each time\n");
        if (warmer > 0) {
                kill(warmer, SIGKILL);
                waitpid(warmer, NULL, 0);
        }
        tracker_free(r.tracker);
        symclient_free(r.symbols);
        sampler_free(r.sampler);
        truth_names_free(r.names);
        forget(&r);
        free(r.stack);
        return outcome == GOOD ? 0 : outcome == BUSY ? SKIP : 1;
}
