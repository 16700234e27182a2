#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <cmocka.h>

#include "api_help.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "base/log.h"
#include "profile/pprof.h"

#define OPEN_UID   1000
#define SECRET_UID 1001
#define GROUP      54321 /* of nobody */

static struct profile *body_profile(const struct help_reply *r)
{
        struct profile *p = NULL;
        const char *why = "";

        if (pprof_read(r->body.data, r->body.len, 0, &p, &why) < 0)
                fail_msg("status %u, %s: %.200s", r->status, why, buf_text(&r->body));
        return p;
}

static bool has_bytes(const struct buf *b, const char *text)
{
        return b->len > 0 && memmem(b->data, b->len, text, strlen(text));
}

/* Neither in the bytes as sent, nor, of a profile, in the bytes inflated. */
static void assert_nothing_secret(const struct help_reply *r)
{
        _cleanup_buf_ struct buf plain = {0};
        struct profile *p = NULL;

        assert_null(strstr(r->head, "secret"));
        assert_false(has_bytes(&r->body, "secret"));
        if (r->body.len > 2 && (uint8_t)r->body.data[0] == 0x1f) {
                p = body_profile(r);
                assert_int_equal(pprof_write(p, false, &plain), 0);
                assert_false(has_bytes(&plain, "secret"));
                assert_false(has_bytes(&plain, "lost."));
                profile_free(p);
        }
}

/* -- each path -- */

static void test_paths(void **state)
{
        struct help_server *h = *state;
        static const struct {
                const char *target;
                unsigned status;
                const char *contains;
        } cases[] = {
                        {"/healthz", 200, "ok"},
                        {"/metrics", 200, "profd_api_requests_total"},
                        {"/metrics", 200, "profd_secret_total 7"},
                        {"/api/v1/status", 200, "\"secret\":\"secret-status\",\"api\":{\"requests\":"},
                        {"/debug/pprof/", 200, "profile?seconds="},
                        {"/debug/pprof/heap", 404, ""},
                        {"/debug/pprof/goroutine", 404, ""},
                        {"/debug/pprof/profile/", 404, ""},
                        {"/", 404, "/debug/pprof/profile"},
                        {"/api/v1/profile", 400, "say when"},
                        {"/api/v1/profile?last=5min&seconds=3", 400, "not both"},
                        {"/api/v1/profile?last=5min&since=1", 400, "instead of"},
                        {"/api/v1/profile?last=x", 400, "last=x"},
                        {"/api/v1/profile?since=yesterday", 400, "since=yesterday"},
                        {"/api/v1/profile?last=5min&uint=x", 400, "uint: there is no such parameter"},
                        {"/api/v1/profile?last=5min&pid=x", 400, "pid=x"},
                        {"/api/v1/profile?since=2000&until=1000", 400, "not before"},
                        {"/api/v1/profile?seconds=0", 400, "seconds=0"},
                        {"/api/v1/profile?seconds=100000", 400, "seconds=100000"},
                        {"/api/v1/profile?since=1&until=2", 404,
                         "from 2026-12-01T02:10:00Z to 2026-12-01T02:12:00Z"},
                        {"/api/v1/profile?follow=4194303", 404, "there is no such process"},
                        {"/api/v1/windows?after=x", 400, "not the ID"},
                        {"/api/v1/windows/20261201T021000Z_61", 404, "there is no window"},
                        {"/api/v1/windows/..%2f..%2f..%2fetc%2fpasswd", 404, ""},
                        {"/api/v1/windows/../../../../etc/passwd", 404, ""},
        };

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                _cleanup_reply_ struct help_reply r;
                help_get(h->socket, cases[i].target, "", &r);
                if (r.status != cases[i].status ||
                    (*cases[i].contains && !has_bytes(&r.body, cases[i].contains)))
                        fail_msg("%s: %u %s", cases[i].target, r.status, buf_text(&r.body));
        }
}

