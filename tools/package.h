/* Which package a file belongs to, and which one has its debug symbols, as far as this host's package
 * manager knows. */
#ifndef TOOLS_PACKAGE_H
#define TOOLS_PACKAGE_H

#include <stdbool.h>

#include "base/cleanup.h"

struct package {
        char *name, *version;
        char *debug;   /* the package with its debug symbols */
        bool outdated; /* the file that is installed is not the one with the build ID asked for */
};

/* build_id: in hexadecimal; empty: not known. -ENOENT: the file is of no package, or there is no dpkg. */
int package_of(const char *path, const char *build_id, struct package *ret);
void package_done(struct package *p);
#define _cleanup_package_ _cleanup_(package_done)

#endif
