/* What a window's file says about itself outside the profile: its name, and the comment in its gzip header
 * (RFC 1952, FCOMMENT), so that a store of thousands of windows is listed without inflating any.
 *
 * The comment is one line of "key=value" words after "profd-window 1":
 *   size       bytes of the whole file, 12 digits: a shorter file is a truncated one
 *   start duration   ns, as in the profile
 *   samples lost     see daemon/store.h
 *   seq        "<first>-<last>": numbers of the windows in it; each window stored gets the next one
 *   boot boot_end    boot ID, and CLOCK_BOOTTIME in ns at the window's end
 *   from       IDs of the windows that were merged into it and that it replaces, separated by commas
 * A file without the comment (another tool's, or recompressed) is valid; its facts are read from its
 * profile. */
#ifndef DAEMON_STORE_FACTS_H
#define DAEMON_STORE_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "daemon/store.h"
#include "profile/profile.h"

#define STORE_SUFFIX       ".pb.gz"
#define STORE_MAX_SOURCES  512
#define STORE_MAX_COMMENT  (32 * 1024)
#define STORE_BOOT_ID_SIZE 37

struct store_facts {
        uint64_t size;
        uint64_t start_ns, duration_ns;
        uint64_t samples, lost;
        uint64_t first_seq, last_seq;
        char boot_id[STORE_BOOT_ID_SIZE];
        uint64_t boot_end_ns;
        char *from; /* owned; NULL: not merged */
};

void store_facts_free(struct store_facts *f);
#define _cleanup_facts_ __attribute__((cleanup(store_facts_free)))

/* -ERANGE outside the years 1970 to 9999. */
int store_id_format(uint64_t start_s, uint64_t seconds, char ret[STORE_ID_SIZE]);
/* Takes exactly what store_id_format() gives; -EINVAL. */
int store_id_parse(const char *id, uint64_t *ret_start_s, uint64_t *ret_seconds);
/* From a file's name; -EINVAL when it is not a window's. */
int store_id_from_name(const char *name, char ret[STORE_ID_SIZE]);

/* The window's length as its name gives it: rounded, at least 1. */
uint64_t store_seconds(uint64_t duration_ns);

/* start, duration, samples, lost and boot from a profile; the rest stays 0. 0, or -EBADMSG when its times
 * are not those of a window. */
int store_facts_from_profile(const struct profile *p, struct store_facts *ret);

/* The whole file of a window: the profile, gzip'ed (GZIP_LEVEL...), with the comment. Sets facts->size. */
int store_facts_encode(const struct profile *p, struct store_facts *facts, int level, struct buf *out);

/* Reads the comment at the head of a file. -ENODATA: it has none. -EBADMSG: it is damaged, or no gzip file.
 */
int store_facts_read(int fd, struct store_facts *ret);

/* Whether `from` names the ID. */
bool store_from_has(const char *from, const char *id);

#endif
