/* Files that commands write: whole, or not at all. */
#ifndef TOOLS_OUTPUT_H
#define TOOLS_OUTPUT_H

#include "base/buf.h"

/* Writes beside the file and renames; a device or pipe is written to as it is. A file that was there keeps
 * its mode; a symbolic link goes on to name it. Returns the exit status. */
int output_file(const char *path, const struct buf *content);

/* Whether output_file() could write there, for before something long is done. STATUS_DONE, or STATUS_FAILED
 * (said); what is there is left as it is. NULL: STATUS_DONE. */
int output_check(const char *path);

#endif
