/* When directories were changed last, asked in a thread of its own: a path may lead to a file system that
 * does not answer, and whoever asks has others to serve. */
#ifndef SYMBOLIZER_DIR_TIMES_H
#define SYMBOLIZER_DIR_TIMES_H

#include <stdbool.h>
#include <stdint.h>

#define DIR_TIMES_MAX  4   /* directories of one question */
#define DIR_TIMES_PATH 512 /* bytes of a path, with its NUL */

struct dir_times;

int dir_times_new(struct dir_times **ret);
struct dir_times *dir_times_free(struct dir_times *t);

/* A number made of the times of the first n paths; one that is not there counts as such. False: no answer
 * within a quarter of a second. As long as it does not come, further questions are not waited for. */
bool dir_times_read(struct dir_times *t, char path[][DIR_TIMES_PATH], uint32_t n, uint64_t *ret);

#endif
