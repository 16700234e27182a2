#include "tools/push_post.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "profile/gzip.h"
#include "profile/otlp.h"
#include "tools/curl_request.h"
#include "tools/say.h"

#define MAX_HEADERS   (64 << 10)
#define MAX_ANSWER    (1 << 20)
#define WHOLE_TIMEOUT 60L

static size_t on_body(char *data, size_t size, size_t n, void *ctx)
{
        buf_add(ctx, data, size * n);
        return buf_error(ctx) ? 0 : size * n;
}

static int add_header(struct curl_slist **list, const char *line)
{
        struct curl_slist *more = curl_slist_append(*list, line);

        if (!more)
                return -ENOMEM;
        *list = more;
        return 0;
}

static int read_headers(const char *path, struct curl_slist **list)
{
        _cleanup_buf_ struct buf text = {0};
        char *save = NULL;

        int r = read_file(path, MAX_HEADERS, &text);
        if (r < 0)
                return say_failed("cannot read the headers in %s: %s", path, strerror(-r));
        for (char *line = text.len ? strtok_r(text.data, "\r\n", &save) : NULL; line;
             line = strtok_r(NULL, "\r\n", &save)) {
                if (!strchr(line, ':'))
                        return say_failed("%s: each line must read 'Name: value'", path);
                if (add_header(list, line) < 0)
                        return say_failed("%s", strerror(ENOMEM));
        }
        return STATUS_DONE;
}

static enum push_answer answer_of(long status)
{
        if (status >= 200 && status < 300)
                return PUSH_TAKEN;
        if (status == 413)
                return PUSH_TOO_LARGE;
        /* Wrong credentials or a wrong path are the configuration's fault, not the window's: it is kept. */
        if (status == 400 || status == 415 || status == 422)
                return PUSH_REFUSED;
        return PUSH_LATER;
}

static void read_reply(CURL *curl, CURLcode code, const char *detail, const struct buf *body,
                       struct push_reply *reply)
{
        long status = 0;
        curl_off_t wait = 0;
        char message[160] = "";

        if (code != CURLE_OK) {
                reply->answer = PUSH_LATER;
                snprintf(reply->text, sizeof(reply->text), "%s",
                         detail[0] ? detail : curl_easy_strerror(code));
                return;
        }
        curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
        curl_easy_getinfo(curl, CURLINFO_RETRY_AFTER, &wait);
        reply->answer = answer_of(status);
        reply->wait_ns = wait > 0 ? (uint64_t)MIN_OF(wait, (curl_off_t)86400) * NSEC_PER_SEC : 0;
        if (reply->answer != PUSH_TAKEN) {
                snprintf(reply->text, sizeof(reply->text), "HTTP status %ld", status);
                return;
        }
        if (body->len && otlp_answer(body->data, body->len, &reply->rejected, message, sizeof(message)) < 0)
                snprintf(message, sizeof(message), "the answer is not OTLP's: is this the right URL?");
        if (message[0] || reply->rejected)
                snprintf(reply->text, sizeof(reply->text), "%s",
                         message[0] ? message : "profiles were rejected");
}

int push_post(const struct push_receiver *to, const struct buf *request, struct push_reply *ret)
{
        _cleanup_buf_ struct buf packed = {0}, body = {.limit = MAX_ANSWER};
        struct curl_slist *headers = NULL;
        char detail[CURL_ERROR_SIZE] = "";
        struct push_reply reply = {0};

        int r = gzip_deflate(request->data, request->len, GZIP_LEVEL, NULL, &packed);
        if (r < 0)
                return say_failed("cannot compress a request: %s", strerror(-r));
        if (add_header(&headers, "Content-Type: application/x-protobuf") < 0 ||
            add_header(&headers, "Content-Encoding: gzip") < 0 || add_header(&headers, "Expect:") < 0)
                r = say_failed("%s", strerror(ENOMEM));
        else
                r = to->header_file ? read_headers(to->header_file, &headers) : STATUS_DONE;
        CURL *curl = r == STATUS_DONE ? curl_request_new(to->url, detail) : NULL;
        if (curl) {
                curl_easy_setopt(curl, CURLOPT_POSTFIELDS, packed.data);
                curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)packed.len);
                curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
                curl_easy_setopt(curl, CURLOPT_TIMEOUT, WHOLE_TIMEOUT);
                curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
                curl_easy_setopt(curl, CURLOPT_WRITEDATA, &body);
                curl_request_certificates(curl, to->ca, to->certificate, to->key);
                read_reply(curl, curl_easy_perform(curl), detail, &body, &reply);
        } else if (r == STATUS_DONE) {
                r = say_failed("%s", strerror(ENOMEM));
        }
        curl_easy_cleanup(curl);
        curl_slist_free_all(headers);
        if (r == STATUS_DONE)
                *ret = reply;
        return r;
}
