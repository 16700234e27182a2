#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "daemon/api_internal.h"

/* Bytes of an answer that a client has not taken yet; libmicrohttpd frees them by this. */
struct body {
        struct api *api;
        char *data;
        uint64_t size;
};

static void body_free(void *cls)
{
        struct body *b = cls;

        atomic_fetch_sub(&b->api->body_bytes, b->size);
        free(b->data);
        free(b);
}

void api_reply(struct api_request *r, unsigned status, struct MHD_Response *response)
{
        struct api *a = r->api;
        bool suspended = r->suspended;
        struct MHD_Connection *c = r->mhd;

        if (status >= 500)
                atomic_fetch_add(&a->errors, 1);
        else if (status >= 400)
                atomic_fetch_add(&a->refused, 1);
        r->status = status;
        r->response = response; /* NULL, out of memory: the connection is closed */
        if (response) {
                MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
                if (!MHD_get_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL))
                        MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
        }
        r->suspended = false;
        if (suspended)
                MHD_resume_connection(c); /* the request is not ours any more */
}

void api_reply_text(struct api_request *r, unsigned status, const char *fmt, ...)
{
        _cleanup_buf_ struct buf b = {0};
        va_list ap;

        va_start(ap, fmt);
        buf_vaddf(&b, fmt, ap);
        va_end(ap);
        buf_addc(&b, '\n');
        api_reply_buf(r, status, "text/plain; charset=utf-8", &b);
}

void api_reply_buf(struct api_request *r, unsigned status, const char *type, struct buf *b)
{
        struct api *a = r->api;
        struct MHD_Response *response = NULL;
        size_t size = b->len;
        _cleanup_free_ char *data = buf_error(b) ? NULL : buf_take(b);
        struct body *body = calloc(1, sizeof(*body));

        if (!body || !data) {
                free(body);
                api_reply(r, MHD_HTTP_INTERNAL_SERVER_ERROR, NULL);
                return;
        }
        /* One large answer alone is let through, whatever its size. */
        if (atomic_fetch_add(&a->body_bytes, size) > 0 && atomic_load(&a->body_bytes) > API_BODY_BYTES &&
            size > 4096) {
                static const char text[] = "too much is being sent to slow readers: try again later\n";
                atomic_fetch_sub(&a->body_bytes, size);
                free(body);
                response = MHD_create_response_from_buffer(sizeof(text) - 1, (void *)(uintptr_t)text,
                                                           MHD_RESPMEM_PERSISTENT);
                if (response)
                        MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, "10");
                api_reply(r, MHD_HTTP_SERVICE_UNAVAILABLE, response);
                return;
        }
        r->body_size = size;
        *body = (struct body){.api = a, .data = TAKE_PTR(data), .size = size};
        response = MHD_create_response_from_buffer_with_free_callback_cls(size, body->data, body_free, body);
        if (!response)
                body_free(body);
        else {
                MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
                if (status == MHD_HTTP_UNAUTHORIZED)
                        MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE,
                                                "Bearer realm=\"profd\"");
                if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
                        MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET");
                if (status == MHD_HTTP_SERVICE_UNAVAILABLE || status == MHD_HTTP_TOO_MANY_REQUESTS)
                        MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, "10");
        }
        api_reply(r, status, response);
}

void api_reply_error(struct api_request *r, int err, const char *text)
{
        unsigned status = MHD_HTTP_INTERNAL_SERVER_ERROR;

        switch (-err) {
        case ENOENT:
        case ESRCH:
        case ENODATA:
                status = MHD_HTTP_NOT_FOUND;
                break;
        case EINVAL:
                status = MHD_HTTP_BAD_REQUEST;
                break;
        case EACCES:
        case EPERM:
                status = MHD_HTTP_FORBIDDEN;
                break;
        case EBUSY:
        case EAGAIN:
        case ENOBUFS:
        case ENOMEM:
        case ENOSPC:
                status = MHD_HTTP_SERVICE_UNAVAILABLE;
                break;
        case E2BIG:
        case EFBIG:
                status = MHD_HTTP_CONTENT_TOO_LARGE;
                break;
        default:
                break;
        }
        api_reply_text(r, status, "%s", text ? text : strerror(-err));
}
