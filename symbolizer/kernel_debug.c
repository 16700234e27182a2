#include "symbolizer/kernel_debug.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "base/log.h"
#include "symbolizer/finder.h"

#define N_PLACES 4

/* Functions that every kernel has, far from each other. */
static const char *const landmark[] = {"schedule", "do_exit"};

struct kernel_debug {
        struct symclient *client;
        const struct kernel_symbols *symbols;
        const char *const *debug_dirs;
        uint32_t n_dirs;
        struct utsname host;
        uint8_t build_id[SYM_BUILD_ID_MAX];
        uint32_t build_id_len;

        uint32_t candidate; /* the place that is being looked at */
        uint64_t seen;      /* the files that were there the last time */
        bool seeking, closing;
        struct symobj *object;
        char path[4096];
        uint32_t n_landmarks; /* seen to agree */
        uint64_t slide;
        bool ready, arrived;
};

static uint32_t n_places(const struct kernel_debug *d)
{
        return (d->n_dirs + 1) * N_PLACES;
}

static bool candidate_path(const struct kernel_debug *d, uint32_t i, struct buf *path)
{
        const char *directory = d->debug_dirs[i / N_PLACES];
        char id[BUILD_ID_TEXT_MAX];

        if (!directory)
                directory = ""; /* the root comes last */
        switch (i % N_PLACES) {
        case 0:
                if (d->build_id_len < 2 || !*directory)
                        return false;
                build_id_text(d->build_id, d->build_id_len, id);
                buf_addf(path, "%s/" BUILD_ID_FILE, directory, id, id + 2);
                break;
        case 1:
                buf_addf(path, "%s/boot/vmlinux-%s", directory, d->host.release);
                break;
        case 2:
                buf_addf(path, "%s/lib/modules/%s/vmlinux", directory, d->host.release);
                break;
        default:
                buf_addf(path, "%s/lib/modules/%s/build/vmlinux", directory, d->host.release);
                break;
        }
        return buf_error(path) == 0 && path->len < sizeof(d->path);
}

static uint64_t hash_places(const struct kernel_debug *d)
{
        uint64_t hash = 1;

        for (uint32_t i = 0; i < n_places(d); i++) {
                _cleanup_buf_ struct buf path = {};
                struct stat st;

                if (candidate_path(d, i, &path) && stat(buf_text(&path), &st) == 0)
                        hash = hash_u64(hash ^ st.st_ino,
                                        (uint64_t)st.st_mtim.tv_sec ^ (uint64_t)st.st_size << 32);
        }
        return hash;
}

static void look_at_next(struct kernel_debug *d);

static void give_up(struct kernel_debug *d, const char *why)
{
        if (d->closing)
                return;
        log_warning("%s %s: the kernel's source lines are not taken from it", d->path, why);
        symobj_close(d->client, TAKE_PTR(d->object));
        look_at_next(d);
}

static const struct sym_function *find_function(const struct sym_function *f, uint32_t n, const char *name)
{
        for (uint32_t i = 0; i < n; i++)
                if (strcmp(f[i].linkage, name) == 0)
                        return &f[i];
        return NULL;
}

static void on_landmark(void *ctx, int err, const struct sym_function *functions, uint32_t n);

static int ask_landmark(struct kernel_debug *d)
{
        return symclient_functions(d->client, d->object, landmark[d->n_landmarks], 0, on_landmark, d);
}

static void on_landmark(void *ctx, int err, const struct sym_function *functions, uint32_t n)
{
        struct kernel_debug *d = ctx;
        const char *name = landmark[d->n_landmarks];
        const struct sym_function *f = err < 0 ? NULL : find_function(functions, n, name);
        uint64_t at;

        if (!f || !kernel_symbols_find_name(d->symbols, name, &at)) {
                give_up(d, "does not show where the kernel is");
                return;
        }
        if (d->n_landmarks > 0 && at - f->start != d->slide) {
                give_up(d, "has its functions in another order than the kernel");
                return;
        }
        d->slide = at - f->start;
        if (++d->n_landmarks < ARRAY_SIZE(landmark)) {
                if (ask_landmark(d) < 0)
                        give_up(d, "cannot be read");
                return;
        }
        d->seeking = false;
        d->ready = d->arrived = true;
        log_info("the kernel's source lines are taken from %s", d->path);
}

static void on_open(void *ctx, int err, struct symobj *obj, const struct sym_info *info)
{
        struct kernel_debug *d = ctx;

        if (err < 0)
                give_up(d, "cannot be read");
        else if (info->build_id_len != d->build_id_len ||
                 memcmp(info->build_id, d->build_id, d->build_id_len) != 0)
                give_up(d, "is not of the running kernel's build");
        else if (!info->has_debug)
                give_up(d, "has no debug information");
        else if (ask_landmark(d) < 0)
                give_up(d, "cannot be read");
}

static void look_at_next(struct kernel_debug *d)
{
        for (; d->candidate < n_places(d); d->candidate++) {
                _cleanup_close_ int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
                _cleanup_buf_ struct buf path = {};
                int fd;

                if (!candidate_path(d, d->candidate, &path))
                        continue;
                fd = open_regular(root, buf_text(&path), 0);
                if (fd < 0)
                        continue;
                d->candidate++;
                d->n_landmarks = 0;
                memcpy(d->path, buf_text(&path), path.len + 1);
                d->object = symclient_open(d->client, fd, &(struct sym_source){.path = d->path}, on_open, d);
                if (d->object)
                        return;
        }
        d->seeking = false;
}

int kernel_debug_seek(struct kernel_debug *d)
{
        uint64_t places;

        if (d->arrived) {
                d->arrived = false;
                return 1;
        }
        if (d->ready || d->seeking || d->build_id_len == 0)
                return 0;
        places = hash_places(d);
        if (places == d->seen)
                return 0;
        d->seen = places;
        d->candidate = 0;
        d->seeking = true;
        look_at_next(d);
        return 0;
}

struct symobj *kernel_debug_object(const struct kernel_debug *d, uint64_t *ret_slide)
{
        if (!d || !d->ready)
                return NULL;
        *ret_slide = d->slide;
        return d->object;
}

int kernel_debug_new(struct kernel_debug **ret, struct symclient *c, const struct kernel_symbols *k,
                     const char *const *debug_dirs)
{
        struct kernel_debug *d = calloc(1, sizeof(*d));

        if (!d)
                return -ENOMEM;
        *d = (struct kernel_debug){.client = c, .symbols = k, .debug_dirs = debug_dirs};
        d->build_id_len = kernel_build_id(d->build_id, sizeof(d->build_id));
        uname(&d->host);
        while (debug_dirs[d->n_dirs])
                d->n_dirs++;
        *ret = d;
        return 0;
}

struct kernel_debug *kernel_debug_free(struct kernel_debug *d)
{
        if (!d)
                return NULL;
        d->closing = true;
        symobj_close(d->client, d->object);
        free(d);
        return NULL;
}