static void test_health_says_why(void **state)
{
        struct help_server *h = *state;
        _cleanup_reply_ struct help_reply r;

        atomic_store(&h->unhealthy, true);
        help_get(h->socket, "/healthz", "", &r);
        assert_int_equal(r.status, 503);
        assert_true(has_bytes(&r.body, "the disk is full"));
}

static void test_only_get(void **state)
{
        struct help_server *h = *state;
        static const char *const methods[] = {"POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"};
        char text[128];

        for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
                _cleanup_reply_ struct help_reply r;
                snprintf(text, sizeof(text), "%s /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
                         methods[i]);
                help_raw(h->socket, text, strlen(text), &r);
                assert_int_equal(r.status, 405);
                assert_non_null(strstr(r.head, "Allow: GET"));
        }
}

static void test_a_stored_range(void **state)
{
        struct help_server *h = *state;
        _cleanup_reply_ struct help_reply r;

        help_get(h->socket, "/api/v1/profile?since=2026-12-01T02:10:00Z&until=2026-12-01T03:11:00%2B01:00",
                 "", &r);
        assert_int_equal(r.status, 200);
        assert_non_null(strstr(r.head, "application/octet-stream"));
        _cleanup_profile_ struct profile *p = body_profile(&r), *want = help_profile(T0, 60, 40, 1);
        _cleanup_free_ char *got = help_dump(p), *expected = help_dump(want);
        assert_string_equal(got, expected);

        /* A '+' that was not escaped, and seconds. */
        _cleanup_reply_ struct help_reply s;
        help_get(h->socket, "/api/v1/profile?since=1796091000&until=2026-12-01T03:12:00+01:00&comm=opend",
                 "", &s);
        assert_int_equal(s.status, 200);
        _cleanup_profile_ struct profile *q = body_profile(&s);
        assert_int_equal(q->duration_ns, 120 * SEC);
        for (uint32_t i = 0; i < q->n_samples; i++)
                assert_string_equal(profile_str(q, profile_find_label(q, &q->sample[i], "comm")->str),
                                    "opend");
}

static void test_a_live_profile(void **state)
{
        struct help_server *h = *state;
        _cleanup_reply_ struct help_reply r;
        uint64_t before = now_monotonic_ns();

        help_get(h->socket, "/debug/pprof/profile?seconds=1", "", &r);
        assert_int_equal(r.status, 200);
        assert_true(now_monotonic_ns() - before >= SEC);
        assert_true(now_monotonic_ns() - before < 4 * SEC); /* what Parca waits: N + 3 s */
        assert_non_null(strstr(r.head, "Content-Type: application/octet-stream"));
        _cleanup_profile_ struct profile *p = body_profile(&r);
        /* Collectors: no label that is not asked for; values as they are. */
        for (uint32_t i = 0; i < p->n_samples; i++) {
                assert_null(profile_find_label(p, &p->sample[i], "user"));
                assert_non_null(profile_find_label(p, &p->sample[i], "unit"));
                assert_non_null(profile_find_label(p, &p->sample[i], "pid"));
        }
        _cleanup_profile_ struct profile *want = help_profile(T0, 1, 40, 5);
        assert_int_equal(help_sum(p, "cpu"), help_sum(want, "cpu"));
}

static void test_labels_and_limits_of_a_scrape(void **state)
{
        struct help_server *h = *state;
        _cleanup_reply_ struct help_reply all, few, small;
        _cleanup_buf_ struct buf plain = {0};

        _cleanup_profile_ struct profile *want = help_profile(T0, 1, 128, 5);
        atomic_store(&h->live_samples, 128);
        help_get(h->socket, "/debug/pprof/profile?seconds=0.1&labels=all", "", &all);
        _cleanup_profile_ struct profile *p = body_profile(&all);
        assert_non_null(profile_find_label(p, &p->sample[0], "user"));

        help_get(h->socket, "/debug/pprof/profile?seconds=0.1&labels=comm&max_samples=10", "", &few);
        _cleanup_profile_ struct profile *q = body_profile(&few);
        assert_int_equal(q->n_samples, 10);
        assert_int_equal(help_sum(q, "samples"), help_sum(want, "samples"));
        assert_int_equal(help_sum(q, "cpu"), help_sum(want, "cpu"));
        assert_true(profile_ledger_count(q, "folded.samples", 0) > 0);
        _cleanup_free_ char *dump = help_dump(q);
        assert_non_null(strstr(dump, "[smaller stacks]"));
        uint32_t without = 0;
        for (uint32_t i = 0; i < q->n_samples; i++) {
                assert_true(q->sample[i].n_labels <= 1);
                without += q->sample[i].n_labels == 0;
        }
        assert_int_equal(without, 1); /* the remainder's */

        help_get(h->socket, "/debug/pprof/profile?seconds=0.1&max_bytes=3K", "", &small);
        _cleanup_profile_ struct profile *s = body_profile(&small);
        assert_int_equal(pprof_write(s, false, &plain), 0);
        assert_true(plain.len <= 3072);
        assert_int_equal(help_sum(s, "samples"), help_sum(want, "samples"));
}

