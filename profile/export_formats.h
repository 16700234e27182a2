/* The writers behind export_profile(), one file each. */
#ifndef PROFILE_EXPORT_FORMATS_H
#define PROFILE_EXPORT_FORMATS_H

#include "profile/export.h"

int export_folded(const struct profile *p, const struct export_options *o, struct buf *out);
int export_perf_script(const struct profile *p, const struct export_options *o, struct buf *out);
int export_speedscope(const struct profile *p, const struct export_options *o, struct buf *out);
int export_callgrind(const struct profile *p, const struct export_options *o, struct buf *out);
int export_json(const struct profile *p, const struct export_options *o, struct buf *out);

/* The text of a label, NULL when the sample has none. */
const char *export_label(const struct profile *p, const struct profile_sample *s, const char *key);

#endif
