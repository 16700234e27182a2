/* The stored windows: the list, and each file byte for byte (RFC 9110 for ranges and conditions). */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/json_out.h"
#include "base/parse.h"
#include "daemon/api_internal.h"
#include "daemon/store_facts.h"

/* -- the list -- */

static void json_time(struct json_out *j, const char *key, uint64_t ns)
{
        char day[32], text[48];
        time_t t = (time_t)(ns / NSEC_PER_SEC);
        struct tm tm;

        if (!gmtime_r(&t, &tm) || strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%S", &tm) == 0)
                day[0] = 0;
        snprintf(text, sizeof(text), "%s.%09uZ", day, (unsigned)(ns % NSEC_PER_SEC));
        json_string(j, key, text);
}

static void json_window(struct json_out *j, const struct store_window *w, bool all)
{
        json_object_begin(j, NULL);
        json_string(j, "id", w->id);
        json_time(j, "start", w->start_ns);
        json_u64(j, "start_ns", w->start_ns);
        json_u64(j, "duration_ns", w->duration_ns);
        if (all) {
                json_u64(j, "size", w->size);
                json_u64(j, "samples", w->samples);
                json_u64(j, "lost", w->lost);
                json_u64(j, "first_seq", w->first_seq);
                json_u64(j, "last_seq", w->last_seq);
                json_bool(j, "overlaps", w->overlaps);
        }
        json_object_end(j);
}

static void json_gaps(struct json_out *j, const struct store_gap *g, uint32_t n)
{
        json_array_begin(j, "gaps");
        for (uint32_t i = 0; i < n; i++) {
                json_object_begin(j, NULL);
                json_time(j, "start", g[i].start_ns);
                json_time(j, "end", g[i].end_ns);
                json_u64(j, "start_ns", g[i].start_ns);
                json_u64(j, "end_ns", g[i].end_ns);
                json_string(j, "reason", g[i].reason);
                json_object_end(j);
        }
        json_array_end(j);
}

/* The stretch of time that a page of windows is about. Before its first window reaches a gap that lies
 * between it and the window asked after. */
static void page_range(const struct api_query *q, const struct store_window *w, uint32_t n, bool more,
                       uint64_t *ret_since, uint64_t *ret_until)
{
        uint64_t start_s, seconds, until = 0;

        *ret_since = q->since_ns;
        *ret_until = q->until_ns;
        if (q->after && store_id_parse(q->after, &start_s, &seconds) == 0)
                *ret_since = MAX_OF(*ret_since, start_s * NSEC_PER_SEC);
        for (uint32_t i = 0; i < n; i++)
                until = MAX_OF(until, w[i].start_ns + w[i].duration_ns);
        if (more)
                *ret_until = MIN_OF(*ret_until, until);
}

static uint32_t keep_range(struct store_window *w, uint32_t n, uint64_t since_ns, uint64_t until_ns)
{
        uint32_t kept = 0;

        for (uint32_t i = 0; i < n; i++)
                if (w[i].start_ns < until_ns && w[i].start_ns + w[i].duration_ns > since_ns)
                        w[kept++] = w[i];
        return kept;
}

void api_windows(struct api_request *r)
{
        const struct api_query *q = &r->query;
        _cleanup_free_ struct store_window *w = NULL;
        _cleanup_free_ struct store_gap *g = NULL;
        _cleanup_buf_ struct buf b = {0};
        struct json_out j = {.out = &b};
        uint32_t n = 0, n_gaps = 0;
        uint64_t since, until;

        int e = q->after ? store_after(r->api->store, q->after, UINT32_MAX, &w, &n)
                         : store_list(r->api->store, q->since_ns, q->until_ns, &w, &n);
        if (e == -EINVAL) {
                api_reply_text(r, MHD_HTTP_BAD_REQUEST, "after=%.64s: not the ID of a window", q->after);
                return;
        }
        if (e == 0) {
                n = keep_range(w, n, q->since_ns, q->until_ns);
                bool more = n > q->limit;
                n = MIN_OF(n, q->limit);
                page_range(q, w, n, more, &since, &until);
                e = store_gaps(r->api->store, since, until, &g, &n_gaps);
                json_object_begin(&j, NULL);
                json_array_begin(&j, "windows");
                for (uint32_t i = 0; i < n; i++)
                        json_window(&j, &w[i], r->peer.all);
                json_array_end(&j);
                json_gaps(&j, g, n_gaps);
                json_bool(&j, "more", more);
                json_object_end(&j);
                buf_addc(&b, '\n');
        }
        if (e < 0)
                api_reply_error(r, e, NULL);
        else
                api_reply_buf(r, MHD_HTTP_OK, "application/json", &b);
}

/* -- one window -- */

/* Whether a header's list of entity tags names this one; weak comparison, as If-None-Match wants. */
static bool names_etag(const char *list, const char *etag)
{
        if (strcmp(list, "*") == 0)
                return true;
        for (const char *p = strstr(list, etag); p; p = strstr(p + 1, etag)) {
                char before = p == list ? ',' : p[-1], after = p[strlen(etag)];
                if (strchr(", /", before) && strchr(", ", after))
                        return true;
        }
        return false;
}

enum range { RANGE_NONE, RANGE_PART, RANGE_UNSATISFIABLE };

/* One range of bytes; of several, and of anything not understood, the whole file is sent. */
static enum range read_range(const char *header, uint64_t size, uint64_t *ret_first, uint64_t *ret_n)
{
        char text[64];
        uint64_t first, last = UINT64_MAX;

        if (!header || strncmp(header, "bytes=", 6) != 0 || strlen(header + 6) >= sizeof(text) ||
            strchr(header, ','))
                return RANGE_NONE;
        strcpy(text, header + 6);
        char *dash = strchr(text, '-');
        if (!dash)
                return RANGE_NONE;
        *dash++ = 0;
        if (!*text) { /* the last so many */
                if (parse_u64(dash, 0, INT64_MAX, &last) < 0)
                        return RANGE_NONE;
                *ret_n = MIN_OF(last, size);
                *ret_first = size - *ret_n;
                return *ret_n ? RANGE_PART : RANGE_UNSATISFIABLE;
        }
        if (parse_u64(text, 0, INT64_MAX, &first) < 0 ||
            (*dash && parse_u64(dash, first, INT64_MAX, &last) < 0))
                return RANGE_NONE;
        if (first >= size)
                return RANGE_UNSATISFIABLE;
        *ret_first = first;
        *ret_n = MIN_OF(last, size - 1) - first + 1;
        return RANGE_PART;
}

static void reply_not_modified(struct api_request *r, const char *etag)
{
        struct MHD_Response *response = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);

        if (response)
                MHD_add_response_header(response, MHD_HTTP_HEADER_ETAG, etag);
        api_reply(r, MHD_HTTP_NOT_MODIFIED, response);
}

