#include "daemon/object_open.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/log.h"
#include "base/thread.h"

#define MAX_STUCK      4
#define RESERVED_FDS   64
#define END_PATIENCE_S 1
#define THREAD_STACK   (128u << 10)

struct task {
        struct task *next;
        struct object_job job;
        struct object_opened result;
        uint64_t begun_ns;
        bool given_up; /* its result was already handed over as -ETIMEDOUT */
        char path[];
};

/* Shared with the threads, which may outlive the opener: freed by the last one. */
struct shared {
        pthread_mutex_t lock;
        pthread_cond_t more; /* jobs, or the end */
        pthread_cond_t gone; /* the thread that takes jobs has ended */
        uint32_t refs;       /* the opener and each thread */
        bool stop;
        int event_fd;
        struct task *queue, **queue_end;
        struct task *done;
        struct task *current; /* of the thread that is not given up */
        uint32_t stuck;
        bool running; /* a thread is there to take jobs */
};

struct object_opener {
        struct shared *s;
        uint64_t timeout_ns;
};

static void task_free(struct task *t)
{
        if (t && t->result.fd >= 0)
                close(t->result.fd);
        free(t);
}

static void list_free(struct task *t)
{
        while (t) {
                struct task *next = t->next;
                task_free(t);
                t = next;
        }
}

/* With the lock held; releases it. */
static void shared_unref(struct shared *s)
{
        bool last = --s->refs == 0;

        pthread_mutex_unlock(&s->lock);
        if (!last)
                return;
        list_free(s->queue);
        list_free(s->done);
        close(s->event_fd);
        pthread_cond_destroy(&s->more);
        pthread_cond_destroy(&s->gone);
        pthread_mutex_destroy(&s->lock);
        free(s);
}

/* -- the job itself, without the lock -- */

static int openat2_in_root(int root, const char *path)
{
        struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT};

        return (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
}

/* A descriptor that only names the file (O_PATH): opening a device or a FIFO would do something to it. */
static int find_place(const struct object_place *p, const char *path)
{
        char name[96];

        if (p->pid && p->start) {
                snprintf(name, sizeof(name), "/proc/%u/map_files/%llx-%llx", p->pid,
                         (unsigned long long)p->start, (unsigned long long)p->end);
                return open(name, O_PATH | O_CLOEXEC);
        }
        if (!p->pid)
                return open(path, O_PATH | O_CLOEXEC);
        snprintf(name, sizeof(name), "/proc/%u/root", p->pid);
        _cleanup_close_ int root = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
        return root < 0 ? -1 : openat2_in_root(root, path);
}

/* Mapping records carry the device of the superblock; stat() on these shows another one. */
static bool stat_hides_device(int fd)
{
        struct statfs fs;

        return fstatfs(fd, &fs) == 0 &&
               (fs.f_type == BTRFS_SUPER_MAGIC || fs.f_type == OVERLAYFS_SUPER_MAGIC);
}

static int check_same(int fd, const struct object_job *job, struct stat *ret)
{
        if (fstat(fd, ret) < 0)
                return -errno;
        if (!S_ISREG(ret->st_mode))
                return -ESTALE;
        if (!job->inode)
                return 0;
        uint64_t device = (uint64_t)major(ret->st_dev) << 32 | minor(ret->st_dev);
        if (ret->st_ino == job->inode && (device == job->device || stat_hides_device(fd)))
                return 0;
        return -ESTALE;
}

static uint64_t stamp_ns(const struct timespec *t)
{
        return (uint64_t)t->tv_sec * NSEC_PER_SEC + (uint64_t)t->tv_nsec;
}

/* The kernel gives out the lowest number that is free: a high one tells that few are left. Those are for
 * clients of the API, files of the store and the worker, which profd cannot do without; names of one more
 * object it can. */
static bool is_of_the_reserve(int fd)
{
        struct rlimit l;

        if (getrlimit(RLIMIT_NOFILE, &l) < 0)
                return false;
        return (rlim_t)fd >= l.rlim_cur - MIN_OF(l.rlim_cur / 4, (rlim_t)RESERVED_FDS);
}

