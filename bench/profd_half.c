#include "profd_half.h"

struct rows {
        struct tracker *tracker;
        sample_row_fn row;
        void *ctx;
};

static int take_row(void *ctx, const struct sample_row *row)
{
        struct rows *r = ctx;

        return r->row(r->ctx, row);
}

static void take_raw(void *ctx, const struct abi_raw *raw, const uint64_t *kernel, uint32_t n)
{
        tracker_defer(((struct rows *)ctx)->tracker, raw, kernel, n);
}

int profd_half_open(struct profd_half *h, uint32_t frequency, uint32_t drain_ms)
{
        const char *event = "cpu-clock";
        struct sampler_config c = {.events = &event,
                                   .n_events = 1,
                                   .frequency = frequency,
                                   .memory = 192 << 20,
                                   .drain_ms = drain_ms};
        struct symclient_options options = {0};
        struct unwind_maps maps;
        int r = sampler_new(&h->sampler, &c);

        if (r < 0)
                return r;
        r = symclient_new(&h->symbols, &options);
        if (r < 0)
                return r;
        sampler_unwind_maps(h->sampler, &maps);
        r = tracker_new(&h->tracker, &maps, h->symbols, 64 << 20);
        if (r < 0)
                return r;
        r = tracker_start(h->tracker);
        return r < 0 ? r : sampler_start(h->sampler);
}

void profd_half_close(struct profd_half *h)
{
        tracker_free(h->tracker);
        symclient_free(h->symbols);
        sampler_free(h->sampler);
}

void profd_half_poll(struct profd_half *h)
{
        struct rows r = {.tracker = h->tracker};

        tracker_poll(h->tracker);
        sampler_poll(h->sampler, take_raw, &r);
        symclient_dispatch(h->symbols);
}

int profd_half_drain(struct profd_half *h, sample_row_fn row, void *ctx)
{
        struct rows rows = {h->tracker, row, ctx};
        int r = sampler_drain(h->sampler, take_row, take_raw, &rows);

        if (r < 0)
                return r;
        r = tracker_drain(h->tracker, row, ctx);
        tracker_drained(h->tracker);
        return r;
}
