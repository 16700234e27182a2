#include "daemon/budget.h"

#include "base/cleanup.h"

#define LOWEST_SHARE                                                                          \
        10 /* of the rate asked: below a tenth a profile says too little to be worth its cost \
            */
#define START_NS    (60 * NSEC_PER_SEC) /* of the limit: what a start may use at once */
#define BUCKET_NS   (10 * NSEC_PER_SEC) /* of the limit: what a storm may */
#define CALM_NEEDED 3                   /* intervals before the rate goes up again */

void budget_init(struct budget *b, uint32_t frequency, uint32_t limit_ppm)
{
        *b = (struct budget){.asked = frequency, .frequency = frequency, .limit_ppm = limit_ppm};
}

static uint32_t lowest(const struct budget *b)
{
        return MAX_OF(b->asked / LOWEST_SHARE, 1u);
}

uint32_t budget_update(struct budget *b, uint64_t used_ns, uint64_t elapsed_ns, uint32_t n_cpus)
{
        if (elapsed_ns == 0 || n_cpus == 0)
                return b->frequency;
        b->used_ppm = (uint32_t)((double)used_ns * 1e6 / ((double)elapsed_ns * n_cpus));

        double allowed_ns = (double)n_cpus * b->limit_ppm / 1e6; /* per ns */
        int64_t most = (int64_t)(allowed_ns * (double)BUCKET_NS);
        if (!b->started)
                b->credit_ns = (int64_t)(allowed_ns * (double)START_NS);
        b->started = true;
        b->credit_ns -= (int64_t)used_ns;
        bool empty = b->credit_ns < 0;
        if (b->credit_ns < most)
                b->credit_ns = MIN_OF(MAX_OF(b->credit_ns, 0) + (int64_t)(allowed_ns * (double)elapsed_ns),
                                      most);

        if (b->used_ppm > b->limit_ppm) {
                b->calm = 0;
                if (!empty)
                        return b->frequency;
                /* Aim at 80 % of the limit: the next interval is not the last one. */
                uint64_t fits = (uint64_t)b->frequency * b->limit_ppm * 8 / (10ull * b->used_ppm);
                b->frequency = (uint32_t)MAX_OF(fits, (uint64_t)lowest(b));
                return b->frequency;
        }

        uint32_t next = MIN_OF(b->frequency + b->frequency / 4 + 1, b->asked);
        uint64_t next_ppm = (uint64_t)b->used_ppm * next / b->frequency;
        if (next == b->frequency || next_ppm * 10 > (uint64_t)b->limit_ppm * 9) {
                b->calm = 0;
                return b->frequency;
        }
        if (++b->calm >= CALM_NEEDED) {
                b->calm = 0;
                b->frequency = next;
        }
        return b->frequency;
}
