/* The sampler as a whole: made, started, freed. Its parts: sampler_maps.c (BPF object and maps),
 * sampler_events.c (perf events), sampler_drain.c (rings and drain), sampler_stacks.c. */
#include "daemon/sampler.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/sampler_impl.h"

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
        if (r < 0)
                return r;
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

int sampler_start(struct sampler *s)
{
        return sampler_events_open(s);
}
