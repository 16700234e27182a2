#include "tools/event.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "profile/selection.h"
#include "tools/human.h"
#include "tools/say.h"

int event_find(const struct profile *p, const char *name)
{
        int i = name ? profile_find_type(p, name) : -1;

        if (i < 0 && (!name || selection_is_cpu_event(name)))
                i = profile_find_type(p, "cpu");
        if (i < 0 && !name && p->default_type)
                i = profile_find_type(p, profile_str(p, p->default_type));
        if (i < 0 && !name)
                i = (int)p->n_types - 1;
        return i < 0 ? -1 : i;
}

int event_index(const struct profile *p, const char *name)
{
        _cleanup_buf_ struct buf has = {0};

        int i = event_find(p, name);
        if (i >= 0)
                return i;
        for (uint32_t t = 0; t < p->n_types; t++)
                buf_addf(&has, "%s%s", t ? ", " : "", profile_str(p, p->type[t].type));
        say_failed("the profile has no event %s; it has %s", name ? name : "at all",
                   p->n_types ? buf_text(&has) : "none");
        return -1;
}

static int64_t sum(const struct profile *p, int type)
{
        int64_t total = 0;

        for (uint32_t i = 0; i < p->n_samples; i++)
                total += profile_values(p, i)[type];
        return total;
}

uint64_t profile_samples(const struct profile *p)
{
        int i = profile_find_type(p, "samples");

        return i >= 0 ? (uint64_t)sum(p, i) : p->n_samples;
}

uint64_t profile_lost(const struct profile *p)
{
        uint64_t lost = 0;

        for (uint32_t i = 0; i < p->n_comments; i++) {
                const char *line = profile_str(p, p->comment[i]), *value = strstr(line, ": ");
                if (!strncmp(line, "lost.", 5) && value)
                        lost += strtoull(value + 2, NULL, 10);
        }
        return lost;
}

/* " at 99 Hz (why)" where all of the profile had one rate, " at 9 to 99 Hz" where it changed. */
static void put_rate(const struct profile *p, struct buf *out)
{
        static const char key[] = "rate.reached: ";
        uint64_t low = UINT64_MAX, high = 0;
        const char *text = NULL;

        for (uint32_t i = 0; i < p->n_comments; i++) {
                const char *line = profile_str(p, p->comment[i]);
                if (strncmp(line, key, sizeof(key) - 1) != 0)
                        continue;
                char *end;
                uint64_t rate = strtoull(line + sizeof(key) - 1, &end, 10);
                if (end == line + sizeof(key) - 1)
                        continue; /* there were more than a ledger keeps */
                text = line + sizeof(key) - 1;
                low = MIN_OF(low, rate);
                high = MAX_OF(high, rate);
        }
        if (text && low == high)
                buf_addf(out, " at %s", text);
        else if (text)
                buf_addf(out, " at %" PRIu64 " to %" PRIu64 " Hz", low, high);
}

void event_summary(const struct profile *p, int type, struct buf *out)
{
        char t[HUMAN_MAX];
        const char *name = profile_str(p, p->type[type].type);
        uint64_t samples = profile_samples(p), lost = profile_lost(p);

        buf_addf(out, "%s: %s", name, human_value(t, profile_str(p, p->type[type].unit), sum(p, type)));
        if (!strcmp(name, "cpu") && profile_find_type(p, "samples") >= 0)
                buf_addf(out, " in %s sample%s", human_count(t, samples), samples == 1 ? "" : "s");
        put_rate(p, out);
        if (profile_ledger(p, "samples.taken"))
                buf_addf(out, ", %s lost", human_count(t, lost));
}

void event_origin(const struct profile *p, struct buf *out)
{
        const char *host = profile_ledger(p, "host");

        if (host)
                buf_adds(out, host);
        if (host && p->time_ns > 0)
                buf_adds(out, ", ");
        if (p->time_ns > 0)
                human_range(out, (uint64_t)p->time_ns, (uint64_t)(p->time_ns + MAX_OF(p->duration_ns, 0)));
}
