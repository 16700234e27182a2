#include "daemon/process_ring.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/log.h"

#define MIN_RING (32u << 10)
#define MAX_RING (512u << 10) /* what an unprivileged process may lock per CPU (perf_event_mlock_kb) */

struct ring {
        int fd; /* -1: closed */
        struct perf_event_mmap_page *page;
        uint64_t enabled; /* ns that the event was enabled, at the last look */
};

struct process_rings {
        int epoll_fd;
        uint32_t page_size, size; /* bytes of a ring without its first page */
        uint32_t n;
        struct ring ring[];
};

int process_rings_new(struct process_rings **ret, uint64_t bytes)
{
        long cpus = sysconf(_SC_NPROCESSORS_CONF);

        if (cpus < 1)
                return -ENODEV;
        struct process_rings *r = calloc(1, sizeof(*r) + (size_t)cpus * sizeof(r->ring[0]));
        if (!r)
                return -ENOMEM;
        r->n = (uint32_t)cpus;
        r->page_size = (uint32_t)sysconf(_SC_PAGESIZE);
        r->size = MAX_OF(MIN_RING, r->page_size);
        while (r->size < MAX_RING && (uint64_t)r->size * 2 * r->n <= bytes)
                r->size *= 2;
        for (uint32_t i = 0; i < r->n; i++)
                r->ring[i].fd = -1;
        r->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        if (r->epoll_fd < 0) {
                int e = -errno;
                process_rings_free(r);
                return e;
        }
        *ret = r;
        return 0;
}

static void ring_close(struct process_rings *r, struct ring *ring)
{
        if (ring->fd < 0)
                return;
        munmap(ring->page, r->page_size + r->size);
        close(ring->fd); /* leaves the epoll set by itself */
        *ring = (struct ring){.fd = -1};
}

struct process_rings *process_rings_free(struct process_rings *r)
{
        if (!r)
                return NULL;
        for (uint32_t i = 0; i < r->n; i++)
                ring_close(r, &r->ring[i]);
        if (r->epoll_fd >= 0)
                close(r->epoll_fd);
        free(r);
        return NULL;
}

/* Without build IDs in the records (attr.build_id): they would make each exec as much slower again as the
 * records themselves do (some 6 us each of 630), to tell us what the inode and its generation tell for
 * nothing; and whoever gives his file another one's build ID would be taken for it. */
static int ring_open(struct process_rings *r, uint32_t cpu)
{
        struct perf_event_attr attr = {
                        .type = PERF_TYPE_SOFTWARE,
                        .size = sizeof(attr),
                        .config = PERF_COUNT_SW_DUMMY,
                        .sample_type = PERF_SAMPLE_TIME,
                        .read_format = PERF_FORMAT_TOTAL_TIME_ENABLED,
                        .sample_id_all = 1,
                        .mmap = 1,
                        .mmap2 = 1,
                        .comm = 1,
                        .comm_exec = 1,
                        .task = 1,
                        .watermark = 1,
                        .wakeup_watermark = r->size / 4,
                        .use_clockid = 1,
                        .clockid = CLOCK_MONOTONIC, /* what bpf_ktime_get_ns() reads */
        };
        _cleanup_close_ int fd =
                        (int)syscall(SYS_perf_event_open, &attr, -1, (int)cpu, -1, PERF_FLAG_FD_CLOEXEC);

        if (fd < 0)
                return -errno;
        void *page = mmap(NULL, r->page_size + r->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (page == MAP_FAILED)
                return -errno;
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = cpu};
        if (epoll_ctl(r->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0) {
                int e = -errno;
                munmap(page, r->page_size + r->size);
                return e;
        }
        r->ring[cpu] = (struct ring){.fd = TAKE_FD(fd), .page = page};
        return 0;
}

/* The enabled time of a live event goes on; that of an event whose CPU went away stands still. */
static bool ring_alive(struct ring *ring)
{
        uint64_t value[2];

        if (read(ring->fd, value, sizeof(value)) != sizeof(value))
                return false;
        bool alive = value[1] > ring->enabled;
        ring->enabled = value[1];
        return alive;
}

int process_rings_follow_cpus(struct process_rings *r)
{
        uint32_t open = 0, opened = 0;
        int error = -ENODEV;
        bool missed = false;

        for (uint32_t i = 0; i < r->n; i++) {
                struct ring *ring = &r->ring[i];
                if (ring->fd >= 0 && !ring_alive(ring)) {
                        ring_close(r, ring);
                        missed = true;
                }
                if (ring->fd < 0) {
                        int e = ring_open(r, i);
                        if (e < 0 && e != -ENODEV)
                                error = e;
                        opened += e == 0;
                }
                open += ring->fd >= 0;
        }
        if (!open) {
                int64_t paranoid = -2;
                read_file_i64("/proc/sys/kernel/perf_event_paranoid", &paranoid);
                log_error("cannot follow processes by perf events: %s (kernel.perf_event_paranoid=%d): run "
                          "profd as root, or with CAP_PERFMON and kernel.perf_event_paranoid=2 or lower",
                          strerror(-error), (int)paranoid);
                return error;
        }
        return missed || opened;
}

int process_rings_fd(const struct process_rings *r)
{
        return r->epoll_fd;
}

static int ring_read(struct process_rings *r, struct ring *ring, struct record_batch *into)
{
        uint64_t head = __atomic_load_n(&ring->page->data_head, __ATOMIC_ACQUIRE);
        uint64_t tail = ring->page->data_tail;
        const uint8_t *data = (const uint8_t *)ring->page + r->page_size;

        if (head == tail)
                return 0;
        uint64_t n = head - tail, at = tail & (r->size - 1);
        uint64_t n1 = MIN_OF(n, r->size - at);
        int e = record_batch_add(into, data + at, n1, data, n - n1);
        /* Taken or not, the place is given back: a ring that stays full would lose all that follows. */
        __atomic_store_n(&ring->page->data_tail, head, __ATOMIC_RELEASE);
        return e;
}

int process_rings_read(struct process_rings *r, struct record_batch *into)
{
        int result = 0;

        for (uint32_t i = 0; i < r->n; i++)
                if (r->ring[i].fd >= 0) {
                        int e = ring_read(r, &r->ring[i], into);
                        if (e < 0)
                                result = e;
                }
        return result;
}

static uint64_t ring_skip(struct process_rings *r, struct ring *ring)
{
        uint64_t head = __atomic_load_n(&ring->page->data_head, __ATOMIC_ACQUIRE), n = 0;
        const uint8_t *data = (const uint8_t *)ring->page + r->page_size;

        for (uint64_t at = ring->page->data_tail; head - at >= sizeof(struct perf_event_header); n++) {
                /* Records are multiples of 8 bytes long, as their header is: it never wraps. */
                const struct perf_event_header *h = (const void *)(data + (at & (r->size - 1)));
                if (h->size < sizeof(*h) || h->size > head - at)
                        break;
                at += h->size;
        }
        __atomic_store_n(&ring->page->data_tail, head, __ATOMIC_RELEASE);
        return n;
}

uint64_t process_rings_skip(struct process_rings *r)
{
        uint64_t n = 0;

        for (uint32_t i = 0; i < r->n; i++)
                if (r->ring[i].fd >= 0)
                        n += ring_skip(r, &r->ring[i]);
        return n;
}

uint64_t process_rings_memory(const struct process_rings *r)
{
        uint64_t bytes = 0;

        for (uint32_t i = 0; i < r->n; i++)
                if (r->ring[i].fd >= 0)
                        bytes += r->page_size + r->size;
        return bytes;
}
