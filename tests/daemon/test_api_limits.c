/* What the API bounds: requests, collections and memory, of one client and of all; clients that misbehave.
 */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "api_help.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "base/log.h"

#define OPEN_UID 1000

static void wait_for(atomic_uint *counter, unsigned value)
{
        for (int i = 0; i < 2000 && atomic_load(counter) != value; i++)
                usleep(5000);
        assert_int_equal(atomic_load(counter), value);
}

/* Until the server has begun that many; it begins one after the other. */
static void wait_for_requests(const struct help_server *h, uint64_t n)
{
        struct api_stats st = {0};

        for (int i = 0; i < 2000 && st.requests < n; i++) {
                usleep(5000);
                api_stats(h->api, &st);
        }
        assert_int_equal(st.requests, n);
}

static void need_root(void)
{
        if (geteuid() != 0) {
                print_message("skipped: becoming another user needs root\n");
                skip();
        }
}

/* The answer's status, of which the first bytes are read. */
static unsigned read_status(int fd)
{
        char answer[64] = "";
        unsigned status = 0;

        if (read(fd, answer, sizeof(answer) - 1) > 0)
                sscanf(answer, "HTTP/1.%*d %u", &status);
        return status;
}

static void test_collections_of_one_client_are_bounded(void **state)
{
        struct help_server *h = *state;
        static const char get[] = "GET /debug/pprof/profile?seconds=3600 HTTP/1.1\r\nHost: x\r\n\r\n";
        _cleanup_reply_ struct help_reply r;
        int fds[4];

        for (unsigned i = 0; i < 4; i++) {
                fds[i] = help_connect(h->socket);
                assert_int_equal(write(fds[i], get, strlen(get)), strlen(get));
        }
        wait_for(&h->n_live, 4);
        help_get(h->socket, "/debug/pprof/profile?seconds=1", "", &r);
        assert_int_equal(r.status, 429);
        assert_non_null(strstr(r.head, "Retry-After"));
        /* Other requests, and other users, are served. */
        _cleanup_reply_ struct help_reply health, other;
        help_get(h->socket, "/healthz", "", &health);
        assert_int_equal(health.status, 200);
        help_get_as(h->socket, "/debug/pprof/profile?seconds=0.1", OPEN_UID, OPEN_UID, -1, &other);
        assert_int_equal(other.status, 200);
        close(fds[0]);
        wait_for(&h->cancelled, 1);
        for (unsigned i = 1; i < 4; i++)
                close(fds[i]);
        wait_for(&h->cancelled, 4);
}

static int ask_as(const struct help_server *h, uid_t uid, const char *target)
{
        char get[256];
        int fd = help_connect_as(h->socket, uid);

        assert_true(fd >= 0);
        int n = snprintf(get, sizeof(get), "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
                         target);
        assert_int_equal(write(fd, get, (size_t)n), n);
        return fd;
}

static bool is_answered(int fd)
{
        struct pollfd p = {.fd = fd, .events = POLLIN};

        return poll(&p, 1, 0) > 0;
}

/* Collections of many users, each within their own bound: 16 of all, and then none until one ends. */
static void test_collections_of_all_clients_are_bounded(void **state)
{
        struct help_server *h = *state;
        static const char target[] = "/debug/pprof/profile?seconds=3600";
        int fds[16];

        need_root();
        for (unsigned i = 0; i < ARRAY_SIZE(fds); i++)
                fds[i] = ask_as(h, 2000 + i / 4, target);
        wait_for(&h->n_live, ARRAY_SIZE(fds));
        int refused = ask_as(h, 3000, target);
        assert_int_equal(read_status(refused), 503);
        close(refused);
        close(fds[0]);
        wait_for(&h->n_live, ARRAY_SIZE(fds) - 1);
        /* The place is free when the server has closed the connection too. */
        for (int i = 0; i < 2000; i++) {
                fds[0] = ask_as(h, 3000, target);
                while (!is_answered(fds[0]) && atomic_load(&h->n_live) < ARRAY_SIZE(fds))
                        usleep(5000);
                if (!is_answered(fds[0]))
                        break;
                close(fds[0]);
                usleep(5000);
        }
        wait_for(&h->n_live, ARRAY_SIZE(fds));
        for (unsigned i = 0; i < ARRAY_SIZE(fds); i++)
                close(fds[i]);
        wait_for(&h->n_live, 0);
}

/* While the main thread is busy requests wait: 16 of one client, 64 of all. What is more is refused at once,
 * and who waited is answered in the end. */
