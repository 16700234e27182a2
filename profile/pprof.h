/* The pprof codec: profile.proto, gzip'ed. The reader takes any pprof file, trusts nothing, and is
 * bounded; the writer's output has ids exactly 1..n, string_table[0] empty, packed repeated fields. */
#ifndef PROFILE_PPROF_H
#define PROFILE_PPROF_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "profile/profile.h"
#include "profile/selection.h"

/* Appends the encoded profile; `compress`: gzip'ed. Equal profiles give equal bytes. 0 or -errno. */
int pprof_write(const struct profile *p, bool compress, struct buf *out);

/* Reads a file's bytes, gzip'ed or plain. max_bytes bounds the uncompressed size (0: 1 GiB). -EBADMSG: not a
 * pprof profile, `*ret_error` (may be NULL) then says what is wrong with it and where, a static text;
 * -EFBIG, -ENOMEM. */
int pprof_read(const void *data, size_t n, size_t max_bytes, struct profile **ret, const char **ret_error);

/* What of a file is taken. */
struct pprof_choice {
        const struct selection *selection; /* samples whose labels match; its event and its side do not count
                                              here. NULL: all */
        bool no_processes; /* leave out the labels "pid" and "thread_id": far fewer samples differ */
};

/* The same into a profile that has samples already, as pprof_read() and profile_merge() would together, in
 * less time. `choice` may be NULL. After an error `into` holds part of the file: throw it away. */
int pprof_merge(const void *data, size_t n, size_t max_bytes, const struct pprof_choice *choice,
                struct profile *into, const char **ret_error);

int pprof_read_file(const char *path, struct profile **ret, const char **ret_error);

/* Writes to `path` by a temporary name beside it, fsync and rename. */
int pprof_write_file(const struct profile *p, const char *path);

#endif
