/* Tables: a profile summed up by function, process, unit, object, line, or any combination of them. */
#ifndef PROFILE_TABLE_H
#define PROFILE_TABLE_H

#include "profile/profile.h"

/* What makes a row; combine with |. Keys of the frame, then keys of the sample. */
enum table_key {
        TABLE_SYMBOL = 1 << 0,
        TABLE_OBJECT = 1 << 1,
        TABLE_FILE = 1 << 2, /* source file */
        TABLE_LINE = 1 << 3, /* with TABLE_FILE */
        TABLE_COMM = 1 << 4,
        TABLE_PID = 1 << 5,
        TABLE_THREAD = 1 << 6, /* name */
        TABLE_TID = 1 << 7,
        TABLE_UNIT = 1 << 8,
        TABLE_CONTAINER = 1 << 9,
        TABLE_USER = 1 << 10,
};
#define TABLE_FRAME_KEYS (TABLE_SYMBOL | TABLE_OBJECT | TABLE_FILE | TABLE_LINE)

/* The key with this name ("symbol", "object", "file", "line", "comm", "pid", "thread", "tid", "unit",
 * "container", "user"); -EINVAL. */
int table_key_by_name(const char *name);

struct table_options {
        uint32_t keys;
        uint32_t type;  /* index of the sample type */
        bool no_inline; /* inlined functions count for the function they are in */
};

/* Strings are the profile's, or the table's; NULL where the key was not asked for or is not known. */
struct table_row {
        const char *symbol, *object, *file;
        const char *comm, *thread, *unit, *container, *user;
        int64_t line, pid, tid; /* -1: not known */
        bool kernel;
        bool inlined;                        /* all of its frames were inlined ones */
        int64_t self;                        /* value of the samples whose innermost frame it is */
        int64_t total;                       /* of those that have it anywhere, recursion counted once */
        int64_t self_samples, total_samples; /* how many samples these are (see table) */
        double self_low, self_high;          /* 95 % interval of the share self / table total, 0..1 */
        double total_low, total_high;        /* of total / table total */
};

struct table {
        struct table_row *row; /* by self, then total, largest first */
        uint32_t n;
        int64_t total;    /* value of all samples */
        int64_t samples;  /* how many they are: of the CPU's time counted exactly (samples/count); of other
                           * events at least that many */
        double effective; /* (sum of weights)^2 / (sum of their squares): equal samples worth as much */
        const char *type, *unit;
        struct symbols *symbols;
};

int table_new(struct table **ret, const struct profile *p, const struct table_options *o);

/* The same of the functions that directly call `symbol` in `object` (NULL: in any), or that it calls: total
 * is the value of the samples that have the pair, self the same. Inlined calls are calls unless no_inline.
 */
enum table_direction { TABLE_CALLERS, TABLE_CALLEES };
int table_edges(struct table **ret, const struct profile *p, const struct table_options *o,
                enum table_direction direction, const char *symbol, const char *object);

struct table *table_free(struct table *t);
DEFINE_CLEANUP(struct table, table_free);
#define _cleanup_table_ _cleanup_(table_free_cleanup)

#endif
