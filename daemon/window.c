#include "daemon/window.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/idtable.h"

#define MAX_STACK (ABI_MAX_FRAMES + ABI_MAX_KERNEL_FRAMES + 2)

/* Labels of one sample; strings are of the book. */
struct label_set {
        uint32_t pid, tid, uid;
        uint32_t comm, thread, unit, container, pod, user;
};

struct stack {
        uint32_t first, n; /* in `location`, leaf first */
};

struct sample {
        uint32_t stack, labels;
        uint64_t value[]; /* one per sample type */
};

struct window {
        struct book *book;
        uint32_t n_types;
        char type_name[ABI_MAX_EVENTS + 1][32];
        const char *type_unit[ABI_MAX_EVENTS + 1];
        uint8_t event_type[ABI_MAX_EVENTS]; /* event -> sample type of its weight */
        bool event_counts[ABI_MAX_EVENTS];  /* adds to samples/count too */

        uint32_t *location;
        uint32_t n_locations, cap_locations;
        struct stack *stack;
        uint32_t n_stacks, cap_stacks;
        struct idtable stacks;
        struct label_set *labels;
        uint32_t n_labels, cap_labels;
        struct idtable label_sets;
        char *sample; /* of sample_size each */
        uint32_t n_samples, cap_samples;
        struct idtable samples;
        struct window_totals totals;
};

static const char *const walk_names[ABI_WALK_MAX] = {
                [ABI_WALK_NONE] = "none",
                [ABI_WALK_COMPLETE] = "complete",
                [ABI_WALK_FOLDED] = "folded",
                [ABI_WALK_DEPTH] = "depth",
                [ABI_WALK_NO_PROCESS] = "no_process",
                [ABI_WALK_NO_MAPPING] = "no_mapping",
                [ABI_WALK_NO_TABLE] = "no_table",
                [ABI_WALK_UNSUPPORTED] = "unsupported",
                [ABI_WALK_UNREADABLE] = "unreadable",
                [ABI_WALK_BAD_STACK] = "bad_stack",
                [ABI_WALK_FP_END] = "frame_pointer_end",
                [ABI_WALK_EXITED] = "exited",
                [ABI_WALK_IN_EXEC] = "in_exec",
                [ABI_WALK_COMPAT] = "32_bit",
                [ABI_WALK_PAGE_MISSING] = "page_missing",
};

/* The root frame that marks a stack which is not whole; NULL: it is. */
static const char *const walk_notes[ABI_WALK_MAX] = {
                [ABI_WALK_DEPTH] = "[truncated: too deep]",
                [ABI_WALK_NO_PROCESS] = "[truncated: process not known yet]",
                [ABI_WALK_NO_MAPPING] = "[truncated: address outside of all mappings]",
                [ABI_WALK_NO_TABLE] = "[truncated: no unwind information]",
                [ABI_WALK_UNSUPPORTED] = "[truncated: unwind information too complex]",
                [ABI_WALK_UNREADABLE] = "[truncated: stack memory unreadable]",
                [ABI_WALK_BAD_STACK] = "[truncated: damaged stack]",
                [ABI_WALK_FP_END] = "[truncated: end of frame pointers]",
                [ABI_WALK_EXITED] = "[exited]",
                [ABI_WALK_IN_EXEC] = "[in exec]",
                [ABI_WALK_COMPAT] = "[32-bit, by frame pointer]",
                [ABI_WALK_PAGE_MISSING] = "[truncated: unwind table not loaded]",
};

const char *walk_name(enum abi_walk walk)
{
        return walk < ABI_WALK_MAX ? walk_names[walk] : "none";
}

static size_t sample_size(const struct window *w)
{
        return sizeof(struct sample) + w->n_types * sizeof(uint64_t);
}

static struct sample *sample_at(const struct window *w, uint32_t i)
{
        return (struct sample *)(w->sample + i * sample_size(w));
}

/* -- interning -- */

struct stack_key {
        const uint32_t *location;
        uint32_t n;
};

static bool stack_equal(const void *ctx, uint32_t id, const void *key)
{
        const struct window *w = ctx;
        const struct stack_key *k = key;

        return w->stack[id].n == k->n &&
               !memcmp(w->location + w->stack[id].first, k->location, k->n * sizeof(*k->location));
}

static uint64_t stack_hash(const void *ctx, uint32_t id)
{
        const struct window *w = ctx;

        return hash_bytes(w->location + w->stack[id].first, w->stack[id].n * sizeof(*w->location));
}

