#include "daemon/keep.h"

#include <bpf/bpf.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "bpf/abi.h"

#define PREFIX    "profd-"
#define NAME_MAX_ 80

struct keep {
        char *pin;   /* NULL: no pinning */
        char *files; /* directory of the memory, when pinning */
        int lock_fd; /* on the pins; -1: not pinning */
        bool store;  /* systemd's */
        int listen_fd;
        uint32_t generation;
        struct kept *found;
        uint32_t n_found, cap_found;
        bool said; /* that something cannot be kept */
};

bool keep_is_on(const struct keep *k)
{
        return k && (k->pin || k->store);
}

bool keep_pins(const struct keep *k)
{
        return k && k->pin;
}

int keep_listen_fd(const struct keep *k)
{
        return k->listen_fd;
}

/* -- names -- */

static void name_of(char name[NAME_MAX_], uint32_t version, uint32_t generation, const char *what)
{
        snprintf(name, NAME_MAX_, PREFIX "%u-%u-%.31s", version, generation, what);
}

/* False: the name is none of ours. */
static bool parse_name(const char *name, struct kept *ret)
{
        struct kept f = {.fd = -1};
        char end;

        if (sscanf(name, PREFIX "%9u-%9u-%31[a-z0-9-]%c", &f.version, &f.generation, f.what, &end) != 3)
                return false;
        *ret = f;
        return true;
}

static int path_of(char **ret, const char *directory, const char *name)
{
        return asprintf(ret, "%s/%s", directory, name) < 0 ? -ENOMEM : 0;
}

/* -- what was kept -- */

static int add_found(struct keep *k, const char *name, int fd)
{
        struct kept f;

        if (!parse_name(name, &f))
                return -EINVAL;
        if (ARRAY_ROOM(k->found, k->cap_found, k->n_found + 1) < 0)
                return -ENOMEM;
        f.fd = fd;
        k->found[k->n_found++] = f;
        k->generation = MAX_OF(k->generation, f.generation + 1);
        return 0;
}

static int find_passed(struct keep *k)
{
        char **names = NULL;
        int n = sd_listen_fds_with_names(1, &names);

        for (int i = 0; i < n; i++) {
                int fd = SD_LISTEN_FDS_START + i;

                int r = add_found(k, names[i], fd);
                if (r == -EINVAL && k->listen_fd < 0 && sd_is_socket(fd, AF_UNIX, SOCK_STREAM, 1) > 0)
                        k->listen_fd = fd;
                else if (r < 0) {
                        log_warning("cannot take up %s, which systemd passed: %s", names[i], strerror(-r));
                        close(fd);
                }
                free(names[i]);
        }
        free(names);
        return MIN_OF(n, 0);
}

static int find_in(struct keep *k, const char *directory, int (*open_one)(const char *path))
{
        DIR *d = opendir(directory);

        if (!d)
                return -errno;
        for (struct dirent *e = readdir(d); e; e = readdir(d)) {
                _cleanup_free_ char *path = NULL;
                struct kept f;

                if (!parse_name(e->d_name, &f) || path_of(&path, directory, e->d_name) < 0)
                        continue;
                _cleanup_close_ int fd = open_one(path);
                int r = fd < 0 ? -errno : add_found(k, e->d_name, fd);
                if (r == 0)
                        (void)TAKE_FD(fd);
                else
                        log_warning("cannot take up %s: %s: samples in it may be lost", path, strerror(-r));
        }
        closedir(d);
        return 0;
}

static int open_pin(const char *path)
{
        return bpf_obj_get(path);
}

static int open_file(const char *path)
{
        return open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
}

/* Maps and memory of others must not be taken for ours: whoever could write there could make up samples. */
static int check_directory(const char *path, bool bpf)
{
        struct statfs fs;
        struct stat st;
        const char *why = NULL;

        if (lstat(path, &st) < 0 || statfs(path, &fs) < 0) {
                int r = -errno;
                log_error("cannot use %s: %s", path, strerror(-r));
                return r;
        }
        if (bpf && fs.f_type != BPF_FS_MAGIC)
                why = "it is not on a BPF file system: mount one (mount -t bpf bpf /sys/fs/bpf) and name a "
                      "directory in it";
        else if (!S_ISDIR(st.st_mode))
                why = "it is no directory";
        else if ((st.st_uid != 0 && st.st_uid != geteuid()) || (st.st_mode & 077))
                why = "others may write to it or read it: it must be root's, or of the user that profd runs "
                      "as, and have mode 0700";
        if (!why)
                return 0;
        log_error("cannot keep maps in Pin=%s: %s", path, why);
        return -EINVAL;
}

