/* TCP: TLS, tokens, client certificates, seen by clients that others wrote (curl, go tool pprof). */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
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

#define TOKEN  "0123456789abcdef0123456789abcdef"
#define SECOND "fedcba9876543210fedcba9876543210"

struct fixture {
        struct help_server server;
        char keys[64];
        char listen[64], certificate[96], key[96], ca[96], tokens[96];
        unsigned port;
};

static void write_text(const char *path, const char *text)
{
        _cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

        assert_true(fd >= 0);
        assert_int_equal(write_all(fd, text, strlen(text)), 0);
}

/* An authority, a certificate of the server and one of a client from it; another authority with a client. */
static const char make_keys[] =
                "set -e; cd $K; exec 2>log\n"
                "key() { certtool --generate-privkey --key-type=ecdsa --outfile $1.key; }\n"
                "authority() { key $1; printf 'cn=%s\\nca\\ncert_signing_key\\nexpiration_days=10\\n' $1 "
                ">$1.tmpl;\n"
                "  certtool --generate-self-signed --load-privkey $1.key --template $1.tmpl --outfile "
                "$1.pem; }\n"
                "signed() { key $1; printf "
                "'cn=%s\\ndns_name=localhost\\nip_address=127.0.0.1\\nsigning_key\\n%s\\n"
                "expiration_days=10\\n' $1 $3 >$1.tmpl;\n"
                "  certtool --generate-certificate --load-privkey $1.key --load-ca-certificate $2.pem "
                "--load-ca-privkey $2.key --template $1.tmpl --outfile $1.pem; }\n"
                "authority ca; authority other; signed server ca tls_www_server; signed client ca "
                "tls_www_client\n"
                "signed stranger other tls_www_client\n";

static unsigned free_port(void)
{
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t size = sizeof(a);
        _cleanup_close_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
        assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &size), 0);
        return ntohs(a.sin_port);
}

static int set_up(void **state)
{
        struct fixture *f = calloc(1, sizeof(*f));
        _cleanup_buf_ struct buf out = {0};

        *state = f;
        help_server_open(&f->server);
        help_directory(f->keys);
        setenv("K", f->keys, 1);
        if (help_run(make_keys, &out) != 0) {
                print_error("certtool (gnutls-bin) cannot make certificates\n");
                return -1;
        }
        f->port = free_port();
        snprintf(f->listen, sizeof(f->listen), "127.0.0.1:%u", f->port);
        snprintf(f->certificate, sizeof(f->certificate), "%s/server.pem", f->keys);
        snprintf(f->key, sizeof(f->key), "%s/server.key", f->keys);
        snprintf(f->ca, sizeof(f->ca), "%s/ca.pem", f->keys);
        snprintf(f->tokens, sizeof(f->tokens), "%s/tokens", f->keys);
        write_text(f->tokens, "# made for this test\n" TOKEN "\n\n" SECOND "\n");
        f->server.config.listen = f->listen;
        f->server.config.tls_certificate = f->certificate;
        f->server.config.tls_key = f->key;
        f->server.config.client_ca = f->ca;
        f->server.config.token_file = f->tokens;
        char port[16];
        snprintf(port, sizeof(port), "%u", f->port);
        setenv("P", port, 1);
        return help_server_start(&f->server);
}

static int tear_down(void **state)
{
        struct fixture *f = *state;

        help_server_close(&f->server);
        help_remove(f->keys);
        free(f);
        return 0;
}

/* The status of an answer to curl; 0: there was none. */
static unsigned curl(const char *arguments, const char *target)
{
        _cleanup_buf_ struct buf out = {0};
        char command[512];

        snprintf(command, sizeof(command),
                 "curl -s -o /dev/null -m 20 -w '%%{http_code}' --cacert $K/ca.pem %s \"%s\"", arguments,
                 target);
        help_run(command, &out);
        return (unsigned)atoi(buf_text(&out));
}

#define METRICS "https://localhost:$P/metrics"

static void test_tokens(void **state)
{
        assert_int_equal(curl("", METRICS), 401);
        assert_int_equal(curl("-H 'Authorization: Bearer " TOKEN "'", METRICS), 200);
        assert_int_equal(curl("-H 'Authorization: bearer   " SECOND "'", METRICS), 200);
        assert_int_equal(curl("-H 'Authorization: Bearer " TOKEN "x'", METRICS), 401);
        assert_int_equal(curl("-H 'Authorization: Bearer 0123456789abcdef'", METRICS), 401);
        assert_int_equal(curl("-H 'Authorization: Bearer '", METRICS), 401);
        assert_int_equal(curl("-H 'Authorization: Basic " TOKEN "'", METRICS), 401);
        assert_int_equal(curl("-u any:" TOKEN, METRICS), 200);
        assert_int_equal(curl("-u " TOKEN ":any", METRICS), 401);
        assert_int_equal(curl("-H 'Authorization: Bearer # made for this test'", METRICS), 401);
        /* Nothing at all without one, not even that there is nothing. */
        assert_int_equal(curl("", "https://localhost:$P/healthz"), 401);
        assert_int_equal(curl("", "https://localhost:$P/nothing"), 401);
}

static void test_client_certificates(void **state)
{
        assert_int_equal(curl("--cert $K/client.pem --key $K/client.key", METRICS), 200);
        assert_int_not_equal(curl("--cert $K/stranger.pem --key $K/stranger.key", METRICS), 200);
        /* Signed by the right authority, for servers. */
        assert_int_not_equal(curl("--cert $K/server.pem --key $K/server.key", METRICS), 200);
}

