#include "daemon/unwind_twin.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "bpf/abi.h"
#include "daemon/unwind_lists.h"

struct unwind_walk;
static int unwind_read8(struct unwind_walk *w, uint64_t address, uint64_t *ret);
static int unwind_read(struct unwind_walk *w, void *dst, uint32_t size, uint64_t address);
static uint64_t unwind_register(struct unwind_walk *w, uint32_t number);
static int unwind_find_mapping(struct unwind_walk *w, uint64_t pc);
static uint64_t unwind_find_rule(struct unwind_walk *w, uint64_t pc);
static uint64_t unwind_uprobe(struct unwind_walk *w);
static void unwind_emit(struct unwind_walk *w, uint64_t frame);

#if defined(__aarch64__)
#define UNWIND_ARM64 1
#else
#define UNWIND_ARM64 0
#endif
#include "bpf/unwind_step.h"

struct twin {
        struct unwind_walk w; /* first: the step's functions get only this */
        const struct abi_raw *raw;
        const struct process_maps *maps;
        const struct unwind_tables *tables;
        uint64_t now_ns;
        struct object_entry *object; /* of w.mapping */
        uint64_t frame[UNWIND_MAX_STEPS];
};

static struct twin *twin_of(struct unwind_walk *w)
{
        return (struct twin *)w;
}

static bool read_piece(void *dst, uint32_t size, const uint8_t *piece, uint64_t len, uint64_t at)
{
        if (at > len || len - at < size)
                return false;
        memcpy(dst, piece + at, size);
        return true;
}

/* Both pieces of the stack; of the code that a frame-pointer walk looks at only the interrupted instruction
 * is there. */
static int unwind_read(struct unwind_walk *w, void *dst, uint32_t size, uint64_t address)
{
        const struct abi_raw *raw = twin_of(w)->raw;

        if (address == raw->registers.ip && size <= sizeof(raw->code) && raw->code) {
                memcpy(dst, &raw->code, size);
                return 0;
        }
        return read_piece(dst, size, raw->stack, raw->leaf_len, address - raw->leaf) ||
                                               read_piece(dst, size, raw->stack + raw->leaf_len,
                                                          raw->root_len, address - raw->root)
                               ? 0
                               : -1;
}

static int unwind_read8(struct unwind_walk *w, uint64_t address, uint64_t *ret)
{
        return unwind_read(w, ret, sizeof(*ret), address);
}

static uint64_t unwind_register(struct unwind_walk *w, uint32_t number)
{
        return twin_of(w)->raw->registers.reg[number & 15];
}

static int unwind_find_mapping(struct unwind_walk *w, uint64_t pc)
{
        struct twin *t = twin_of(w);
        const struct process_mapping *m = process_maps_find(t->maps, pc);

        if (!m)
                return 0;
        t->object = m->object;
        unwind_mapping_of(m, &w->mapping);
        object_entry_used(m->object, t->now_ns);
        return 1;
}

static uint64_t unwind_find_rule(struct unwind_walk *w, uint64_t pc)
{
        struct twin *t = twin_of(w);
        struct unwind_rule rule;
        uint64_t number;

        if (!w->mapping.n_pages)
                return UNWIND_NONE;
        int r = unwind_index_rule(t->tables, t->object->index, pc - w->mapping.bias, &rule);
        if (r < 0)
                return r == -EAGAIN ? UNWIND_RULE_ABSENT : UNWIND_NONE;
        memcpy(&number, &rule, sizeof(number));
        return number;
}

static uint64_t unwind_uprobe(struct unwind_walk *w)
{
        const struct abi_raw *raw = twin_of(w)->raw;

        if (w->leaf)
                return raw->probed;
        return w->uprobes < ABI_RAW_RETURNS ? raw->returns[w->uprobes] : 0;
}

static void unwind_emit(struct unwind_walk *w, uint64_t frame)
{
        struct twin *t = twin_of(w);

        if (w->n < ARRAY_SIZE(t->frame))
                t->frame[w->n++] = frame;
}

/* The middle of a deep stack is left out, as the kernel half does it: leaf and root say most. */
static void fold(const struct twin *t, struct unwind_twin_result *ret)
{
        uint32_t n = t->w.n, leaf = ABI_MAX_FRAMES / 2, root = ABI_MAX_FRAMES - leaf - 1;

        ret->walk = t->w.walk;
        if (n <= ABI_MAX_FRAMES) {
                memcpy(ret->frame, t->frame, n * sizeof(*t->frame));
                ret->n = n;
                return;
        }
        memcpy(ret->frame, t->frame, leaf * sizeof(*t->frame));
        ret->frame[leaf] = ABI_FRAME_FOLDED;
        memcpy(ret->frame + leaf + 1, t->frame + n - root, root * sizeof(*t->frame));
        ret->n = leaf + 1 + root;
        if (ret->walk == ABI_WALK_COMPLETE)
                ret->walk = ABI_WALK_FOLDED;
}

void unwind_twin_walk(const struct abi_raw *raw, const struct process_maps *maps,
                      const struct unwind_tables *tables, uint64_t now_ns, struct unwind_twin_result *ret)
{
        struct twin t = {.raw = raw, .maps = maps, .tables = tables, .now_ns = now_ns};
        struct unwind_walk *w = &t.w;
        uint32_t steps = 0;

        unwind_begin(w);
        w->ip = raw->registers.ip;
        w->sp = raw->registers.sp;
        w->fp = raw->registers.fp;
        w->lr = raw->registers.lr;
        w->bx = raw->registers.reg[3];
        while (steps++ < UNWIND_MAX_STEPS && !unwind_step(w))
                ;
        ret->missing = NULL;
        if (w->defer) {
                uint64_t pc = w->leaf ? w->ip : w->ip - 1;
                ret->missing = t.object;
                ret->missing_rows = w->walk == ABI_WALK_PAGE_MISSING;
                ret->missing_address = pc - w->mapping.bias;
        }
        ret->unmapped = w->unmapped;
        fold(&t, ret);
}
