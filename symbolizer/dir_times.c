#include "symbolizer/dir_times.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/thread.h"

#define PATIENCE_NS  (250 * NSEC_PER_MSEC)
#define THREAD_STACK ((size_t)128 << 10)

enum state { IDLE, ASKED, LEFT /* by its owner */ };

struct dir_times { /* freed by whoever is the last of the thread and its owner */
        pthread_mutex_t lock;
        pthread_cond_t changed;
        enum state state;
        bool has_thread;
        char path[DIR_TIMES_MAX][DIR_TIMES_PATH];
        uint32_t n;
        uint64_t result;
};

static uint64_t times_of(char path[][DIR_TIMES_PATH], uint32_t n)
{
        uint64_t hash = 1;
        struct stat st;

        for (uint32_t i = 0; i < n; i++)
                hash = stat(path[i], &st) < 0
                                       ? hash_u64(hash, 1)
                                       : hash_u64(hash, (uint64_t)st.st_mtim.tv_sec ^
                                                                        (uint64_t)st.st_mtim.tv_nsec << 32);
        return hash;
}

static void destroy(struct dir_times *t)
{
        pthread_mutex_destroy(&t->lock);
        pthread_cond_destroy(&t->changed);
        free(t);
}

static void *answer(void *arg)
{
        struct dir_times *t = arg;

        pthread_mutex_lock(&t->lock);
        while (t->state != LEFT) {
                char path[DIR_TIMES_MAX][DIR_TIMES_PATH];
                uint64_t result;
                uint32_t n;

                if (t->state == IDLE) {
                        pthread_cond_wait(&t->changed, &t->lock);
                        continue;
                }
                memcpy(path, t->path, sizeof(path));
                n = t->n;
                pthread_mutex_unlock(&t->lock);
                result = times_of(path, n);
                pthread_mutex_lock(&t->lock);
                t->result = result;
                if (t->state == ASKED)
                        t->state = IDLE;
                pthread_cond_broadcast(&t->changed);
        }
        pthread_mutex_unlock(&t->lock);
        destroy(t);
        return NULL;
}

int dir_times_new(struct dir_times **ret)
{
        struct dir_times *t = calloc(1, sizeof(*t));
        pthread_condattr_t attr;

        if (!t)
                return -ENOMEM;
        pthread_mutex_init(&t->lock, NULL);
        pthread_condattr_init(&attr);
        pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        pthread_cond_init(&t->changed, &attr);
        pthread_condattr_destroy(&attr);
        *ret = t;
        return 0;
}

struct dir_times *dir_times_free(struct dir_times *t)
{
        if (!t)
                return NULL;
        if (!t->has_thread) {
                destroy(t);
                return NULL;
        }
        pthread_mutex_lock(&t->lock);
        t->state = LEFT;
        pthread_cond_broadcast(&t->changed);
        pthread_mutex_unlock(&t->lock);
        return NULL;
}

bool dir_times_read(struct dir_times *t, char path[][DIR_TIMES_PATH], uint32_t n, uint64_t *ret)
{
        uint64_t deadline = now_monotonic_ns() + PATIENCE_NS;
        struct timespec until = {.tv_sec = (time_t)(deadline / NSEC_PER_SEC),
                                 .tv_nsec = (long)(deadline % NSEC_PER_SEC)};
        bool done = false;
        int r = 0;

        if (n > DIR_TIMES_MAX)
                return false;
        pthread_mutex_lock(&t->lock);
        if (!t->has_thread)
                t->has_thread = thread_start(NULL, THREAD_STACK, answer, t) == 0;
        if (t->has_thread && t->state == IDLE) {
                memcpy(t->path, path, n * sizeof(t->path[0]));
                t->n = n;
                t->state = ASKED;
                pthread_cond_broadcast(&t->changed);
                while (t->state == ASKED && r == 0)
                        r = pthread_cond_timedwait(&t->changed, &t->lock, &until);
                done = t->state == IDLE;
                if (done)
                        *ret = t->result;
        }
        pthread_mutex_unlock(&t->lock);
        return done;
}