static int64_t intern_stack(struct window *w, const uint32_t *location, uint32_t n)
{
        struct stack_key key = {location, n};
        uint64_t hash = hash_bytes(location, n * sizeof(*location));
        uint32_t id = idtable_find(&w->stacks, hash, stack_equal, w, &key);

        if (id != IDTABLE_NONE)
                return id;
        if (n > UINT32_MAX / 2 - w->n_locations ||
            ARRAY_ROOM(w->location, w->cap_locations, w->n_locations + n) < 0 ||
            ARRAY_ROOM(w->stack, w->cap_stacks, w->n_stacks + 1) < 0)
                return -ENOMEM;
        id = w->n_stacks;
        w->stack[id] = (struct stack){.first = w->n_locations, .n = n};
        memcpy(w->location + w->n_locations, location, n * sizeof(*location));
        if (idtable_add(&w->stacks, hash, id, stack_hash, w) < 0)
                return -ENOMEM;
        w->n_locations += n;
        w->n_stacks++;
        return id;
}

static bool labels_equal(const void *ctx, uint32_t id, const void *key)
{
        const struct window *w = ctx;

        return !memcmp(&w->labels[id], key, sizeof(struct label_set));
}

static uint64_t labels_hash(const void *ctx, uint32_t id)
{
        const struct window *w = ctx;

        return hash_bytes(&w->labels[id], sizeof(struct label_set));
}

static int64_t intern_labels(struct window *w, const struct label_set *set)
{
        uint64_t hash = hash_bytes(set, sizeof(*set));
        uint32_t id = idtable_find(&w->label_sets, hash, labels_equal, w, set);

        if (id != IDTABLE_NONE)
                return id;
        if (ARRAY_ROOM(w->labels, w->cap_labels, w->n_labels + 1) < 0)
                return -ENOMEM;
        id = w->n_labels;
        w->labels[id] = *set;
        if (idtable_add(&w->label_sets, hash, id, labels_hash, w) < 0)
                return -ENOMEM;
        w->n_labels++;
        return id;
}

static bool sample_equal(const void *ctx, uint32_t id, const void *key)
{
        const struct sample *s = sample_at(ctx, id), *k = key;

        return s->stack == k->stack && s->labels == k->labels;
}

static uint64_t sample_hash(const void *ctx, uint32_t id)
{
        const struct sample *s = sample_at(ctx, id);

        return hash_u64(s->stack, s->labels);
}

static int64_t intern_sample(struct window *w, uint32_t stack, uint32_t labels)
{
        struct sample key = {.stack = stack, .labels = labels};
        uint64_t hash = hash_u64(stack, labels);
        uint32_t id = idtable_find(&w->samples, hash, sample_equal, w, &key);

        if (id != IDTABLE_NONE)
                return id;
        int no_room;
        w->sample = array_grown(w->sample, &w->cap_samples, w->n_samples + 1ull, sample_size(w), &no_room);
        if (no_room)
                return -ENOMEM;
        id = w->n_samples;
        memset(sample_at(w, id), 0, sample_size(w));
        *sample_at(w, id) = key;
        if (idtable_add(&w->samples, hash, id, sample_hash, w) < 0)
                return -ENOMEM;
        w->n_samples++;
        return id;
}

/* -- adding -- */

static int64_t gather_labels(struct window *w, const struct abi_key *key,
                             const struct process_labels *labels)
{
        char thread[ABI_COMM_LEN + 1];
        struct label_set set = {.pid = key->tgid, .tid = key->tid, .uid = key->uid};
        const struct {
                uint32_t *to;
                const char *text;
        } texts[] = {
                        {&set.comm, labels->comm},        {&set.thread, thread},
                        {&set.unit, labels->cgroup.unit}, {&set.container, labels->cgroup.container_id},
                        {&set.pod, labels->cgroup.pod},   {&set.user, labels->user},
        };

        snprintf(thread, sizeof(thread), "%.*s", ABI_COMM_LEN, (const char *)key->comm);
        for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
                int64_t id = book_string(w->book, texts[i].text);
                if (id < 0)
                        return id;
                *texts[i].to = (uint32_t)id;
        }
        return intern_labels(w, &set);
}

