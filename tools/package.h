/* Which package a file belongs to, as far as this host's package manager knows. */
#ifndef TOOLS_PACKAGE_H
#define TOOLS_PACKAGE_H

/* The package's name, for the caller to free(); NULL: none, or there is no dpkg. */
char *package_of(const char *path);

#endif
