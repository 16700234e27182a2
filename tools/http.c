#include "tools/http.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "tools/curl_request.h"
#include "tools/say.h"

#define MAX_TOKEN 4096

struct transfer {
        const struct http_request *request;
        struct buf *body;
        bool sent;
};

static size_t on_body(char *data, size_t size, size_t n, void *ctx)
{
        struct transfer *t = ctx;

        buf_add(t->body, data, size * n);
        return buf_error(t->body) ? 0 : size * n;
}

/* libcurl tells what it sends to its tracing callback only. */
static int on_trace(CURL *curl, curl_infotype type, char *data, size_t n, void *ctx)
{
        struct transfer *t = ctx;

        if (type == CURLINFO_HEADER_OUT && !t->sent) {
                t->sent = true;
                t->request->on_sent(t->request->ctx);
        }
        return 0;
}

bool http_reachable(const struct target *t)
{
        struct sockaddr_un sa = {.sun_family = AF_UNIX};

        if (t->host)
                return true;
        if (strlen(t->socket) >= sizeof(sa.sun_path))
                return false;
        strcpy(sa.sun_path, t->socket);
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        return fd >= 0 && connect(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0;
}

static int __attribute__((format(printf, 2, 3)))
fail(const struct http_request *request, const char *fmt, ...)
{
        _cleanup_buf_ struct buf text = {0};
        va_list ap;

        va_start(ap, fmt);
        buf_vaddf(request->error ? request->error : &text, fmt, ap);
        va_end(ap);
        return request->error ? STATUS_FAILED : say_failed("%s", buf_text(&text));
}

/* About a host that cannot be read from, by what went wrong. */
static const char *what_to_do(const struct target *t, CURLcode code)
{
        switch (code) {
        case CURLE_COULDNT_CONNECT:
        case CURLE_COULDNT_RESOLVE_HOST:
                return "; does profd run there, with Listen= in its configuration?";
        case CURLE_PEER_FAILED_VERIFICATION:
                return "; --ca FILE names the authority that signed its certificate";
        case CURLE_SSL_CACERT_BADFILE:
                return "; look at the file of --ca";
        case CURLE_SSL_CERTPROBLEM:
        case CURLE_SSL_CONNECT_ERROR:
                return t->certificate ? "; look at the files of --cert and --key" : "";
        case CURLE_GOT_NOTHING:
                return strncmp(t->host, "http://", 7) ? "" : "; what profd serves over TCP is https://";
        default:
                return "";
        }
}

static int fail_unreachable(const struct target *t, const struct http_request *q, CURL *curl, CURLcode code,
                            const char *detail)
{
        long os_errno = 0;

        curl_easy_getinfo(curl, CURLINFO_OS_ERRNO, &os_errno);
        if (code == CURLE_OPERATION_TIMEDOUT)
                return fail(q, "profd at %s does not answer in time; look at its log (journalctl -u profd)",
                            t->host ? t->host : t->socket);
        if (t->host)
                return fail(q, "cannot read from %s: %s%s", t->host,
                            detail[0] ? detail : curl_easy_strerror(code), what_to_do(t, code));
        if (code == CURLE_COULDNT_CONNECT && os_errno == EACCES)
                return fail(q,
                            "no permission to open %s; use sudo, or join the group profd "
                            "(usermod -aG profd NAME)",
                            t->socket);
        if (code == CURLE_COULDNT_CONNECT)
                return fail(q,
                            "no profd is running: cannot connect to %s (%s); start it with "
                            "'systemctl start profd', or as root with 'profd'",
                            t->socket, strerror((int)os_errno));
        return fail(q, "cannot read from profd at %s: %s", t->socket,
                    detail[0] ? detail : curl_easy_strerror(code));
}

/* The bearer token's header, from a file that holds it and perhaps a newline. */
static int token_header(const struct http_request *q, const char *path, struct curl_slist **ret)
{
        _cleanup_buf_ struct buf token = {0}, header = {0};

        int r = read_file(path, MAX_TOKEN, &token);
        if (r < 0)
                return fail(q, "cannot read the token in %s: %s", path, strerror(-r));
        size_t n = strcspn(buf_text(&token), "\r\n");
        if (n == 0)
                return fail(q, "there is no token in %s", path);
        buf_addf(&header, "Authorization: Bearer %.*s", (int)n, buf_text(&token));
        *ret = curl_slist_append(*ret, buf_text(&header));
        return *ret ? 0 : fail(q, "%s", strerror(ENOMEM));
}

/* curl_easy_perform() that can be given up. */
static CURLcode transfer_all(CURL *curl, int abort_fd)
{
        struct curl_waitfd extra = {.fd = abort_fd, .events = CURL_WAIT_POLLIN};
        CURLcode code = CURLE_ABORTED_BY_CALLBACK;
        int running = 1, left;

        CURLM *multi = curl_multi_init();
        if (!multi)
                return CURLE_OUT_OF_MEMORY;
        CURLMcode m = curl_multi_add_handle(multi, curl);
        while (m == CURLM_OK && running) {
                m = curl_multi_perform(multi, &running);
                if (m == CURLM_OK && running)
                        m = curl_multi_poll(multi, &extra, abort_fd > 0, 1000, NULL);
                if (extra.revents)
                        break;
        }
        for (CURLMsg *msg; (msg = curl_multi_info_read(multi, &left));)
                if (msg->msg == CURLMSG_DONE)
                        code = msg->data.result;
        curl_multi_remove_handle(multi, curl);
        curl_multi_cleanup(multi);
        return code;
}

static int perform(CURL *curl, const char *detail, const struct target *t,
                   const struct http_request *request, struct http_reply *reply)
{
        struct transfer transfer = {.request = request, .body = &reply->body};

        if (!t->host)
                curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, t->socket);
        curl_request_certificates(curl, t->ca, t->certificate, t->key);
        curl_easy_setopt(curl, CURLOPT_NOPROXY, t->host ? NULL : "*");
        curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)(request->timeout_ns / NSEC_PER_MSEC));
        curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
        curl_easy_setopt(curl, CURLOPT_WRITEDATA, &transfer);
        if (request->on_sent) {
                curl_easy_setopt(curl, CURLOPT_DEBUGFUNCTION, on_trace);
                curl_easy_setopt(curl, CURLOPT_DEBUGDATA, &transfer);
                curl_easy_setopt(curl, CURLOPT_VERBOSE, 1L);
        }
        reply->body.limit = request->max_bytes;
        CURLcode code = transfer_all(curl, request->abort_fd);
        if (code == CURLE_ABORTED_BY_CALLBACK)
                return STATUS_FAILED;
        if (buf_error(&reply->body))
                return fail(request, "the answer to %s is too large: more than %zu bytes", request->path,
                            request->max_bytes);
        if (code != CURLE_OK)
                return fail_unreachable(t, request, curl, code, detail);
        curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &reply->status);
        return 0;
}

