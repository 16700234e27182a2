/* What profctl says to people on stderr: one line, what failed, on what, and what to do next. */
#ifndef TOOLS_SAY_H
#define TOOLS_SAY_H

/* Exit statuses. */
#define STATUS_DONE   0
#define STATUS_FAILED 1
#define STATUS_USAGE  2

/* Says it and returns STATUS_FAILED. */
int say_failed(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Says it, with a pointer to the command's help, and returns STATUS_USAGE. */
int say_usage(const char *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Something worth knowing that is no failure. */
void say_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Writes all to stdout; a reader that went away (a pager that was quit) is no failure. Returns the exit
 * status. */
#include "base/buf.h"
int say_out(const struct buf *b);

#endif
