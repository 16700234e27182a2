#include "tools/session.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "tools/http.h"
#include "tools/query.h"
#include "tools/say.h"

#define START_TIMEOUT (20 * NSEC_PER_SEC)
#define STOP_TIMEOUT  (10 * NSEC_PER_SEC)
#define POLL_INTERVAL (10 * NSEC_PER_MSEC)
#define LOG_MAX       65536

struct session {
        char directory[40];
        char config[64], state[64], socket[64], log[64];
        pid_t pid; /* of the daemon, 0: ended */
};

static void pause_ns(uint64_t ns)
{
        struct timespec t = {.tv_sec = (time_t)(ns / NSEC_PER_SEC), .tv_nsec = (long)(ns % NSEC_PER_SEC)};

        nanosleep(&t, NULL);
}

/* profd beside profctl (also in the build directory), in PATH, or where packages put daemons. */
static int find_daemon(struct buf *ret)
{
        static const char *const beside[] = {"profd", "../daemon/profd", "../sbin/profd",
                                             "../libexec/profd"};
        static const char *const fixed[] = {"/usr/sbin/profd", "/usr/local/sbin/profd", "/usr/libexec/profd",
                                            "/usr/local/libexec/profd"};
        char self[4096];

        ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
        char *slash = n > 0 ? (self[n] = 0, strrchr(self, '/')) : NULL;
        for (size_t i = 0; slash && i < ARRAY_SIZE(beside); i++) {
                buf_clear(ret);
                buf_addf(ret, "%.*s/%s", (int)(slash - self), self, beside[i]);
                struct stat st;
                if (stat(buf_text(ret), &st) == 0 && S_ISREG(st.st_mode) && access(buf_text(ret), X_OK) == 0)
                        return 0;
        }
        const char *path = getenv("PATH");
        while (path && *path) {
                size_t len = strcspn(path, ":");
                buf_clear(ret);
                buf_addf(ret, "%.*s/profd", (int)len, path);
                if (len > 0 && access(buf_text(ret), X_OK) == 0)
                        return 0;
                path += len + (path[len] == ':');
        }
        for (size_t i = 0; i < ARRAY_SIZE(fixed); i++)
                if (access(fixed[i], X_OK) == 0) {
                        buf_clear(ret);
                        buf_adds(ret, fixed[i]);
                        return buf_error(ret);
                }
        return -ENOENT;
}

static int make_directory(struct session *s, uint32_t frequency)
{
        _cleanup_buf_ struct buf text = {0};

        strcpy(s->directory, "/tmp/profctl-XXXXXX");
        if (!mkdtemp(s->directory)) {
                s->directory[0] = 0;
                return say_failed("cannot make a directory in /tmp: %s", strerror(errno));
        }
        snprintf(s->config, sizeof(s->config), "%s/profd.conf", s->directory);
        snprintf(s->state, sizeof(s->state), "%s/state", s->directory);
        snprintf(s->socket, sizeof(s->socket), "%s/profd.sock", s->directory);
        snprintf(s->log, sizeof(s->log), "%s/log", s->directory);
        if (mkdir(s->state, 0700) < 0)
                return say_failed("cannot make the directory %s: %s", s->state, strerror(errno));
        /* A high rate for a short time was asked for: the budget of an always-on profiler would lower it. */
        buf_addf(&text,
                 "[Sampling]\nFrequency=%u\n[Limits]\nCpu=25%%\n[Store]\nDirectory=%s\n[Api]\nSocket=%s\n",
                 frequency, s->state, s->socket);
        _cleanup_close_ int fd = open(s->config, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        int r = fd < 0 ? -errno : buf_error(&text) ? buf_error(&text) : write_all(fd, text.data, text.len);
        return r < 0 ? say_failed("cannot write %s: %s", s->config, strerror(-r)) : 0;
}

static int spawn(struct session *s, const char *daemon)
{
        pid_t parent = getpid();

        s->pid = fork();
        if (s->pid < 0) {
                s->pid = 0;
                return say_failed("cannot start %s: %s", daemon, strerror(errno));
        }
        if (s->pid > 0)
                return 0;
        /* The terminal's interrupt is for the command that is profiled; the daemon ends when we say, or die.
         */
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != parent)
                _exit(1);
        signal(SIGPIPE, SIG_DFL);
        int null = open("/dev/null", O_RDONLY), log = open(s->log, O_WRONLY | O_CREAT | O_APPEND, 0600);
        dup2(null, STDIN_FILENO);
        dup2(log, STDOUT_FILENO);
        dup2(log, STDERR_FILENO);
        unsetenv("JOURNAL_STREAM");
        unsetenv("NOTIFY_SOCKET");
        execl(daemon, "profd", "--config", s->config, "--state-dir", s->state, "--socket", s->socket, NULL);
        fprintf(stderr, "%s: %s\n", daemon, strerror(errno));
        _exit(1);
}

static int say_log(const struct session *s, const char *what)
{
        _cleanup_buf_ struct buf log = {0};

        read_file(s->log, LOG_MAX, &log);
        while (log.len > 0 && log.data[log.len - 1] == '\n')
                log.data[--log.len] = 0;
        const char *last = log.len ? strrchr(log.data, '\n') : NULL;
        last = last ? last + 1 : buf_text(&log);
        return say_failed("the profd that profctl started %s%s%s", what, last[0] ? ": " : "", last);
}

/* Until /healthz says that samples are being taken. */
static int wait_healthy(struct session *s)
{
        const struct target target = {.socket = s->socket};
        const struct http_request request = {
                        .path = "/healthz", .timeout_ns = NSEC_PER_SEC, .max_bytes = 4096};
        uint64_t deadline = now_monotonic_ns() + START_TIMEOUT;

        while (now_monotonic_ns() < deadline) {
                struct http_reply reply;
                int status;
                if (waitpid(s->pid, &status, WNOHANG) == s->pid) {
                        s->pid = 0;
                        return say_log(s, "has ended");
                }
                if (http_reachable(&target) && http_get(&target, &request, &reply) == 0) {
                        buf_free(&reply.body);
                        if (reply.status == 200)
                                return 0;
                }
                pause_ns(POLL_INTERVAL);
        }
        return say_log(s, "takes no samples");
}

int session_start(struct session **ret, uint32_t frequency)
{
        _cleanup_buf_ struct buf daemon = {0};

        if (geteuid() != 0)
                return say_failed("no profd is running, and starting one for this command needs root: use "
                                  "sudo");
        if (find_daemon(&daemon) < 0)
                return say_failed("no profd is running, and none is found beside profctl or in PATH: "
                                  "install profd");
        _cleanup_(session_stop_cleanup) struct session *s = calloc(1, sizeof(*s));
        if (!s)
                return say_failed("%s", strerror(ENOMEM));
        int r = make_directory(s, frequency);
        r = r ? r : spawn(s, buf_text(&daemon));
        r = r ? r : wait_healthy(s);
        if (r == 0)
                *ret = TAKE_PTR(s);
        return r;
}

const char *session_socket(const struct session *s)
{
        return s->socket;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
        return remove(path);
}

struct session *session_stop(struct session *s)
{
        if (!s)
                return NULL;
        if (s->pid > 0) {
                uint64_t deadline = now_monotonic_ns() + STOP_TIMEOUT;
                kill(s->pid, SIGTERM);
                while (waitpid(s->pid, NULL, WNOHANG) == 0) {
                        if (now_monotonic_ns() > deadline)
                                kill(s->pid, SIGKILL);
                        pause_ns(POLL_INTERVAL);
                }
        }
        if (s->directory[0])
                nftw(s->directory, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
        free(s);
        return NULL;
}
