#include "profile/selection.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/parse.h"
#include "profile/copy.h"

static const char *const side_names[] = {
                [SELECT_KERNEL_ONLY] = "kernel",
                [SELECT_USER_ONLY] = "user",
};

int selection_set(struct selection *s, const char *name, const char *value)
{
        const struct {
                const char *name;
                const char **field;
        } texts[] = {
                        {"event", &s->event},         {"comm", &s->comm},
                        {"unit", &s->unit},           {"thread_name", &s->thread_name},
                        {"container", &s->container}, {"user", &s->user},
        };

        for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
                if (!strcmp(name, texts[i].name)) {
                        if (!*value)
                                return -EINVAL;
                        *texts[i].field = value;
                        return 0;
                }
        if (!strcmp(name, "pid")) {
                uint64_t pid;
                if (parse_u64(value, 0, INT32_MAX, &pid) < 0)
                        return -EINVAL;
                s->pid = (int64_t)pid;
                return 0;
        }
        if (!strcmp(name, "side")) {
                for (size_t i = 1; i < ARRAY_SIZE(side_names); i++)
                        if (!strcmp(value, side_names[i])) {
                                s->side = (enum selection_side)i;
                                return 0;
                        }
                return -EINVAL;
        }
        return -ENOENT;
}

/* RFC 3986, section 2.3: what needs no escape. */
static void add_escaped(struct buf *out, const char *value)
{
        for (const unsigned char *c = (const unsigned char *)value; *c; c++)
                if (isalnum(*c) || strchr("-._~", *c))
                        buf_addc(out, (char)*c);
                else
                        buf_addf(out, "%%%02X", *c);
}

static void add_parameter(struct buf *out, const char **separator, const char *name, const char *value)
{
        if (!value)
                return;
        buf_addf(out, "%s%s=", *separator, name);
        add_escaped(out, value);
        *separator = "&";
}

void selection_query(const struct selection *s, struct buf *out)
{
        const char *separator = "";
        char pid[24];

        snprintf(pid, sizeof(pid), "%lld", (long long)s->pid);
        add_parameter(out, &separator, "event", s->event);
        add_parameter(out, &separator, "pid", s->pid >= 0 ? pid : NULL);
        add_parameter(out, &separator, "comm", s->comm);
        add_parameter(out, &separator, "thread_name", s->thread_name);
        add_parameter(out, &separator, "unit", s->unit);
        add_parameter(out, &separator, "container", s->container);
        add_parameter(out, &separator, "user", s->user);
        add_parameter(out, &separator, "side", side_names[s->side]);
}

/* The labels of a sample. */
struct labels {
        const struct profile *p;
        const struct profile_label *label;
        uint32_t n;
};

static const struct profile_label *find_label(const struct labels *l, const char *key)
{
        return profile_find_among(l->p, l->label, l->n, key);
}

static const char *label_text(const struct labels *labels, const char *key)
{
        const struct profile_label *l = find_label(labels, key);

        return l && l->str ? labels->p->string[l->str] : NULL;
}

static bool text_matches(const struct labels *labels, const char *key, const char *wanted)
{
        if (!wanted)
                return true;
        const char *text = label_text(labels, key);
        return text && !strcmp(text, wanted);
}

static bool unit_matches(const struct labels *labels, const char *wanted)
{
        if (!wanted)
                return true;
        const char *text = label_text(labels, "unit");
        size_t n = strlen(wanted);
        return text && !strncmp(text, wanted, n) && (!text[n] || !strcmp(text + n, ".service"));
}

static bool container_matches(const struct labels *labels, const char *wanted)
{
        if (!wanted)
                return true;
        const char *text = label_text(labels, "container_id");
        return text && !strncmp(text, wanted, strlen(wanted));
}

static bool pid_matches(const struct labels *labels, int64_t wanted)
{
        if (wanted < 0)
                return true;
        const struct profile_label *l = find_label(labels, "pid");
        return l && !l->str && l->num == wanted;
}

bool selection_matches_labels(const struct selection *s, const struct profile *p,
                              const struct profile_label *label, uint32_t n)
{
        const struct labels labels = {p, label, n};

        return pid_matches(&labels, s->pid) && text_matches(&labels, "comm", s->comm) &&
               text_matches(&labels, "thread_name", s->thread_name) && unit_matches(&labels, s->unit) &&
               container_matches(&labels, s->container) && text_matches(&labels, "user", s->user);
}

static bool frame_is_on_side(const struct profile *p, uint32_t location, enum selection_side side)
{
        return side == SELECT_BOTH ||
               profile_mapping_is_kernel(p, p->location[location].mapping) == (side == SELECT_KERNEL_ONLY);
}

