/* The files that crashed, hung or overloaded a worker: they are not tried again. */
#ifndef SYMBOLIZER_BAD_FILES_H
#define SYMBOLIZER_BAD_FILES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "symbolizer/client.h"

#define BAD_FILES_MAX 256

enum bad_part {
        BAD_ALL,    /* nothing of it is read any more */
        BAD_DEBUG,  /* its symbol table is */
        BAD_UNWIND, /* all but its unwind information is */
};

struct bad_file {
        dev_t dev;
        ino_t inode;
        off_t size;
        struct timespec mtime;
        uid_t owner;
        uint8_t build_id[SYM_BUILD_ID_MAX];
        uint8_t build_id_len;
        int error;
        enum bad_part part;
        char path[128]; /* printable; its end when it is longer */
};

struct bad_files { /* a zeroed struct is empty */
        struct bad_file file[BAD_FILES_MAX];
        uint64_t n; /* ever added; the oldest are forgotten */
};

/* `info` is NULL when the fault is not in the contents (a file system that does not answer), or they were
 * not got at: then only this inode is bad, not its build ID. Returns the entry. */
const struct bad_file *bad_files_add(struct bad_files *b, const struct stat *st, const struct sym_info *info,
                                     const char *path, int error, enum bad_part part);

/* The entry of this inode, or of this build ID and owner; NULL: nothing bad is known. */
const struct bad_file *bad_files_find(const struct bad_files *b, const struct stat *st,
                                      const struct sym_info *info);

/* An owner, other than root, of very many bad files: nothing of his is read any more. */
bool bad_files_distrusts(const struct bad_files *b, uid_t owner);

#endif
