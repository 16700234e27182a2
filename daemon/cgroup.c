/* A v2 cgroup's id is its kernfs inode number, which is also the file handle of its directory
 * (include/linux/exportfs.h, FILEID_KERNFS), so its path costs one open_by_handle_at() and one readlink. */
#include "daemon/cgroup.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <mntent.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"

#define FILEID_KERNFS 0xfe

static bool ends_with(const char *s, size_t n, const char *suffix)
{
        size_t k = strlen(suffix);

        return n > k && !memcmp(s + n - k, suffix, k);
}

static bool all_hex(const char *s, size_t n)
{
        for (size_t i = 0; i < n; i++)
                if (!isxdigit((unsigned char)s[i]))
                        return false;
        return true;
}

static void copy_part(char *to, size_t size, const char *from, size_t n)
{
        n = MIN_OF(n, size - 1);
        memcpy(to, from, n);
        to[n] = 0;
}

static bool is_unit(const char *s, size_t n)
{
        static const char *const types[] = {".service", ".scope", ".socket", ".mount", ".swap"};

        for (size_t i = 0; i < ARRAY_SIZE(types); i++)
                if (ends_with(s, n, types[i]))
                        return true;
        return false;
}

/* "docker-<id>.scope", "cri-containerd-<id>.scope", "crio-<id>", "libpod-<id>.scope", "<id>",
 * "<id>.scope"; a container in another's tree has its id below. */
static bool container_part(const char *s, size_t n, char *ret, size_t size)
{
        if (ends_with(s, n, ".scope"))
                n -= strlen(".scope");
        if (n < 64 || !all_hex(s + n - 64, 64) || (n > 64 && s[n - 65] != '-'))
                return false;
        /* "libpod-conmon-<id>", "crio-conmon-<id>": the monitor, not the container */
        for (const char *p = s; p + 7 <= s + n; p++)
                if (!memcmp(p, "conmon-", 7))
                        return false;
        copy_part(ret, size, s + n - 64, 64);
        return true;
}

/* "kubepods-burstable-pod<uid with _>.slice", "pod<uid>" */
static bool pod_part(const char *s, size_t n, char *ret, size_t size)
{
        if (ends_with(s, n, ".slice"))
                n -= strlen(".slice");
        if (n < 39 || memcmp(s + n - 39, "pod", 3) != 0 || size < 37)
                return false;
        const char *uid = s + n - 36;
        for (int i = 0; i < 36; i++) {
                bool dash = i == 8 || i == 13 || i == 18 || i == 23;
                if (dash ? uid[i] != '-' && uid[i] != '_' : !isxdigit((unsigned char)uid[i]))
                        return false;
                ret[i] = dash ? '-' : uid[i];
        }
        ret[36] = 0;
        return true;
}

void cgroup_parse(const char *path, struct cgroup_names *ret)
{
        struct cgroup_names found = {0};

        for (const char *s = path; *s;) {
                while (*s == '/')
                        s++;
                size_t n = strcspn(s, "/");
                if (n == 0)
                        break;
                if (is_unit(s, n)) {
                        /* systemd escapes names that could be the kernel's with a leading "_" */
                        bool escaped = s[0] == '_' && n > 1;
                        copy_part(found.unit, sizeof(found.unit), s + escaped, n - escaped);
                }
                container_part(s, n, found.container_id, sizeof(found.container_id));
                pod_part(s, n, found.pod, sizeof(found.pod));
                s += n;
        }
        *ret = found;
}

void cgroup_choose(const char *proc_cgroup, char *ret_path, uint32_t size)
{
        static const char *const order[] = {"", "name=systemd", "pids", "memory", "cpu,cpuacct", "cpu"};
        const char *best = "/";
        size_t best_len = 1;
        int best_rank = ARRAY_SIZE(order);

        for (const char *line = proc_cgroup; *line;) {
                size_t n = strcspn(line, "\n");
                const char *controllers = memchr(line, ':', n);
                const char *path = controllers ? memchr(controllers + 1, ':',
                                                        n - (size_t)(controllers + 1 - line))
                                               : NULL;
                if (path) {
                        size_t len = (size_t)(path - controllers - 1),
                               path_len = n - (size_t)(path + 1 - line);
                        for (int rank = 0; rank < best_rank; rank++)
                                if (strlen(order[rank]) == len &&
                                    !memcmp(order[rank], controllers + 1, len) && path_len > 1) {
                                        best = path + 1;
                                        best_len = path_len;
                                        best_rank = rank;
                                        break;
                                }
                }
                line += n;
                line += *line == '\n';
        }
        copy_part(ret_path, size, best, best_len);
}

struct cgroup_resolver {
        int mount_fd;
        char mount[256];
};

int cgroup_resolver_new(struct cgroup_resolver **ret)
{
        FILE *mounts = setmntent("/proc/self/mounts", "r");
        struct mntent entry;
        char line[4096];
        struct cgroup_resolver *r = NULL;

        if (!mounts)
                return -errno;
        while (!r && getmntent_r(mounts, &entry, line, sizeof(line))) {
                if (strcmp(entry.mnt_type, "cgroup2") != 0)
                        continue;
                _cleanup_close_ int fd = open(entry.mnt_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                if (fd < 0)
                        continue;
                r = calloc(1, sizeof(*r));
                if (!r)
                        break;
                r->mount_fd = TAKE_FD(fd);
                copy_part(r->mount, sizeof(r->mount), entry.mnt_dir, strlen(entry.mnt_dir));
        }
        endmntent(mounts);
        if (!r)
                return -ENOENT;
        *ret = r;
        return 0;
}

struct cgroup_resolver *cgroup_resolver_free(struct cgroup_resolver *r)
{
        if (r) {
                close(r->mount_fd);
                free(r);
        }
        return NULL;
}

int cgroup_path(struct cgroup_resolver *r, uint64_t id, char *ret_path, uint32_t size)
{
        union {
                struct file_handle handle;
                char space[sizeof(struct file_handle) + sizeof(uint64_t)];
        } h = {.handle = {.handle_bytes = sizeof(uint64_t), .handle_type = FILEID_KERNFS}};
        char link[64], target[4096];

        memcpy(h.handle.f_handle, &id, sizeof(id));
        _cleanup_close_ int fd = open_by_handle_at(r->mount_fd, &h.handle, O_PATH | O_CLOEXEC);
        if (fd < 0)
                return errno == ESTALE ? -ENOENT : -errno;
        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        ssize_t n = readlink(link, target, sizeof(target) - 1);
        if (n < 0)
                return -errno;
        target[n] = 0;
        size_t skip = strlen(r->mount);
        if (strncmp(target, r->mount, skip) != 0)
                return -ENOENT;
        const char *path = target[skip] ? target + skip : "/";
        copy_part(ret_path, size, path, strlen(path));
        return 0;
}
