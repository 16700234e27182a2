#include "tools/debug_fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "tools/curl_request.h"

#define STALL_TIMEOUT 90L /* below a byte a second: a server may unpack a package before it answers */
#define WHOLE_TIMEOUT 1800L
#define MAX_REDIRECTS 5L

struct sink {
        int fd;
        uint64_t left;
        bool full;
        int error;
};

static size_t on_body(char *data, size_t size, size_t n, void *ctx)
{
        struct sink *s = ctx;

        n *= size;
        s->full = n > s->left;
        if (s->full)
                return 0;
        s->left -= n;
        s->error = write_all(s->fd, data, n);
        return s->error < 0 ? 0 : n;
}

static CURLcode get(const struct debug_server *s, const char *url, struct sink *sink, long *ret_status,
                    char detail[CURL_ERROR_SIZE])
{
        CURL *curl = curl_request_new(url, detail);

        if (!curl)
                return CURLE_OUT_OF_MEMORY;
        curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
        curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
        curl_easy_setopt(curl, CURLOPT_MAXREDIRS, MAX_REDIRECTS);
        curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L);
        curl_easy_setopt(curl, CURLOPT_ACCEPT_ENCODING, "");
        curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
        curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, STALL_TIMEOUT);
        curl_easy_setopt(curl, CURLOPT_TIMEOUT, WHOLE_TIMEOUT);
        curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
        curl_easy_setopt(curl, CURLOPT_WRITEDATA, sink);
        curl_request_certificates(curl, s->ca, NULL, NULL);
        CURLcode code = curl_easy_perform(curl);
        curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, ret_status);
        curl_easy_cleanup(curl);
        return code;
}

static enum debug_answer answer_of(CURLcode code, long status, const struct sink *sink, const char *detail,
                                   char text[256])
{
        text[0] = 0;
        if (sink->full)
                return DEBUG_TOO_LARGE;
        if (sink->error < 0) {
                snprintf(text, 256, "cannot keep the answer: %s", strerror(-sink->error));
                return DEBUG_UNREACHABLE;
        }
        if (code == CURLE_OK)
                return DEBUG_FETCHED;
        if (code == CURLE_HTTP_RETURNED_ERROR && (status == 404 || status == 410))
                return DEBUG_NOT_THERE;
        snprintf(text, 256, "%s", detail[0] ? detail : curl_easy_strerror(code));
        return DEBUG_UNREACHABLE;
}

enum debug_answer debug_fetch(const struct debug_server *s, const char *build_id, const char *path,
                              uint64_t max_bytes, char text[256])
{
        struct sink sink = {.left = max_bytes};
        char detail[CURL_ERROR_SIZE] = "";
        _cleanup_buf_ struct buf url = {0};
        size_t n = strlen(s->url);
        long status = 0;

        while (n > 0 && s->url[n - 1] == '/')
                n--;
        buf_addf(&url, "%.*s/buildid/%s/debuginfo", (int)n, s->url, build_id);
        if (buf_error(&url) < 0) {
                snprintf(text, 256, "%s", strerror(ENOMEM));
                return DEBUG_UNREACHABLE;
        }
        unlink(path);
        sink.fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
        if (sink.fd < 0) {
                snprintf(text, 256, "cannot write %.200s: %s", path, strerror(errno));
                return DEBUG_UNREACHABLE;
        }
        CURLcode code = get(s, buf_text(&url), &sink, &status, detail);
        if (close(sink.fd) < 0 && sink.error == 0)
                sink.error = -errno;
        enum debug_answer answer = answer_of(code, status, &sink, detail, text);
        if (answer != DEBUG_FETCHED)
                unlink(path);
        return answer;
}
