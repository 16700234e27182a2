/* Records of perf_event_open(2), as a kernel with sample_id_all and PERF_SAMPLE_TIME writes them: for tests
 * of what reads them. Each writes one record and returns its bytes. */
#ifndef TESTS_PERF_RECORDS_H
#define TESTS_PERF_RECORDS_H

#include <linux/perf_event.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define RECORD_BYTES 512

static inline size_t perf_put(uint8_t *to, size_t at, const void *what, size_t n)
{
        memcpy(to + at, what, n);
        return at + n;
}

static inline size_t perf_put32(uint8_t *to, size_t at, uint32_t v)
{
        return perf_put(to, at, &v, sizeof(v));
}

static inline size_t perf_put64(uint8_t *to, size_t at, uint64_t v)
{
        return perf_put(to, at, &v, sizeof(v));
}

static inline size_t perf_put_name(uint8_t *to, size_t at, const char *name)
{
        size_t n = (strlen(name) + 8) / 8 * 8; /* with its NUL, padded to eight bytes */

        memset(to + at, 0, n);
        memcpy(to + at, name, strlen(name));
        return at + n;
}

static inline size_t perf_finish(uint8_t *to, size_t at, uint32_t type, uint16_t misc, uint64_t time)
{
        at = perf_put64(to, at, time);
        struct perf_event_header h = {.type = type, .misc = misc, .size = (uint16_t)at};
        memcpy(to, &h, sizeof(h));
        return at;
}

static inline size_t perf_mmap2(uint8_t *to, uint64_t time, uint32_t pid, uint64_t start, uint64_t len,
                                uint64_t offset, uint32_t major, uint32_t minor, uint64_t inode,
                                uint64_t generation, const char *name)
{
        size_t at = sizeof(struct perf_event_header);

        at = perf_put32(to, at, pid);
        at = perf_put32(to, at, pid);
        at = perf_put64(to, at, start);
        at = perf_put64(to, at, len);
        at = perf_put64(to, at, offset);
        at = perf_put32(to, at, major);
        at = perf_put32(to, at, minor);
        at = perf_put64(to, at, inode);
        at = perf_put64(to, at, generation);
        at = perf_put32(to, at, 5); /* PROT_READ | PROT_EXEC */
        at = perf_put32(to, at, 2); /* MAP_PRIVATE */
        at = perf_put_name(to, at, name);
        return perf_finish(to, at, PERF_RECORD_MMAP2, PERF_RECORD_MISC_USER, time);
}

static inline size_t perf_comm(uint8_t *to, uint64_t time, uint32_t pid, uint32_t tid, const char *comm,
                               bool exec)
{
        size_t at = sizeof(struct perf_event_header);

        at = perf_put32(to, at, pid);
        at = perf_put32(to, at, tid);
        at = perf_put_name(to, at, comm);
        return perf_finish(to, at, PERF_RECORD_COMM, exec ? PERF_RECORD_MISC_COMM_EXEC : 0, time);
}

/* PERF_RECORD_FORK or PERF_RECORD_EXIT */
static inline size_t perf_task(uint8_t *to, uint32_t type, uint64_t time, uint32_t pid, uint32_t ppid,
                               uint32_t tid, uint32_t ptid)
{
        size_t at = sizeof(struct perf_event_header);

        at = perf_put32(to, at, pid);
        at = perf_put32(to, at, ppid);
        at = perf_put32(to, at, tid);
        at = perf_put32(to, at, ptid);
        at = perf_put64(to, at, time);
        return perf_finish(to, at, type, 0, time);
}

static inline size_t perf_lost(uint8_t *to, uint64_t time, uint64_t lost)
{
        size_t at = sizeof(struct perf_event_header);

        at = perf_put64(to, at, 1);
        at = perf_put64(to, at, lost);
        return perf_finish(to, at, PERF_RECORD_LOST, 0, time);
}

#endif
