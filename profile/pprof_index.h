/* Where a pprof file keeps its strings, mappings, functions and locations: they may stand anywhere, behind
 * the samples that name them by ids of the file's own choosing. Private to the reader. */
#ifndef PROFILE_PPROF_INDEX_H
#define PROFILE_PPROF_INDEX_H

#include "profile/wire.h"

#define UNKNOWN UINT32_MAX

/* Messages of one kind: where they are, their ids in the file, and those in the model. */
struct messages {
        struct wire *at;
        uint64_t *id;
        uint32_t *model; /* UNKNOWN: not built yet */
        uint32_t n, cap;
        uint32_t *by_id; /* of index by file id, when ids are dense; else `sorted` */
        uint64_t n_by_id;
        uint32_t *sorted; /* indices, by file id */
};

struct pprof_index {
        struct messages string, mapping, function, location;
};

/* Memory is in proportion to the bytes of the file. -EBADMSG: *ret_error says why; -EFBIG, -ENOMEM. */
int pprof_index_make(struct pprof_index *x, struct wire file, const char **ret_error);
void pprof_index_done(struct pprof_index *x);

/* The index of the message with a file's id; UNKNOWN. */
uint32_t messages_find_sparse(const struct messages *m, uint64_t id);
static inline uint32_t messages_find(const struct messages *m, uint64_t id)
{
        if (m->by_id)
                return id < m->n_by_id ? m->by_id[id] : UNKNOWN;
        return messages_find_sparse(m, id);
}

#define PPROF_BAD_WIRE "it is not in the protocol buffers format, or cut short"

#endif
