/* Rows of deferred samples that are finished, until the next drain takes them. */
#ifndef DAEMON_TRACKER_ROWS_H
#define DAEMON_TRACKER_ROWS_H

#include "daemon/sample.h"

struct tracker_rows;

int tracker_rows_new(struct tracker_rows **ret);
struct tracker_rows *tracker_rows_free(struct tracker_rows *r);

/* Adds a sample (copied); equal ones become one row. -ENOMEM; -ENOSPC over the bound. */
int tracker_rows_add(struct tracker_rows *r, const struct sample_row *row);

/* Hands over all rows and forgets them, also after an error. */
int tracker_rows_drain(struct tracker_rows *r, sample_row_fn fn, void *ctx);

uint64_t tracker_rows_memory(const struct tracker_rows *r);

#endif
