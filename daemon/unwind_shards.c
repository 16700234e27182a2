#include "daemon/unwind_shards.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/thread.h"
#include "bpf/abi.h"

#define SHARD_BYTES  (ABI_SHARD_ROWS * sizeof(uint32_t))
#define THREAD_STACK (128u << 10)

struct unwind_shards {
        int shards_fd;
        int first_fd; /* the first shard's map, for the grace period */
        uint32_t max;
        pthread_t thread;
        bool running;
        pthread_mutex_t lock; /* of what follows */
        pthread_cond_t change;
        uint32_t wanted;
        uint32_t ready; /* written with the lock, read without: the rows are there before it says so */
        bool stop, failed;
        uint32_t *rows[ABI_MAX_SHARDS];
};

/* Makes shard number i. */
static int make_shard(struct unwind_shards *s, uint32_t i)
{
        LIBBPF_OPTS(bpf_map_create_opts, options, .map_flags = BPF_F_MMAPABLE);
        _cleanup_close_ int fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "profd_shard", sizeof(uint32_t),
                                                SHARD_BYTES, 1, &options);

        if (fd < 0)
                return -errno;
        void *rows = mmap(NULL, SHARD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (rows == MAP_FAILED)
                return -errno;
        if (bpf_map_update_elem(s->shards_fd, &i, &fd, BPF_ANY) < 0) {
                int e = -errno;
                munmap(rows, SHARD_BYTES);
                return e;
        }
        if (i == 0)
                s->first_fd = TAKE_FD(fd);
        s->rows[i] = rows;
        return 0;
}

static void *thread_main(void *arg)
{
        struct unwind_shards *s = arg;

        pthread_mutex_lock(&s->lock);
        while (!s->stop) {
                if (s->failed || s->ready >= s->wanted) {
                        pthread_cond_wait(&s->change, &s->lock);
                        continue;
                }
                uint32_t i = s->ready;
                pthread_mutex_unlock(&s->lock);
                int r = make_shard(s, i);
                if (r < 0)
                        log_warning("Cannot make another map for unwind tables: %s; going on with %u MiB of "
                                    "them.",
                                    strerror(-r), i);
                pthread_mutex_lock(&s->lock);
                if (r < 0)
                        s->failed = true;
                else
                        __atomic_store_n(&s->ready, i + 1, __ATOMIC_RELEASE);
                pthread_cond_broadcast(&s->change);
        }
        pthread_mutex_unlock(&s->lock);
        return NULL;
}

static int start_thread(struct unwind_shards *s)
{
        int r = thread_start(&s->thread, THREAD_STACK, thread_main, s);

        s->running = r == 0;
        return r;
}

int unwind_shards_new(struct unwind_shards **ret, int shards_fd, uint32_t max)
{
        struct unwind_shards *s = calloc(1, sizeof(*s));

        if (!s)
                return -ENOMEM;
        pthread_mutex_init(&s->lock, NULL);
        pthread_cond_init(&s->change, NULL);
        s->shards_fd = shards_fd;
        s->first_fd = -1;
        s->max = MIN_OF(max, ABI_MAX_SHARDS);
        int r = s->max ? make_shard(s, 0) : -ENOSPC;
        if (r == 0) {
                s->ready = s->wanted = 1;
                r = start_thread(s);
        }
        if (r < 0) {
                unwind_shards_free(s);
                return r;
        }
        *ret = s;
        return 0;
}

struct unwind_shards *unwind_shards_free(struct unwind_shards *s)
{
        if (!s)
                return NULL;
        if (s->running) {
                pthread_mutex_lock(&s->lock);
                s->stop = true;
                pthread_cond_broadcast(&s->change);
                pthread_mutex_unlock(&s->lock);
                pthread_join(s->thread, NULL);
        }
        for (uint32_t i = 0; i < s->ready; i++)
                munmap(s->rows[i], SHARD_BYTES);
        if (s->first_fd >= 0)
                close(s->first_fd);
        pthread_cond_destroy(&s->change);
        pthread_mutex_destroy(&s->lock);
        free(s);
        return NULL;
}

void unwind_shards_prepare(struct unwind_shards *s, uint32_t n)
{
        n = MIN_OF(n, s->max);
        if (n <= s->wanted) /* written by this thread alone */
                return;
        pthread_mutex_lock(&s->lock);
        s->wanted = n;
        pthread_cond_broadcast(&s->change);
        pthread_mutex_unlock(&s->lock);
}

uint32_t unwind_shards_wait(struct unwind_shards *s, uint32_t n)
{
        n = MIN_OF(n, s->max);
        unwind_shards_prepare(s, n);
        pthread_mutex_lock(&s->lock);
        while (s->ready < n && !s->failed)
                pthread_cond_wait(&s->change, &s->lock);
        pthread_mutex_unlock(&s->lock);
        return unwind_shards_ready(s);
}

uint32_t unwind_shards_ready(const struct unwind_shards *s)
{
        return __atomic_load_n(&s->ready, __ATOMIC_ACQUIRE);
}

uint32_t unwind_shards_max(const struct unwind_shards *s)
{
        return s->max;
}

uint32_t *unwind_shards_rows(const struct unwind_shards *s, uint32_t i)
{
        return s->rows[i];
}

int unwind_shards_grace(struct unwind_shards *s)
{
        uint32_t first = 0;

        /* maybe_wait_bpf_programs(), kernel/bpf/syscall.c, since 5.0. */
        return bpf_map_update_elem(s->shards_fd, &first, &s->first_fd, BPF_ANY) < 0 ? -errno : 0;
}
