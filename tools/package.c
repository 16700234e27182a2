#include "tools/package.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/io.h"
#include "symbolizer/build_id.h"
#include "symbolizer/elf_image.h"

#define ANSWER_MAX 65536

extern char **environ;

/* What a command prints; -1: it cannot be run. */
static int answer(char *const argv[], struct buf *out)
{
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

/* The package of a file, as dpkg writes it where it matters: with its architecture. NULL: none. */
static char *owner_of(const char *path)
{
        /* Where /bin and /lib are links into /usr, dpkg knows a file by either path. */
        const char *const paths[] = {path, strncmp(path, "/usr/", 5) ? NULL : path + 4};

        for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
                char *const argv[] = {"dpkg-query", "--search", "--", (char *)paths[i], NULL};
                _cleanup_buf_ struct buf out = {0};
                if (!paths[i] || strpbrk(paths[i], "*?[\\") || answer(argv, &out) < 0)
                        continue;
                /* "PACKAGE[:ARCHITECTURE][, PACKAGE...]: PATH" */
                size_t n = strcspn(buf_text(&out), ", \n");
                const char *next = buf_text(&out) + n;
                if (n > 1 && next[-1] == ':' && next[0] == ' ')
                        n--;
                else if (next[0] != ',')
                        continue; /* "diversion by ..." */
                return strndup(buf_text(&out), n);
        }
        return NULL;
}

/* Whether the file has this build ID. It is a package's, which root installed: read here, not in the worker.
 */
static bool has_build_id(const char *path, const char *build_id)
{
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        char text[BUILD_ID_TEXT_MAX];
        uint8_t id[SYM_BUILD_ID_MAX];
        struct elf_image *e;

        if (fd < 0 || elf_image_open(fd, 0, &e) < 0)
                return false;
        build_id_text(id, elf_image_build_id(e, id, sizeof(id)), text);
        elf_image_free(e);
        return !strcmp(text, build_id);
}

/* debhelper makes PACKAGE-dbgsym of each package (dh_strip(1)); the C library is the one that everybody has
 * whose source builds another, PACKAGE-dbg. */
static char *debug_package(const char *name, const char *source)
{
        const char *end = !strcmp(source, "glibc") && !strncmp(name, "libc6", 5) ? "dbg" : "dbgsym";
        char *debug;

        return asprintf(&debug, "%s-%s", name, end) < 0 ? NULL : debug;
}

int package_of(const char *path, const char *build_id, struct package *ret)
{
        _cleanup_free_ char *owner = owner_of(path);
        char *const argv[] = {
                        "dpkg-query", "--show", "--showformat=${Package} ${Version} ${source:Package}\n",
                        "--",         owner,    NULL};
        char name[256], version[256], source[256];
        _cleanup_package_ struct package p = {0};
        _cleanup_buf_ struct buf out = {0};

        if (!owner || answer(argv, &out) < 0 ||
            sscanf(buf_text(&out), "%255s %255s %255s", name, version, source) != 3)
                return -ENOENT;
        p.name = strdup(name);
        p.version = strdup(version);
        p.debug = debug_package(name, source);
        p.outdated = build_id[0] && !has_build_id(path, build_id);
        if (!p.name || !p.version || !p.debug)
                return -ENOMEM;
        *ret = p;
        p = (struct package){0};
        return 0;
}

void package_done(struct package *p)
{
        free(p->name);
        free(p->version);
        free(p->debug);
}