static bool has_side(const struct profile *p, const struct profile_sample *sample, enum selection_side side)
{
        if (side == SELECT_BOTH)
                return true;
        for (uint32_t i = 0; i < sample->n_locations; i++)
                if (frame_is_on_side(p, p->sample_location[sample->first_location + i], side))
                        return true;
        return false;
}

bool selection_matches(const struct selection *s, const struct profile *p,
                       const struct profile_sample *sample)
{
        return selection_matches_labels(s, p, sample->n_labels ? p->label + sample->first_label : NULL,
                                        sample->n_labels) &&
               has_side(p, sample, s->side);
}

bool selection_is_cpu_event(const char *name)
{
        static const char *const names[] = {"cpu", "cycles", "cpu-cycles", "cpu-clock"};

        for (size_t i = 0; i < ARRAY_SIZE(names); i++)
                if (!strcmp(name, names[i]))
                        return true;
        return false;
}

/* Which types an event's samples have: the two of the CPU's time, or the one of its name. */
static bool type_is_of_event(const struct profile *p, uint32_t type, const char *event)
{
        const char *name = p->string[p->type[type].type];

        if (!event || !strcmp(name, event))
                return true;
        if (strcmp(name, "cpu") != 0 && strcmp(name, "samples") != 0)
                return false;
        return !strcmp(event, "samples") || selection_is_cpu_event(event);
}

/* Copies the types that are kept; `ret_kept` gets their old indices. */
static int copy_types(const struct selection *s, const struct profile *p, struct profile *to,
                      uint32_t *ret_kept)
{
        for (uint32_t i = 0; i < p->n_types; i++) {
                if (!type_is_of_event(p, i, s->event))
                        continue;
                int64_t id = profile_type(to, p->string[p->type[i].type], p->string[p->type[i].unit]);
                if (id < 0)
                        return (int)id;
                ret_kept[id] = i;
        }
        return to->n_types || !s->event ? 0 : -ENOENT;
}

/* The sample's stack in `to`, without the frames of the other side. */
static int64_t copy_stack(const struct selection *s, const struct profile *p,
                          const struct profile_sample *sample, struct profile *to,
                          struct profile_copier *copier)
{
        uint32_t locations[PROFILE_MAX_FRAMES], n = 0;

        if (s->side == SELECT_BOTH)
                return profile_copier_stack(copier, sample->stack);
        for (uint32_t i = 0; i < sample->n_locations; i++) {
                uint32_t location = p->sample_location[sample->first_location + i];
                if (!frame_is_on_side(p, location, s->side))
                        continue;
                int64_t id = profile_copier_location(copier, location);
                if (id < 0)
                        return id;
                locations[n++] = (uint32_t)id;
        }
        return profile_stack(to, locations, n);
}

static int copy_samples(const struct selection *s, const struct profile *p, struct profile *to,
                        const uint32_t *kept)
{
        _cleanup_profile_copier_ struct profile_copier *copier = NULL;

        int r = profile_copier_new(&copier, to, p);
        if (r < 0)
                return r;
        for (uint32_t i = 0; i < p->n_samples; i++) {
                const struct profile_sample *sample = &p->sample[i];
                int64_t values[PROFILE_MAX_TYPES];
                bool any = false;

                for (uint32_t k = 0; k < to->n_types; k++) {
                        values[k] = profile_values(p, i)[kept[k]];
                        any |= values[k] != 0;
                }
                if ((s->event && !any) || !selection_matches(s, p, sample))
                        continue;
                int64_t stack = copy_stack(s, p, sample, to, copier);
                if (stack < 0)
                        return (int)stack;
                int64_t label_set = profile_copier_label_set(copier, sample->label_set);
                if (label_set < 0)
                        return (int)label_set;
                r = profile_sample_at(to, (uint32_t)stack, (uint32_t)label_set, values);
                if (r < 0)
                        return r;
        }
        return profile_copier_header(copier);
}

int selection_apply(const struct selection *s, const struct profile *p, struct profile **ret)
{
        _cleanup_profile_ struct profile *to = NULL;
        uint32_t kept[PROFILE_MAX_TYPES];

        int r = profile_new(&to);
        if (r < 0)
                return r;
        r = copy_types(s, p, to, kept);
        if (r < 0)
                return r;
        r = copy_samples(s, p, to, kept);
        if (r < 0)
                return r;
        r = profile_ledger_merge(to, p);
        if (r < 0)
                return r;
        to->time_ns = p->time_ns;
        to->duration_ns = p->duration_ns;
        *ret = TAKE_PTR(to);
        return 0;
}
