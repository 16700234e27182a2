/* Whether separate debug information may have come, or gone, since an object was looked at. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "symbolizer/client_internal.h"

static uint64_t add_directory(uint64_t place, const char *path)
{
        struct stat st;

        if (stat(path, &st) < 0)
                return hash_u64(place, 1);
        return hash_u64(place, (uint64_t)st.st_mtim.tv_sec ^ (uint64_t)st.st_mtim.tv_nsec << 32);
}

/* A directory changes when a file is put into it or renamed into it: those of the build ID and of the debug
 * link's name, below ours only. A look below the root of a process could block for ever. */
uint64_t client_place_of(const struct symclient *c, const struct symobj *o)
{
        const char *slash = strrchr(o->path, '/');
        int directory = slash ? (int)(slash - o->path) : 0;
        uint64_t place = 1;
        char path[512];

        for (char **d = c->debug_dirs; *d; d++) {
                place = add_directory(place, *d);
                snprintf(path, sizeof(path), "%s/.build-id/%02x", *d, o->info.build_id[0]);
                place = add_directory(place, path);
                snprintf(path, sizeof(path), "%s%.*s", *d, directory, o->path);
                place = add_directory(place, path);
        }
        return place;
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

                uint64_t place = client_place_of(c, o);

                if (place == o->place)
                        continue;
                begin_anew(c, o);
                o->place = place;
                n++;
        }
        return n;
}
