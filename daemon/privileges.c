#include "daemon/privileges.h"

#include <errno.h>
#include <sys/capability.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"

#define PARANOID_FILE   "/proc/sys/kernel/perf_event_paranoid"
#define PARANOID_BEYOND 2 /* above it, Debian's kernels ask for CAP_SYS_ADMIN */

static void caps_free(cap_t *caps)
{
        if (*caps)
                cap_free(*caps);
}

int privileges_drop_unneeded(void)
{
        const cap_value_t admin = CAP_SYS_ADMIN;
        cap_flag_value_t held;
        int64_t paranoid;

        if (geteuid() == 0)
                return 0;
        int r = read_file_i64(PARANOID_FILE, &paranoid);
        if (r < 0 || paranoid > PARANOID_BEYOND)
                return r;
        _cleanup_(caps_free) cap_t caps = cap_get_proc();
        if (!caps || cap_get_flag(caps, admin, CAP_PERMITTED, &held) < 0)
                return -errno;
        if (held != CAP_SET)
                return 0;
        prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_LOWER, admin, 0, 0);
        if (cap_set_flag(caps, CAP_EFFECTIVE, 1, &admin, CAP_CLEAR) < 0 ||
            cap_set_flag(caps, CAP_PERMITTED, 1, &admin, CAP_CLEAR) < 0 ||
            cap_set_flag(caps, CAP_INHERITABLE, 1, &admin, CAP_CLEAR) < 0 || cap_set_proc(caps) < 0)
                return -errno;
        return 0;
}
