#include "tools/doctor.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"

#define FILE_MAX     (1u << 20)
#define LITTLE_SPACE (1u << 20) /* a window of a busy host */

static int setting(const struct doctor *d, const char *path, int64_t *ret)
{
        char full[512];

        snprintf(full, sizeof(full), "%s%s", d->root, path);
        return read_file_i64(full, ret);
}

static bool exists(const struct doctor *d, const char *path)
{
        char full[512];

        snprintf(full, sizeof(full), "%s%s", d->root, path);
        return access(full, F_OK) == 0;
}

/* Also a file that is hidden by an empty one mounted over it is not there. */
static bool has_content(const struct doctor *d, const char *path)
{
        char full[512];
        struct stat st;

        snprintf(full, sizeof(full), "%s%s", d->root, path);
        return stat(full, &st) == 0 && st.st_size > 0;
}

static void check_kernel(struct doctor *d)
{
        struct utsname u;
        int major = 0, minor = 0;

        if (uname(&u) < 0 || sscanf(u.release, "%d.%d", &major, &minor) != 2)
                return;
        if (major > 5 || (major == 5 && minor >= 10))
                doctor_say(d, FINDING_GOOD, "kernel", "%s", u.release);
        else
                doctor_say(d, FINDING_BAD, "kernel", "%s is too old: profd needs Linux 5.10 or newer",
                           u.release);
}

static void check_btf(struct doctor *d)
{
        if (has_content(d, "/sys/kernel/btf/vmlinux"))
                doctor_say(d, FINDING_GOOD, "BTF",
                           "the kernel describes its types in /sys/kernel/btf/vmlinux");
        else
                doctor_say(d, FINDING_BAD, "BTF",
                           "missing: the kernel was built without CONFIG_DEBUG_INFO_BTF; use the "
                           "distribution's "
                           "kernel, or one with that option");
}

static void check_paranoid(struct doctor *d)
{
        int64_t v;

        if (setting(d, "/proc/sys/kernel/perf_event_paranoid", &v) < 0)
                doctor_say(d, FINDING_BAD, "perf events",
                           "the kernel has none: it needs CONFIG_PERF_EVENTS");
        else if (v <= 2)
                doctor_say(d, FINDING_GOOD, "perf_event_paranoid", "%" PRId64, v);
        else
                doctor_say(d, FINDING_NOTE, "perf_event_paranoid",
                           "%" PRId64
                           " refuses CAP_PERFMON on Debian's kernels: profd.service holds CAP_SYS_ADMIN "
                           "for that; to do without: sysctl kernel.perf_event_paranoid=2",
                           v);
}

static void check_rate(struct doctor *d)
{
        int64_t rate, percent;

        if (setting(d, "/proc/sys/kernel/perf_cpu_time_max_percent", &percent) == 0 && percent == 0)
                doctor_say(d, FINDING_NOTE, "perf throttling",
                           "is off (perf_cpu_time_max_percent=0): profd keeps to its own limits only");
        if (setting(d, "/proc/sys/kernel/perf_event_max_sample_rate", &rate) < 0)
                return;
        if (rate >= 1000)
                doctor_say(d, FINDING_GOOD, "highest rate", "%" PRId64 " Hz", rate);
        else
                doctor_say(d, FINDING_NOTE, "highest rate",
                           "%" PRId64 " Hz, lowered by the kernel because sampling took long: "
                           "sysctl kernel.perf_event_max_sample_rate=100000",
                           rate);
}

static void check_kptr(struct doctor *d)
{
        int64_t v;

        if (setting(d, "/proc/sys/kernel/kptr_restrict", &v) < 0)
                return;
        if (v < 2)
                doctor_say(d, FINDING_GOOD, "kptr_restrict", "%" PRId64 ": kernel functions have names", v);
        else
                doctor_say(d, FINDING_BAD, "kptr_restrict",
                           "%" PRId64
                           " hides the kernel's addresses from everybody: kernel functions have no names; "
                           "sysctl kernel.kptr_restrict=1",
                           v);
        if (!exists(d, "/proc/kallsyms"))
                doctor_say(d, FINDING_BAD, "kallsyms",
                           "missing: the kernel was built without CONFIG_KALLSYMS; its functions have no "
                           "names");
}

static void check_lockdown(struct doctor *d)
{
        char path[512];
        _cleanup_buf_ struct buf b = {0};

        snprintf(path, sizeof(path), "%s/sys/kernel/security/lockdown", d->root);
        if (read_file(path, FILE_MAX, &b) < 0)
                return; /* securityfs is not mounted, or there is no lockdown */
        if (strstr(buf_text(&b), "[confidentiality]"))
                doctor_say(d, FINDING_BAD, "lockdown",
                           "confidentiality: BPF may not read memory, and profd cannot sample; boot with "
                           "lockdown=integrity");
        else
                doctor_say(d, FINDING_GOOD, "lockdown", "%s",
                           strstr(buf_text(&b), "[integrity]") ? "integrity" : "none");
}

