#include "tools/doctor.h"

#include <inttypes.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/io.h"

#define OPEN_FILES   "Max open files"
#define ENOUGH_FILES 4096 /* objects of a few hundred processes, and events of some hundred CPUs */

/* What each is for. CAP_SYS_ADMIN stands in for the newer ones that were split off it (Linux 5.8 and 5.9).
 */
static const struct {
        unsigned bit;
        bool admin_does; /* CAP_SYS_ADMIN does it too */
        const char *name, *without;
} wanted[] = {
                {CAP_BPF, true, "CAP_BPF", "it cannot load its BPF programs"},
                {CAP_PERFMON, true, "CAP_PERFMON", "it cannot sample other processes, nor the kernel"},
                {CAP_SYS_PTRACE, false, "CAP_SYS_PTRACE",
                 "it cannot see the mappings of other users' processes"},
                {CAP_SYSLOG, true, "CAP_SYSLOG", "kernel functions have no names where kptr_restrict is 1"},
                {CAP_DAC_READ_SEARCH, false, "CAP_DAC_READ_SEARCH",
                 "files that only their owner may read have no names"},
                {CAP_CHECKPOINT_RESTORE, true, "CAP_CHECKPOINT_RESTORE",
                 "deleted files and those of containers are not found through /proc/PID/map_files"},
};

void doctor_capability_set(struct doctor *d, uint64_t effective)
{
        unsigned missing = 0;

        for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
                bool has = effective >> wanted[i].bit & 1 ||
                           (wanted[i].admin_does && effective >> CAP_SYS_ADMIN & 1);
                missing += !has;
                if (!has)
                        doctor_say(d, i < 2 ? FINDING_BAD : FINDING_NOTE, "capabilities",
                                   "profd does not have %s: %s; give it in CapabilityBoundingSet= and "
                                   "AmbientCapabilities= of profd.service",
                                   wanted[i].name, wanted[i].without);
        }
        if (missing == 0)
                doctor_say(d, FINDING_GOOD, "capabilities", "profd has all that it needs");
}

void doctor_open_files(struct doctor *d, uint64_t limit)
{
        if (limit >= ENOUGH_FILES)
                doctor_say(d, FINDING_GOOD, "open files", "%" PRIu64, limit);
        else
                doctor_say(d, FINDING_NOTE, "open files",
                           "profd may open %" PRIu64
                           " only: on a host with many programs some stay without names; raise "
                           "LimitNOFILE= of profd.service",
                           limit);
}

void doctor_process(struct doctor *d, uint64_t pid)
{
        char path[64];
        _cleanup_buf_ struct buf status = {0}, limits = {0};

        snprintf(path, sizeof(path), "/proc/%" PRIu64 "/status", pid);
        if (read_file(path, 65536, &status) < 0 || strncmp(buf_text(&status), "Name:\tprofd\n", 12) != 0)
                return; /* another host's, or another PID namespace's */
        const char *line = strstr(buf_text(&status), "\nCapEff:");
        if (line)
                doctor_capability_set(d, strtoull(line + 8, NULL, 16));
        snprintf(path, sizeof(path), "/proc/%" PRIu64 "/limits", pid);
        if (read_file(path, 65536, &limits) < 0)
                return;
        line = strstr(buf_text(&limits), OPEN_FILES);
        if (line)
                doctor_open_files(d, strtoull(line + strlen(OPEN_FILES), NULL, 10));
}
