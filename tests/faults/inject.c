/* Preloaded into a program, makes calls fail that fail once in years: see control.h for which and when.
 *
 * FAULT_CONTROL names the file shared with the driver; FAULT_PROGRAM the program that is meant, so that a
 * shell in between is left alone. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "tests/faults/control.h"

#define OWN_FRAMES 2 /* fails() and the function in its place */

/* glibc's own, which no preload replaces */
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

static struct control *control;
static _Thread_local bool inside; /* backtrace() and this file allocate too */

__attribute__((constructor)) static void begin(void)
{
        const char *path = getenv("FAULT_CONTROL"), *program = getenv("FAULT_PROGRAM");
        void *frames[1];

        if (!path || !program || strcmp(program, program_invocation_short_name) != 0)
                return;
        inside = true;
        backtrace(frames, 1); /* loads what it needs */
        int fd = open(path, O_RDWR | O_CLOEXEC);
        void *p = fd >= 0 ? mmap(NULL, sizeof(*control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                          : MAP_FAILED;
        if (p == MAP_FAILED) {
                fprintf(stderr, "inject: cannot map %s: %s\n", path, strerror(errno));
                _exit(99);
        }
        close(fd);
        inside = false;
        control = p;
}

static uint64_t now_ns(void)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The call's stack, by object and offset: the same in each run. */
static uint64_t place(struct control_frame frames[CONTROL_FRAMES])
{
        void *addresses[OWN_FRAMES + CONTROL_FRAMES];
        uint64_t hash = 14695981039346656037u; /* FNV-1a, word-wise */
        int n = backtrace(addresses, OWN_FRAMES + CONTROL_FRAMES);

        for (int i = OWN_FRAMES; i < n; i++) {
                struct control_frame *f = &frames[i - OWN_FRAMES];
                struct dl_find_object object;
                if (_dl_find_object(addresses[i], &object) != 0)
                        break;
                const char *name = object.dlfo_link_map ? object.dlfo_link_map->l_name : "";
                const char *base = strrchr(name, '/');
                f->offset = (uint64_t)((char *)addresses[i] - (char *)object.dlfo_map_start);
                snprintf(f->object, sizeof(f->object), "%s", base ? base + 1 : name);
                hash = (hash ^ f->offset) * 1099511628211u;
        }
        return hash | 1;
}

static struct control_site *find_site(uint64_t hash, uint32_t kind)
{
        for (uint64_t i = hash >> 8, n = 0; n < 256; i++, n++) {
                struct control_site *s = &control->site[i % CONTROL_SITES];
                uint64_t seen = 0;
                if (__atomic_compare_exchange_n(&s->hash, &seen, hash, false, __ATOMIC_ACQ_REL,
                                                __ATOMIC_ACQUIRE)) {
                        s->kind = kind;
                        __atomic_add_fetch(&control->sites, 1, __ATOMIC_RELAXED);
                        return s;
                }
                if (seen == hash)
                        return s;
        }
        return NULL;
}

static bool take_allowance(void)
{
        uint32_t left = __atomic_load_n(&control->allowance, __ATOMIC_ACQUIRE);

        if (control->gap_ms && now_ns() - control->last_ns < control->gap_ms * 1000000ull)
                return false;
        while (left)
                if (__atomic_compare_exchange_n(&control->allowance, &left, left - 1, false,
                                                __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
                        return true;
        return false;
}

/* Whether this call is one that fails; errno is set then. */
__attribute__((noinline)) static bool fails(enum fault_kind kind, int error)
{
        struct control_frame frames[CONTROL_FRAMES] = {0};
        bool failing = false;

        if (inside || !control || !(control->kinds & kind))
                return false;
        inside = true;
        int saved = errno;
        struct control_site *s = find_site(place(frames) ^ (uint64_t)kind << 40, kind);
        if (s && !s->fired && take_allowance() && __atomic_exchange_n(&s->fired, 1, __ATOMIC_ACQ_REL) == 0) {
                memcpy(s->frames, frames, sizeof(frames));
                control->last_ns = now_ns();
                __atomic_add_fetch(&control->fired, 1, __ATOMIC_RELAXED);
                if (control->action == FAULT_KILL)
                        kill(getpid(), SIGKILL);
                failing = true;
        }
        inside = false;
        errno = failing ? error : saved;
        return failing;
}

/* -- memory -- */

void *malloc(size_t size)
{
        return fails(FAULT_ALLOC, ENOMEM) ? NULL : __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
        return fails(FAULT_ALLOC, ENOMEM) ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t size)
{
        return fails(FAULT_ALLOC, ENOMEM) ? NULL : __libc_realloc(p, size);
}

void *reallocarray(void *p, size_t n, size_t size)
{
        size_t all;

        if (__builtin_mul_overflow(n, size, &all)) {
                errno = ENOMEM;
                return NULL;
        }
        return fails(FAULT_ALLOC, ENOMEM) ? NULL : __libc_realloc(p, all);
}

void *aligned_alloc(size_t alignment, size_t size)
{
        return fails(FAULT_ALLOC, ENOMEM) ? NULL : __libc_memalign(alignment, size);
}

int posix_memalign(void **ret, size_t alignment, size_t size)
{
        if (fails(FAULT_ALLOC, ENOMEM))
                return ENOMEM;
        void *p = __libc_memalign(alignment, size);
        if (!p)
                return ENOMEM;
        *ret = p;
        return 0;
}

/* -- the others: the next definition, found at the first call -- */

#define NEXT(name)                                       \
        ({                                               \
                static __typeof__(&name) next_;          \
                if (!next_) {                            \
                        bool was_ = inside;              \
                        inside = true;                   \
                        next_ = dlsym(RTLD_NEXT, #name); \
                        inside = was_;                   \
                }                                        \
                next_;                                   \
        })

#define INSTEAD(kind, error, type, name, parameters, arguments)        \
        type name parameters                                           \
        {                                                              \
                __typeof__(&name) next = NEXT(name);                   \
                return fails(kind, error) ? (type)-1 : next arguments; \
        }
#define INSTEAD_POINTER(kind, error, type, name, parameters, arguments) \
        type name parameters                                            \
        {                                                               \
                __typeof__(&name) next = NEXT(name);                    \
                return fails(kind, error) ? NULL : next arguments;      \
        }

void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
        __typeof__(&mmap) next = NEXT(mmap);

        return fails(FAULT_ALLOC, ENOMEM) ? MAP_FAILED : next(at, size, protection, flags, fd, offset);
}

INSTEAD(FAULT_WRITE, ENOSPC, ssize_t, write, (int fd, const void *p, size_t n), (fd, p, n))
INSTEAD(FAULT_WRITE, ENOSPC, ssize_t, pwrite, (int fd, const void *p, size_t n, off_t at), (fd, p, n, at))
INSTEAD(FAULT_FILE, EIO, int, fsync, (int fd), (fd))
INSTEAD(FAULT_FILE, EIO, int, fdatasync, (int fd), (fd))
INSTEAD(FAULT_FILE, ENOSPC, int, ftruncate, (int fd, off_t n), (fd, n))
INSTEAD(FAULT_FILE, ENOSPC, int, rename, (const char *a, const char *b), (a, b))
INSTEAD(FAULT_FILE, ENOSPC, int, renameat, (int fa, const char *a, int fb, const char *b), (fa, a, fb, b))
INSTEAD(FAULT_FILE, ENOSPC, int, renameat2, (int fa, const char *a, int fb, const char *b, unsigned f),
        (fa, a, fb, b, f))
INSTEAD(FAULT_FILE, EROFS, int, unlink, (const char *path), (path))
INSTEAD(FAULT_FILE, EROFS, int, unlinkat, (int fd, const char *path, int flags), (fd, path, flags))
INSTEAD(FAULT_FILE, ENOSPC, int, mkdir, (const char *path, mode_t mode), (path, mode))
INSTEAD(FAULT_FILE, ENOSPC, int, mkdirat, (int fd, const char *path, mode_t mode), (fd, path, mode))

INSTEAD(FAULT_READ, EIO, ssize_t, read, (int fd, void *p, size_t n), (fd, p, n))
INSTEAD(FAULT_READ, EIO, ssize_t, pread, (int fd, void *p, size_t n, off_t at), (fd, p, n, at))

/* `mode` is read also where none was passed: its value is not used then. */
int open(const char *path, int flags, ...)
{
        __typeof__(&open) next = NEXT(open);
        va_list list;

        va_start(list, flags);
        mode_t mode = va_arg(list, mode_t);
        va_end(list);
        return fails(FAULT_OPEN, EMFILE) ? -1 : next(path, flags, mode);
}

int openat(int at, const char *path, int flags, ...)
{
        __typeof__(&openat) next = NEXT(openat);
        va_list list;

        va_start(list, flags);
        mode_t mode = va_arg(list, mode_t);
        va_end(list);
        return fails(FAULT_OPEN, EMFILE) ? -1 : next(at, path, flags, mode);
}

INSTEAD_POINTER(FAULT_OPEN, EMFILE, FILE *, fopen, (const char *path, const char *mode), (path, mode))
INSTEAD_POINTER(FAULT_OPEN, EMFILE, DIR *, opendir, (const char *path), (path))
INSTEAD_POINTER(FAULT_OPEN, ENOMEM, DIR *, fdopendir, (int fd), (fd))
INSTEAD(FAULT_OPEN, EMFILE, int, socket, (int domain, int type, int protocol), (domain, type, protocol))
INSTEAD(FAULT_OPEN, EMFILE, int, socketpair, (int domain, int type, int protocol, int fds[2]),
        (domain, type, protocol, fds))
INSTEAD(FAULT_OPEN, EMFILE, int, accept, (int fd, struct sockaddr *restrict a, socklen_t *restrict n),
        (fd, a, n))
INSTEAD(FAULT_OPEN, EMFILE, int, accept4,
        (int fd, struct sockaddr *restrict a, socklen_t *restrict n, int flags), (fd, a, n, flags))
INSTEAD(FAULT_OPEN, EMFILE, int, pipe, (int fds[2]), (fds))
INSTEAD(FAULT_OPEN, EMFILE, int, pipe2, (int fds[2], int flags), (fds, flags))
INSTEAD(FAULT_OPEN, EMFILE, int, eventfd, (unsigned value, int flags), (value, flags))
INSTEAD(FAULT_OPEN, EMFILE, int, timerfd_create, (int clock, int flags), (clock, flags))
INSTEAD(FAULT_OPEN, EMFILE, int, signalfd, (int fd, const sigset_t *set, int flags), (fd, set, flags))
INSTEAD(FAULT_OPEN, EMFILE, int, epoll_create, (int size), (size))
INSTEAD(FAULT_OPEN, EMFILE, int, epoll_create1, (int flags), (flags))

INSTEAD(FAULT_OPEN, EMFILE, int, memfd_create, (const char *name, unsigned flags), (name, flags))
INSTEAD(FAULT_OPEN, EMFILE, int, dup, (int fd), (fd))

int pthread_create(pthread_t *ret, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
        __typeof__(&pthread_create) next = NEXT(pthread_create);

        return fails(FAULT_THREAD, EAGAIN) ? EAGAIN : next(ret, attr, fn, arg);
}

int posix_spawn(pid_t *ret, const char *path, const posix_spawn_file_actions_t *actions,
                const posix_spawnattr_t *attr, char *const argv[], char *const envp[])
{
        __typeof__(&posix_spawn) next = NEXT(posix_spawn);

        return fails(FAULT_THREAD, EAGAIN) ? EAGAIN : next(ret, path, actions, attr, argv, envp);
}

/* bpf() and perf_event_open() have no function of their own in glibc. */
long syscall(long number, ...)
{
        __typeof__(&syscall) next = NEXT(syscall);
        va_list list;
        long a[6];

        va_start(list, number);
        for (int i = 0; i < 6; i++)
                a[i] = va_arg(list, long);
        va_end(list);
        if ((number == SYS_bpf || number == SYS_perf_event_open) && fails(FAULT_KERNEL, ENOMEM))
                return -1;
        return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
