/* Objects opened and named by the sandboxed worker, one after the other: what symbolize and annotate need.
 */
#ifndef TOOLS_OBJECT_H
#define TOOLS_OBJECT_H

#include <stdint.h>

#include "symbolizer/client.h"

struct object {
        struct symobj *handle; /* NULL: the object could not be opened */
        struct sym_info info;
        int err;
};

/* Opens a file that is already open (taken over). `path` as the process saw it, `root` as in sym_source. 0,
 * or a negative errno that is also in ret->err; object_close() either way. */
int object_open_fd(struct symclient *c, int fd, const char *path, const char *root, struct object *ret);
int object_open_jit(struct symclient *c, uint32_t pid, struct object *ret);
void object_close(struct symclient *c, struct object *o);

/* Names addresses (at most a few thousand at once); fn is called once before this returns. 0 or -errno. */
int object_names(struct symclient *c, struct object *o, const uint64_t *addresses, uint32_t n,
                 sym_names_fn fn, void *ctx);

/* The object's own address of an offset in its file, by the segment that holds it. false: no code is there.
 */
bool object_address(const struct object *o, uint64_t offset, uint64_t *ret);
/* The function that covers an address, with its code, which the caller frees; the names are not kept.
 * -ENODATA: none does. */
int object_function(struct symclient *c, struct object *o, uint64_t address, struct sym_function *ret);

#endif