static void test_requests_at_work_are_bounded(void **state)
{
        struct help_server *h = *state;
        int fds[64];

        need_root();
        atomic_store(&h->hold, true);
        for (unsigned i = 0; i < ARRAY_SIZE(fds); i++) {
                fds[i] = ask_as(h, 2000 + i / 16, "/healthz");
                wait_for_requests(h, i + 1 + i / 16);
                if (i % 16 == 15) {
                        int more = ask_as(h, 2000 + i / 16, "/healthz");
                        assert_int_equal(read_status(more), i == 63 ? 503 : 429);
                        close(more);
                }
        }
        int more = ask_as(h, 3000, "/healthz");
        assert_int_equal(read_status(more), 503);
        close(more);
        for (unsigned i = 0; i < ARRAY_SIZE(fds); i++)
                assert_false(is_answered(fds[i]));
        atomic_store(&h->hold, false);
        for (unsigned i = 0; i < ARRAY_SIZE(fds); i++) {
                assert_int_equal(read_status(fds[i]), 200);
                close(fds[i]);
        }
}

/* Answers that nobody takes are kept up to 64 MiB; then large ones are refused, short ones are not. */
static void test_memory_for_slow_readers_is_bounded(void **state)
{
        struct help_server *h = *state;
        unsigned refused = 0;
        int fds[12];

        atomic_store(&h->status_bytes, 8u << 20);
        for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
                fds[i] = ask_as(h, 0, "/api/v1/status");
                refused += read_status(fds[i]) == 503; /* the rest stays where it is */
        }
        assert_in_range(refused, 4, 5);
        _cleanup_reply_ struct help_reply health;
        help_get(h->socket, "/healthz", "", &health);
        assert_int_equal(health.status, 200);
        for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
                close(fds[i]);
        /* They went away: there is room again, once the server has seen it. */
        unsigned status = 503;
        for (int i = 0; i < 2000 && status == 503; i++) {
                _cleanup_reply_ struct help_reply r;
                help_get(h->socket, "/api/v1/status", "", &r);
                status = r.status;
                usleep(5000);
        }
        assert_int_equal(status, 200);
}

/* Who takes less than 64 KiB a second, beyond 30 s, is dropped: 512 KiB in 38 s. */
static void test_a_reader_that_drips_is_dropped(void **state)
{
        struct help_server *h = *state;
        uint64_t begin = now_monotonic_ns(), got = 0;
        char byte;

        atomic_store(&h->status_bytes, 512u << 10);
        _cleanup_close_ int fd = ask_as(h, 0, "/api/v1/status");
        struct timeval patience = {.tv_sec = 60};
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
        /* It keeps reading, so that a timeout on silence alone would never end it. */
        struct pollfd p = {.fd = fd};
        while (poll(&p, 1, 100) == 0 && now_monotonic_ns() - begin < 120 * SEC)
                got += read(fd, &byte, 1) == 1;
        assert_true(p.revents & (POLLHUP | POLLERR));
        assert_true(now_monotonic_ns() - begin > 30 * SEC);
        assert_true(got < 512u << 10);
        _cleanup_reply_ struct help_reply ok;
        help_get(h->socket, "/healthz", "", &ok);
        assert_int_equal(ok.status, 200);
}

/* -- clients that misbehave -- */