static void test_nothing_in_the_clear(void **state)
{
        assert_int_equal(curl("-H 'Authorization: Bearer " TOKEN "'", "http://localhost:$P/metrics"), 0);
        assert_int_equal(curl("--tls-max 1.1 -H 'Authorization: Bearer " TOKEN "'", METRICS), 0);
        /* A client that does not know our authority turns away. */
        _cleanup_buf_ struct buf out = {0};
        assert_int_equal(help_run("curl -s -m 20 https://localhost:$P/healthz", &out), 60);
}

static void test_files_and_ranges_over_tls(void **state)
{
        struct fixture *f = *state;
        _cleanup_buf_ struct buf out = {0};
        char command[512];

        snprintf(command, sizeof(command),
                 "curl -s -m 20 --cacert $K/ca.pem -H 'Authorization: Bearer " TOKEN "' -r 10- "
                 "https://localhost:$P/api/v1/windows/20261201T021000Z_60 >$K/part && "
                 "tail -c +11 %s/20261201T021000Z_60.pb.gz | cmp - $K/part",
                 f->server.state);
        assert_int_equal(help_run(command, &out), 0);
}

/* The sum that `go tool pprof` finds, of a live profile and of a stored range. It takes no header and no
 * certificate, but the password of a URL. */
static void test_go_tool_pprof(void **state)
{
        static const char *const targets[] = {"debug/pprof/profile?seconds=1",
                                              "api/v1/profile?since=1&until=1796091060"};
        const uint32_t seeds[] = {5, 1};

        for (size_t i = 0; i < ARRAY_SIZE(targets); i++) {
                _cleanup_buf_ struct buf out = {0};
                _cleanup_profile_ struct profile *want = help_profile(T0, 60, 40, seeds[i]);
                char command[512], expected[96];
                snprintf(command, sizeof(command),
                         "cd $K && HOME=$K SSL_CERT_FILE=ca.pem go tool pprof -top -sample_index=samples "
                         "https://x:" TOKEN "@localhost:$P/'%s' 2>&1",
                         targets[i]);
                int status = help_run(command, &out);
                snprintf(expected, sizeof(expected), "of %lld total", (long long)help_sum(want, "samples"));
                if (status != 0 || !strstr(buf_text(&out), expected) ||
                    !strstr(buf_text(&out), "secret_function_"))
                        fail_msg("status %d, wanted %s: %s", status, expected, buf_text(&out));
        }
}

static void test_tls_clients_that_never_finish(void **state)
{
        struct fixture *f = *state;
        struct sockaddr_in a = {.sin_family = AF_INET,
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                .sin_port = htons((uint16_t)f->port)};
        uint64_t before = help_resident();
        int fds[700];

        for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
                fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
                if (connect(fds[i], (struct sockaddr *)&a, sizeof(a)) == 0 && i % 2)
                        send(fds[i], "\x16\x03\x01", 3, MSG_NOSIGNAL); /* a handshake begun */
        }
        assert_int_equal(curl("-H 'Authorization: Bearer " TOKEN "'", METRICS), 200);
        assert_true(help_resident() < before + (128u << 20));
        for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
                close(fds[i]);
}

/* -- what is refused at the start -- */

static int start_with(struct fixture *f, void (*change)(struct fixture *f, struct api_config *c))
{
        struct help_server second;

        help_server_open(&second);
        const char *own = second.config.socket;
        second.config = f->server.config;
        second.config.socket = own;
        char listen[64];
        snprintf(listen, sizeof(listen), "127.0.0.1:%u", free_port());
        second.config.listen = listen;
        change(f, &second.config);
        int r = help_server_start(&second);
        assert_int_equal(access(second.socket, F_OK), r < 0 ? -1 : 0); /* nothing is left behind */
        help_server_close(&second);
        return r;
}

static void without_certificate(struct fixture *f, struct api_config *c)
{
        c->tls_certificate = "";
}

static void without_credentials(struct fixture *f, struct api_config *c)
{
        c->token_file = NULL;
        c->client_ca = "";
}

static void with_short_token(struct fixture *f, struct api_config *c)
{
        write_text(f->tokens, "short\n");
}

static void with_empty_tokens(struct fixture *f, struct api_config *c)
{
        write_text(f->tokens, "# nothing\n\n");
}

static void with_wrong_key(struct fixture *f, struct api_config *c)
{
        write_text(f->tokens, TOKEN "\n");
        c->tls_key = f->ca;
}

static void with_taken_port(struct fixture *f, struct api_config *c)
{
        c->listen = f->listen;
}

static void as_it_is(struct fixture *f, struct api_config *c) {}

static void test_configurations_that_are_refused(void **state)
{
        struct fixture *f = *state;

        assert_int_equal(start_with(f, as_it_is), 0);
        assert_int_equal(start_with(f, without_certificate), -EINVAL);
        assert_int_equal(start_with(f, without_credentials), -EINVAL);
        assert_int_equal(start_with(f, with_short_token), -EINVAL);
        assert_int_equal(start_with(f, with_empty_tokens), -EINVAL);
        assert_int_equal(start_with(f, with_wrong_key), -EINVAL);
        assert_int_equal(start_with(f, with_taken_port), -EADDRINUSE);
}

int main(void)
{
#define TLS_TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
        const struct CMUnitTest tests[] = {
                        TLS_TEST(test_tokens),
                        TLS_TEST(test_client_certificates),
                        TLS_TEST(test_nothing_in_the_clear),
                        TLS_TEST(test_files_and_ranges_over_tls),
                        TLS_TEST(test_go_tool_pprof),
                        TLS_TEST(test_tls_clients_that_never_finish),
                        TLS_TEST(test_configurations_that_are_refused),
        };

        log_set_level(LOG_EMERG);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