int http_get(const struct target *t, const struct http_request *request, struct http_reply *ret)
{
        _cleanup_buf_ struct buf url = {0};
        struct curl_slist *headers = NULL;
        struct http_reply reply = {0};
        char detail[CURL_ERROR_SIZE] = "";
        const char *host = t->host ? t->host : "http://localhost";
        size_t n = strlen(host);

        while (n > 0 && host[n - 1] == '/')
                n--;
        buf_addf(&url, "%s%.*s%s", strstr(host, "://") ? "" : "https://", (int)n, host, request->path);
        int r = t->token_file ? token_header(request, t->token_file, &headers) : 0;
        CURL *curl = r == 0 && !buf_error(&url) ? curl_request_new(buf_text(&url), detail) : NULL;
        if (r == 0 && !curl)
                r = fail(request, "%s", strerror(ENOMEM));
        if (r == 0) {
                curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
                r = perform(curl, detail, t, request, &reply);
        }
        curl_easy_cleanup(curl);
        curl_slist_free_all(headers);
        if (r == 0)
                *ret = reply;
        else
                buf_free(&reply.body);
        return r;
}

int http_refused(const struct target *t, const struct http_request *request, const struct http_reply *reply)
{
        const char *text = buf_text(&reply->body), *where = t->host ? t->host : t->socket;
        int n = (int)strcspn(text, "\r\n");

        if (reply->status == 401)
                return fail(request, "%s refuses: %.*s%s--token-file or --cert and --key say who you are",
                            where, n, text, n ? "; " : "");
        if (n > 0)
                return fail(request, "profd at %s: %.*s", where, n, text);
        return fail(request, "profd at %s answers %.*s with HTTP status %ld", where,
                    (int)strcspn(request->path, "?"), request->path, reply->status);
}