/* What Pyroscope takes: 16,000 samples and 4 MiB; the rest of them in one, so that totals stay. */
static void test_a_scrape_of_a_large_host_is_bounded(void **state)
{
        struct help_server *h = *state;
        _cleanup_reply_ struct help_reply r, all;
        _cleanup_buf_ struct buf plain = {0};
        _cleanup_profile_ struct profile *want = help_profile(T0, 1, 40001, 5);

        atomic_store(&h->live_samples, 40001);
        help_get(h->socket, "/debug/pprof/profile?seconds=0.1", "", &r);
        assert_int_equal(r.status, 200);
        _cleanup_profile_ struct profile *p = body_profile(&r);
        assert_in_range(p->n_samples, 1000, 16000);
        assert_int_equal(pprof_write(p, false, &plain), 0);
        assert_true(plain.len <= 4u << 20);
        assert_int_equal(help_sum(p, "cpu"), help_sum(want, "cpu"));
        /* Other clients get all of it. */
        help_get(h->socket, "/api/v1/profile?seconds=0.1", "", &all);
        _cleanup_profile_ struct profile *q = body_profile(&all);
        assert_int_equal(q->n_samples, want->n_samples);
}

static void test_ops_get_what_was_asked(void **state)
{
        struct help_server *h = *state;
        _cleanup_reply_ struct help_reply r;

        help_get(h->socket, "/api/v1/profile?seconds=0.2&pid=77&threads=1&side=user&follow=12", "", &r);
        assert_int_equal(r.status, 200);
        assert_int_equal(help_last(h)->duration_ns, 200000000);
        assert_int_equal(help_last(h)->selection.pid, 77);
        assert_int_equal(help_last(h)->selection.side, SELECT_USER_ONLY);
        assert_int_equal(help_last(h)->follow_pid, 12);
        assert_true(help_last(h)->threads);
        assert_true(help_last(h)->peer.all);
}

/* Queries wait for each other; all are answered, and what is short is not held up for good. */
static void test_many_queries_at_once(void **state)
{
        struct help_server *h = *state;
        static const char get[] =
                        "GET /api/v1/profile?since=1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        _cleanup_reply_ struct help_reply windows;
        int fds[12];

        for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
                fds[i] = help_connect(h->socket);
                assert_int_equal(write(fds[i], get, strlen(get)), strlen(get));
        }
        help_get(h->socket, "/api/v1/windows", "", &windows);
        assert_int_equal(windows.status, 200);
        for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
                char answer[16] = "";
                assert_true(read(fds[i], answer, sizeof(answer) - 1) > 0);
                assert_non_null(strstr(answer, " 200"));
                close(fds[i]);
        }
}

static void wait_for(atomic_uint *counter, unsigned value)
{
        for (int i = 0; i < 2000 && atomic_load(counter) != value; i++)
                usleep(5000);
        assert_int_equal(atomic_load(counter), value);
}

