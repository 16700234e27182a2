#include "daemon/kept_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

struct kept_objects {
        struct kept_memory *memory;
        uint32_t free_hint;             /* no free place is before it */
        uint32_t place[UINT16_MAX + 1]; /* of an id, + 1; 0: none */
};

int kept_objects_new(struct kept_objects **ret, struct kept_memory *memory)
{
        struct kept_objects *o = calloc(1, sizeof(*o));

        if (!o)
                return -ENOMEM;
        o->memory = memory;
        *ret = o;
        return 0;
}

struct kept_objects *kept_objects_free(struct kept_objects *o)
{
        free(o);
        return NULL;
}

void kept_objects_put(struct kept_objects *o, const struct kept_object *object)
{
        if (!o)
                return;
        uint32_t at = o->place[object->id];
        if (!at) {
                while (o->free_hint < KEPT_OBJECTS && o->memory->object[o->free_hint].id)
                        o->free_hint++;
                if (o->free_hint == KEPT_OBJECTS)
                        return;
                at = o->place[object->id] = o->free_hint + 1;
        }
        struct kept_object *to = &o->memory->object[at - 1];
        /* The id last: a reader sees all of it or nothing. */
        __atomic_store_n(&to->id, 0, __ATOMIC_RELEASE);
        to->flags = object->flags;
        to->build_id_len = object->build_id_len;
        to->device = object->device;
        to->inode = object->inode;
        to->generation = object->generation;
        memcpy(to->build_id, object->build_id, sizeof(to->build_id));
        memcpy(to->path, object->path, sizeof(to->path));
        __atomic_store_n(&to->id, object->id, __ATOMIC_RELEASE);
}

void kept_objects_remove(struct kept_objects *o, uint16_t id)
{
        if (!o || !o->place[id])
                return;
        uint32_t at = o->place[id] - 1;
        __atomic_store_n(&o->memory->object[at].id, 0, __ATOMIC_RELEASE);
        o->place[id] = 0;
        o->free_hint = MIN_OF(o->free_hint, at);
}
