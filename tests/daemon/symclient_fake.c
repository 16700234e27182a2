#include "tests/daemon/symclient_fake.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

struct request {
        struct request *next;
        struct symobj *obj;
        sym_open_fn open;
        sym_table_fn table;
        void *ctx;
};

struct symobj {
        struct sym_info info;
        int fd;
        bool ready;
};

struct symclient {
        struct symclient_fake fake;
        struct request *first, **end;
};

struct symclient *symclient_fake_new(void)
{
        struct symclient *c = calloc(1, sizeof(*c));

        c->end = &c->first;
        return c;
}

struct symclient_fake *symclient_fake(struct symclient *c)
{
        return &c->fake;
}

struct symclient *symclient_free(struct symclient *c)
{
        for (struct request *r = c->first, *next; r; r = next) {
                next = r->next;
                free(r);
        }
        free(c);
        return NULL;
}

static void add(struct symclient *c, struct request r)
{
        *c->end = malloc(sizeof(r));
        **c->end = r;
        c->end = &(*c->end)->next;
}

struct symobj *symclient_open(struct symclient *c, int fd, const struct sym_source *source, sym_open_fn fn,
                              void *ctx)
{
        struct symobj *o = calloc(1, sizeof(*o));

        o->fd = fd;
        c->fake.opens++;
        add(c, (struct request){.obj = o, .open = fn, .ctx = ctx});
        return o;
}

void symobj_close(struct symclient *c, struct symobj *obj)
{
        if (!obj)
                return;
        c->fake.closes++;
        close(obj->fd);
        struct request **at = &c->first;
        while (*at) {
                struct request *r = *at;
                if (r->obj != obj) {
                        at = &r->next;
                        continue;
                }
                *at = r->next;
                free(r);
        }
        c->end = at;
        free(obj);
}

const struct sym_info *symobj_info(const struct symobj *obj)
{
        return obj && obj->ready ? &obj->info : NULL;
}

int symclient_table(struct symclient *c, struct symobj *obj, sym_table_fn fn, void *ctx)
{
        c->fake.tables++;
        add(c, (struct request){.obj = obj, .table = fn, .ctx = ctx});
        return 0;
}

uint32_t symclient_fake_run(struct symclient *c)
{
        uint32_t n = 0;
        struct request *r;

        for (; (r = c->first); n++) {
                c->first = r->next;
                if (!c->first)
                        c->end = &c->first;
                if (r->open) {
                        r->obj->info = c->fake.info;
                        r->obj->ready = !c->fake.open_error;
                        r->open(r->ctx, c->fake.open_error, r->obj,
                                c->fake.open_error ? NULL : &r->obj->info);
                } else {
                        r->table(r->ctx, c->fake.table_error, c->fake.table_error ? NULL : &c->fake.table);
                }
                free(r);
        }
        return n;
}