static void test_a_client_that_goes_away_cancels(void **state)
{
        struct help_server *h = *state;
        static const char get[] = "GET /debug/pprof/profile?seconds=3600 HTTP/1.1\r\nHost: x\r\n\r\n";
        int fd = help_connect(h->socket);

        assert_true(fd >= 0);
        assert_int_equal(write(fd, get, strlen(get)), strlen(get));
        wait_for(&h->n_live, 1);
        close(fd);
        wait_for(&h->cancelled, 1);
        wait_for(&h->n_live, 0);
}

static void test_collections_under_way_end_with_the_daemon(void **state)
{
        struct help_server *h = *state;
        static const char get[] = "GET /debug/pprof/profile?seconds=3600 HTTP/1.1\r\nHost: x\r\n\r\n";
        _cleanup_close_ int fd = help_connect(h->socket);

        assert_int_equal(write(fd, get, strlen(get)), strlen(get));
        wait_for(&h->n_live, 1);
        atomic_store(&h->stop, true);
        pthread_join(h->thread, NULL);
        h->api = api_free(h->api);
        assert_int_equal(atomic_load(&h->cancelled), 1);
        assert_int_equal(access(h->socket, F_OK), -1);
}

/* -- windows -- */

static void test_the_list_of_windows(void **state)
{
        struct help_server *h = *state;
        _cleanup_reply_ struct help_reply r, after, page;

        help_get(h->socket, "/api/v1/windows", "", &r);
        assert_int_equal(r.status, 200);
        assert_non_null(strstr(r.head, "application/json"));
        assert_true(has_bytes(&r.body,
                              "\"id\":\"20261201T021000Z_60\",\"start\":\"2026-12-01T02:10:00.000000000Z\","
                              "\"start_ns\":1796091000000000000,\"duration_ns\":60000000000"));
        assert_true(has_bytes(&r.body, "\"gaps\":[]"));
        assert_true(has_bytes(&r.body, "\"more\":false"));
        help_get(h->socket, "/api/v1/windows?after=20261201T021000Z_60", "", &after);
        assert_false(has_bytes(&after.body, "20261201T021000Z_60"));
        assert_true(has_bytes(&after.body, "20261201T021100Z_60"));
        help_get(h->socket, "/api/v1/windows?limit=1", "", &page);
        assert_false(has_bytes(&page.body, "20261201T021100Z_60"));
        assert_true(has_bytes(&page.body, "\"more\":true"));
}

static void test_a_collector_sees_the_gap_before_the_next_window(void **state)
{
        struct help_server *h = *state;
        _cleanup_profile_ struct profile *p = help_profile(T0 + 1000, 60, 40, 7);
        _cleanup_reply_ struct help_reply r;

        assert_int_equal(store_put(h->store, p), 0);
        help_get(h->socket, "/api/v1/windows?after=20261201T021100Z_60", "", &r);
        assert_true(has_bytes(&r.body, "\"gaps\":[{\"start\":\"2026-12-01T02:12:00.000000000Z\","
                                       "\"end\":\"2026-12-01T02:26:40.000000000Z\""));
}

