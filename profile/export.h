/* Profiles in the formats that other tools read. */
#ifndef PROFILE_EXPORT_H
#define PROFILE_EXPORT_H

#include "base/buf.h"
#include "profile/profile.h"

enum export_format {
        EXPORT_PPROF,       /* gzip'ed profile.proto, all types: pprof.h */
        EXPORT_FOLDED,      /* "comm;root;leaf N" lines: flamegraph.pl, inferno, speedscope */
        EXPORT_PERF_SCRIPT, /* what `perf script` prints: stackcollapse-perf.pl, speedscope, Firefox Profiler
                             */
        EXPORT_SPEEDSCOPE,  /* speedscope's own JSON, www.speedscope.app/file-format-schema.json */
        EXPORT_CALLGRIND,   /* kcachegrind, qcachegrind, callgrind_annotate */
        EXPORT_JSON,        /* our own, profctl-dump(1) */
        EXPORT_FLAMEGRAPH,  /* one HTML page: flamegraph.h */
        EXPORT_FORMATS,
};

struct export_options {
        uint32_t type; /* index of the sample type; EXPORT_PPROF has all */
        bool no_inline;
        const char *title; /* of a page; NULL: made of host and time */
};

/* The name as `--format` takes it. */
const char *export_format_name(enum export_format f);
int export_format_by_name(const char *name, enum export_format *ret); /* -EINVAL */

/* By the ending of a file's name: .pb.gz .pprof .folded .collapsed .perf .speedscope.json .callgrind
 * (or callgrind.out...) .json .html; -EINVAL. */
int export_format_by_path(const char *path, enum export_format *ret);

/* Appends the profile to `out`. 0 or -errno. */
int export_profile(enum export_format f, const struct profile *p, const struct export_options *o,
                   struct buf *out);

#endif