/* What a daemon that runs has pinned is not for us to take. */
static int lock_pins(struct keep *k)
{
        k->lock_fd = open(k->pin, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (k->lock_fd < 0 || flock(k->lock_fd, LOCK_EX | LOCK_NB) < 0) {
                int r = -errno;
                if (r == -EWOULDBLOCK)
                        log_error("another profd runs with Pin=%s: end it, or give this one a directory of "
                                  "its own",
                                  k->pin);
                else
                        log_error("cannot lock Pin=%s: %s", k->pin, strerror(-r));
                return r;
        }
        return 0;
}

static int find_pinned(struct keep *k, const char *pin, const char *state_dir)
{
        k->pin = strdup(pin);
        if (!k->pin || path_of(&k->files, state_dir, "kept") < 0)
                return -ENOMEM;
        mkdir(k->pin, 0700); /* below: whether it is there and fit */
        mkdir(state_dir, 0750);
        mkdir(k->files, 0700);
        int r = check_directory(k->pin, true);
        if (r == 0)
                r = check_directory(k->files, false);
        if (r == 0)
                r = lock_pins(k);
        if (r == 0)
                r = find_in(k, k->pin, open_pin);
        if (r == 0)
                r = find_in(k, k->files, open_file);
        return r;
}

int keep_new(struct keep **ret, const char *pin, const char *state_dir)
{
        struct keep *k = calloc(1, sizeof(*k));

        if (!k)
                return -ENOMEM;
        k->listen_fd = k->lock_fd = -1;
        k->generation = 1;
        int r = find_passed(k);
        if (r < 0)
                log_warning("cannot take up what systemd passed: %s", strerror(-r));
        r = 0;
        if (pin && *pin)
                r = find_pinned(k, pin, state_dir);
        else
                k->store = getenv("NOTIFY_SOCKET") != NULL;
        if (r < 0) {
                keep_free(k);
                return r;
        }
        *ret = k;
        return 0;
}

struct keep *keep_free(struct keep *k)
{
        if (!k)
                return NULL;
        for (uint32_t i = 0; i < k->n_found; i++)
                if (k->found[i].fd >= 0)
                        close(k->found[i].fd);
        if (k->lock_fd >= 0)
                close(k->lock_fd);
        free(k->found);
        free(k->pin);
        free(k->files);
        free(k);
        return NULL;
}

uint32_t keep_n_found(const struct keep *k)
{
        return k->n_found;
}

const struct kept *keep_found(const struct keep *k, uint32_t i)
{
        return &k->found[i];
}

int keep_found_fd(const struct keep *k, uint32_t generation, const char *what)
{
        for (uint32_t i = 0; i < k->n_found; i++)
                if (k->found[i].generation == generation && !strcmp(k->found[i].what, what))
                        return k->found[i].fd;
        return -1;
}

int keep_found_memory(const struct keep *k, uint32_t generation, const char *what, void **ret,
                      size_t *ret_size)
{
        int fd = keep_found_fd(k, generation, what);
        struct stat st;

        if (fd < 0)
                return -ENOENT;
        if (fstat(fd, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || (k->pin && (st.st_mode & 077)) ||
            st.st_size <= 0)
                return -EBADF;
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED)
                return -errno;
        *ret = p;
        *ret_size = (size_t)st.st_size;
        return 0;
}

/* -- keeping -- */

static int refuse(struct keep *k, const char *what, int r)
{
        if (!k->said)
                log_warning("cannot keep %s for a daemon after this one: %s; a restart would lose samples "
                            "(counted)",
                            what, strerror(-r));
        k->said = true;
        return r;
}

/* FDPOLL=0: perf events poll as hung up at times, which would put them out of the store. */
static int store_fd(const char *name, int fd)
{
        char message[NAME_MAX_ + 40];

        snprintf(message, sizeof(message), "FDSTORE=1\nFDPOLL=0\nFDNAME=%s", name);
        int r = sd_pid_notify_with_fds(0, 0, message, &fd, 1);
        return MIN_OF(r, 0);
}

int keep_fd(struct keep *k, const char *what, int fd)
{
        _cleanup_free_ char *path = NULL;
        char name[NAME_MAX_];
        int r;

        name_of(name, PROFD_ABI_VERSION, k->generation, what);
        if (k->pin) {
                r = path_of(&path, k->pin, name);
                if (r == 0)
                        r = bpf_obj_pin(fd, path);
        } else
                r = store_fd(name, fd);
        return r < 0 ? refuse(k, what, r) : 0;
}

static int new_memory(struct keep *k, const char *name, size_t size)
{
        _cleanup_close_ int fd = -1;
        int r;

        if (k->pin) {
                _cleanup_free_ char *path = NULL;

                if (path_of(&path, k->files, name) < 0)
                        return -ENOMEM;
                fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
                r = fd < 0 ? -errno : -posix_fallocate(fd, 0, (off_t)size);
                if (r < 0 && fd >= 0)
                        unlink(path);
        } else {
                fd = memfd_create(name, MFD_CLOEXEC);
                r = fd < 0 || ftruncate(fd, (off_t)size) < 0 ? -errno : store_fd(name, fd);
        }
        return r < 0 ? r : TAKE_FD(fd);
}

int keep_memory(struct keep *k, const char *what, size_t size, void **ret)
{
        char name[NAME_MAX_];

        name_of(name, PROFD_ABI_VERSION, k->generation, what);
        _cleanup_close_ int fd = new_memory(k, name, size);
        if (fd < 0)
                return refuse(k, what, fd);
        void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED) {
                int r = -errno;
                keep_drop(k, what);
                return refuse(k, what, r);
        }
        *ret = p;
        return 0;
}

static void forget(struct keep *k, const char *name)
{
        const char *directories[] = {k->pin, k->files};
        char message[NAME_MAX_ + 40];

        for (size_t i = 0; i < ARRAY_SIZE(directories); i++) {
                _cleanup_free_ char *path = NULL;

                if (directories[i] && path_of(&path, directories[i], name) == 0)
                        unlink(path);
        }
        snprintf(message, sizeof(message), "FDSTOREREMOVE=1\nFDNAME=%s", name);
        sd_notify(0, message); /* nothing happens where there is no systemd, or it has no such descriptor */
}

void keep_drop(struct keep *k, const char *what)
{
        char name[NAME_MAX_];

        name_of(name, PROFD_ABI_VERSION, k->generation, what);
        forget(k, name);
}

void keep_release(struct keep *k, uint32_t generation, const char *prefix)
{
        for (uint32_t i = 0; i < k->n_found; i++) {
                struct kept *f = &k->found[i];
                char name[NAME_MAX_];

                if (f->generation != generation || f->fd < 0 || strncmp(f->what, prefix, strlen(prefix)))
                        continue;
                name_of(name, f->version, f->generation, f->what);
                forget(k, name);
                close(TAKE_FD(f->fd));
        }
}
