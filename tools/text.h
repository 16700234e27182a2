/* Text in columns. Names come from strangers' files: control characters and broken UTF-8 never reach a
 * terminal. */
#ifndef TOOLS_TEXT_H
#define TOOLS_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* Sets a locale in which UTF-8 is understood, the user's own where it is one. Once, from main. */
void text_init(void);

/* Columns of a terminal that the text takes, as text_fit() writes it. */
int text_width(const char *s);

/* Appends the text, made harmless, cut to at most `columns` (the last is then an ellipsis) and, with `pad`,
 * filled up with spaces. columns < 0: not cut. */
void text_fit(struct buf *out, const char *s, int columns, bool pad);
void text_right(struct buf *out, const char *s, int columns);

/* Columns of the terminal on a descriptor; `otherwise` when it is none. COLUMNS overrides. */
int text_columns(int fd, int otherwise);

/* A bar of a share (0..1) in eighths of a block, `columns` wide. */
void text_bar(struct buf *out, double share, int columns);

#endif