static void test_a_window_byte_for_byte(void **state)
{
        struct help_server *h = *state;
        static const char target[] = "/api/v1/windows/20261201T021000Z_60";
        _cleanup_buf_ struct buf file = {0};
        _cleanup_reply_ struct help_reply whole, part, rest, tail, none, same, other, stale;
        char path[160], etag[128], header[192];

        snprintf(path, sizeof(path), "%s/20261201T021000Z_60.pb.gz", h->state);
        assert_int_equal(read_file(path, 1 << 20, &file), 0);
        help_get(h->socket, target, "", &whole);
        assert_int_equal(whole.status, 200);
        assert_int_equal(whole.body.len, file.len);
        assert_memory_equal(whole.body.data, file.data, file.len);

        const char *at = strstr(whole.head, "ETag: ");
        assert_non_null(at);
        assert_int_equal(sscanf(at, "ETag: %127[^\r]", etag), 1);

        help_get(h->socket, target, "Range: bytes=100-199\r\n", &part);
        assert_int_equal(part.status, 206);
        assert_int_equal(part.body.len, 100);
        assert_memory_equal(part.body.data, file.data + 100, 100);
        snprintf(header, sizeof(header), "Content-Range: bytes 100-199/%zu", file.len);
        assert_non_null(strstr(part.head, header));
        snprintf(header, sizeof(header), "Range: bytes=200-\r\nIf-Range: %s\r\n", etag);
        help_get(h->socket, target, header, &rest);
        assert_int_equal(rest.status, 206);
        assert_int_equal(rest.body.len, file.len - 200);
        assert_memory_equal(rest.body.data, file.data + 200, file.len - 200);
        help_get(h->socket, target, "Range: bytes=-8\r\n", &tail);
        assert_int_equal(tail.status, 206);
        assert_memory_equal(tail.body.data, file.data + file.len - 8, 8);
        help_get(h->socket, target, "Range: bytes=99999999-\r\n", &none);
        assert_int_equal(none.status, 416);

        snprintf(header, sizeof(header), "If-None-Match: \"x\", %s\r\n", etag);
        help_get(h->socket, target, header, &same);
        assert_int_equal(same.status, 304);
        assert_int_equal(same.body.len, 0);
        help_get(h->socket, target, "If-None-Match: \"x\"\r\n", &other);
        assert_int_equal(other.status, 200);
        help_get(h->socket, target, "Range: bytes=100-199\r\nIf-Range: \"x\"\r\n", &stale);
        assert_int_equal(stale.status, 200);
        assert_int_equal(stale.body.len, file.len);
}

/* -- who sees what -- */

static const char *const all_targets[] = {
                "/healthz",
                "/metrics",
                "/api/v1/status",
                "/debug/pprof/",
                "/debug/pprof/profile?seconds=0.1",
                "/debug/pprof/profile?seconds=0.1&labels=all&max_samples=0",
                "/api/v1/profile?seconds=0.1",
                "/api/v1/profile?seconds=0.1&max_samples=3",
                "/api/v1/profile?seconds=0.1&pid=4001",
                "/api/v1/profile?since=1&labels=all",
                "/api/v1/profile?since=1&comm=secretd",
                "/api/v1/profile?since=1&side=user",
                "/api/v1/windows",
                "/api/v1/windows?after=20261201T021000Z_60",
                "/api/v1/windows/20261201T021000Z_60",
                "/api/v1/nothing",
};

static void need_root(void)
{
        if (geteuid() != 0) {
                print_message("skipped: becoming another user needs root\n");
                skip();
        }
}

static void test_a_user_gets_not_a_byte_of_another(void **state)
{
        struct help_server *h = *state;

        need_root();
        atomic_store(&h->unhealthy, true);
        for (size_t i = 0; i < ARRAY_SIZE(all_targets); i++) {
                _cleanup_reply_ struct help_reply r;
                help_get_as(h->socket, all_targets[i], OPEN_UID, OPEN_UID, -1, &r);
                assert_true(r.status > 0);
                assert_nothing_secret(&r);
        }
}

static void test_a_user_gets_all_of_their_own(void **state)
{
        struct help_server *h = *state;
        _cleanup_reply_ struct help_reply mine, live, all;

        need_root();
        help_get(h->socket, "/api/v1/profile?since=1&comm=opend", "", &all);
        help_get_as(h->socket, "/api/v1/profile?since=1", OPEN_UID, OPEN_UID, -1, &mine);
        assert_int_equal(mine.status, 200);
        _cleanup_profile_ struct profile *a = body_profile(&all), *b = body_profile(&mine);
        _cleanup_free_ char *x = help_dump(a), *y = help_dump(b);
        assert_string_equal(x, y);
        assert_string_equal(profile_ledger(b, "host"), "testhost");
        help_get_as(h->socket, "/api/v1/profile?seconds=0.1", SECRET_UID, SECRET_UID, -1, &live);
        _cleanup_profile_ struct profile *c = body_profile(&live);
        assert_true(c->n_samples > 0);
        _cleanup_free_ char *z = help_dump(c);
        assert_null(strstr(z, "opend"));
        assert_false(help_last(h)->peer.all);
        assert_int_equal(help_last(h)->peer.uid, SECRET_UID);
        /* A user without any sample, and one whose uid would match a missing label. */
        _cleanup_reply_ struct help_reply nobody;
        help_get_as(h->socket, "/api/v1/profile?since=1", 65534, 65534, -1, &nobody);
        _cleanup_profile_ struct profile *d = body_profile(&nobody);
        assert_int_equal(d->n_samples, 0);
}

