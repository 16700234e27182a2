#include "symbolizer/lane.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/log.h"

#define END_MS 200 /* a killed process is gone in a millisecond, if it can go */

/* The worker is a program of its own, so that it holds nothing of the daemon's memory. It lies beside the
 * program that runs, where it is installed, or where a build leaves it. It is opened once: an upgrade that
 * replaces it later does not mix two versions. */
int lane_open_worker(void)
{
        static const char *const beside[] = {"profd-worker", "../symbolizer/profd-worker",
                                             "../../symbolizer/profd-worker"};
        char self[PATH_MAX], path[PATH_MAX + 64];
        ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
        int fd = -1;

        self[MAX_OF(n, (ssize_t)0)] = 0;
        if (strrchr(self, '/'))
                *strrchr(self, '/') = 0;
        for (size_t i = 0; i < ARRAY_SIZE(beside) && fd < 0 && n > 0; i++) {
                snprintf(path, sizeof(path), "%s/%s", self, beside[i]);
                fd = open(path, O_PATH | O_CLOEXEC);
        }
        if (fd < 0)
                fd = open(PROFD_LIBEXECDIR "/profd-worker", O_PATH | O_CLOEXEC);
        if (fd < 0) {
                log_error("profd-worker is neither beside %s nor in %s: install it, names need it", self,
                          PROFD_LIBEXECDIR);
                return -ENOENT;
        }

        /* Not where the worker's socket will be. */
        int high = fcntl(fd, F_DUPFD_CLOEXEC, WIRE_FD + 1), r = -errno;

        close(fd);
        return high < 0 ? r : high;
}

void lane_init(struct lane *l)
{
        *l = (struct lane){.fd = -1, .out_fd = -1};
}

/* posix_spawn shares the parent's memory until the exec: starting costs the same however large the daemon
 * is. */
static int spawn(int exe_fd, int socket, uint64_t memory, bool unsandboxed, pid_t *ret)
{
        char path[64], limit[32];
        char *argv[] = {(char[]){"profd-worker"}, limit, unsandboxed ? (char[]){"plain"} : NULL, NULL};
        char *envp[] = {NULL};
        posix_spawn_file_actions_t actions;
        posix_spawnattr_t attr;
        sigset_t signals;
        int r;

        snprintf(path, sizeof(path), "/proc/self/fd/%d", exe_fd);
        snprintf(limit, sizeof(limit), "%lu", (unsigned long)memory);
        posix_spawn_file_actions_init(&actions);
        posix_spawnattr_init(&attr);
        posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
        posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
        posix_spawn_file_actions_adddup2(&actions, socket, WIRE_FD);
        sigfillset(&signals);
        posix_spawnattr_setsigdefault(&attr, &signals);
        sigemptyset(&signals);
        posix_spawnattr_setsigmask(&attr, &signals);
        posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
        r = posix_spawn(ret, path, &actions, &attr, argv, envp);
        posix_spawnattr_destroy(&attr);
        posix_spawn_file_actions_destroy(&actions);
        return -r;
}

int lane_start(struct lane *l, int exe_fd, uint64_t memory, bool unsandboxed)
{
        _cleanup_close_ int theirs = -1;
        int pair[2], r;

        lane_reap(l);
        if (l->n_stuck == LANE_MAX_STUCK)
                return -EBUSY;
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
                return -errno;
        theirs = pair[1];
        if (fcntl(pair[0], F_SETFL, O_NONBLOCK) < 0)
                r = -errno;
        else
                r = spawn(exe_fd, theirs, memory, unsandboxed, &l->pid);
        if (r < 0) {
                close(pair[0]);
                l->pid = 0;
                return r;
        }
        l->fd = pair[0];
        l->generation++;
        return 0;
}

