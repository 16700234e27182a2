/* A file system that does not answer: "file" can be looked up and opened, but no read of it ever ends; not
 * even a look-up of "never" does. */
#ifndef TESTS_SILENT_FUSE_H
#define TESTS_SILENT_FUSE_H

struct silent_fuse;

/* NULL when this machine has no FUSE or does not allow mounting. */
struct silent_fuse *silent_fuse_new(const char *dir);
void silent_fuse_free(struct silent_fuse *f);

#endif
