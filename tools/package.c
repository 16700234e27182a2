#include "tools/package.h"

#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/io.h"

#define ANSWER_MAX 65536

extern char **environ;

/* What `dpkg-query --search PATH` prints; -1: it cannot be run. */
static int search(const char *path, struct buf *out)
{
        char *const argv[] = {"dpkg-query", "--search", "--", (char *)path, NULL};
        posix_spawn_file_actions_t actions;
        int fds[2], status;
        pid_t pid;

        if (pipe2(fds, O_CLOEXEC) < 0)
                return -1;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO);
        posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
        int r = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
        posix_spawn_file_actions_destroy(&actions);
        close(fds[1]);
        if (r == 0) {
                read_fd(fds[0], ANSWER_MAX, out);
                waitpid(pid, &status, 0);
        }
        close(fds[0]);
        return r == 0 ? 0 : -1;
}

char *package_of(const char *path)
{
        /* Where /bin and /lib are links into /usr, dpkg knows a file by either path. */
        const char *const paths[] = {path, strncmp(path, "/usr/", 5) ? NULL : path + 4};

        for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
                _cleanup_buf_ struct buf out = {0};
                if (!paths[i] || strpbrk(paths[i], "*?[\\") || search(paths[i], &out) < 0)
                        continue;
                size_t n = strcspn(buf_text(&out), ":,\n");
                if (n > 0 && buf_text(&out)[n] && strncmp(buf_text(&out), "diversion", 9) != 0)
                        return strndup(buf_text(&out), n);
        }
        return NULL;
}
