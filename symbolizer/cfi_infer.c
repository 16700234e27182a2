/* What is followed is divided into segments: one begins at an entry, and one behind each call, since a call
 * need not return. A contradiction makes its segment void, and all those that began in it. Entries are found
 * in what is followed, too: targets of calls, and addresses of code that are loaded (functions passed on, as
 * musl's first one is). An address is followed at most once, so the work is linear in the code. */
#include "symbolizer/cfi_infer.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "symbolizer/x86_insn.h"

#define SLOT       8
#define MAX_FRAME  (1 << 24)
#define NO_SEGMENT UINT32_MAX

/* Offsets are from the CFA down: rsp = CFA - sp. */
struct flow {
        int32_t sp;
        int32_t fp;       /* rbp = CFA - fp, when fp_frame */
        int32_t saved_fp; /* the caller's rbp is at CFA - saved_fp; 0: still in rbp */
        int32_t saved_bx; /* likewise */
        bool sp_known, fp_frame;
};

struct place { /* an instruction that was reached */
        struct flow flow;
        uint32_t segment;
};

struct segment {
        uint32_t parent; /* NO_SEGMENT: begins at an entry */
        bool bad;
};

struct pending {
        uint32_t offset, segment;
        struct flow flow;
};

struct cfi_infer {
        uint64_t start;
        struct span code;
        cfi_infer_entry_fn outside;
        void *ctx;
        uint32_t *at; /* index of the place at each byte, plus 1; 0: none */
        uint8_t *entry;
        struct place *place;
        uint32_t n_places, max_places;
        struct segment *segment;
        uint32_t n_segments, max_segments;
        struct pending *pending;
        uint32_t n_pending, max_pending;
        int error;
};

static const struct flow at_entry = {.sp = SLOT, .sp_known = true};

int cfi_infer_new(struct cfi_infer **ret, uint64_t start, struct span code, cfi_infer_entry_fn outside,
                  void *ctx)
{
        struct cfi_infer *x;

        if (code.size > CFI_INFER_MAX)
                return -E2BIG;
        x = calloc(1, sizeof(*x));
        if (!x)
                return -ENOMEM;
        x->start = start;
        x->code = code;
        x->outside = outside;
        x->ctx = ctx;
        x->at = calloc(code.size + 1, sizeof(*x->at));
        x->entry = calloc(code.size + 1, 1);
        if (!x->at || !x->entry) {
                cfi_infer_free(x);
                return -ENOMEM;
        }
        *ret = x;
        return 0;
}

struct cfi_infer *cfi_infer_free(struct cfi_infer *x)
{
        if (!x)
                return NULL;
        free(x->at);
        free(x->entry);
        free(x->place);
        free(x->segment);
        free(x->pending);
        free(x);
        return NULL;
}

/* Room for one more; the arrays are bounded by the bytes of code, of which each is followed once. */
static bool room(struct cfi_infer *x, void *array, uint32_t n, uint32_t *max, size_t size)
{
        void **p = array;
        uint32_t more = *max ? *max * 2 : 256;
        void *q;

        if (n < *max)
                return true;
        q = realloc(*p, more * size);
        if (!q) {
                x->error = -ENOMEM;
                return false;
        }
        *p = q;
        *max = more;
        return true;
}

static uint32_t add_segment(struct cfi_infer *x, uint32_t parent)
{
        if (!room(x, &x->segment, x->n_segments, &x->max_segments, sizeof(*x->segment)))
                return NO_SEGMENT;
        x->segment[x->n_segments] = (struct segment){.parent = parent};
        return x->n_segments++;
}

static void add_pending(struct cfi_infer *x, uint32_t offset, uint32_t segment, const struct flow *flow)
{
        if (segment == NO_SEGMENT ||
            !room(x, &x->pending, x->n_pending, &x->max_pending, sizeof(*x->pending)))
                return;
        x->pending[x->n_pending++] = (struct pending){.offset = offset, .segment = segment, .flow = *flow};
}

bool cfi_infer_entry(struct cfi_infer *x, uint64_t address)
{
        uint64_t offset = address - x->start;

        if (offset >= x->code.size || x->entry[offset])
                return false;
        x->entry[offset] = 1;
        add_pending(x, (uint32_t)offset, add_segment(x, NO_SEGMENT), &at_entry);
        return true;
}

static void found_entry(struct cfi_infer *x, uint64_t address)
{
        if (address - x->start >= x->code.size)
                x->outside(x->ctx, address);
        else
                cfi_infer_entry(x, address);
}