static int try_place(const struct object_job *job, const struct object_place *p, struct object_opened *ret)
{
        struct stat st;
        char name[40];

        _cleanup_close_ int at = find_place(p, job->path);
        if (at < 0)
                return -errno;
        int r = check_same(at, job, &st);
        if (r < 0)
                return r;
        if (!job->look_only) {
                snprintf(name, sizeof(name), "/proc/self/fd/%d", at);
                ret->fd = open(name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
                if (ret->fd < 0)
                        return -errno;
                if (is_of_the_reserve(ret->fd)) {
                        close(TAKE_FD(ret->fd));
                        return -EMFILE;
                }
        }
        ret->size = (uint64_t)st.st_size;
        ret->modified_ns = stamp_ns(&st.st_mtim);
        ret->changed_ns = stamp_ns(&st.st_ctim);
        return 0;
}

static void run_job(struct task *t)
{
        int error = -ENOENT;

        for (uint32_t i = 0; i < t->job.n_places; i++) {
                int r = try_place(&t->job, &t->job.place[i], &t->result);
                if (r == 0) {
                        t->result.error = 0;
                        t->result.place = i;
                        return;
                }
                if (r != -ENOENT && r != -ESRCH && error != -ESTALE)
                        error = r;
        }
        t->result.error = error;
}

static void *thread_main(void *arg)
{
        struct shared *s = arg;
        uint64_t one = 1;

        pthread_mutex_lock(&s->lock);
        while (!s->stop) {
                struct task *t = s->queue;
                if (!t) {
                        pthread_cond_wait(&s->more, &s->lock);
                        continue;
                }
                s->queue = t->next;
                if (!s->queue)
                        s->queue_end = &s->queue;
                t->begun_ns = now_monotonic_ns();
                s->current = t;
                pthread_mutex_unlock(&s->lock);
                run_job(t);
                pthread_mutex_lock(&s->lock);
                if (t->given_up) {
                        /* Another thread has taken over. */
                        task_free(t);
                        s->stuck--;
                        shared_unref(s);
                        return NULL;
                }
                s->current = NULL;
                t->next = s->done;
                s->done = t;
                (void)!write(s->event_fd, &one, sizeof(one));
        }
        s->running = false;
        pthread_cond_broadcast(&s->gone);
        shared_unref(s);
        return NULL;
}

/* With the lock held. */
static int start_thread(struct shared *s)
{
        int r = thread_start(NULL, THREAD_STACK, thread_main, s);

        if (r < 0)
                return r;
        s->refs++;
        s->running = true;
        return 0;
}

/* -- the owner's side -- */

int object_opener_new(struct object_opener **ret, uint32_t timeout_ms)
{
        struct object_opener *o = calloc(1, sizeof(*o));
        struct shared *s = calloc(1, sizeof(*s));
        int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

        if (!o || !s || fd < 0) {
                int e = fd < 0 ? -errno : -ENOMEM;
                free(o);
                free(s);
                if (fd >= 0)
                        close(fd);
                return e;
        }
        pthread_mutex_init(&s->lock, NULL);
        pthread_cond_init(&s->more, NULL);
        pthread_cond_init(&s->gone, NULL);
        s->refs = 1;
        s->event_fd = fd;
        s->queue_end = &s->queue;
        o->s = s;
        o->timeout_ns = timeout_ms * NSEC_PER_MSEC;
        *ret = o;
        return 0;
}

struct object_opener *object_opener_free(struct object_opener *o)
{
        if (!o)
                return NULL;
        struct shared *s = o->s;
        struct timespec until;

        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += END_PATIENCE_S;
        pthread_mutex_lock(&s->lock);
        s->stop = true;
        pthread_cond_broadcast(&s->more);
        while (s->running && pthread_cond_clockwait(&s->gone, &s->lock, CLOCK_MONOTONIC, &until) == 0)
                ; /* else it is stuck: left behind with what it holds */
        shared_unref(s);
        free(o);
        return NULL;
}

int object_opener_fd(const struct object_opener *o)
{
        return o->s->event_fd;
}

int object_opener_submit(struct object_opener *o, const struct object_job *job)
{
        struct shared *s = o->s;
        size_t n = strlen(job->path) + 1;
        struct task *t = calloc(1, sizeof(*t) + n);
        int r = 0;

        if (!t)
                return -ENOMEM;
        t->job = *job;
        memcpy(t->path, job->path, n);
        t->job.path = t->path;
        t->result = (struct object_opened){.id = job->id, .fd = -1};

        pthread_mutex_lock(&s->lock);
        if (!s->running)
                r = s->stuck < MAX_STUCK ? start_thread(s) : -EBUSY;
        if (r == 0) {
                *s->queue_end = t;
                s->queue_end = &t->next;
                pthread_cond_signal(&s->more);
        }
        pthread_mutex_unlock(&s->lock);
        if (r < 0)
                task_free(t);
        return r;
}

/* With the lock held: puts the job that takes too long aside, and its thread with it. Returns its id's
 * result in *ret. */
static bool give_up(struct object_opener *o, struct object_opened *ret)
{
        struct shared *s = o->s;
        struct task *t = s->current;

        if (!t || now_monotonic_ns() - t->begun_ns < o->timeout_ns)
                return false;
        t->given_up = true;
        s->current = NULL;
        s->running = false;
        s->stuck++;
        *ret = (struct object_opened){.id = t->job.id, .error = -ETIMEDOUT, .fd = -1};
        log_warning("Opening %s blocks for more than %llu s: its file system does not answer; the file is "
                    "left "
                    "without names.",
                    t->path, (unsigned long long)(o->timeout_ns / NSEC_PER_SEC));
        if (s->queue && s->stuck < MAX_STUCK)
                (void)start_thread(s); /* fails like a thread that is stuck: jobs then answer -EBUSY */
        return true;
}

void object_opener_dispatch(struct object_opener *o, object_opened_fn fn, void *ctx)
{
        struct shared *s = o->s;
        struct object_opened timed_out;
        struct task *dropped = NULL;
        uint64_t count;

        (void)!read(s->event_fd, &count, sizeof(count));
        pthread_mutex_lock(&s->lock);
        struct task *done = TAKE_PTR(s->done);
        bool stuck = give_up(o, &timed_out);
        if (!s->running && s->queue) {
                dropped = TAKE_PTR(s->queue);
                s->queue_end = &s->queue;
        }
        pthread_mutex_unlock(&s->lock);

        if (stuck)
                fn(ctx, &timed_out);
        for (struct task *t = done; t; t = t->next) {
                fn(ctx, &t->result);
                t->result.fd = -1; /* the receiver's now */
        }
        for (struct task *t = dropped; t; t = t->next) {
                t->result.error = -EBUSY;
                fn(ctx, &t->result);
        }
        list_free(done);
        list_free(dropped);
}

uint32_t object_opener_stuck(const struct object_opener *o)
{
        pthread_mutex_lock(&o->s->lock);
        uint32_t n = o->s->stuck;
        pthread_mutex_unlock(&o->s->lock);
        return n;
}