static int64_t gather_stack(struct window *w, const struct sample_row *row)
{
        uint32_t location[MAX_STACK], n = 0;

        for (uint32_t i = 0; i < row->n_kernel && i < ABI_MAX_KERNEL_FRAMES; i++) {
                /* All but the innermost are return addresses: the call is before. */
                int64_t id = book_kernel_address(w->book, row->kernel[i] - (i > 0));
                if (id < 0)
                        return id;
                location[n++] = (uint32_t)id;
        }
        for (uint32_t i = 0; i < row->n_user && i <= ABI_MAX_FRAMES; i++) {
                int64_t id = book_user_frame(w->book, row->key, row->user[i]);
                if (id < 0)
                        return id;
                location[n++] = (uint32_t)id;
        }
        const char *note = row->key->walk < ABI_WALK_MAX ? walk_notes[row->key->walk] : NULL;
        if (note) {
                int64_t id = book_note(w->book, note);
                if (id < 0)
                        return id;
                location[n++] = (uint32_t)id;
        }
        return intern_stack(w, location, n);
}

int window_add(struct window *w, const struct sample_row *row, const struct process_labels *labels)
{
        const struct abi_key *key = row->key;

        if (key->event >= ABI_MAX_EVENTS)
                return -EINVAL;
        int64_t stack = gather_stack(w, row), set = gather_labels(w, key, labels);
        if (stack < 0 || set < 0)
                return -ENOMEM;
        int64_t id = intern_sample(w, (uint32_t)stack, (uint32_t)set);
        if (id < 0)
                return -ENOMEM;
        struct sample *s = sample_at(w, (uint32_t)id);
        if (w->event_counts[key->event])
                s->value[0] += row->samples;
        s->value[w->event_type[key->event]] += row->weight;
        w->totals.samples[key->event] += row->samples;
        w->totals.walk[key->walk < ABI_WALK_MAX ? key->walk : 0] += row->samples;
        return 0;
}

/* -- the profile -- */

static int text_label(struct window *w, struct profile *p, const char *key, uint32_t value,
                      struct profile_label *labels, uint32_t *n)
{
        const char *text = book_text(w->book, value);

        if (!*text)
                return 0;
        int64_t k = profile_string(p, key), v = profile_string(p, text);
        if (k < 0 || v < 0)
                return -ENOMEM;
        labels[(*n)++] = (struct profile_label){.key = (uint32_t)k, .str = (uint32_t)v};
        return 0;
}

static int number_label(struct profile *p, const char *key, uint32_t value, struct profile_label *labels,
                        uint32_t *n)
{
        int64_t k = profile_string(p, key);

        if (k < 0)
                return -ENOMEM;
        labels[(*n)++] = (struct profile_label){.key = (uint32_t)k, .num = value};
        return 0;
}

static int export_labels(struct window *w, const struct label_set *set, struct profile *p,
                         struct profile_label *labels, uint32_t *ret_n)
{
        uint32_t n = 0;
        int r = number_label(p, "pid", set->pid, labels, &n);

        if (r >= 0 && set->tid)
                r = number_label(p, "thread_id", set->tid, labels, &n);
        if (r >= 0)
                r = number_label(p, "uid", set->uid, labels, &n);
        if (r >= 0)
                r = text_label(w, p, "comm", set->comm, labels, &n);
        if (r >= 0)
                r = text_label(w, p, "thread_name", set->thread, labels, &n);
        if (r >= 0)
                r = text_label(w, p, "unit", set->unit, labels, &n);
        if (r >= 0)
                r = text_label(w, p, "container_id", set->container, labels, &n);
        if (r >= 0)
                r = text_label(w, p, "pod", set->pod, labels, &n);
        if (r >= 0)
                r = text_label(w, p, "user", set->user, labels, &n);
        *ret_n = n;
        return r;
}

static int export_samples(struct window *w, struct profile *p, uint64_t *frames, uint64_t *unknown)
{
        _cleanup_free_ int64_t *exported =
                        NULL; /* book location -> profile location; 0: not yet; < 0: unknown */
        uint32_t max_location = 0;

        for (uint32_t i = 0; i < w->n_locations; i++)
                max_location = MAX_OF(max_location, w->location[i] + 1);
        exported = calloc(max_location + 1, sizeof(*exported));
        if (!exported)
                return -ENOMEM;
        for (uint32_t i = 0; i < w->n_samples; i++) {
                const struct sample *s = sample_at(w, i);
                const struct stack *stack = &w->stack[s->stack];
                uint32_t ids[MAX_STACK], n_labels;
                struct profile_label labels[9];
                int64_t values[ABI_MAX_EVENTS + 1];

                for (uint32_t k = 0; k < stack->n; k++) {
                        uint32_t l = w->location[stack->first + k];
                        if (!exported[l]) {
                                bool no_name;
                                int64_t id = book_export(w->book, l, p, &no_name);
                                if (id < 0)
                                        return (int)id;
                                exported[l] = no_name ? -id : id;
                        }
                        ids[k] = (uint32_t)(exported[l] < 0 ? -exported[l] : exported[l]);
                        *frames += s->value[0];
                        *unknown += exported[l] < 0 ? s->value[0] : 0;
                }
                int r = export_labels(w, &w->labels[s->labels], p, labels, &n_labels);
                if (r < 0)
                        return r;
                for (uint32_t t = 0; t < w->n_types; t++)
                        values[t] = (int64_t)s->value[t];
                r = profile_sample(p, ids, stack->n, labels, n_labels, values);
                if (r < 0)
                        return r;
        }
        return 0;
}