static void reply_file(struct api_request *r, int fd, uint64_t size, const char *etag)
{
        const char *header = MHD_lookup_connection_value(r->mhd, MHD_HEADER_KIND, MHD_HTTP_HEADER_RANGE);
        const char *if_range =
                        MHD_lookup_connection_value(r->mhd, MHD_HEADER_KIND, MHD_HTTP_HEADER_IF_RANGE);
        char content_range[96];
        uint64_t first = 0, n = size;

        enum range range = if_range && strcmp(if_range, etag) != 0 ? RANGE_NONE
                                                                   : read_range(header, size, &first, &n);
        if (range == RANGE_UNSATISFIABLE) {
                close(fd);
                struct MHD_Response *none = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
                snprintf(content_range, sizeof(content_range), "bytes */%" PRIu64, size);
                if (none)
                        MHD_add_response_header(none, MHD_HTTP_HEADER_CONTENT_RANGE, content_range);
                api_reply(r, MHD_HTTP_RANGE_NOT_SATISFIABLE, none);
                return;
        }
        struct MHD_Response *response = MHD_create_response_from_fd_at_offset64(n, fd, first);
        if (!response) {
                close(fd);
                api_reply(r, MHD_HTTP_INTERNAL_SERVER_ERROR, NULL);
                return;
        }
        r->body_size = n;
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "application/octet-stream");
        MHD_add_response_header(response, MHD_HTTP_HEADER_ACCEPT_RANGES, "bytes");
        MHD_add_response_header(response, MHD_HTTP_HEADER_ETAG, etag);
        /* A window never changes under its ID. */
        MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL,
                                "private, max-age=86400, immutable");
        if (range == RANGE_PART) {
                snprintf(content_range, sizeof(content_range), "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64,
                         first, first + n - 1, size);
                MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_RANGE, content_range);
        }
        api_reply(r, range == RANGE_PART ? MHD_HTTP_PARTIAL_CONTENT : MHD_HTTP_OK, response);
}

void api_window(struct api_request *r)
{
        _cleanup_close_ int fd = store_open_window(r->api->store, r->window);
        char etag[STORE_ID_SIZE + 32];
        struct stat st;

        if (fd < 0 || fstat(fd, &st) < 0) {
                api_reply_text(r, MHD_HTTP_NOT_FOUND,
                               "there is no window %s; it may have been merged into a longer one or have "
                               "grown too old: "
                               "see /api/v1/windows",
                               r->window);
                return;
        }
        snprintf(etag, sizeof(etag), "\"%s-%" PRIu64 "\"", r->window, (uint64_t)st.st_size);
        const char *none =
                        MHD_lookup_connection_value(r->mhd, MHD_HEADER_KIND, MHD_HTTP_HEADER_IF_NONE_MATCH);
        if (none && names_etag(none, etag))
                reply_not_modified(r, etag);
        else
                reply_file(r, TAKE_FD(fd), (uint64_t)st.st_size, etag);
}
