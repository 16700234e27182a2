/* Serves a directory of windows by the API, without sampling: serve_store DIRECTORY SOCKET. For checks of
 * collectors. */
#include <poll.h>
#include <stdio.h>

#include "daemon/api.h"

static void no_collect(void *ctx, struct api_request *r, const struct api_collect *what)
{
        api_answer(*(struct api **)ctx, r, NULL, -95, "there is no sampler behind this server");
}

static void no_cancel(void *ctx, struct api_request *r) {}

static void no_status(void *ctx, struct buf *out)
{
        buf_adds(out, "{}");
}

static void no_metrics(void *ctx, struct buf *out) {}

static bool healthy(void *ctx, char *why, uint32_t size)
{
        return true;
}

int main(int argc, char **argv)
{
        static const struct api_ops ops = {no_collect, no_cancel, no_status, no_metrics, healthy};
        struct store_config store_config = {.directory = argc > 1 ? argv[1] : NULL};
        struct api_config config = {.socket = argc > 2 ? argv[2] : NULL, .listen_fd = -1};
        struct store *store;
        struct api *api;

        if (argc != 3) {
                fprintf(stderr, "usage: serve_store DIRECTORY SOCKET\n");
                return 2;
        }
        if (store_open(&store, &store_config) < 0 || api_new(&api, &config, store, &ops, &api) < 0)
                return 1;
        puts("ready");
        fflush(stdout);
        for (;;) {
                struct pollfd p = {.fd = api_fd(api), .events = POLLIN};
                poll(&p, 1, -1);
                if (api_dispatch(api) < 0)
                        return 1;
        }
}