static void test_malformed_requests_are_survived(void **state)
{
        struct help_server *h = *state;
        static const struct {
                const char *text;
                size_t n;
        } cases[] = {
#define CASE(s) {s, sizeof(s) - 1}
                        CASE("\r\n\r\n"),
                        CASE("GET\r\n\r\n"),
                        CASE("GET / HTTP/9.9\r\n\r\n"),
                        CASE("GET /healthz HTTP/1.1\r\nbroken\r\n\r\n"),
                        CASE("GET /healthz HTTP/1.1\r\nHost x\r\n: y\r\n\r\n"),
                        CASE("GET /%zz%00%ff HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
                        CASE("GET /api/v1/profile?since=%00&=&&&a=%f HTTP/1.1\r\nHost: x\r\nConnection: "
                             "close\r\n\r\n"),
                        CASE("GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n"),
                        CASE("GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: "
                             "99999999999999999999\r\n\r\n"),
                        CASE("GET /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
                             "chunked\r\n\r\nffffffffffffffff\r\n"),
                        CASE("\0\1\2\3\4\5\6\7\377\376\375\r\n\r\n"),
                        CASE("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), /* TLS to the plain socket */
                        CASE("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        };

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                _cleanup_reply_ struct help_reply ok;
                int fd = help_connect(h->socket);
                assert_true(fd >= 0);
                struct timeval patience = {
                                .tv_usec = 300000}; /* some wait for more, until they are cut off */
                setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
                send(fd, cases[i].text, cases[i].n, MSG_NOSIGNAL);
                shutdown(fd, SHUT_WR);
                char answer[4096];
                while (read(fd, answer, sizeof(answer)) > 0) {
                }
                close(fd);
                help_get(h->socket, "/healthz", "", &ok);
                assert_int_equal(ok.status, 200);
        }
}

static void test_a_long_request_line_is_refused(void **state)
{
        struct help_server *h = *state;
        _cleanup_buf_ struct buf b = {0};
        _cleanup_reply_ struct help_reply r, ok;

        buf_adds(&b, "GET /healthz?");
        for (int i = 0; i < 100000; i++)
                buf_adds(&b, "aaaaaaaaaa");
        buf_adds(&b, " HTTP/1.1\r\n\r\n");
        help_raw(h->socket, b.data, b.len, &r);
        assert_true(r.status == 414 || r.status == 431 || r.status == 0);
        help_get(h->socket, "/healthz", "", &ok);
        assert_int_equal(ok.status, 200);
}

/* A body of 1 GiB is neither read nor kept. */
static void test_a_request_of_a_gigabyte(void **state)
{
        struct help_server *h = *state;
        static const char head[] = "GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 1073741824\r\n\r\n";
        static char chunk[1 << 20];
        uint64_t before = help_resident(), sent = 0;
        _cleanup_close_ int fd = help_connect(h->socket);
        _cleanup_reply_ struct help_reply ok;
        struct timeval patience = {.tv_sec = 5};

        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
        assert_int_equal(write(fd, head, sizeof(head) - 1), sizeof(head) - 1);
        for (int i = 0; i < 1024; i++) {
                ssize_t n = send(fd, chunk, sizeof(chunk), MSG_NOSIGNAL);
                if (n <= 0)
                        break;
                sent += (uint64_t)n;
        }
        assert_true(sent < 64u << 20); /* it was cut off */
        help_get(h->socket, "/healthz", "", &ok);
        assert_int_equal(ok.status, 200);
        assert_true(help_resident() < before + (32u << 20));
}

static void test_a_thousand_connections_that_never_finish(void **state)
{
        struct help_server *h = *state;
        static const char part[] = "GET /healthz HTTP/1.1\r\nHost: ";
        uint64_t before = help_resident();
        int fds[1000];

        for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
                fds[i] = help_connect(h->socket);
                if (fds[i] >= 0)
                        send(fds[i], part, i % (sizeof(part) - 1), MSG_NOSIGNAL);
        }
        for (int i = 0; i < 5; i++) {
                _cleanup_reply_ struct help_reply ok;
                help_get(h->socket, "/healthz", "", &ok);
                assert_int_equal(ok.status, 200);
        }
        struct api_stats st;
        api_stats(h->api, &st);
        assert_true(st.connections <= 600);
        assert_true(help_resident() < before + (64u << 20));
        for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
                if (fds[i] >= 0)
                        close(fds[i]);
}

static void test_a_request_that_drips_is_cut_off(void **state)
{
        struct help_server *h = *state;
        _cleanup_close_ int fd = help_connect(h->socket);
        uint64_t begin = now_monotonic_ns();

        /* One byte at a time, for ever: a timeout on silence alone would never end it. */
        while (send(fd, "A", 1, MSG_NOSIGNAL) == 1 && now_monotonic_ns() - begin < 60 * SEC)
                usleep(100000);
        assert_true(now_monotonic_ns() - begin < 30 * SEC);
}

int main(void)
{
#define LIMITS_TEST(f) cmocka_unit_test_setup_teardown(f, help_set_up, help_tear_down)
        const struct CMUnitTest tests[] = {
                        LIMITS_TEST(test_collections_of_one_client_are_bounded),
                        LIMITS_TEST(test_collections_of_all_clients_are_bounded),
                        LIMITS_TEST(test_requests_at_work_are_bounded),
                        LIMITS_TEST(test_memory_for_slow_readers_is_bounded),
                        LIMITS_TEST(test_a_reader_that_drips_is_dropped),
                        LIMITS_TEST(test_malformed_requests_are_survived),
                        LIMITS_TEST(test_a_long_request_line_is_refused),
                        LIMITS_TEST(test_a_request_of_a_gigabyte),
                        LIMITS_TEST(test_a_thousand_connections_that_never_finish),
                        LIMITS_TEST(test_a_request_that_drips_is_cut_off),
        };

        log_set_level(LOG_EMERG);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