static bool same(const struct flow *a, const struct flow *b)
{
        return a->sp_known == b->sp_known && (!a->sp_known || a->sp == b->sp) &&
               a->saved_fp == b->saved_fp && a->saved_bx == b->saved_bx &&
               (a->sp_known || (a->fp_frame && b->fp_frame && a->fp == b->fp));
}

static int32_t *saved_register(struct flow *f, uint8_t reg)
{
        return reg == X86_R_FP ? &f->saved_fp : reg == X86_R_BX ? &f->saved_bx : NULL;
}

/* The stack pointer moves down by n. */
static bool move_sp(struct flow *f, int64_t n)
{
        int64_t sp = f->sp + n;

        if (!f->sp_known)
                return f->fp_frame;
        if (sp < SLOT || sp > MAX_FRAME)
                return false;
        f->sp = (int32_t)sp;
        return true;
}

/* What the caller had is put back from the slot where it was saved; from elsewhere it is something else. */
static bool restore(struct flow *f, uint8_t reg, int64_t slot)
{
        int32_t *saved = saved_register(f, reg);

        if (!saved)
                return true;
        if (!*saved)
                return false; /* overwritten without having been saved */
        if (f->sp_known && slot == *saved) {
                *saved = 0;
                if (reg == X86_R_FP)
                        f->fp_frame = false;
        }
        return true;
}

/* What an instruction does to the flow. False: something that cannot be followed. */
static bool apply(struct flow *f, const struct x86_decoded *insn)
{
        int32_t *saved = saved_register(f, insn->reg);

        switch (insn->effect) {
        case X86_PUSH:
                if (!move_sp(f, SLOT))
                        return false;
                if (saved && !*saved && f->sp_known)
                        *saved = f->sp;
                return true;
        case X86_POP:
                return restore(f, insn->reg, f->sp) && move_sp(f, -SLOT);
        case X86_SP_ADD:
                return move_sp(f, -(int64_t)insn->value);
        case X86_SP_LOST:
                f->sp_known = false;
                return f->fp_frame;
        case X86_SP_FROM_FP:
                if (!f->fp_frame)
                        return false;
                f->sp = f->fp;
                f->sp_known = true;
                return move_sp(f, -(int64_t)insn->value);
        case X86_FP_FROM_SP:
                if (!f->sp_known || !f->saved_fp)
                        return false;
                f->fp = f->sp - insn->value;
                f->fp_frame = true;
                return true;
        case X86_LEAVE:
                if (!f->fp_frame)
                        return false;
                f->sp = f->fp;
                f->sp_known = true;
                return f->saved_fp == f->sp && restore(f, X86_R_FP, f->sp) && move_sp(f, -SLOT);
        case X86_STORE:
                if (saved && !*saved && f->sp_known) {
                        int64_t slot = (int64_t)f->sp - insn->value;

                        if (slot > SLOT && slot <= MAX_FRAME && slot % SLOT == 0)
                                *saved = (int32_t)slot;
                }
                return true;
        case X86_LOAD:
                return restore(f, insn->reg, (int64_t)f->sp - insn->value);
        default:
                return insn->effect != X86_STRANGE;
        }
}

static bool as_called(const struct flow *f)
{
        return f->sp_known && f->sp == SLOT && !f->saved_fp && !f->saved_bx;
}

/* The system call by which a signal handler returns (rt_sigreturn, 15) ends no function: the walker knows
 * this code by its bytes, where no row says otherwise. */
static bool is_sigreturn(const struct cfi_infer *x, uint32_t offset)
{
        static const uint8_t code[] = {0x0f, 0, 0, 0, 0x0f, 0x05}; /* the end of `mov $15, %eax; syscall` */

        return offset >= 4 && x->code.size - offset >= 2 &&
               memcmp(x->code.data + offset - 4, code, sizeof(code)) == 0;
}

/* To the beginning of a function one jumps only with the stack as it was called with. */
static bool may_jump(struct cfi_infer *x, const struct pending *from, uint32_t to)
{
        if (!x->entry[to] || as_called(&from->flow))
                return true;
        x->segment[from->segment].bad = true;
        if (x->at[to])
                x->segment[x->place[x->at[to] - 1].segment].bad = true;
        return false;
}

