/* What the tracker's own files know of an object, beyond daemon/tracker.h. */
#ifndef DAEMON_OBJECT_ENTRY_H
#define DAEMON_OBJECT_ENTRY_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/object_open.h"
#include "daemon/tracker.h"
#include "daemon/unwind_tables.h"

enum object_state {
        OBJECT_NEW = 0,     /* seen in a mapping; nothing was opened yet */
        OBJECT_OPENING = 1, /* a thread opens the file */
        OBJECT_READING = 2, /* the worker reads its headers */
        OBJECT_READY = 3,   /* segments are known */
        OBJECT_FAILED = 4,  /* see object.error */
        OBJECT_CODE = 5, /* not a file of code with segments: anonymous memory, JIT; frames carry no object
                          */
};

enum object_table_state {
        OBJECT_TABLE_ABSENT = 0,
        OBJECT_TABLE_REQUESTED = 1,
        OBJECT_TABLE_LOADED = 2, /* those chunks that are; see unwind_index_want() */
        OBJECT_TABLE_LATER = 3,  /* no room under the ceiling, or no worker: tried again */
        OBJECT_TABLE_NONE = 4,   /* there is no unwind information */
};

struct object_mapper { /* a process that maps it, to open it through */
        uint32_t pid, ppid;
        uint64_t start, end;
};

struct object_entry {
        struct object object; /* first: a struct object * of the tracker is one of these */
        struct object_table *table;
        uint32_t slot; /* in the table */
        uint32_t refs; /* by object_ref() */
        uint32_t mappings;
        enum object_state state;
        enum object_table_state table_state;
        uint32_t version; /* changes with each step forward (or failure): what waits for it looks again */
        uint64_t device, inode, generation; /* inode 0: not a file */
        struct object_mapper mapper[2];     /* newest first */
        uint64_t size, modified_ns;         /* of the file, when opened */
        uint64_t looked_ns;                 /* when size and time were last compared */
        bool looking;
        bool republish;    /* lists that refer to it are out of date */
        uint64_t retry_ns; /* not before, */
        uint64_t wait_ns;  /* which is so long after the last try; 0: that did not fail for want of something
                            */
        uint64_t again_ns; /* not before: the table once more, because only parts of it were loaded */
        uint64_t used_ns;  /* a frame or a mapping last referred to it */
        uint32_t used_tick;
        struct unwind_index *index;     /* NULL: no tables */
        struct object_entry *successor; /* the file's contents changed: this one is its new self */
        char *path;
};

static inline bool object_entry_is_file(const struct object_entry *o)
{
        return o->inode != 0;
}

static inline struct object_entry *object_entry_of(struct object *o)
{
        return (struct object_entry *)o; /* its first member */
}

/* The bias of a mapping at `start` of file offset `offset`: that of the executable segment which holds the
 * offset; false when none does, or they are not known. */
bool object_entry_bias(const struct object_entry *o, uint64_t start, uint64_t offset, uint64_t *ret);

/* Notes where its text is, by its executable segments. */
void object_entry_text(struct object_entry *o, const struct sym_info *info);

/* The vDSO is no file; every process maps the same one as we do: a copy of it as a file. A descriptor, or
 * -errno. */
int object_vdso_file(uint64_t *ret_size);

#endif
