#include "profile/flame_tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/idtable.h"
#include "profile/pair.h"

struct maker {
        const struct profile *p;
        struct flame_tree *t;
        uint32_t cap;
        struct idtable index;
};

static void maker_done(struct maker *m)
{
        flame_tree_free(m->t);
        idtable_free(&m->index);
}

static bool node_equal(const void *ctx, uint32_t id, const void *key)
{
        const struct flame_node *a = &((const struct flame_tree *)ctx)->node[id], *b = key;

        return a->parent == b->parent && a->process == b->process && a->symbol == b->symbol &&
               a->inlined == b->inlined;
}

static uint64_t hash_of_node(const struct flame_node *n)
{
        return hash_u64((uint64_t)n->parent << 32 | n->symbol, (uint64_t)n->process << 1 | n->inlined);
}

static uint64_t node_hash(const void *ctx, uint32_t id)
{
        return hash_of_node(&((const struct flame_tree *)ctx)->node[id]);
}

/* The child of a node with this key's process, symbol and inlined; made when there is none. */
static int64_t child_of(struct maker *m, const struct flame_node *key)
{
        struct flame_tree *t = m->t;
        uint64_t hash = hash_of_node(key);
        uint32_t id = idtable_find(&m->index, hash, node_equal, t, key);

        if (id != IDTABLE_NONE)
                return id;
        int r = ARRAY_ROOM(t->node, m->cap, (uint64_t)t->n + 1);
        if (r < 0)
                return r;
        t->node[t->n] = *key;
        r = idtable_add(&m->index, hash, t->n, node_hash, t);
        return r < 0 ? (int64_t)r : (int64_t)t->n++;
}

static void add_value(struct flame_node *n, const int64_t *values)
{
        n->value[0] += values[PAIR_BEFORE];
        n->value[1] += values[PAIR_AFTER];
}

static int add_sample(struct maker *m, uint32_t i, struct frame_list *frames)
{
        const struct symbols *s = m->t->symbols;
        const int64_t *values = profile_values(m->p, i);
        const struct profile_label *comm = profile_find_label(m->p, &m->p->sample[i], "comm");
        int64_t at = 0;

        int r = symbols_frames(s, m->p, &m->p->sample[i], frames);
        if (r < 0)
                return r;
        add_value(&m->t->node[0], values);
        if (comm && comm->str) {
                at = child_of(m, &(struct flame_node){.parent = 0, .process = comm->str});
                if (at < 0)
                        return (int)at;
                add_value(&m->t->node[at], values);
        }
        for (uint32_t k = frames->n; k-- > 0;) {
                const struct symbol_frame *f = &s->frame[frames->frame[k]];
                at = child_of(m, &(struct flame_node){.parent = (uint32_t)at,
                                                      .symbol = f->symbol,
                                                      .inlined = f->inlined});
                if (at < 0)
                        return (int)at;
                add_value(&m->t->node[at], values);
        }
        if (!frames->n && (!comm || !comm->str)) {
                at = child_of(m, &(struct flame_node){.parent = 0, .symbol = s->no_stack});
                if (at < 0)
                        return (int)at;
                add_value(&m->t->node[at], values);
        }
        return 0;
}

static int compare_nodes(const void *a, const void *b, void *ctx)
{
        const struct flame_tree *t = ctx;
        uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
        const struct flame_node *x = &t->node[i], *y = &t->node[k];
        int64_t u = x->value[0] + x->value[1], v = y->value[0] + y->value[1];

        if (u != v)
                return u < v ? -1 : 1;
        return i > k ? -1 : i < k;
}

/* Links each node to its parent: smallest first, each in front of those before. */
static int link_children(struct flame_tree *t)
{
        _cleanup_free_ uint32_t *order = malloc((size_t)t->n * sizeof(*order));

        if (!order)
                return -ENOMEM;
        for (uint32_t i = 0; i < t->n; i++)
                order[i] = i;
        qsort_r(order, t->n, sizeof(*order), compare_nodes, t);
        for (uint32_t i = 0; i < t->n; i++) {
                struct flame_node *n = &t->node[order[i]];
                if (order[i] == 0)
                        continue;
                n->next = t->node[n->parent].first_child;
                t->node[n->parent].first_child = order[i];
        }
        return 0;
}

int flame_tree_new(struct flame_tree **ret, const struct profile *pair, bool no_inline)
{
        _cleanup_(maker_done) struct maker m = {.p = pair, .t = calloc(1, sizeof(*m.t))};
        _cleanup_frame_list_ struct frame_list frames = {0};

        if (!m.t)
                return -ENOMEM;
        int r = symbols_new(&m.t->symbols, pair, !no_inline);
        if (r < 0)
                return r;
        r = ARRAY_ROOM(m.t->node, m.cap, 1);
        if (r < 0)
                return r;
        m.t->node[m.t->n++] = (struct flame_node){0};
        for (uint32_t i = 0; i < pair->n_samples; i++) {
                r = add_sample(&m, i, &frames);
                if (r < 0)
                        return r;
        }
        r = link_children(m.t);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(m.t);
        return 0;
}

struct flame_tree *flame_tree_free(struct flame_tree *t)
{
        if (!t)
                return NULL;
        free(t->node);
        symbols_free(t->symbols);
        free(t);
        return NULL;
}
