/* Instructions. For each object and real function that the annotated function's code is in, the symbolizer
 * gives the function's bytes; capstone makes instructions of them; the symbolizer names each instruction's
 * inline chain. */
#include "tools/annotate.h"

#include <capstone/capstone.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "profile/symbols.h"
#include "tools/object.h"

#define BATCH      2048u /* addresses named at a time */
#define MAX_BODIES 8     /* functions of which instructions are shown */

/* What the symbolizer says of one address. */
struct chain {
        char *outer; /* the real function, as the linker knows it; NULL: no name */
        char *inner; /* "function file:line" of the innermost code */
        char *inner_function;
        bool in_focus, inlined;
};

/* A real function of one object that has samples. */
struct body {
        uint32_t mapping;
        const char *outer; /* the profile's name of it */
        int64_t value;
};

struct instruction {
        uint64_t address;
        uint32_t size;
        char *text;      /* mnemonic and operands */
        uint64_t target; /* of a call or jump, 0: none */
        struct chain chain;
};

struct work {
        const struct focus *f;
        const struct annotate_options *o;
        struct annotated *a;
        struct symclient *client;
        struct object object;
        struct sym_function function; /* at hand; its code is ours */
        struct instruction *insn;
        uint32_t n_insn;
};

/* Where the answers to one question for names go. */
struct answer {
        const struct focus *f;
        struct chain *chain;
};

static void chain_clear(struct chain *c)
{
        free(c->outer);
        free(c->inner);
        free(c->inner_function);
        *c = (struct chain){0};
}

static const char *file_name(const char *path)
{
        return path ? object_base_name(path) : "?";
}

static void on_names(void *ctx, int err, const struct sym_result *results, uint32_t n)
{
        struct answer *answer = ctx;

        for (uint32_t i = 0; err >= 0 && i < n; i++) {
                if (results[i].n == 0)
                        continue;
                const struct sym_frame *inner = &results[i].frame[0],
                                       *outer = &results[i].frame[results[i].n - 1];
                struct chain *c = &answer->chain[i];
                c->outer = outer->function ? strdup(outer->function) : NULL;
                c->inner_function = inner->function ? strdup(inner->function) : NULL;
                c->inlined = results[i].n > 1;
                for (uint32_t k = 0; k < results[i].n; k++)
                        c->in_focus |= results[i].frame[k].function &&
                                       !strcmp(results[i].frame[k].function, answer->f->function);
                if (inner->function &&
                    asprintf(&c->inner, "%s%s  %s:%u", inner->function, c->inlined ? " (inlined)" : "",
                             file_name(inner->file), inner->line) < 0)
                        c->inner = NULL;
        }
}

/* Names addresses; the caller clears the chains. */
static int name_all(struct work *w, const uint64_t *address, uint32_t n, struct chain *chain)
{
        for (uint32_t i = 0; i < n; i += BATCH) {
                struct answer answer = {.f = w->f, .chain = chain + i};
                int r = object_names(w->client, &w->object, address + i, MIN_OF(n - i, BATCH), on_names,
                                     &answer);
                if (r < 0)
                        return r;
        }
        return 0;
}

static int name_instructions(struct work *w)
{
        _cleanup_free_ uint64_t *address = calloc((size_t)w->n_insn + 1, sizeof(*address));
        _cleanup_free_ struct chain *chain = calloc((size_t)w->n_insn + 1, sizeof(*chain));

        if (!address || !chain)
                return -ENOMEM;
        for (uint32_t i = 0; i < w->n_insn; i++)
                address[i] = w->insn[i].address;
        int r = name_all(w, address, w->n_insn, chain);
        for (uint32_t i = 0; i < w->n_insn; i++)
                w->insn[i].chain = chain[i];
        return r;
}

/* -- disassembly -- */

static int open_disassembler(const struct sym_info *info, csh *ret)
{
        cs_arch arch = CS_ARCH_X86;
        cs_mode mode = CS_MODE_64;

        switch (info->machine) {
        case EM_X86_64:
                break;
        case EM_386:
                mode = CS_MODE_32;
                break;
        case EM_AARCH64:
                arch = CS_ARCH_ARM64;
                mode = CS_MODE_LITTLE_ENDIAN;
                break;
        default:
                return -ENOTSUP;
        }
        if (cs_open(arch, mode, ret) != CS_ERR_OK)
                return -ENOTSUP;
        if (arch == CS_ARCH_X86)
                cs_option(*ret, CS_OPT_SYNTAX, CS_OPT_SYNTAX_ATT);
        cs_option(*ret, CS_OPT_SKIPDATA, CS_OPT_ON);
        return 0;
}

/* Values of the samples at addresses of one instruction. */
static int64_t value_at(const struct focus *f, uint32_t mapping, uint64_t address, uint32_t size,
                        int64_t *ret_other)
{
        int64_t value = 0;

        *ret_other = 0;

        for (uint32_t i = 0; i < f->n_places; i++) {
                const struct profile_location *l = &f->p->location[f->place[i].location];
                if (l->mapping != mapping || l->address < address || l->address - address >= size)
                        continue;
                value += f->place[i].value;
                *ret_other += f->place[i].other;
        }
        return value;
}

