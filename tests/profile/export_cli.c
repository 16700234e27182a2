/* Writes a profile in a format, for tests and for looking at: export_cli FORMAT OUT FILE [BEFORE] */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "profile/export.h"
#include "profile/flamegraph.h"
#include "profile/pprof.h"

int main(int argc, char **argv)
{
        _cleanup_profile_ struct profile *p = NULL, *before = NULL;
        _cleanup_buf_ struct buf out = {0};
        const char *error = NULL;
        enum export_format format;

        if (argc < 4 || export_format_by_name(argv[1], &format) < 0) {
                fprintf(stderr, "usage: export_cli FORMAT OUT FILE [BEFORE]\n");
                return 2;
        }
        int r = pprof_read_file(argv[3], &p, &error);
        if (r == 0 && argc > 4)
                r = pprof_read_file(argv[4], &before, &error);
        if (r < 0) {
                fprintf(stderr, "export_cli: %s\n", error);
                return 1;
        }
        struct export_options o = {.type = profile_default_type(p)};
        r = before ? flamegraph_write(p, before, &o, &out) : export_profile(format, p, &o, &out);
        if (r == 0) {
                _cleanup_close_ int fd = open(argv[2], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
                r = fd < 0 ? -1 : write_all(fd, out.data, out.len);
        }
        if (r < 0)
                fprintf(stderr, "export_cli: %s\n", strerror(-r));
        return r < 0;
}
