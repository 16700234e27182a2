/* The sampler as a whole: made, started, freed. Its parts: sampler_maps.c (BPF object and maps),
 * sampler_events.c (perf events), sampler_drain.c (rings and drain), sampler_stacks.c. */
#include "daemon/sampler.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "daemon/sampler_impl.h"
#include "profd.skel.h"

DEFINE_CLEANUP(struct sampler, sampler_free);

int sampler_new(struct sampler **ret, const struct sampler_config *config)
{
        _cleanup_(sampler_free_cleanup) struct sampler *s = calloc(1, sizeof(*s));
        int r;

        if (!s)
                return -ENOMEM;
        s->epoll_fd = s->grace_inner_fd = -1;
        s->memory = config->memory;
        s->n_events = config->n_events;
        r = sampler_load(s, config);
        if (r < 0)
                return r;
        r = sampler_events_init(s, config);
        if (r < 0)
                return r;
        r = sampler_rings_open(s);
        if (r < 0) {
                log_error("cannot open the rings that samples come by: %s", strerror(-r));
                return r;
        }
        *ret = TAKE_PTR(s);
        return 0;
}

struct sampler *sampler_free(struct sampler *s)
{
        if (!s)
                return NULL;
        sampler_events_close(s);
        sampler_rings_close(s);
        sampler_unload(s);
        free(s);
        return NULL;
}

int sampler_keep(struct sampler *s, struct keep *keep, struct kept_head *head)
{
        const struct {
                const char *what;
                const struct bpf_map *map;
        } maps[] = {
                        {"cpus", s->skel->maps.cpus},
                        {"counts", s->skel->maps.counts},
                        {"stacks", s->skel->maps.stacks},
                        {"raws", s->skel->maps.raws},
        };

        for (size_t i = 0; i < ARRAY_SIZE(maps); i++) {
                int r = keep_fd(keep, maps[i].what, bpf_map__fd(maps[i].map));
                if (r < 0)
                        return r;
        }
        for (uint32_t i = 0; i < s->n_events; i++)
                memcpy(head->event[i], s->event[i].name, sizeof(head->event[i]));
        s->keep = keep;
        s->kept = head;
        return 0;
}

void sampler_on_stack(struct sampler *s, sampler_stack_fn on_stack, void *ctx)
{
        s->on_stack = on_stack;
        s->stack_ctx = ctx;
}

void sampler_leave(struct sampler *s)
{
        s->leaving = s->keep != NULL;
}

int sampler_start(struct sampler *s)
{
        return sampler_events_open(s);
}
