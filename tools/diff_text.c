#include "tools/diff_text.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/cleanup.h"
#include "profile/symbols.h"
#include "tools/event.h"
#include "tools/human.h"
#include "tools/text.h"

#define FAINT "\x1b[2m"
#define PLAIN "\x1b[0m"

static void put_side(const char *name, const struct profile *p, const struct diff *d, unsigned side,
                     struct buf *out)
{
        char t[HUMAN_MAX], n[HUMAN_MAX];

        buf_addf(out, "# %s: %s %s, %s samples; ", name, d->type, human_value(t, d->unit, d->total[side]),
                 human_count(n, (uint64_t)(d->effective[side] + 0.5)));
        event_origin(p, out);
        buf_addc(out, '\n');
}

void diff_text_sides(const struct profile *a, const struct profile *b, const struct diff *d, struct buf *out)
{
        put_side("A", a, d, 0, out);
        put_side("B", b, d, 1, out);
}

static bool has_rates(const struct diff *d)
{
        return !strcmp(d->unit, "nanoseconds") && d->n > 0 && !isnan(d->row[0].side[0].rate) &&
               !isnan(d->row[0].side[1].rate);
}

/* Absolute numbers are CPUs busy, or events a second. */
static double per_second(const struct diff *d, double rate)
{
        return !strcmp(d->unit, "nanoseconds") ? rate : rate * (double)NSEC_PER_SEC;
}

static void put_titles(const struct diff *d, const struct diff_text *how, struct buf *out)
{
        static const char *const what[] = {"function", "stack", "unit", "process", "object"};

        if (how->absolute)
                buf_addf(out, "# %9s  %9s     change          95 %% interval",
                         !strcmp(d->unit, "nanoseconds") ? "CPUs A" : "A per s",
                         !strcmp(d->unit, "nanoseconds") ? "CPUs B" : "B per s");
        else
                buf_adds(out, "#     A        B    change       95 % interval");
        if (!how->absolute && has_rates(d))
                buf_adds(out, "   CPUs A   CPUs B");
        buf_addf(out, "  %s\n", what[how->by]);
}

static void put_numbers(const struct diff *d, const struct diff_row *r, const struct diff_text *how,
                        struct buf *out)
{
        if (how->absolute) {
                buf_addf(out, "%11.4g  %9.4g  %+9.4g  %+10.4g .. %+9.4g", per_second(d, r->side[0].rate),
                         per_second(d, r->side[1].rate), per_second(d, r->rate_change),
                         per_second(d, r->rate_low), per_second(d, r->rate_high));
                return;
        }
        buf_addf(out, "%6.2f%%  %6.2f%%  %+7.2f%%  %+7.2f .. %+7.2f%%", 100 * r->side[0].share,
                 100 * r->side[1].share, 100 * r->share_change, 100 * r->share_low, 100 * r->share_high);
        if (has_rates(d))
                buf_addf(out, "  %7.3f  %7.3f", r->side[0].rate, r->side[1].rate);
}

static void put_row(const struct diff *d, const struct diff_row *r, const struct diff_text *how, bool faint,
                    struct buf *out)
{
        _cleanup_buf_ struct buf line = {0};

        put_numbers(d, r, how, &line);
        buf_addf(&line, "  %s", *r->name ? r->name : "-");
        if (how->by == DIFF_FUNCTION && r->object && *r->object)
                buf_addf(&line, " (%s)", object_base_name(r->object));
        if (r->rebuilt)
                buf_adds(&line, " [new build]");
        if (faint)
                buf_adds(out, FAINT);
        text_fit(out, buf_text(&line), how->columns, false);
        if (faint)
                buf_adds(out, PLAIN);
        buf_addc(out, '\n');
}

void diff_text_rows(const struct diff *d, const struct diff_text *how, struct buf *out)
{
        static const char *const things[] = {"functions", "stacks", "units", "processes", "objects"};
        uint32_t changed = MIN_OF(d->n_changed, how->max_changed),
                 noise = MIN_OF(d->n - d->n_changed, how->max_noise);

        buf_addf(out, "# %" PRIu32 " of %" PRIu32 " %s changed\n", d->n_changed, d->n, things[how->by]);
        if (changed > 0) {
                buf_adds(out, "#\n");
                put_titles(d, how, out);
        }
        for (uint32_t i = 0; i < changed; i++)
                put_row(d, &d->row[i], how, false, out);
        if (changed < d->n_changed)
                buf_addf(out, "# %" PRIu32 " more\n", d->n_changed - changed);
        if (noise == 0)
                return;
        buf_adds(out, "#\n# Within the noise of sampling, without a rank:\n");
        if (changed == 0)
                put_titles(d, how, out);
        for (uint32_t i = 0; i < noise; i++)
                put_row(d, &d->row[d->n_changed + i], how, how->grey, out);
        if (noise < d->n - d->n_changed)
                buf_addf(out, "# %" PRIu32 " more\n", d->n - d->n_changed - noise);
}
