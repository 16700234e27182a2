#include "daemon/unwind_lists.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/unwind_space.h"

/* A process sampled within this time keeps its place. */
#define COLD_NS (10 * NSEC_PER_SEC)
/* Places freed at a time: looking for the coldest goes through all processes. */
#define EVICT_BATCH 64

struct unwind_lists {
        struct unwind_maps maps;
        struct unwind_space *mappings;
        struct unwind_lists_stats stats;
        uint32_t versions; /* given to lists so far */
};

int unwind_lists_new(struct unwind_lists **ret, const struct unwind_maps *maps)
{
        struct unwind_lists *l = calloc(1, sizeof(*l));

        if (!l)
                return -ENOMEM;
        l->maps = *maps;
        int r = unwind_space_new(&l->mappings, maps->n_mappings, maps->n_mappings, 0);
        if (r < 0) {
                free(l);
                return r;
        }
        *ret = l;
        return 0;
}

struct unwind_lists *unwind_lists_free(struct unwind_lists *l)
{
        if (l) {
                unwind_space_free(l->mappings);
                free(l);
        }
        return NULL;
}

static void place_object(const struct process_mapping *m, struct abi_mapping *a)
{
        const struct object_entry *o = m->object;
        struct unwind_place place;

        if (!object_entry_bias(o, m->start, m->offset, &a->bias))
                return; /* mapped executable, but no code of the object */
        a->object = o->object.id;
        if (symobj_info(o->object.symbols)->is_go)
                a->flags = ABI_MAPPING_GO;
        if (o->index && unwind_index_place(o->index, m->start - a->bias, &place)) {
                a->page = place.page;
                a->n_pages = place.n_pages;
                a->first_page = place.first_page;
        }
}

void unwind_mapping_of(const struct process_mapping *m, struct abi_mapping *ret)
{
        const struct object_entry *o = m->object;
        struct abi_mapping a = {.start = m->start, .end = m->end};

        switch (o->state) {
        case OBJECT_NEW:
        case OBJECT_OPENING:
        case OBJECT_READING:
                a.flags = ABI_MAPPING_DEFER; /* without the object: nobody knows what its addresses are yet
                                              */
                break;
        case OBJECT_READY:
                place_object(m, &a);
                break;
        case OBJECT_FAILED:
                a.object = o->object.id;
                a.bias = m->start - m->offset;
                break;
        case OBJECT_CODE:
                a.flags = strcmp(o->path, "[uprobes]") == 0 ? ABI_MAPPING_UPROBES : ABI_MAPPING_FP;
                break;
        }
        *ret = a;
}

void unwind_lists_withdrawn(void *lists, uint32_t first, uint32_t n)
{
        struct unwind_lists *l = lists;

        unwind_space_give(l->mappings, first, n);
}

void unwind_lists_remove(struct unwind_lists *l, struct process_entry *p)
{
        if (!p->stamp)
                return;
        (void)bpf_map_delete_elem(l->maps.processes_fd, &p->process.pid); /* it is there */
        p->stamp = 0;
        p->stamp_image = NULL;
        l->stats.processes--;
}

/* Writes the list where no list in use is. */
static int write_list(struct unwind_lists *l, struct process_maps *maps)
{
        uint32_t first;

        if (maps->published_n)
                return 0;
        int r = unwind_space_take(l->mappings, maps->n, &first);
        if (r < 0)
                return r;
        for (uint32_t i = 0; i < maps->n; i++)
                unwind_mapping_of(&maps->mapping[i], &l->maps.mappings[first + i]);
        maps->published_first = first;
        maps->published_n = maps->n;
        if (!++l->versions)
                l->versions = 1; /* 0 is no version */
        maps->published_version = l->versions;
        return 0;
}

static int put_process(struct unwind_lists *l, struct process_entry *p, uint64_t stamp)
{
        const struct process_maps *maps = p->image->maps;
        struct abi_process a = {.stamp = stamp,
                                .first = maps->published_first,
                                .n = maps->published_n,
                                .flags = p->flags,
                                .version = maps->published_version};

        if (bpf_map_update_elem(l->maps.processes_fd, &p->process.pid, &a, BPF_ANY) < 0)
                return -errno;
        l->stats.processes += !p->stamp;
        l->stats.published++;
        p->stamp = stamp;
        p->stamp_image = p->image;
        return 0;
}

/* Takes out those that were not sampled for long; their samples are deferred when they come back. */
static void make_room(struct unwind_lists *l, struct process_table *processes, uint64_t now_ns)
{
        uint32_t n = 0;

        for (struct process_entry *p = NULL; n < EVICT_BATCH && (p = process_table_next(processes, p));) {
                struct process_maps *maps = p->image->maps;
                if (!p->stamp || now_ns - p->used_ns < COLD_NS)
                        continue;
                unwind_lists_remove(l, p);
                /* Shared lists stay while another process is published with them: its turn comes too. */
                if (maps->refs == 1 && maps->published_n) {
                        unwind_space_give(l->mappings, maps->published_first, maps->published_n);
                        maps->published_n = 0;
                }
                n++;
        }
}

static int put(struct unwind_lists *l, struct process_entry *p, uint64_t stamp)
{
        int r = write_list(l, p->image->maps);

        return r < 0 ? r : put_process(l, p, stamp);
}

void unwind_lists_publish(struct unwind_lists *l, struct process_table *processes, struct process_entry *p,
                          uint64_t now_ns)
{
        uint64_t stamp = p->wanted_stamp;

        p->wanted_stamp = 0;
        if (p->process.exited || (p->stamp && p->stamp_image != p->image && !stamp)) {
                unwind_lists_remove(l, p);
                return;
        }
        if (!stamp)
                stamp = p->stamp;
        if (!stamp || !p->image->maps->n)
                return;
        int r = put(l, p, stamp);
        if (r < 0) {
                make_room(l, processes, now_ns);
                r = put(l, p, stamp);
        }
        if (r < 0) {
                l->stats.no_room++;
                unwind_lists_remove(l, p); /* what is there would be out of date */
        }
}

void unwind_lists_tick(struct unwind_lists *l)
{
        unwind_space_tick(l->mappings);
}

void unwind_lists_stats(const struct unwind_lists *l, struct unwind_lists_stats *ret)
{
        *ret = l->stats;
        ret->mappings = unwind_space_used(l->mappings);
}
