/* The objects that code was mapped from: one for each file, known by device, inode and generation; opened
 * and read only when a sample touches them; kept for a while after their last process is gone. */
#ifndef DAEMON_OBJECT_TABLE_H
#define DAEMON_OBJECT_TABLE_H

#include "daemon/object_entry.h"

struct object_table;

/* `on_step` is called when an object got a step further: what waits for one may look again. */
int object_table_new(struct object_table **ret, struct symclient *symbols, struct unwind_tables *tables,
                     void (*on_step)(void *ctx), void *ctx);
struct object_table *object_table_free(struct object_table *t);

/* From here on what ids stand for is noted for a daemon after us. Borrowed. */
struct kept_objects;
void object_table_keep(struct object_table *t, struct kept_objects *kept);

/* As a mapping names it. */
struct object_key {
        uint64_t device, inode; /* 0: not a file */
        uint64_t generation;    /* 0: not known */
        const char *name;
};

/* The object of a mapping, made when it is new; NULL: out of memory or ids. Belongs to the table. */
struct object_entry *object_table_get(struct object_table *t, const struct object_key *key);

/* Remembers who maps it; looks now and then whether the file was changed in place. */
void object_table_mapper(struct object_table *t, struct object_entry *o, const struct object_mapper *m,
                         uint64_t now_ns);

/* What a walk needs of an object. */
enum object_answer {
        OBJECT_HAVE = 0, /* as much as can be had */
        OBJECT_WAIT = 1, /* it is on its way: when o->version has changed, ask again */
};
/* Its segments. */
enum object_answer object_table_need(struct object_table *t, struct object_entry *o, uint64_t now_ns);
/* The rows for an ELF address. */
enum object_answer object_table_need_rows(struct object_table *t, struct object_entry *o, uint64_t address,
                                          uint64_t now_ns);

int object_table_fd(const struct object_table *t);
void object_table_dispatch(struct object_table *t);

/* True once when lists of mappings have to be looked through for `republish` and `successor`. The caller
 * then calls object_table_settled(). */
bool object_table_changed(const struct object_table *t);
void object_table_settled(struct object_table *t);

struct object_entry *object_table_find(struct object_table *t, uint32_t id);
void object_entry_used(struct object_entry *o, uint64_t now_ns);

/* Once per drain: frees what nothing refers to. */
void object_table_tick(struct object_table *t, uint64_t now_ns);

struct object_table_stats {
        uint32_t objects, open, stuck;
        uint32_t past;                   /* of the open ones: not mapped any more, but referred to, */
        uint32_t stale;                  /* and not sampled for long */
        uint64_t failed;                 /* files that could not be opened or read */
        uint64_t changed;                /* files whose contents were changed in place */
        uint32_t lacking, lacking_error; /* mapped, and not open for want of what the errno says */
        uint64_t memory;
};
void object_table_stats(const struct object_table *t, struct object_table_stats *ret);

#endif
