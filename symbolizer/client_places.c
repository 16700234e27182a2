/* Whether separate debug information may have come, or gone, since an object was looked at. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "symbolizer/client_internal.h"
#include "symbolizer/dir_times.h"

/* Another root may have debug files of its own for an object that ours has too, of the same build ID: names
 * made without them elsewhere do not stand for those here. Roots are told apart by the file system that the
 * object is on, and by the name of the root: neither asks a file system that may not answer. */
uint64_t client_root_of(const struct symobj *o)
{
        uint64_t place = 1;
        char name[512];
        struct stat ours;
        ssize_t n;

        if (!o->root || !*o->root)
                return place;
        n = readlink(o->root, name, sizeof(name));
        if (n > 1) /* not just "/" */
                place = hash_u64(place, hash_bytes(name, (size_t)n));
        if (stat("/", &ours) == 0 && ours.st_dev != o->st.st_dev)
                place = hash_u64(place, o->st.st_dev);
        return place;
}

/* A directory changes when a file is put into it or renamed into it: those of the build ID and of the debug
 * link's name, below ours only. */
bool client_place_of(const struct symclient *c, const struct symobj *o, uint64_t *ret)
{
        const char *slash = strrchr(o->path, '/');
        int directory = slash ? (int)(slash - o->path) : 0;
        uint64_t place = o->root_place, times;

        for (char **d = c->debug_dirs; *d; d++) {
                char path[3][DIR_TIMES_PATH];

                snprintf(path[0], sizeof(path[0]), "%s", *d);
                snprintf(path[1], sizeof(path[1]), "%s/.build-id/%02x", *d, o->info.build_id[0]);
                snprintf(path[2], sizeof(path[2]), "%s%.*s", *d, directory, o->path);
                if (!dir_times_read(c->dir_times, path, 3, &times))
                        return false;
                place = hash_u64(place, times);
        }
        *ret = place;
        return true;
}

static bool is_asked_for(const struct symclient *c, const struct symobj *o)
{
        for (uint32_t i = 0; i < N_LANES; i++) {
                const struct lane_work *w = &c->work[i];

                if ((w->step && w->object == o->id) || (w->request && w->request->obj == o))
                        return true;
        }
        return false;
}

/* To the workers it is another object from now on, so that they search anew. */
static void begin_anew(struct symclient *c, struct symobj *o)
{
        client_cache_close(c, o);
        lanes_forget_object(c, o);
        o->id = ++c->last_id;
        memset(o->open_in, 0, sizeof(o->open_in));
}

uint32_t symclient_look_again(struct symclient *c)
{
        uint32_t n = 0;

        for (struct symobj *o = c->objects; o; o = o->next) {
                if (!o->ready || o->closed || o->is_jit || o->info.has_debug || is_asked_for(c, o))
                        continue;

                uint64_t place;

                if (!client_place_of(c, o, &place) || place == o->place)
                        continue;
                begin_anew(c, o);
                o->place = place;
                n++;
        }
        return n;
}
