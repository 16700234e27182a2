#include "profile/export.h"

#include <errno.h>
#include <string.h>

#include "profile/export_formats.h"
#include "profile/flamegraph.h"
#include "profile/pprof.h"

static const char *const names[EXPORT_FORMATS] = {
                [EXPORT_PPROF] = "pprof",
                [EXPORT_FOLDED] = "folded",
                [EXPORT_PERF_SCRIPT] = "perf-script",
                [EXPORT_SPEEDSCOPE] = "speedscope",
                [EXPORT_CALLGRIND] = "callgrind",
                [EXPORT_JSON] = "json",
                [EXPORT_FLAMEGRAPH] = "flamegraph",
};

static const struct {
        const char *ending;
        enum export_format format;
} endings[] = {
                {".pb.gz", EXPORT_PPROF},         {".pprof", EXPORT_PPROF},
                {".folded", EXPORT_FOLDED},       {".collapsed", EXPORT_FOLDED},
                {".perf", EXPORT_PERF_SCRIPT},    {".speedscope.json", EXPORT_SPEEDSCOPE},
                {".callgrind", EXPORT_CALLGRIND}, {".json", EXPORT_JSON},
                {".html", EXPORT_FLAMEGRAPH},
};

const char *export_format_name(enum export_format f)
{
        return names[f];
}

int export_format_by_name(const char *name, enum export_format *ret)
{
        for (int i = 0; i < EXPORT_FORMATS; i++)
                if (!strcmp(name, names[i])) {
                        *ret = (enum export_format)i;
                        return 0;
                }
        return -EINVAL;
}

int export_format_by_path(const char *path, enum export_format *ret)
{
        const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
        size_t n = strlen(name);

        for (size_t i = 0; i < ARRAY_SIZE(endings); i++) {
                size_t k = strlen(endings[i].ending);
                if (n > k && !strcmp(name + n - k, endings[i].ending)) {
                        *ret = endings[i].format;
                        return 0;
                }
        }
        if (!strncmp(name, "callgrind.out",
                     strlen("callgrind.out"))) { /* as callgrind names its own files */
                *ret = EXPORT_CALLGRIND;
                return 0;
        }
        return -EINVAL;
}

const char *export_label(const struct profile *p, const struct profile_sample *s, const char *key)
{
        const struct profile_label *l = profile_find_label(p, s, key);

        return l && l->str ? p->string[l->str] : NULL;
}

int export_profile(enum export_format f, const struct profile *p, const struct export_options *o,
                   struct buf *out)
{
        if (f != EXPORT_PPROF && o->type >= p->n_types)
                return -EINVAL;
        switch (f) {
        case EXPORT_PPROF:
                return pprof_write(p, true, out);
        case EXPORT_FOLDED:
                return export_folded(p, o, out);
        case EXPORT_PERF_SCRIPT:
                return export_perf_script(p, o, out);
        case EXPORT_SPEEDSCOPE:
                return export_speedscope(p, o, out);
        case EXPORT_CALLGRIND:
                return export_callgrind(p, o, out);
        case EXPORT_JSON:
                return export_json(p, o, out);
        case EXPORT_FLAMEGRAPH:
                return flamegraph_write(p, NULL, o, out);
        case EXPORT_FORMATS:
                break;
        }
        return -EINVAL;
}
