#include "symbolizer/finder.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/thread.h"
#include "symbolizer/scratch.h"

#define MAX_ABANDONED 4
#define THREAD_STACK  ((size_t)128 << 10)

enum seeker_state { SEEKER_IDLE, SEEKER_ASKED, SEEKER_DONE, SEEKER_LEFT /* by its finder */ };

/* A thread; freed by whoever is the last of it and its finder. */
struct seeker {
        pthread_mutex_t lock;
        pthread_cond_t wake;
        enum seeker_state state;
        int event_fd;
        char **debug_dirs; /* copies: an abandoned thread may outlive the client */
        bool jit;          /* one by process, else by want, path and root */
        uint32_t pid, ns_pid;
        struct wire_want want;
        char *path, *root, *scratch_dir;
        uid_t owner;
        struct found result;
};

struct finder {
        struct seeker *seeker; /* NULL: started on need */
        int event_fd;
        uint32_t abandoned;
        bool busy;
        const char *const *debug_dirs;
        char *scratch_dir;
};

static void seeker_free(struct seeker *s)
{
        pthread_mutex_destroy(&s->lock);
        pthread_cond_destroy(&s->wake);
        for (char **d = s->debug_dirs; d && *d; d++)
                free(*d);
        free(s->debug_dirs);
        free(s->path);
        free(s->root);
        free(s->scratch_dir);
        if (s->event_fd >= 0)
                close(s->event_fd);
        free(s);
}

static void *seek(void *arg)
{
        struct seeker *s = arg;

        pthread_mutex_lock(&s->lock);
        for (;;) {
                while (s->state == SEEKER_IDLE || s->state == SEEKER_DONE)
                        pthread_cond_wait(&s->wake, &s->lock);
                if (s->state == SEEKER_LEFT)
                        break;
                pthread_mutex_unlock(&s->lock);

                struct found found = {};
                uint64_t one = 1;

                if (s->jit)
                        find_jit(s->pid, s->ns_pid, &found);
                else if (s->want.kind == WIRE_WANT_SCRATCH)
                        found.fd = scratch_create(s->scratch_dir, s->want.size);
                else
                        found.fd = find_file(&s->want, s->path, s->owner, s->root,
                                             (const char *const *)s->debug_dirs);

                pthread_mutex_lock(&s->lock);
                if (s->state == SEEKER_LEFT) {
                        if (found.fd >= 0)
                                close(found.fd);
                        break;
                }
                s->result = found;
                s->state = SEEKER_DONE;
                (void)!write(s->event_fd, &one, sizeof(one)); /* else it is taken for late, and left */
        }
        pthread_mutex_unlock(&s->lock);
        seeker_free(s);
        return NULL;
}

static int copy_dirs(const char *const *dirs, char ***ret)
{
        size_t n = 0;

        while (dirs[n])
                n++;
        *ret = calloc(n + 1, sizeof(**ret));
        if (!*ret)
                return -ENOMEM;
        for (size_t i = 0; i < n; i++) {
                (*ret)[i] = strdup(dirs[i]);
                if (!(*ret)[i])
                        return -ENOMEM;
        }
        return 0;
}

static int seeker_new(struct finder *f, struct seeker **ret)
{
        struct seeker *s = calloc(1, sizeof(*s));
        int r;

        if (!s)
                return -ENOMEM;
        pthread_mutex_init(&s->lock, NULL);
        pthread_cond_init(&s->wake, NULL);
        s->event_fd = dup(f->event_fd);
        s->scratch_dir = strdup(f->scratch_dir);
        r = s->event_fd < 0 ? -errno : copy_dirs(f->debug_dirs, &s->debug_dirs);
        if (!s->scratch_dir)
                r = -ENOMEM;
        if (r == 0)
                r = thread_start(NULL, THREAD_STACK, seek, s);
        if (r < 0) {
                seeker_free(s);
                return r;
        }
        *ret = s;
        return 0;
}

/* Lets the thread go; it frees itself. */
static void leave(struct finder *f)
{
        struct seeker *s = f->seeker;

        if (!s)
                return;
        pthread_mutex_lock(&s->lock);
        if (s->state == SEEKER_DONE && s->result.fd >= 0 && f->busy)
                close(s->result.fd);
        s->state = SEEKER_LEFT;
        pthread_cond_signal(&s->wake);
        pthread_mutex_unlock(&s->lock);
        f->seeker = NULL;
        f->busy = false;
}

int finder_new(struct finder **ret, const char *const *debug_dirs, const char *scratch_dir)
{
        struct finder *f = calloc(1, sizeof(*f));

        if (!f)
                return -ENOMEM;
        f->debug_dirs = debug_dirs;
        f->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        f->scratch_dir = strdup(scratch_dir);
        if (f->event_fd < 0 || !f->scratch_dir) {
                int r = f->event_fd < 0 ? -errno : -ENOMEM;

                if (f->event_fd >= 0)
                        close(f->event_fd);
                free(f->scratch_dir);
                free(f);
                return r;
        }
        *ret = f;
        return 0;
}

struct finder *finder_free(struct finder *f)
{
        if (!f)
                return NULL;
        leave(f);
        close(f->event_fd);
        free(f->scratch_dir);
        free(f);
        return NULL;
}

int finder_fd(const struct finder *f)
{
        return f->event_fd;
}

static int prepare(struct finder *f)
{
        if (f->busy)
                return -EBUSY;
        if (f->abandoned > MAX_ABANDONED)
                return -EAGAIN;
        return f->seeker ? 0 : seeker_new(f, &f->seeker);
}

/* With the lock held. */
static void go(struct finder *f, bool jit)
{
        f->seeker->jit = jit;
        f->seeker->state = SEEKER_ASKED;
        pthread_cond_signal(&f->seeker->wake);
        pthread_mutex_unlock(&f->seeker->lock);
        f->busy = true;
}

int finder_start(struct finder *f, const struct wire_want *want, const char *path, uid_t owner,
                 const char *root)
{
        int r = prepare(f);
        char *p, *q;

        if (r < 0)
                return r;
        p = strdup(path ? path : "");
        q = root ? strdup(root) : NULL;
        if (!p || (root && !q)) {
                free(p);
                free(q);
                return -ENOMEM;
        }
        pthread_mutex_lock(&f->seeker->lock);
        free(f->seeker->path);
        free(f->seeker->root);
        f->seeker->path = p;
        f->seeker->root = q;
        f->seeker->owner = owner;
        f->seeker->want = *want;
        go(f, false);
        return 0;
}

int finder_start_jit(struct finder *f, uint32_t pid, uint32_t ns_pid)
{
        int r = prepare(f);

        if (r < 0)
                return r;
        pthread_mutex_lock(&f->seeker->lock);
        f->seeker->pid = pid;
        f->seeker->ns_pid = ns_pid;
        go(f, true);
        return 0;
}

bool finder_is_busy(const struct finder *f)
{
        return f->busy;
}

bool finder_result(struct finder *f, struct found *ret)
{
        bool done = false;
        uint64_t count;

        if (read(f->event_fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
                return false;
        if (!f->busy)
                return false;
        pthread_mutex_lock(&f->seeker->lock);
        if (f->seeker->state == SEEKER_DONE) {
                *ret = f->seeker->result;
                f->seeker->state = SEEKER_IDLE;
                f->busy = false;
                done = true;
        }
        pthread_mutex_unlock(&f->seeker->lock);
        return done;
}

int finder_abandon(struct finder *f)
{
        if (!f->busy)
                return 0;
        leave(f);
        return ++f->abandoned > MAX_ABANDONED ? -EAGAIN : 0;
}
