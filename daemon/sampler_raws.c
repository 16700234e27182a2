/* Deferred samples whose stack came in several records, put together. The records of one CPU are in order,
 * with those of other CPUs between them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/sampler_impl.h"

int raw_parts_init(struct raw_parts *p, uint32_t cpus)
{
        p->sample = calloc(cpus, sizeof(struct abi_raw *));
        if (!p->sample)
                return -ENOMEM;
        p->cpus = cpus;
        return 0;
}

void raw_parts_done(struct raw_parts *p)
{
        for (uint32_t i = 0; i < p->cpus; i++)
                free(p->sample[i]);
        free(p->sample);
        *p = (struct raw_parts){0};
}

/* Appends the pieces of a record to those of a sample that has room for ABI_RAW_LEAF and ABI_RAW_ROOT. */
static void append(struct abi_raw *to, const struct abi_raw *raw)
{
        uint32_t leaf = to->root_len ? 0 : MIN_OF(raw->leaf_len, ABI_RAW_LEAF - to->leaf_len);
        uint32_t root = MIN_OF(raw->root_len, ABI_RAW_ROOT - to->root_len);

        if (!to->leaf_len)
                to->leaf = raw->leaf;
        if (!to->root_len)
                to->root = raw->root;
        memcpy(to->stack + to->leaf_len, raw->stack, leaf);
        to->leaf_len += leaf;
        memcpy(to->stack + to->leaf_len + to->root_len, raw->stack + raw->leaf_len, root);
        to->root_len += root;
}

const struct abi_raw *raw_parts_add(struct raw_parts *p, const struct abi_raw *raw)
{
        struct abi_raw *to;

        if (raw->cpu >= p->cpus)
                return NULL;
        to = p->sample[raw->cpu];
        if (!to || to->time_ns != raw->time_ns) { /* the first one; what was left of another never ended */
                p->sample[raw->cpu] = NULL;
                free(to);
                if (!raw->more)
                        return raw;
                to = malloc(sizeof(*to) + ABI_RAW_LEAF + ABI_RAW_ROOT);
                if (!to)
                        return NULL;
                *to = *raw;
                to->leaf_len = to->root_len = 0;
                p->sample[raw->cpu] = to;
        }
        append(to, raw);
        return raw->more ? NULL : to;
}