/* True: it has ended, and its time is counted. */
static bool reap(struct lane *l, pid_t pid, int *ret_status)
{
        struct rusage usage = {};
        pid_t got = wait4(pid, ret_status, WNOHANG, &usage);

        if (got == 0)
                return false;
        if (got == pid)
                l->ended_cpu_ns += (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * NSEC_PER_SEC +
                                   (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000;
        return true;
}

static bool end_process(struct lane *l, int *ret_status)
{
        _cleanup_close_ int pidfd = (int)syscall(SYS_pidfd_open, l->pid, 0);
        struct pollfd p = {.fd = pidfd, .events = POLLIN};

        kill(l->pid, SIGKILL);
        if (pidfd >= 0)
                poll(&p, 1, END_MS);
        return reap(l, l->pid, ret_status);
}

void lane_reap(struct lane *l)
{
        int status;

        for (uint32_t i = 0; i < l->n_stuck;)
                if (reap(l, l->stuck[i], &status))
                        l->stuck[i] = l->stuck[--l->n_stuck];
                else
                        i++;
}

int lane_stop(struct lane *l)
{
        int status = 0;

        if (l->pid > 0 && !end_process(l, &status)) {
                l->stuck[l->n_stuck++] = l->pid; /* there is room: lane_start() sees to it */
                status = SIGKILL;
        }
        if (l->fd >= 0)
                close(l->fd);
        l->pid = 0;
        l->fd = l->out_fd = -1;
        buf_clear(&l->out);
        l->out_at = 0;
        l->in_have = 0;
        buf_free(&l->body);
        return status;
}

void lane_free(struct lane *l)
{
        lane_stop(l);
        buf_free(&l->out);
        buf_free(&l->body);
}

bool lane_is_sending(const struct lane *l)
{
        return l->out_at < l->out.len;
}

int lane_flush(struct lane *l)
{
        while (lane_is_sending(l)) {
                char control[CMSG_SPACE(sizeof(int))] = {};
                struct iovec v = {l->out.data + l->out_at, l->out.len - l->out_at};
                struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
                ssize_t n;

                if (l->out_fd >= 0) {
                        struct cmsghdr *c;

                        m.msg_control = control;
                        m.msg_controllen = sizeof(control);
                        c = CMSG_FIRSTHDR(&m);
                        c->cmsg_level = SOL_SOCKET;
                        c->cmsg_type = SCM_RIGHTS;
                        c->cmsg_len = CMSG_LEN(sizeof(int));
                        memcpy(CMSG_DATA(c), &l->out_fd, sizeof(int));
                }
                n = sendmsg(l->fd, &m, MSG_NOSIGNAL);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return errno == EAGAIN ? 0 : -errno;
                l->out_fd = -1;
                l->out_at += (size_t)n;
        }
        return 0;
}

int lane_send(struct lane *l, const struct wire_header *h, const void *body, int fd)
{
        buf_clear(&l->out);
        l->out_at = 0;
        buf_add(&l->out, h, sizeof(*h));
        if (h->size > 0)
                buf_add(&l->out, body, h->size);
        if (buf_error(&l->out) < 0)
                return buf_error(&l->out);
        l->out_fd = fd;
        return lane_flush(l);
}

/* Reads into a place of n bytes of which *have are there. 1 when it is full. */
static int fill(int fd, void *place, size_t n, size_t *have)
{
        while (*have < n) {
                ssize_t k = recv(fd, (char *)place + *have, n - *have, MSG_DONTWAIT);

                if (k < 0 && errno == EINTR)
                        continue;
                if (k < 0)
                        return errno == EAGAIN ? 0 : -EPIPE;
                if (k == 0)
                        return -EPIPE;
                *have += (size_t)k;
        }
        return 1;
}

int lane_receive(struct lane *l)
{
        size_t head = sizeof(l->in), have;
        int r;

        if (l->in_have < head) {
                r = fill(l->fd, &l->in, head, &l->in_have);
                if (r <= 0)
                        return r;
                if (l->in.size > WIRE_MAX_ANSWER)
                        return -EMSGSIZE;
                buf_clear(&l->body);
                if (!buf_reserve(&l->body, l->in.size))
                        return -ENOMEM;
                l->body.len = l->in.size; /* filled from here on */
        }
        have = l->in_have - head;
        r = fill(l->fd, l->body.data, l->in.size, &have);
        l->in_have = head + have;
        if (r == 1)
                l->in_have = 0;
        return r;
}

uint64_t lane_cpu_ns(const struct lane *l)
{
        struct timespec t;
        clockid_t clock;

        if (l->pid <= 0 || clock_getcpuclockid(l->pid, &clock) != 0 || clock_gettime(clock, &t) < 0)
                return 0;
        return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

static int read_proc(const struct lane *l, const char *name, struct buf *b)
{
        char path[64];

        if (l->pid <= 0)
                return -ESRCH;
        snprintf(path, sizeof(path), "/proc/%d/%s", l->pid, name);
        return read_file(path, 4096, b);
}

uint64_t lane_memory(const struct lane *l)
{
        _cleanup_buf_ struct buf b = {};
        unsigned long pages;

        if (read_proc(l, "statm", &b) < 0 || sscanf(buf_text(&b), "%*u %lu", &pages) != 1)
                return 0;
        return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

bool lane_is_runnable(const struct lane *l)
{
        _cleanup_buf_ struct buf b = {};
        const char *end;

        if (read_proc(l, "stat", &b) < 0)
                return false;
        end = strrchr(buf_text(&b), ')');
        return end && end[1] == ' ' && end[2] == 'R';
}
