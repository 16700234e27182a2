/* What the files of the pprof reader share: pprof_read.c (header, entry points), pprof_entities.c (strings
 * to locations) and pprof_samples.c. */
#ifndef PROFILE_PPROF_READER_H
#define PROFILE_PPROF_READER_H

#include <errno.h>

#include "profile/pprof.h"
#include "profile/pprof_index.h"
#include "profile/profile.h"

struct pprof_reader {
        struct profile *p;      /* what is read goes in here */
        struct profile *header; /* types, comments, times: p itself, or a profile of their own */
        const struct pprof_choice *choice;
        struct wire file;
        struct pprof_index x;
        uint32_t n_types;
        uint32_t type[PROFILE_MAX_TYPES]; /* the file's index -> p's */
        struct profile_line *lines;       /* of the location being read */
        uint32_t cap_lines;
        const char *error;
};

/* Says what is wrong with the file: -EBADMSG. */
static inline int pprof_bad(struct pprof_reader *r, const char *error)
{
        r->error = error;
        return -EBADMSG;
}

static inline int pprof_bad_wire(struct pprof_reader *r)
{
        return pprof_bad(r, PPROF_BAD_WIRE);
}

/* A field that must be a varint; others of its number are damage. */
static inline int pprof_need_varint(struct pprof_reader *r, const struct wire_field *f)
{
        return f->type == WIRE_VARINT ? 0 : pprof_bad(r, "a number has the wrong wire type");
}

/* The id in p of what the file has under an index or id; it is added when first asked for. 0 or -errno. */
int pprof_get_string(struct pprof_reader *r, uint64_t index, uint32_t *ret);
int pprof_get_location(struct pprof_reader *r, uint64_t file_id, uint32_t *ret);

int pprof_read_samples(struct pprof_reader *r);

#endif