/* The operand of a direct call or jump; 0: it is none. */
static uint64_t target_of(const cs_insn *insn)
{
        const char *op = insn->op_str + (insn->op_str[0] == '#');
        char *end;

        if (strncmp(op, "0x", 2) != 0)
                return 0;
        uint64_t target = strtoull(op, &end, 16);
        return *end ? 0 : target;
}

static int add_instruction(struct work *w, const cs_insn *insn)
{
        if ((w->n_insn & (w->n_insn - 1)) == 0) {
                struct instruction *more =
                                reallocarray(w->insn, w->n_insn ? (size_t)w->n_insn * 2 : 1, sizeof(*more));
                if (!more)
                        return -ENOMEM;
                w->insn = more;
        }
        struct instruction i = {.address = insn->address, .size = insn->size, .target = target_of(insn)};
        if (asprintf(&i.text, "%-8s %s", insn->mnemonic, insn->op_str) < 0)
                return -ENOMEM;
        w->insn[w->n_insn++] = i;
        return 0;
}

static int disassemble(struct work *w)
{
        const uint8_t *p = w->function.code;
        size_t left = w->function.code_size;
        uint64_t address = w->function.start;
        csh handle;

        int r = open_disassembler(&w->object.info, &handle);
        if (r < 0)
                return r;
        cs_insn *insn = cs_malloc(handle);
        if (!insn)
                r = -ENOMEM;
        while (r >= 0 && left > 0 && cs_disasm_iter(handle, &p, &left, &address, insn))
                r = add_instruction(w, insn);
        if (insn)
                cs_free(insn, 1);
        cs_close(&handle);
        return r;
}

/* Where a call or jump goes: an offset in the function, or another function. */
static void put_target(struct work *w, uint64_t target, struct buf *out)
{
        struct chain c = {0};

        if (target - w->function.start < w->function.size)
                buf_addf(out, "  <+0x%" PRIx64 ">", target - w->function.start);
        else if (name_all(w, &target, 1, &c) >= 0 && c.outer)
                buf_addf(out, "  <%s>", c.outer);
        chain_clear(&c);
}

static int put_instruction(struct work *w, const struct body *b, const struct instruction *insn,
                           const char **last)
{
        _cleanup_buf_ struct buf out = {0};
        const struct chain *c = &insn->chain;
        int64_t other, value = value_at(w->f, b->mapping, insn->address, insn->size, &other);
        double share = w->f->value ? (double)value / (double)w->f->value : 0;
        int r = 0;

        if (c->inner && (!*last || strcmp(*last, c->inner) != 0)) {
                r = annotated_add(w->a, -1, "%*s %s", w->f->other >= 0 ? 25 : 17, "", c->inner);
                *last = c->inner;
        }
        if (r < 0)
                return r;
        if (value)
                buf_addf(&out, "%6.2f%%", 100 * share);
        else
                buf_addf(&out, "%7s", "");
        focus_put_other(w->f, other, &out);
        buf_addf(&out, " %8" PRIx64 ":  %s", insn->address, insn->text);
        if (insn->target)
                put_target(w, insn->target, &out);
        return buf_error(&out) ? -ENOMEM : annotated_add(w->a, share, "%s", buf_text(&out));
}

static int put_instructions(struct work *w, const struct body *b)
{
        /* Of a function into which the annotated one was inlined only that part is shown. */
        bool whole = !strcmp(b->outer, w->f->function), gap = false;
        const char *last = NULL;
        int r = 0;

        for (uint32_t i = 0; i < w->n_insn && r >= 0; i++) {
                if (!whole && !w->insn[i].chain.in_focus) {
                        gap = true;
                        continue;
                }
                if (gap && last)
                        r = annotated_add(w->a, -1, "%17s ...", "");
                gap = false;
                if (r >= 0)
                        r = put_instruction(w, b, &w->insn[i], &last);
        }
        return r;
}

static void clear_instructions(struct work *w)
{
        for (uint32_t i = 0; i < w->n_insn; i++) {
                chain_clear(&w->insn[i].chain);
                free(w->insn[i].text);
        }
        free(w->insn);
        free((void *)w->function.code);
        w->insn = NULL;
        w->n_insn = 0;
        w->function = (struct sym_function){0};
}

/* -- the object -- */

static bool has_build_id(const struct sym_info *info, const char *hex)
{
        char text[BUILD_ID_TEXT_MAX];

        build_id_text(info->build_id, info->build_id_len, text);
        return !strcmp(text, hex);
}

