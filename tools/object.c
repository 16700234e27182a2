#include "tools/object.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

#define OPEN_TIMEOUT_MS  60000
#define NAMES_TIMEOUT_MS 120000

static void on_open(void *ctx, int err, struct symobj *obj, const struct sym_info *info)
{
        struct object *o = ctx;

        o->err = err;
        if (err >= 0)
                o->info = *info;
}

static int wait_open(struct symclient *c, struct object *o)
{
        int r = o->handle ? symclient_wait(c, OPEN_TIMEOUT_MS) : -ENOMEM;

        if (r < 0)
                o->err = r;
        return o->err;
}

int object_open_fd(struct symclient *c, int fd, const char *path, const char *root, struct object *ret)
{
        const struct sym_source source = {.path = path, .root = root};

        *ret = (struct object){.err = -ETIMEDOUT};
        ret->handle = symclient_open(c, fd, &source, on_open, ret);
        return wait_open(c, ret);
}

int object_open_jit(struct symclient *c, uint32_t pid, struct object *ret)
{
        *ret = (struct object){.err = -ETIMEDOUT};
        ret->handle = symclient_open_jit(c, pid, 0, on_open, ret);
        return wait_open(c, ret);
}

void object_close(struct symclient *c, struct object *o)
{
        symobj_close(c, o->handle);
        o->handle = NULL;
}

int object_names(struct symclient *c, struct object *o, const uint64_t *addresses, uint32_t n,
                 sym_names_fn fn, void *ctx)
{
        if (o->err < 0)
                return o->err;
        int r = symclient_names(c, o->handle, addresses, n, fn, ctx);
        return r < 0 ? r : symclient_wait(c, NAMES_TIMEOUT_MS);
}

bool object_address(const struct object *o, uint64_t offset, uint64_t *ret)
{
        for (uint32_t i = 0; i < o->info.n_segments; i++) {
                const struct sym_segment *s = &o->info.segment[i];
                if (offset >= s->offset && offset - s->offset < s->filesz) {
                        *ret = offset - s->offset + s->vaddr;
                        return true;
                }
        }
        return false;
}

struct function_answer {
        struct sym_function function;
        int err;
};

static void on_functions(void *ctx, int err, const struct sym_function *functions, uint32_t n)
{
        struct function_answer *a = ctx;

        a->err = err < 0 ? err : n == 0 || functions[0].code_size == 0 ? -ENODATA : 0;
        if (a->err < 0)
                return;
        a->function = (struct sym_function){
                        .start = functions[0].start,
                        .size = functions[0].size,
                        .code_size = functions[0].code_size,
        };
        uint8_t *code = malloc(functions[0].code_size);
        if (code)
                memcpy(code, functions[0].code, functions[0].code_size);
        else
                a->err = -ENOMEM;
        a->function.code = code;
}

int object_function(struct symclient *c, struct object *o, uint64_t address, struct sym_function *ret)
{
        struct function_answer a = {.err = -ETIMEDOUT};

        int r = o->err < 0 ? o->err : symclient_functions(c, o->handle, NULL, address, on_functions, &a);
        if (r >= 0)
                r = symclient_wait(c, NAMES_TIMEOUT_MS);
        if (r < 0 || a.err < 0) {
                free((void *)a.function.code);
                return r < 0 ? r : a.err;
        }
        *ret = a.function;
        return 0;
}
