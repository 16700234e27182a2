/* What of a profile a client gets: the samples it may see, the labels it wants, as many samples as it can
 * take. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/api_internal.h"
#include "profile/copy.h"
#include "profile/limit.h"

#define MAX_LABELS 16

/* Ledger lines that say how was sampled, and nothing of what others did. */
static const char *const harmless[] = {"profd",      "host",         "kernel",  "boot",
                                       "rate.asked", "rate.reached", "event.*", PROFILE_OBSERVED};

static bool is_harmless(const char *line)
{
        for (size_t i = 0; i < ARRAY_SIZE(harmless); i++) {
                size_t n = strcspn(harmless[i], "*");
                if (strncmp(line, harmless[i], n) == 0 && (harmless[i][n] == '*' || line[n] == ':'))
                        return true;
        }
        return false;
}

static bool may_see(const struct api_peer *peer, const struct profile *p, const struct profile_sample *s)
{
        const struct profile_label *l = profile_find_label(p, s, "uid");

        return l && !l->str && l->num == (int64_t)peer->uid;
}

static int copy_samples(const struct api_peer *peer, const struct profile *p, struct profile *to)
{
        _cleanup_profile_copier_ struct profile_copier *copier = NULL;

        int r = profile_copier_new(&copier, to, p);
        for (uint32_t i = 0; i < p->n_samples && r >= 0; i++) {
                const struct profile_sample *s = &p->sample[i];
                if (!may_see(peer, p, s))
                        continue;
                int64_t stack = profile_copier_stack(copier, s->stack);
                int64_t labels = stack < 0 ? stack : profile_copier_label_set(copier, s->label_set);
                r = labels < 0 ? (int)labels
                               : profile_sample_at(to, (uint32_t)stack, (uint32_t)labels,
                                                   profile_values(p, i));
        }
        return r < 0 ? r : profile_copier_header(copier);
}

int api_confine(const struct profile *p, const struct api_peer *peer, struct profile **ret)
{
        _cleanup_profile_ struct profile *to = NULL;

        int64_t r = profile_new(&to);
        for (uint32_t i = 0; i < p->n_types && r >= 0; i++)
                r = profile_type(to, profile_str(p, p->type[i].type), profile_str(p, p->type[i].unit));
        if (r >= 0)
                r = copy_samples(peer, p, to);
        for (uint32_t i = 0; i < p->n_comments && r >= 0; i++)
                if (is_harmless(profile_str(p, p->comment[i])))
                        r = profile_comment(to, profile_str(p, p->comment[i]));
        if (r < 0)
                return (int)r;
        to->time_ns = p->time_ns;
        to->duration_ns = p->duration_ns;
        *ret = TAKE_PTR(to);
        return 0;
}

int api_reduce_labels(const struct profile *p, const char *list, struct profile **ret)
{
        _cleanup_free_ char *copy = strdup(list);
        const char *keys[MAX_LABELS];
        char *save = NULL;
        uint32_t n = 0;
        bool numbers = false;

        if (!copy)
                return -ENOMEM;
        for (char *k = strtok_r(copy, ",", &save); k; k = strtok_r(NULL, ",", &save)) {
                if (n == MAX_LABELS)
                        return -E2BIG;
                keys[n++] = k;
                numbers = numbers || profile_is_process_label(k);
        }
        return profile_reduce_labels(p, keys, n, numbers, ret);
}
