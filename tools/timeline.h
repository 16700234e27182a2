/* A report over time, as a text chart. */
#ifndef TOOLS_TIMELINE_H
#define TOOLS_TIMELINE_H

#include "tools/query.h"
#include "tools/report.h"

/* Writes the chart of the query's windows (by default, of the last hour) to the standard output `fd`.
 * Returns the exit status. */
int timeline_text(const struct query *q, const struct report_options *o, int fd);

#endif
