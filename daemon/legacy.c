#include "daemon/legacy.h"

#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "daemon/kept_raws.h"

struct legacy {
        struct kept_memory *memory; /* NULL: nothing outlives us */
        struct kept_objects *objects;
        struct kept_raws *raws;
};

static int keep_all(struct legacy *l, struct keep *keep, struct sampler *sampler, struct tracker *tracker)
{
        void *memory, *raws;

        int r = keep_memory(keep, "state", sizeof(struct kept_memory), &memory);
        if (r >= 0)
                r = keep_memory(keep, "deferred", KEPT_RAWS_BYTES, &raws);
        if (r < 0)
                return r;
        struct kept_head *head = &((struct kept_memory *)memory)->head;
        head->magic = KEPT_MAGIC;
        head->version = PROFD_ABI_VERSION;
        r = kept_objects_new(&l->objects, memory);
        if (r >= 0)
                r = kept_raws_new(&l->raws, raws);
        if (r >= 0)
                r = sampler_keep(sampler, keep, head);
        if (r < 0)
                return r;
        tracker_keep(tracker, l->objects, l->raws);
        l->memory = memory;
        return 0;
}

int legacy_new(struct legacy **ret, struct keep *keep, struct sampler *sampler, struct tracker *tracker)
{
        static const char *const names[] = {"state", "deferred", "cpus", "counts", "stacks", "raws"};
        struct legacy *l = calloc(1, sizeof(*l));

        if (!l)
                return -ENOMEM;
        if (keep_is_on(keep) && keep_all(l, keep, sampler, tracker) < 0)
                for (size_t i = 0; i < ARRAY_SIZE(names); i++) /* half of it says nothing */
                        keep_drop(keep, names[i]);
        *ret = l;
        return 0;
}

struct legacy *legacy_free(struct legacy *l)
{
        if (l) {
                kept_objects_free(l->objects);
                kept_raws_free(l->raws);
                free(l);
        }
        return NULL;
}

struct kept_head *legacy_head(const struct legacy *l)
{
        return l->memory ? &l->memory->head : NULL;
}