static void follow(struct cfi_infer *x, struct pending p)
{
        for (;;) {
                struct x86_decoded insn;
                uint32_t known;
                uint64_t target;

                if (p.offset >= x->code.size)
                        return;
                /* Behind a call that does not return comes the next function. */
                if (x->entry[p.offset] && !as_called(&p.flow))
                        return;
                known = x->at[p.offset];
                if (known) {
                        if (!same(&x->place[known - 1].flow, &p.flow))
                                x->segment[p.segment].bad = x->segment[x->place[known - 1].segment].bad =
                                                true;
                        return;
                }
                if (!x86_decode(x->code.data + p.offset, x->code.size - p.offset, x->start + p.offset,
                                &insn) ||
                    !room(x, &x->place, x->n_places, &x->max_places, sizeof(*x->place)))
                        return;
                x->place[x->n_places] = (struct place){.flow = p.flow, .segment = p.segment};
                x->at[p.offset] = ++x->n_places;
                target = insn.target - x->start;
                switch (insn.effect) {
                case X86_RETURN:
                        if (!as_called(&p.flow))
                                x->segment[p.segment].bad = true;
                        return;
                case X86_JUMP:
                        if (!insn.target ||
                            target >= x->code.size) { /* another function, or a table of cases */
                                return;
                        }
                        p.offset = (uint32_t)target;
                        continue;
                case X86_BRANCH:
                        if (target < x->code.size && may_jump(x, &p, (uint32_t)target))
                                add_pending(x, (uint32_t)target, p.segment, &p.flow);
                        break;
                case X86_CALL:
                        if (insn.target)
                                found_entry(x, insn.target);
                        p.segment = add_segment(x, p.segment);
                        if (p.segment == NO_SEGMENT)
                                return;
                        break;
                case X86_ADDRESS:
                        found_entry(x, insn.target);
                        break;
                case X86_END:
                        return;
                default:
                        if (is_sigreturn(x, p.offset) || !apply(&p.flow, &insn)) {
                                x->segment[p.segment].bad = true;
                                return;
                        }
                        break;
                }
                p.offset += insn.length;
        }
}

int cfi_infer_run(struct cfi_infer *x)
{
        while (x->n_pending && !x->error)
                follow(x, x->pending[--x->n_pending]);
        return x->error;
}

static struct unwind_rule make_rule(const struct flow *f)
{
        enum unwind_fp how = f->saved_fp ? UNWIND_FP_AT_CFA : UNWIND_FP_SAME;
        int32_t bx = -f->saved_bx / SLOT;
        struct unwind_rule r = {
                        .aux = (int8_t)bx,
                        .fp_offset = (int16_t)(-f->saved_fp / SLOT),
                        .cfa_offset = f->sp_known ? f->sp : f->fp,
        };

        if (bx != r.aux || bx == UNWIND_AUX_LOST)
                r.aux = UNWIND_AUX_LOST;
        if (-f->saved_fp / SLOT != r.fp_offset) {
                how = UNWIND_FP_UNDEFINED;
                r.fp_offset = 0;
        }
        r.kind_fp = (uint8_t)((f->sp_known ? UNWIND_SP : UNWIND_FP) | how << 4);
        return r;
}

/* The length of musl's code by which a signal handler returns, when it is here: `nop; mov $15, %rax;
 * syscall`. The nop is for unwinders, which look at the byte before a return address. */
static uint32_t sigreturn_length(const struct cfi_infer *x, uint32_t offset)
{
        static const uint8_t code[] = {0x90, 0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};

        return x->code.size - offset >= sizeof(code) &&
                                               memcmp(x->code.data + offset, code, sizeof(code)) == 0
                               ? sizeof(code)
                               : 0;
}

void cfi_infer_rows(struct cfi_infer *x, cfi_infer_row_fn fn, void *ctx)
{
        static const struct unwind_rule none = {.kind_fp = UNWIND_NONE};
        struct unwind_rule last = none;
        uint32_t end = 0, trampoline = 0; /* ends of the instruction before, and of a handler's return */

        for (uint32_t i = 0; i < x->n_segments; i++) /* parents come before their children */
                if (x->segment[i].parent != NO_SEGMENT)
                        x->segment[i].bad |= x->segment[x->segment[i].parent].bad;
        for (uint32_t i = 0; i < x->code.size; i++) {
                const struct place *p = x->at[i] ? &x->place[x->at[i] - 1] : NULL;
                struct unwind_rule rule = none;
                struct x86_decoded insn;
                uint32_t sigreturn;

                if (i < trampoline || (!p && i < end))
                        continue;
                sigreturn = sigreturn_length(x, i);
                if (sigreturn) {
                        rule.kind_fp = UNWIND_SIGNAL;
                        trampoline = end = i + sigreturn;
                } else if (p && !x->segment[p->segment].bad) {
                        rule = make_rule(&p->flow);
                        x86_decode(x->code.data + i, x->code.size - i, 0, &insn);
                        end = i + insn.length;
                }
                if (memcmp(&rule, &last, sizeof(rule)) != 0) {
                        fn(ctx, x->start + i, &rule);
                        last = rule;
                }
        }
        if (UNWIND_RULE_KIND(&last) != UNWIND_NONE)
                fn(ctx, x->start + x->code.size, &none);
}