/* -ESTALE: there is a file, but of another build. */
static int try_object(struct work *w, const char *open_path, const char *path, const char *root,
                      const char *build_id)
{
        int fd = open(open_path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

        if (fd < 0)
                return -errno;
        int r = object_open_fd(w->client, fd, path, root, &w->object);
        if (r >= 0 && *build_id && !has_build_id(&w->object.info, build_id))
                r = -ESTALE;
        if (r < 0)
                object_close(w->client, &w->object);
        return r;
}

static int find_object(struct work *w, const struct profile_mapping *m)
{
        const char *path = w->f->p->string[m->file], *build_id = w->f->p->string[m->build_id];
        char root[64];

        if (w->o->object)
                return try_object(w, w->o->object, w->o->object, NULL, build_id);
        int r = try_object(w, path, path, NULL, build_id);
        if (r >= 0 || w->f->pid < 0)
                return r;
        _cleanup_buf_ struct buf inside = {0};
        snprintf(root, sizeof(root), "/proc/%" PRId64 "/root", w->f->pid);
        buf_addf(&inside, "%s%s", root, path);
        int second = try_object(w, buf_text(&inside), path, root, build_id);
        return second >= 0 || second == -ESTALE ? second : r;
}

static const char *why_not(int err)
{
        switch (err) {
        case -ENOENT:
                return "the object is not here; --object PATH tells where it is";
        case -ESTALE:
                return "the object here is of another build than the one that ran; --object PATH tells "
                       "where that is";
        case -ENOTSUP:
                return "its machine is none that can be shown";
        case -ENODATA:
                return "the symbolizer does not know the function's extent";
        default:
                return strerror(-err);
        }
}

static uint64_t address_in(const struct focus *f, const struct body *b)
{
        for (uint32_t i = 0; i < f->n_places; i++) {
                const struct profile_location *l = &f->p->location[f->place[i].location];
                uint32_t outer = f->p->line[l->first_line + l->n_lines - 1].function;
                if (l->mapping == b->mapping && !strcmp(f->p->string[f->p->function[outer].name], b->outer))
                        return l->address;
        }
        return 0;
}

static int put_body(struct work *w, const struct body *b)
{
        const struct profile *p = w->f->p;
        const struct profile_mapping *m = &p->mapping[b->mapping];

        int r = annotated_add(w->a, -1, "%s in %s", b->outer, b->mapping ? p->string[m->file] : "no object");
        if (r < 0)
                return r;
        if (!b->mapping || profile_mapping_is_kernel(p, b->mapping) || p->string[m->file][0] != '/') {
                r = annotated_add(w->a, -1, "        instructions are shown of code in files only");
                return r < 0 ? r : annotated_add(w->a, -1, "%s", "");
        }
        int err = find_object(w, m);
        if (err >= 0) {
                err = object_function(w->client, &w->object, address_in(w->f, b), &w->function);
                if (err >= 0)
                        err = disassemble(w);
                if (err >= 0)
                        err = name_instructions(w);
                if (err >= 0)
                        err = put_instructions(w, b);
                clear_instructions(w);
                object_close(w->client, &w->object);
        }
        if (err == -ENOMEM)
                return err;
        if (err < 0)
                r = annotated_add(w->a, -1, "        no instructions: %s", why_not(err));
        return r < 0 ? r : annotated_add(w->a, -1, "%s", "");
}

static int by_value(const void *a, const void *b)
{
        const struct body *x = a, *y = b;

        return (y->value > x->value) - (y->value < x->value);
}

/* The real functions that hold the places; the caller frees *ret. */
static int find_bodies(const struct focus *f, struct body **ret, uint32_t *ret_n)
{
        struct body *body = calloc((size_t)f->n_places + 1, sizeof(*body));
        uint32_t n = 0;

        if (!body)
                return -ENOMEM;
        for (uint32_t i = 0; i < f->n_places; i++) {
                const struct profile_location *l = &f->p->location[f->place[i].location];
                const char *outer = f->p->string[f->p->function[f->p->line[l->first_line + l->n_lines - 1]
                                                                                .function]
                                                                 .name];
                uint32_t k = 0;
                while (k < n && (body[k].mapping != l->mapping || strcmp(body[k].outer, outer) != 0))
                        k++;
                if (k == n)
                        body[n++] = (struct body){.mapping = l->mapping, .outer = outer};
                body[k].value += f->place[i].value;
        }
        qsort(body, n, sizeof(*body), by_value);
        *ret = body;
        *ret_n = n;
        return 0;
}

int annotate_instructions(const struct focus *f, const struct annotate_options *o, struct annotated *a)
{
        struct work w = {.f = f, .o = o, .a = a};
        _cleanup_free_ struct body *body = NULL;
        uint32_t n;

        int r = find_bodies(f, &body, &n);
        if (r < 0)
                return r;
        r = symclient_new(&w.client, &(struct symclient_options){0});
        if (r < 0)
                return annotated_add(a, -1, "no instructions: the symbolizer does not start: %s",
                                     strerror(-r));
        for (uint32_t i = 0; i < MIN_OF(n, (uint32_t)MAX_BODIES) && r >= 0; i++)
                r = put_body(&w, &body[i]);
        symclient_free(w.client);
        if (r >= 0 && n > MAX_BODIES)
                r = annotated_add(a, -1, "%u more functions into which it was inlined", n - MAX_BODIES);
        return r;
}