static bool is_core_pmu(const char *name)
{
        return !strcmp(name, "cpu") || !strncmp(name, "cpu_", 4) || strstr(name, "pmuv3") != NULL ||
               !strncmp(name, "armv8", 5) || !strncmp(name, "apple_", 6);
}

static void check_pmu(struct doctor *d)
{
        char path[512];
        _cleanup_buf_ struct buf found = {0};

        snprintf(path, sizeof(path), "%s/sys/bus/event_source/devices", d->root);
        DIR *dir = opendir(path);
        if (dir) {
                for (struct dirent *e; (e = readdir(dir));)
                        if (e->d_name[0] != '.' && is_core_pmu(e->d_name))
                                buf_addf(&found, "%s%s", found.len ? " " : "", e->d_name);
                closedir(dir);
        }
        if (found.len > 0)
                doctor_say(d, FINDING_GOOD, "hardware events", "%s", buf_text(&found));
        else
                doctor_say(d, FINDING_NOTE, "hardware events",
                           "this machine has none (as many virtual machines): cycles becomes cpu-clock, "
                           "cache-misses is off; a virtual PMU is for the host's administrator to give");
}

static void check_nmi_watchdog(struct doctor *d)
{
        int64_t v;

        if (setting(d, "/proc/sys/kernel/nmi_watchdog", &v) == 0 && v == 1)
                doctor_say(d, FINDING_NOTE, "nmi_watchdog",
                           "holds one hardware counter of each CPU; when events are short: "
                           "sysctl kernel.nmi_watchdog=0");
}

static void check_bpf(struct doctor *d)
{
        int64_t jit;

        if (setting(d, "/proc/sys/net/core/bpf_jit_enable", &jit) == 0 && jit == 0)
                doctor_say(d, FINDING_NOTE, "BPF JIT",
                           "off: a sample costs several times more; sysctl net.core.bpf_jit_enable=1");
        else
                doctor_say(d, FINDING_GOOD, "BPF JIT", "on");
}

/* The options of the mount on /proc. */
static void check_hidepid(struct doctor *d)
{
        char path[512];
        _cleanup_buf_ struct buf b = {0};

        snprintf(path, sizeof(path), "%s/proc/self/mounts", d->root);
        if (read_file(path, FILE_MAX, &b) < 0)
                return;
        char *save = NULL;
        for (char *line = strtok_r(b.data, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
                if (strstr(line, " /proc proc ") && strstr(line, "hidepid=") && !strstr(line, "hidepid=0") &&
                    !strstr(line, "hidepid=off"))
                        doctor_say(d, FINDING_NOTE, "hidepid",
                                   "/proc hides processes from all but root: run profd as root or with "
                                   "CAP_SYS_PTRACE (as its unit does)");
}

/* Units and containers are told from cgroups: of v2 by the kernel half, of v1 by /proc/PID/cgroup. */
static void check_cgroups(struct doctor *d)
{
        char path[512];
        _cleanup_buf_ struct buf b = {0};

        snprintf(path, sizeof(path), "%s/proc/self/mounts", d->root);
        if (read_file(path, FILE_MAX, &b) < 0)
                return;
        bool v2 = strstr(buf_text(&b), " cgroup2 ") != NULL, v1 = strstr(buf_text(&b), " cgroup ") != NULL;
        if (v1 || v2)
                doctor_say(d, FINDING_GOOD, "cgroups", "%s: units and containers have names",
                           v1 && v2 ? "hybrid"
                           : v1     ? "v1"
                                    : "v2");
        else
                doctor_say(d, FINDING_NOTE, "cgroups",
                           "none is mounted: samples have no unit and no container; mount -t cgroup2 "
                           "cgroup2 "
                           "/sys/fs/cgroup");
}

bool doctor_disk(struct doctor *d, const char *directory)
{
        struct statvfs fs;

        if (statvfs(directory, &fs) < 0)
                return false; /* not for this user to see */
        uint64_t free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
        if (fs.f_flag & ST_RDONLY)
                doctor_say(d, FINDING_BAD, "store",
                           "%s is on a read-only file system: nothing can be stored; remount it, or set "
                           "Directory= in /etc/profd/profd.conf",
                           directory);
        else if (free_bytes < LITTLE_SPACE)
                doctor_say(d, FINDING_BAD, "store",
                           "No space for windows in %s (%" PRIu64
                           " KiB free): make room, or lower MaxSize= in /etc/profd/profd.conf",
                           directory, free_bytes >> 10);
        else
                return false;
        return true;
}

void doctor_host(struct doctor *d)
{
        check_kernel(d);
        check_btf(d);
        check_bpf(d);
        check_lockdown(d);
        check_paranoid(d);
        check_rate(d);
        check_pmu(d);
        check_nmi_watchdog(d);
        check_kptr(d);
        check_hidepid(d);
        check_cgroups(d);
}