static int set_up_group(void **state)
{
        struct help_server *h = calloc(1, sizeof(*h));

        help_server_open(h);
        h->config.group = "adm"; /* base-passwd: on every Debian; gid 4 */
        *state = h;
        return help_server_start(h);
}

static void test_members_of_the_group_see_all(void **state)
{
        struct help_server *h = *state;
        _cleanup_reply_ struct help_reply no, other, primary, supplementary;

        need_root();
        help_get_as(h->socket, "/metrics", OPEN_UID, OPEN_UID, -1, &no);
        assert_int_equal(no.status, 403);
        help_get_as(h->socket, "/metrics", OPEN_UID, OPEN_UID, GROUP, &other);
        assert_int_equal(other.status, 403);
        help_get_as(h->socket, "/metrics", OPEN_UID, 4, -1, &primary);
        assert_int_equal(primary.status, 200);
        help_get_as(h->socket, "/metrics", OPEN_UID, OPEN_UID, 4, &supplementary);
        assert_int_equal(supplementary.status, 200);
        assert_true(has_bytes(&supplementary.body, "profd_secret_total"));
}

/* -- the socket -- */

static void test_two_servers_do_not_share_a_socket(void **state)
{
        struct help_server *h = *state, second;

        help_server_open(&second);
        second.config.socket = h->socket;
        assert_int_equal(help_server_start(&second), -EADDRINUSE);
        help_server_close(&second);
        _cleanup_reply_ struct help_reply ok;
        help_get(h->socket, "/healthz", "", &ok);
        assert_int_equal(ok.status, 200);
}

static void test_a_socket_left_by_a_kill_is_replaced(void **state)
{
        struct help_server *h = *state;
        int fd;

        atomic_store(&h->stop, true);
        pthread_join(h->thread, NULL);
        h->api = api_free(h->api);
        fd = socket(AF_UNIX, SOCK_STREAM, 0);
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        strcpy(address.sun_path, h->socket);
        assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
        close(fd);
        atomic_store(&h->stop, false);
        assert_int_equal(help_server_start(h), 0);
        _cleanup_reply_ struct help_reply ok;
        help_get(h->socket, "/healthz", "", &ok);
        assert_int_equal(ok.status, 200);
}

int main(void)
{
#define API_TEST(f) cmocka_unit_test_setup_teardown(f, help_set_up, help_tear_down)
        const struct CMUnitTest tests[] = {
                        API_TEST(test_paths),
                        API_TEST(test_health_says_why),
                        API_TEST(test_only_get),
                        API_TEST(test_a_stored_range),
                        API_TEST(test_a_live_profile),
                        API_TEST(test_labels_and_limits_of_a_scrape),
                        API_TEST(test_a_scrape_of_a_large_host_is_bounded),
                        API_TEST(test_ops_get_what_was_asked),
                        API_TEST(test_many_queries_at_once),
                        API_TEST(test_a_client_that_goes_away_cancels),
                        API_TEST(test_collections_under_way_end_with_the_daemon),
                        API_TEST(test_the_list_of_windows),
                        API_TEST(test_a_collector_sees_the_gap_before_the_next_window),
                        API_TEST(test_a_window_byte_for_byte),
                        API_TEST(test_a_user_gets_not_a_byte_of_another),
                        API_TEST(test_a_user_gets_all_of_their_own),
                        cmocka_unit_test_setup_teardown(test_members_of_the_group_see_all, set_up_group,
                                                        help_tear_down),
                        API_TEST(test_two_servers_do_not_share_a_socket),
                        API_TEST(test_a_socket_left_by_a_kill_is_replaced),
        };

        log_set_level(LOG_EMERG);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
