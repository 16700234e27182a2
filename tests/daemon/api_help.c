#include "api_help.h"

#include <errno.h>
#include <grp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"

/* -- what the daemon would do -- */

static void on_collect(void *ctx, struct api_request *r, const struct api_collect *what)
{
        struct help_server *h = ctx;
        uint32_t n = atomic_load(&h->n_live);

        h->last = *what;
        atomic_fetch_add(&h->collected, 1);
        if (what->follow_pid == 4194303) {
                api_answer(h->api, r, NULL, -ESRCH, "there is no such process");
                return;
        }
        h->live[n].request = r;
        h->live[n].due_ns = now_monotonic_ns() + what->duration_ns;
        atomic_store(&h->n_live, n + 1);
}

static void forget(struct help_server *h, uint32_t i)
{
        uint32_t n = atomic_load(&h->n_live) - 1;

        h->live[i] = h->live[n];
        atomic_store(&h->n_live, n);
}

static void on_cancel(void *ctx, struct api_request *r)
{
        struct help_server *h = ctx;

        for (uint32_t i = 0; i < atomic_load(&h->n_live); i++)
                if (h->live[i].request == r) {
                        forget(h, i);
                        atomic_fetch_add(&h->cancelled, 1);
                        return;
                }
        abort(); /* one that was answered, or never asked for */
}

static void on_status(void *ctx, struct buf *out)
{
        struct help_server *h = ctx;
        uint32_t n = atomic_load(&h->status_bytes);

        buf_adds(out, "{\"version\":\"0\",");
        if (n > 0)
                buf_addf(out, "\"more\":\"%0*d\",", (int)n, 0);
        buf_adds(out, "\"secret\":\"secret-status\"}");
}

static void on_metrics(void *ctx, struct buf *out)
{
        buf_adds(out, "# HELP profd_secret_total Secret.\n# TYPE profd_secret_total "
                      "counter\nprofd_secret_total 7\n");
}

static bool on_health(void *ctx, char *why, uint32_t size)
{
        struct help_server *h = ctx;

        snprintf(why, size, "secret: the disk is full");
        return !atomic_load(&h->unhealthy);
}

static const struct api_ops ops = {.collect = on_collect,
                                   .cancel = on_cancel,
                                   .status = on_status,
                                   .metrics = on_metrics,
                                   .health = on_health};

static void answer_due(struct help_server *h)
{
        for (uint32_t i = 0; i < atomic_load(&h->n_live);) {
                if (h->live[i].due_ns > now_monotonic_ns()) {
                        i++;
                        continue;
                }
                struct api_request *r = h->live[i].request;
                forget(h, i);
                api_answer(h->api, r, help_profile(T0, 1, atomic_load(&h->live_samples), 5), 0, NULL);
        }
}

static void *main_loop(void *arg)
{
        struct help_server *h = arg;

        while (!atomic_load(&h->stop)) {
                struct pollfd p = {.fd = api_fd(h->api), .events = POLLIN};
                poll(&p, 1, 5);
                if (atomic_load(&h->hold)) {
                        usleep(5000);
                        continue;
                }
                if (api_dispatch(h->api) < 0)
                        abort();
                answer_due(h);
        }
        return NULL;
}

void help_server_open(struct help_server *h)
{
        memset(h, 0, sizeof(*h));
        help_directory(h->dir);
        chmod(h->dir, 0755); /* other users connect to the socket in it */
        snprintf(h->socket, sizeof(h->socket), "%s/profd.sock", h->dir);
        snprintf(h->state, sizeof(h->state), "%s/state", h->dir);
        h->store_config = help_config(h->state);
        h->config = (struct api_config){.socket = h->socket, .listen_fd = -1};
        atomic_store(&h->live_samples, 40);
        if (store_open(&h->store, &h->store_config) < 0)
                abort();
        for (uint32_t i = 0; i < 2; i++) {
                struct profile *p = help_profile(T0 + i * 60, 60, 40, i + 1);
                if (store_put(h->store, p) < 0)
                        abort();
                profile_free(p);
        }
}

int help_server_start(struct help_server *h)
{
        int r = api_new(&h->api, &h->config, h->store, &ops, h);

        if (r < 0)
                return r;
        if (pthread_create(&h->thread, NULL, main_loop, h))
                abort();
        return 0;
}

void help_server_close(struct help_server *h)
{
        atomic_store(&h->stop, true);
        if (h->api) {
                pthread_join(h->thread, NULL);
                h->api = api_free(h->api);
        }
        h->store = store_free(h->store);
        help_remove(h->dir);
}

