#include "daemon/writer.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/log.h"

#define QUEUE         4 /* windows: a disk that is minutes behind will not catch up */
#define MAINTAIN_STEP (200 * NSEC_PER_MSEC)

struct job {
        struct profile *profile;
        uint64_t samples;
};

struct writer {
        struct store *store;
        pthread_t thread;
        pthread_mutex_t lock;
        pthread_cond_t wake, done;
        struct job queue[QUEUE];
        uint32_t n;
        uint64_t put; /* in the queue so far */
        bool maintain, stop;
        struct writer_stats stats;
};

static void lose(struct writer *w, const struct job *job, int err)
{
        w->stats.lost_windows++;
        w->stats.lost_samples += job->samples;
        w->stats.last_error = err;
}

/* Called with the lock held; drops it while writing. */
static void write_one(struct writer *w)
{
        struct job job = w->queue[0];
        int before = w->stats.last_error;

        memmove(w->queue, w->queue + 1, (--w->n) * sizeof(job));
        pthread_mutex_unlock(&w->lock);
        int r = store_put(w->store, job.profile);
        profile_free(job.profile);
        pthread_mutex_lock(&w->lock);
        w->stats.finished++;
        pthread_cond_broadcast(&w->done);
        if (r < 0) {
                lose(w, &job, r);
                if (before != r) /* once, not with each window of a long night */
                        log_error("cannot store a window: %s: its samples are lost and counted; what is "
                                  "stored "
                                  "is untouched, the next window is tried again",
                                  strerror(-r));
                return;
        }
        if (before < 0)
                log_notice("windows are stored again");
        w->stats.windows++;
        w->stats.last_error = 0;
        w->maintain = true;
}

static void tidy(struct writer *w)
{
        w->maintain = false;
        pthread_mutex_unlock(&w->lock);
        int more = store_maintain(w->store, now_realtime_ns(), MAINTAIN_STEP);
        pthread_mutex_lock(&w->lock);
        if (more > 0 && !w->stop)
                w->maintain = true;
}

static void *writer_thread(void *arg)
{
        struct writer *w = arg;

        pthread_mutex_lock(&w->lock);
        for (;;) {
                if (w->n)
                        write_one(w);
                else if (w->stop)
                        break;
                else if (w->maintain)
                        tidy(w);
                else
                        pthread_cond_wait(&w->wake, &w->lock);
        }
        pthread_mutex_unlock(&w->lock);
        return NULL;
}

int writer_new(struct writer **ret, struct store *store)
{
        struct writer *w = calloc(1, sizeof(*w));

        if (!w)
                return -ENOMEM;
        w->store = store;
        pthread_mutex_init(&w->lock, NULL);
        pthread_cond_init(&w->wake, NULL);
        pthread_cond_init(&w->done, NULL);
        w->maintain = true;
        int r = pthread_create(&w->thread, NULL, writer_thread, w);
        if (r) {
                free(w);
                return -r;
        }
        *ret = w;
        return 0;
}

struct writer *writer_free(struct writer *w)
{
        if (!w)
                return NULL;
        pthread_mutex_lock(&w->lock);
        w->stop = true;
        pthread_cond_signal(&w->wake);
        pthread_mutex_unlock(&w->lock);
        pthread_join(w->thread, NULL);
        pthread_cond_destroy(&w->wake);
        pthread_cond_destroy(&w->done);
        pthread_mutex_destroy(&w->lock);
        free(w);
        return NULL;
}

int writer_put(struct writer *w, struct profile *p, uint64_t samples)
{
        struct job job = {p, samples};
        int r = 0;

        pthread_mutex_lock(&w->lock);
        if (w->n == QUEUE) {
                lose(w, &job, -ENOBUFS);
                r = -ENOBUFS;
        } else {
                w->queue[w->n++] = job;
                w->put++;
                pthread_cond_signal(&w->wake);
        }
        pthread_mutex_unlock(&w->lock);
        if (r < 0)
                profile_free(p);
        return r;
}

void writer_wait(struct writer *w)
{
        pthread_mutex_lock(&w->lock);
        while (w->stats.finished < w->put)
                pthread_cond_wait(&w->done, &w->lock);
        pthread_mutex_unlock(&w->lock);
}

void writer_maintain(struct writer *w)
{
        pthread_mutex_lock(&w->lock);
        w->maintain = true;
        pthread_cond_signal(&w->wake);
        pthread_mutex_unlock(&w->lock);
}

void writer_stats(struct writer *w, struct writer_stats *ret)
{
        pthread_mutex_lock(&w->lock);
        *ret = w->stats;
        pthread_mutex_unlock(&w->lock);
}
