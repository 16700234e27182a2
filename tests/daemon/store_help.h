/* What the tests of the store and of the API share: directories, profiles with known contents, and a text
 * form of a profile by which two are compared. */
#ifndef TESTS_STORE_HELP_H
#define TESTS_STORE_HELP_H

#include <stdint.h>

#include "base/buf.h"
#include "daemon/store.h"
#include "profile/profile.h"

#define SEC 1000000000ull
#define T0  1796091000ull /* 2026-12-01T02:10:00Z, by date -u -d @1796091000 */

/* A new directory under /tmp; removed with all in it by help_remove(). */
void help_directory(char path[64]);
void help_remove(const char *path);

/* `n` samples of two types, of uids 1000 and 1001 alternating, whose stacks, labels and values follow from
 * the seed. Frames of uid 1001 are called "secret_...", its comm "secretd". */
struct profile *help_profile(uint64_t start_s, uint64_t seconds, uint32_t n, uint32_t seed);

/* One line for each sample, sorted: functions, labels, values. free() it. */
char *help_dump(const struct profile *p);

int64_t help_sum(const struct profile *p, const char *type);

/* The defaults, on this directory: merged after 2 h and a day. */
struct store_config help_config(const char *directory);

/* Names in a directory, sorted, a space after each; hidden ones too, that of sums not. */
void help_names(const char *path, struct buf *out);

#endif