int help_set_up(void **state)
{
        struct help_server *h = calloc(1, sizeof(*h));

        help_server_open(h);
        *state = h;
        return help_server_start(h);
}

int help_tear_down(void **state)
{
        struct help_server *h = *state;

        help_server_close(h);
        free(h);
        return 0;
}

const struct api_collect *help_last(const struct help_server *h)
{
        return atomic_load(&h->collected) ? &h->last : NULL; /* counted after it was written */
}

/* -- the client -- */

void help_reply_free(struct help_reply *r)
{
        buf_free(&r->body);
}

int help_connect(const char *path)
{
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

        strcpy(address.sun_path, path);
        if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
                close(fd);
                return -errno;
        }
        return fd;
}

/* The kernel keeps the effective user of the thread that connects; other threads stay as they are. */
int help_connect_as(const char *path, uid_t uid)
{
        if (syscall(SYS_setresuid, -1, uid, -1) < 0)
                return -errno;
        int fd = help_connect(path);
        if (syscall(SYS_setresuid, -1, 0, -1) < 0)
                abort();
        return fd;
}

/* Head and body apart. */
static void parse_reply(const struct buf *all, struct help_reply *ret)
{
        const char *end = all->len ? strstr(all->data, "\r\n\r\n") : NULL;

        memset(ret, 0, sizeof(*ret));
        if (!end || sscanf(all->data, "HTTP/1.%*d %u", &ret->status) != 1)
                return;
        size_t n = MIN_OF((size_t)(end + 2 - all->data), sizeof(ret->head) - 1);
        memcpy(ret->head, all->data, n);
        buf_add(&ret->body, end + 4, all->len - (size_t)(end + 4 - all->data));
}

static void exchange(const char *path, const char *text, size_t n, struct buf *all)
{
        _cleanup_close_ int fd = help_connect(path);
        char chunk[65536];
        ssize_t k;

        if (fd < 0)
                return;
        send(fd, text, n, MSG_NOSIGNAL);
        while ((k = read(fd, chunk, sizeof(chunk))) > 0)
                buf_add(all, chunk, (size_t)k);
}

void help_raw(const char *path, const char *text, size_t n, struct help_reply *ret)
{
        _cleanup_buf_ struct buf all = {0};

        exchange(path, text, n, &all);
        parse_reply(&all, ret);
}

static void format_get(const char *target, const char *headers, struct buf *b)
{
        buf_addf(b, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%s\r\n", target, headers);
}

void help_get(const char *path, const char *target, const char *headers, struct help_reply *ret)
{
        _cleanup_buf_ struct buf b = {0};

        format_get(target, headers, &b);
        help_raw(path, b.data, b.len, ret);
}

void help_get_as(const char *path, const char *target, uid_t uid, gid_t gid, int group,
                 struct help_reply *ret)
{
        _cleanup_buf_ struct buf all = {0};
        char chunk[65536];
        ssize_t k;
        int fds[2];

        if (pipe(fds) < 0)
                abort();
        pid_t pid = fork();
        if (pid == 0) {
                _cleanup_buf_ struct buf get = {0}, answer = {0};
                gid_t more = (gid_t)group;
                if (setgroups(group < 0 ? 0 : 1, &more) < 0 || setresgid(gid, gid, gid) < 0 ||
                    setresuid(uid, uid, uid) < 0)
                        _exit(1);
                format_get(target, "", &get);
                exchange(path, get.data, get.len, &answer);
                _exit(write_all(fds[1], answer.data, answer.len) < 0);
        }
        close(fds[1]);
        while ((k = read(fds[0], chunk, sizeof(chunk))) > 0)
                buf_add(&all, chunk, (size_t)k);
        close(fds[0]);
        waitpid(pid, NULL, 0);
        parse_reply(&all, ret);
}

int help_run(const char *command, struct buf *out)
{
        FILE *f = popen(command, "r");
        char chunk[4096];
        size_t k;

        if (!f)
                return -errno;
        while ((k = fread(chunk, 1, sizeof(chunk), f)) > 0)
                buf_add(out, chunk, k);
        int status = pclose(f);
        return WIFEXITED(status) ? WEXITSTATUS(status) : -EIO;
}

uint64_t help_resident(void)
{
        _cleanup_buf_ struct buf b = {0};
        unsigned long pages = 0;

        if (read_file("/proc/self/statm", 256, &b) == 0)
                sscanf(buf_text(&b), "%*u %lu", &pages);
        return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}
