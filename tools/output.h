/* Files that commands write: whole, or not at all. */
#ifndef TOOLS_OUTPUT_H
#define TOOLS_OUTPUT_H

#include "base/buf.h"

/* Writes beside the file and renames; a device or pipe is written to as it is. Returns the exit status. */
int output_file(const char *path, const struct buf *content);

#endif
