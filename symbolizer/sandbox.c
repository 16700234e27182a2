/* Several layers, none of which trusts the others. The one that counts most is the system call filter: no
 * file, no socket and no process can be made, and no memory made executable. The others stand where the
 * filter cannot (old kernels, containers that forbid it), or where a kernel's bug lets something through. */
#include "symbolizer/sandbox.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "symbolizer/protocol.h"

#define NOBODY 65534

/* Files are mapped whole, so the address space is no measure of memory: RLIMIT_DATA is, which counts private
 * writable memory (since Linux 4.7). */
#define MAX_MAPPED ((uint64_t)64 << 30)

#define MAX_DESCRIPTORS 4096 /* JIT maps stay open to be read as they grow */

#ifndef LANDLOCK_ACCESS_FS_REFER
#define LANDLOCK_ACCESS_FS_REFER (1ULL << 13) /* ABI 2 */
#endif
#define LANDLOCK_FS_ABI1     ((1ULL << 13) - 1)
#define LANDLOCK_FS_TRUNCATE (1ULL << 14) /* ABI 3 */
#define LANDLOCK_FS_IOCTL    (1ULL << 15) /* ABI 5 */

void sandbox_basics(void)
{
        struct rlimit none = {0, 0};

        prctl(PR_SET_NAME, "profd-worker", 0, 0,
              0); /* executed by descriptor, it would be named by its number */
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        prctl(PR_SET_NAME, "profd-worker"); /* it was executed by a number */
        setrlimit(RLIMIT_CORE, &none);
        close_range(WIRE_FD + 1, ~0u, 0);
}

static bool limit(int resource, uint64_t value)
{
        struct rlimit r = {value, value};

        return setrlimit((__rlimit_resource_t)resource, &r) == 0;
}

static bool enter_limits(uint64_t memory)
{
        bool ok = limit(RLIMIT_DATA, memory);

        ok &= limit(RLIMIT_AS, memory + MAX_MAPPED);
        ok &= limit(RLIMIT_FSIZE, 0);
        ok &= limit(RLIMIT_NOFILE, MAX_DESCRIPTORS);
        ok &= limit(RLIMIT_NPROC, 0);
        ok &= limit(RLIMIT_MEMLOCK, 0);
        return ok;
}

static bool enter_namespaces(void)
{
        int parts = CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS;

        /* Without privileges only a user namespace opens the way to the others. */
        return unshare(parts) == 0 || unshare(CLONE_NEWUSER | parts) == 0;
}

static bool enter_root(void)
{
        /* A directory that is empty but for the open descriptors, and gone with the process. */
        return chroot("/proc/self/fdinfo") == 0 && chdir("/") == 0;
}

static bool enter_user(void)
{
        struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct none[2] = {};

        if (geteuid() == 0 && (setgroups(0, NULL) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 ||
                               setresuid(NOBODY, NOBODY, NOBODY) < 0))
                return false;
        if (syscall(SYS_capset, &head, none) < 0)
                return false;
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0); /* a change of credentials clears it */
        return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0;
}

static bool enter_landlock(void)
{
        long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
        struct landlock_ruleset_attr attr = {.handled_access_fs = LANDLOCK_FS_ABI1};
        long fd;
        bool ok;

        if (abi < 1)
                return false;
        if (abi >= 2)
                attr.handled_access_fs |= LANDLOCK_ACCESS_FS_REFER;
        if (abi >= 3)
                attr.handled_access_fs |= LANDLOCK_FS_TRUNCATE;
        if (abi >= 5)
                attr.handled_access_fs |= LANDLOCK_FS_IOCTL;
        fd = syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);
        if (fd < 0)
                return false;
        ok = syscall(SYS_landlock_restrict_self, (int)fd, 0) == 0;
        close((int)fd);
        return ok;
}

static bool enter_seccomp(void)
{
        static const int allowed[] = {
                        SCMP_SYS(read),           SCMP_SYS(pread64),
                        SCMP_SYS(recvmsg),        SCMP_SYS(sendmsg),
                        SCMP_SYS(close),          SCMP_SYS(fstat),
                        SCMP_SYS(newfstatat),     SCMP_SYS(munmap),
                        SCMP_SYS(mremap),         SCMP_SYS(brk),
                        SCMP_SYS(madvise),        SCMP_SYS(futex),
                        SCMP_SYS(poll),           SCMP_SYS(ppoll),
                        SCMP_SYS(clock_gettime),  SCMP_SYS(exit),
                        SCMP_SYS(exit_group),     SCMP_SYS(rt_sigreturn),
                        SCMP_SYS(rt_sigprocmask), SCMP_SYS(getpid),
                        SCMP_SYS(gettid),         SCMP_SYS(getrandom),
                        SCMP_SYS(sysinfo), /* by qsort() */
        };
        static const int without_exec[] = {SCMP_SYS(mmap), SCMP_SYS(mprotect)};
        scmp_filter_ctx f = seccomp_init(SCMP_ACT_KILL_PROCESS);
        int r = f ? 0 : -ENOMEM;

        for (size_t i = 0; i < ARRAY_SIZE(allowed) && r == 0; i++)
                r = seccomp_rule_add(f, SCMP_ACT_ALLOW, allowed[i], 0);
        for (size_t i = 0; i < ARRAY_SIZE(without_exec) && r == 0; i++)
                r = seccomp_rule_add(f, SCMP_ACT_ALLOW, without_exec[i], 1,
                                     SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
        if (r == 0) /* what a failed assertion says, and its end */
                r = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(write), 1, SCMP_A0(SCMP_CMP_EQ, 2));
        if (r == 0)
                r = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(writev), 1, SCMP_A0(SCMP_CMP_EQ, 2));
        if (r == 0)
                r = seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), 1,
                                     SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)getpid()));
        if (r == 0)
                r = seccomp_load(f);
        seccomp_release(f);
        return r == 0;
}

uint32_t sandbox_enter(uint64_t memory)
{
        uint32_t parts = 0;

        if (enter_namespaces())
                parts |= SANDBOX_NAMESPACES;
        if (enter_root())
                parts |= SANDBOX_ROOT;
        if (enter_user())
                parts |= SANDBOX_USER;
        if (enter_limits(memory))
                parts |= SANDBOX_LIMITS;
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        if (enter_landlock())
                parts |= SANDBOX_LANDLOCK;
        if (enter_seccomp())
                parts |= SANDBOX_SECCOMP;
        return parts;
}