static int number_comment(struct profile *p, const char *key, const char *part, uint64_t value)
{
        char line[128];

        snprintf(line, sizeof(line), "%s%s: %" PRIu64, key, part, value);
        return profile_comment(p, line);
}

static int add_comments(struct window *w, struct profile *p, uint64_t frames, uint64_t unknown)
{
        int r = number_comment(p, "frames.", "total", frames);

        if (r >= 0)
                r = number_comment(p, "frames.", "unknown", unknown);
        for (int i = 0; i < ABI_WALK_MAX && r >= 0; i++)
                if (w->totals.walk[i])
                        r = number_comment(p, "stacks.", walk_names[i], w->totals.walk[i]);
        return r;
}

int window_profile(struct window *w, struct profile **ret)
{
        _cleanup_profile_ struct profile *p = NULL;
        uint64_t frames = 0, unknown = 0;

        int r = profile_new(&p);
        if (r < 0)
                return r;
        for (uint32_t t = 0; t < w->n_types; t++) {
                int64_t type = profile_type(p, w->type_name[t], w->type_unit[t]);
                if (type < 0)
                        return (int)type;
        }
        r = export_samples(w, p, &frames, &unknown);
        if (r >= 0)
                r = add_comments(w, p, frames, unknown);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(p);
        return 0;
}

const struct window_totals *window_totals(const struct window *w)
{
        return &w->totals;
}

struct book *window_book(const struct window *w)
{
        return w->book;
}

uint64_t window_memory(const struct window *w)
{
        return w->cap_locations * sizeof(*w->location) + w->cap_stacks * sizeof(*w->stack) +
               w->cap_labels * sizeof(*w->labels) + w->cap_samples * sample_size(w) +
               ((uint64_t)w->stacks.mask + w->samples.mask + w->label_sets.mask) *
                               sizeof(struct idtable_slot);
}

/* samples/count and cpu/nanoseconds come from the event that is time; each other event has a type of its
 * own. Without any such event (page-faults alone, say) the first event is what samples/count counts. */
static void set_types(struct window *w, const struct sampler *sampler)
{
        uint32_t n_events = MIN_OF(sampler_n_events(sampler), (uint32_t)ABI_MAX_EVENTS);
        bool has_time = false;

        for (uint32_t i = 0; i < n_events; i++)
                has_time |= sampler_event(sampler, i)->time;
        snprintf(w->type_name[0], sizeof(w->type_name[0]), "samples");
        w->type_unit[0] = "count";
        w->n_types = 1;
        if (has_time) {
                snprintf(w->type_name[1], sizeof(w->type_name[1]), "cpu");
                w->type_unit[1] = "nanoseconds";
                w->n_types = 2;
        }
        for (uint32_t i = 0; i < n_events; i++) {
                const struct sampler_event *e = sampler_event(sampler, i);
                w->event_counts[i] = e->time || (!has_time && i == 0);
                if (e->time) {
                        w->event_type[i] = 1;
                        continue;
                }
                if (!e->actual)
                        continue; /* off: no samples will come */
                w->event_type[i] = (uint8_t)w->n_types;
                snprintf(w->type_name[w->n_types], sizeof(w->type_name[0]), "%s", e->name);
                w->type_unit[w->n_types++] = "count";
        }
}

int window_new(struct window **ret, struct book *book, const struct sampler *sampler)
{
        struct window *w = calloc(1, sizeof(*w));

        if (!w)
                return -ENOMEM;
        w->book = book_ref(book);
        set_types(w, sampler);
        *ret = w;
        return 0;
}

struct window *window_free(struct window *w)
{
        if (!w)
                return NULL;
        book_unref(w->book);
        free(w->location);
        free(w->stack);
        free(w->labels);
        free(w->sample);
        idtable_free(&w->stacks);
        idtable_free(&w->label_sets);
        idtable_free(&w->samples);
        free(w);
        return NULL;
}
