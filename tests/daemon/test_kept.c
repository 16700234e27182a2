/* What is written for the next daemon is what it reads; damaged memory ends the reading. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "daemon/journal.h"
#include "daemon/keep.h"
#include "daemon/kept_raws.h"
#include "daemon/kept_state.h"

#define BYTES (64u << 10)

/* systemd's end of $NOTIFY_SOCKET */
static int notify_fd = -1;

static int begin_notify(void **state)
{
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        char name[64];

        snprintf(name, sizeof(name), "@profd-test-%d", getpid());
        memcpy(a.sun_path, name, strlen(name));
        a.sun_path[0] = 0;
        notify_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(notify_fd, (struct sockaddr *)&a,
                              (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name))),
                         0);
        setenv("NOTIFY_SOCKET", name, 1);
        return 0;
}

static int end_notify(void **state)
{
        unsetenv("NOTIFY_SOCKET");
        close(notify_fd);
        return 0;
}

/* The next message, and how many descriptors came with it. */
static int receive(char *text, size_t size)
{
        char control[CMSG_SPACE(4 * sizeof(int))];
        struct iovec iov = {text, size - 1};
        struct msghdr m = {.msg_iov = &iov,
                           .msg_iovlen = 1,
                           .msg_control = control,
                           .msg_controllen = sizeof(control)};
        ssize_t n = recvmsg(notify_fd, &m, 0);
        int fds = 0;

        assert_true(n > 0);
        text[n] = 0;
        for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
                for (size_t i = 0;
                     c->cmsg_type == SCM_RIGHTS && i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
                        int fd;
                        memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
                        close(fd);
                        fds++;
                }
        return fds;
}

/* sd_notify(3): FDSTORE, FDNAME; FDPOLL=0, or a perf event that hangs up would go. */
static void test_store_messages(void **state)
{
        char text[256], name[64];
        struct keep *k;
        void *memory;

        assert_int_equal(keep_new(&k, "", "/nonexistent"), 0);
        assert_true(keep_is_on(k));
        assert_false(keep_pins(k));
        assert_int_equal(keep_memory(k, "state", 4096, &memory), 0);
        assert_int_equal(receive(text, sizeof(text)), 1);
        snprintf(name, sizeof(name), "FDNAME=profd-%d-1-state", PROFD_ABI_VERSION);
        assert_non_null(strstr(text, "FDSTORE=1"));
        assert_non_null(strstr(text, "FDPOLL=0"));
        assert_non_null(strstr(text, name));
        keep_drop(k, "state");
        assert_int_equal(receive(text, sizeof(text)), 0);
        assert_non_null(strstr(text, "FDSTOREREMOVE=1"));
        assert_non_null(strstr(text, name));
        keep_free(k);
}

static void test_nothing_kept(void **state)
{
        struct keep *k;

        assert_int_equal(keep_new(&k, NULL, "/nonexistent"), 0);
        assert_false(keep_is_on(k));
        assert_int_equal(keep_n_found(k), 0);
        assert_int_equal(keep_listen_fd(k), -1);
        keep_free(k);
}

struct seen {
        uint64_t samples, weight, frames;
        uint32_t stacks, rows;
};

static void see_stack(void *ctx, uint64_t hash, const uint64_t *frame, uint32_t n)
{
        struct seen *s = ctx;

        s->stacks++;
        for (uint32_t i = 0; i < n; i++)
                s->frames += frame[i];
}

static void see_row(void *ctx, const struct abi_key *key, const struct abi_count *count)
{
        struct seen *s = ctx;

        s->rows++;
        s->samples += count->samples;
        s->weight += count->weight;
}

static struct seen read_all(const void *memory)
{
        struct seen s = {0};
        const struct journal_reader reader = {see_stack, see_row, &s};

        journal_read(memory, BYTES, &reader);
        return s;
}

static void add(struct journal *j, uint32_t pid, const uint64_t *frames, uint32_t n)
{
        struct abi_key key = {.tgid = pid, .user_stack = frames[0] + n};
        struct sample_row row = {.key = &key, .samples = 2, .weight = 30, .user = frames, .n_user = n};

        journal_add(j, &row);
}

static void test_journal(void **state)
{
        static const uint64_t frames[3] = {11, 22, 33};
        struct journal *j;
        char text[256];
        struct keep *k;

        assert_int_equal(keep_new(&k, "", "/nonexistent"), 0);
        assert_int_equal(journal_new(&j, k, 1, BYTES), 0);
        assert_int_equal(receive(text, sizeof(text)), 1);
        add(j, 1, frames, 3);
        add(j, 1, frames, 3);
        add(j, 2, frames, 3);
        add(j, 2, frames, 2);
        struct seen s = read_all(journal_head(j));
        assert_int_equal(s.stacks, 2);
        assert_int_equal(s.rows, 3);
        assert_int_equal(s.samples, 8);
        assert_int_equal(s.weight, 120);
        assert_int_equal(s.frames, 66 + 33);

        /* full: counted, and what is there stays */
        for (uint32_t pid = 3; pid < 2000; pid++)
                add(j, pid, frames, 3);
        s = read_all(journal_head(j));
        assert_int_equal(s.samples + journal_head(j)->skipped, 8 + 1997 * 2);
        assert_true(journal_head(j)->skipped > 0);
        journal_free(j);
        assert_int_equal(receive(text, sizeof(text)), 0);
        keep_free(k);
}

