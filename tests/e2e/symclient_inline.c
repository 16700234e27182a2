/* The symbolizer's client without its worker: files are read in this process, when the results are fetched.
 * For tests of what stands above the client; names are not asked for. */
#include "symbolizer/client.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "symbolizer/cfi.h"
#include "symbolizer/elf_image.h"

#define INFLATE_BUDGET (256u << 20)

struct request {
        struct request *next;
        struct symobj *object;
        sym_open_fn open;
        sym_table_fn table;
        void *ctx;
};

struct symobj {
        int fd;
        struct elf_image *image; /* NULL until opened */
        struct sym_info info;
};

struct symclient {
        struct request *first, **end;
        int event;
};

int symclient_new(struct symclient **ret, const struct symclient_options *options)
{
        struct symclient *c = calloc(1, sizeof(*c));

        if (!c)
                return -ENOMEM;
        c->end = &c->first;
        c->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        *ret = c;
        return 0;
}

struct symclient *symclient_free(struct symclient *c)
{
        if (!c)
                return NULL;
        while (c->first) {
                struct request *r = c->first;

                c->first = r->next;
                if (r->open)
                        r->open(r->ctx, -ECANCELED, r->object, NULL);
                else
                        r->table(r->ctx, -ECANCELED, NULL);
                free(r);
        }
        close(c->event);
        free(c);
        return NULL;
}

int symclient_fd(const struct symclient *c)
{
        return c->event;
}

static int add(struct symclient *c, struct request request)
{
        struct request *r = malloc(sizeof(*r));

        if (!r)
                return -ENOMEM;
        *r = request;
        *c->end = r;
        c->end = &r->next;
        return eventfd_write(c->event, 1);
}

struct symobj *symclient_open(struct symclient *c, int fd, const struct sym_source *source, sym_open_fn fn,
                              void *ctx)
{
        struct symobj *o = calloc(1, sizeof(*o));

        if (!o || add(c, (struct request){.object = o, .open = fn, .ctx = ctx}) < 0)
                abort();
        o->fd = fd;
        return o;
}

void symobj_close(struct symclient *c, struct symobj *obj)
{
        struct request **at = &c->first;

        if (!obj)
                return;
        while (*at) {
                struct request *r = *at;

                if (r->object != obj) {
                        at = &r->next;
                        continue;
                }
                *at = r->next;
                free(r);
        }
        c->end = at;
        elf_image_free(obj->image);
        close(obj->fd);
        free(obj);
}

const struct sym_info *symobj_info(const struct symobj *obj)
{
        return obj->image ? &obj->info : NULL;
}

int symclient_table(struct symclient *c, struct symobj *obj, sym_table_fn fn, void *ctx)
{
        return add(c, (struct request){.object = obj, .table = fn, .ctx = ctx});
}

static void fill_info(struct symobj *o)
{
        struct elf_section section;

        o->info.build_id_len = (uint8_t)elf_image_build_id(o->image, o->info.build_id, SYM_BUILD_ID_MAX);
        o->info.elf_class = elf_image_is64(o->image) ? ELFCLASS64 : ELFCLASS32;
        o->info.machine = elf_image_machine(o->image);
        o->info.type = elf_image_type(o->image);
        o->info.entry = elf_image_entry(o->image);
        o->info.is_go = elf_image_section(o->image, ".gopclntab", &section) >= 0;
        o->info.has_unwind = elf_image_section(o->image, ".eh_frame", &section) >= 0;
        for (uint32_t i = 0; i < elf_image_n_segments(o->image) && o->info.n_segments < SYM_MAX_SEGMENTS;
             i++) {
                const struct elf_segment *s = elf_image_segment(o->image, i);

                if (s->type == PT_LOAD && s->flags & PF_X)
                        o->info.segment[o->info.n_segments++] = (struct sym_segment){.vaddr = s->vaddr,
                                                                                     .offset = s->offset,
                                                                                     .filesz = s->filesz,
                                                                                     .memsz = s->memsz};
        }
}

static void answer_table(struct request *r)
{
        struct cfi_table *t;
        int k = cfi_build(r->object->image, NULL, &t);

        if (k < 0)
                return r->table(r->ctx, k, NULL);
        r->table(r->ctx, 0,
                 &(struct sym_table){.first_page = t->first_page,
                                     .n_pages = t->n_pages,
                                     .n_rows = t->n_rows,
                                     .n_rules = t->n_rules,
                                     .page_start = t->page_start,
                                     .row = t->row,
                                     .rule = t->rule});
        cfi_table_free(t);
}

int symclient_dispatch(struct symclient *c)
{
        eventfd_t n;

        (void)eventfd_read(c->event, &n);
        while (c->first) {
                struct request *r = c->first;

                c->first = r->next;
                if (!c->first)
                        c->end = &c->first;
                if (r->open) {
                        int k = elf_image_open(r->object->fd, INFLATE_BUDGET, &r->object->image);

                        if (k >= 0)
                                fill_info(r->object);
                        r->open(r->ctx, k, r->object, k < 0 ? NULL : &r->object->info);
                } else {
                        answer_table(r);
                }
                free(r);
        }
        return 0;
}