/* At any damage reading stays inside the memory (ASan sees to it) and ends. */
static void test_damaged_journal(void **state)
{
        static const uint64_t frames[3] = {11, 22, 33};
        _cleanup_free_ char *copy = malloc(BYTES);
        struct journal *j;
        struct keep *k;
        char text[256];

        assert_int_equal(keep_new(&k, "", "/nonexistent"), 0);
        assert_int_equal(journal_new(&j, k, 1, BYTES), 0);
        receive(text, sizeof(text));
        for (uint32_t pid = 1; pid < 200; pid++)
                add(j, pid, frames, 1 + pid % 3);
        srand(1);
        for (int round = 0; round < 20000; round++) {
                memcpy(copy, journal_head(j), BYTES);
                for (int i = 0; i < 4; i++)
                        copy[(size_t)rand() % 8192] = (char)rand();
                struct seen s = read_all(copy);
                assert_true(s.rows <= BYTES / sizeof(struct abi_key));
        }
        journal_free(j);
        receive(text, sizeof(text));
        keep_free(k);
}

static void test_objects(void **state)
{
        struct kept_memory *m = calloc(1, sizeof(*m));
        struct kept_objects *o;
        struct kept_object object = {.id = 5, .device = 1, .inode = 2, .path = "/bin/a"};

        assert_int_equal(kept_objects_new(&o, m), 0);
        kept_objects_put(o, &object);
        object.id = 6;
        kept_objects_put(o, &object);
        kept_objects_remove(o, 5);
        assert_int_equal(m->object[0].id, 0);
        assert_int_equal(m->object[1].id, 6);
        assert_string_equal(m->object[1].path, "/bin/a");
        object.id = 7;
        kept_objects_put(o, &object); /* the place that is free */
        assert_int_equal(m->object[0].id, 7);
        object.inode = 9;
        kept_objects_put(o, &object); /* in place */
        assert_int_equal(m->object[0].inode, 9);
        assert_int_equal(m->object[2].id, 0);

        /* without room it goes unnoted, and nothing else is touched */
        for (uint32_t id = 100; id < 100 + KEPT_OBJECTS; id++) {
                object.id = (uint16_t)id;
                kept_objects_put(o, &object);
        }
        assert_int_equal(m->object[KEPT_OBJECTS - 1].id, 100 + KEPT_OBJECTS - 3);
        kept_objects_remove(o, 60000);
        kept_objects_free(o);
        free(m);
}

struct raws_seen {
        uint32_t n;
        uint64_t bytes;
};

static void see_raw(void *ctx, const struct abi_raw *raw, const uint64_t *kernel, uint32_t n_kernel)
{
        struct raws_seen *s = ctx;

        s->n++;
        s->bytes += raw->leaf_len + raw->root_len;
        assert_int_equal(n_kernel, 1);
        assert_int_equal(kernel[0], 77);
        if (raw->leaf_len)
                assert_int_equal(raw->stack[raw->leaf_len - 1], 9);
}

static void test_raws(void **state)
{
        char *memory = calloc(1, KEPT_RAWS_BYTES);
        struct abi_raw *raw = calloc(1, sizeof(*raw) + ABI_RAW_LEAF);
        const uint64_t kernel = 77;
        struct kept_raws *k;
        struct raws_seen s = {0};

        assert_int_equal(kept_raws_new(&k, memory), 0);
        memset(raw->stack, 9, ABI_RAW_LEAF);
        raw->leaf_len = 100;
        struct kept_raw *small = kept_raws_add(k, raw, &kernel, 1);
        raw->leaf_len = ABI_RAW_LEAF;
        struct kept_raw *large = kept_raws_add(k, raw, &kernel, 1);
        assert_non_null(small);
        assert_non_null(large);
        assert_memory_equal(large->raw.stack, raw->stack, ABI_RAW_LEAF);
        kept_raws_read(memory, KEPT_RAWS_BYTES, see_raw, &s);
        assert_int_equal(s.n, 2);
        assert_int_equal(s.bytes, 100 + ABI_RAW_LEAF);

        /* done, but not journalled yet: the next daemon would still find it */
        kept_raws_done(k, large);
        s = (struct raws_seen){0};
        kept_raws_read(memory, KEPT_RAWS_BYTES, see_raw, &s);
        assert_int_equal(s.n, 2);
        kept_raws_flush(k);
        s = (struct raws_seen){0};
        kept_raws_read(memory, KEPT_RAWS_BYTES, see_raw, &s);
        assert_int_equal(s.n, 1);

        /* full */
        raw->leaf_len = 8;
        uint32_t n = 1;
        while (kept_raws_add(k, raw, &kernel, 1))
                n++;
        assert_int_equal(n, KEPT_RAWS);
        assert_null(kept_raws_add(NULL, raw, &kernel, 1));

        /* lengths that make no sense are not followed */
        small->raw.leaf_len = UINT32_MAX;
        s = (struct raws_seen){0};
        kept_raws_read(memory, KEPT_RAWS_BYTES, see_raw, &s);
        assert_int_equal(s.n, KEPT_RAWS - 1);
        kept_raws_free(k);
        free(raw);
        free(memory);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                        cmocka_unit_test(test_nothing_kept),
                        cmocka_unit_test_setup_teardown(test_store_messages, begin_notify, end_notify),
                        cmocka_unit_test_setup_teardown(test_journal, begin_notify, end_notify),
                        cmocka_unit_test_setup_teardown(test_damaged_journal, begin_notify, end_notify),
                        cmocka_unit_test(test_objects),
                        cmocka_unit_test(test_raws),
        };

        unsetenv("NOTIFY_SOCKET");
        return cmocka_run_group_tests(tests, NULL, NULL);
}
