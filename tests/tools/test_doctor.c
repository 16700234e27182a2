/* profctl doctor on made-up hosts and profiles. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "base/cleanup.h"
#include "tools/doctor.h"
#include "tools/package.h"

#define CGROUP1 "cgroup /sys/fs/cgroup/systemd cgroup rw,name=systemd 0 0\n"
#define CGROUP2 "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"

static char root[] = "/tmp/profctl-doctor-XXXXXX";

static void put(const char *path, const char *content)
{
        char full[512], command[600];

        snprintf(full, sizeof(full), "%s%s", root, path);
        snprintf(command, sizeof(command), "mkdir -p \"$(dirname %s)\"", full);
        assert_int_equal(system(command), 0);
        FILE *f = fopen(full, "w");
        assert_non_null(f);
        fputs(content, f);
        fclose(f);
}

static void healthy_host(void)
{
        put("/sys/kernel/btf/vmlinux", "BTF");
        put("/sys/bus/event_source/devices/cpu/type", "4\n");
        put("/proc/sys/kernel/perf_event_paranoid", "2\n");
        put("/proc/sys/kernel/perf_event_max_sample_rate", "100000\n");
        put("/proc/sys/kernel/perf_cpu_time_max_percent", "25\n");
        put("/proc/sys/kernel/kptr_restrict", "0\n");
        put("/proc/sys/kernel/nmi_watchdog", "0\n");
        put("/proc/sys/net/core/bpf_jit_enable", "1\n");
        put("/proc/kallsyms", "");
        put("/proc/self/mounts", "proc /proc proc rw,nosuid 0 0\n" CGROUP2);
        put("/sys/kernel/security/lockdown", "[none] integrity confidentiality\n");
}

static void test_a_healthy_host(void **state)
{
        _cleanup_buf_ struct buf out = {0};
        struct doctor d = {.out = &out, .root = root};

        healthy_host();
        doctor_host(&d);
        if (d.bad || d.notes)
                fail_msg("%s", buf_text(&out));
}

static void test_each_obstacle_is_named(void **state)
{
        static const struct {
                const char *path, *content;
                unsigned bad;
                const char *says;
        } cases[] = {
                        {"/proc/sys/kernel/perf_event_paranoid", "3\n", 0, "kernel.perf_event_paranoid=2"},
                        {"/proc/sys/kernel/perf_event_max_sample_rate", "400\n", 0, "400 Hz"},
                        {"/proc/sys/kernel/perf_cpu_time_max_percent", "0\n", 0, "throttling"},
                        {"/proc/sys/kernel/kptr_restrict", "2\n", 1, "kernel.kptr_restrict=1"},
                        {"/proc/sys/kernel/nmi_watchdog", "1\n", 0, "kernel.nmi_watchdog=0"},
                        {"/proc/sys/net/core/bpf_jit_enable", "0\n", 0, "net.core.bpf_jit_enable=1"},
                        {"/proc/self/mounts", "proc /proc proc rw,hidepid=2 0 0\n" CGROUP2, 0, "hidepid"},
                        {"/proc/self/mounts", "proc /proc proc rw 0 0\n", 0, "mount -t cgroup2"},
                        {"/sys/kernel/btf/vmlinux", "", 1, "CONFIG_DEBUG_INFO_BTF"},
                        {"/sys/kernel/security/lockdown", "none integrity [confidentiality]\n", 1,
                         "lockdown=integrity"},
        };

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                _cleanup_buf_ struct buf out = {0};
                struct doctor d = {.out = &out, .root = root};
                healthy_host();
                put(cases[i].path, cases[i].content);
                doctor_host(&d);
                assert_int_equal(d.bad, cases[i].bad);
                assert_int_equal(d.notes, 1 - cases[i].bad);
                if (!strstr(buf_text(&out), cases[i].says))
                        fail_msg("%s is not in: %s", cases[i].says, buf_text(&out));
        }
}

static void test_what_is_missing(void **state)
{
        static const char *const paths[] = {"/sys/kernel/btf", "/sys/bus/event_source/devices/cpu",
                                            "/proc/kallsyms", "/proc/sys/kernel/perf_event_paranoid"};

        for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
                _cleanup_buf_ struct buf out = {0};
                struct doctor d = {.out = &out, .root = root};
                char command[512];
                healthy_host();
                snprintf(command, sizeof(command), "rm -r %s%s", root, paths[i]);
                assert_int_equal(system(command), 0);
                doctor_host(&d);
                assert_int_equal(d.bad + d.notes, 1);
        }
}

static uint32_t id(int64_t v)
{
        assert_true(v >= 0);
        return (uint32_t)v;
}

static uint32_t frame(struct profile *p, const char *object, const char *name, int64_t line)
{
        uint32_t m = *object ? id(profile_mapping(p, &(struct profile_mapping){.start = 1,
                                                                               .limit = 1000,
                                                                               .file = id(profile_string(
                                                                                               p, object))}))
                             : 0;
        struct profile_line l = {
                        .function = id(profile_function(
                                        p, &(struct profile_function){.name = id(profile_string(p, name))})),
                        .line = line};
        return id(profile_location(p, m, 1, &l, 1));
}

static void sample(struct profile *p, int64_t n, uint32_t leaf, uint32_t root_frame)
{
        assert_int_equal(profile_sample(p, (uint32_t[]){leaf, root_frame}, 2, NULL, 0, &n), 0);
}

static void test_objects_that_matter_most_come_first(void **state)
{
        _cleanup_profile_ struct profile *p = NULL;
        _cleanup_buf_ struct buf out = {0};
        struct doctor d = {.out = &out, .root = root};

        assert_int_equal(profile_new(&p), 0);
        id(profile_type(p, "samples", "count"));
        uint32_t start = frame(p, "/opt/app", "main", 3);
        sample(p, 8000, frame(p, "/opt/app", "work", 7), start);
        sample(p, 900, frame(p, "/opt/lib/libz.so", "libz.so+0x1f", 0), start);
        sample(p, 600, frame(p, "/opt/lib/liby.so", "liby.so+0x2f", 0), start);
        sample(p, 300, frame(p, "/opt/lib/libn.so", "named", 0), start);
        sample(p, 195, frame(p, "/opt/lib/libend.so", "f", 1),
               frame(p, "", "[truncated: no unwind information]", 0));
        sample(p, 5, frame(p, "/opt/lib/rare.so", "rare.so+0x1", 0), start);
        assert_int_equal(profile_comment(p, "stacks.complete: 9800"), 0);
        assert_int_equal(profile_comment(p, "stacks.no_table: 200"), 0);
        doctor_symbols(&d, p);

        const char *text = buf_text(&out), *z = strstr(text, "/opt/lib/libz.so, 9.0%"),
                   *y = strstr(text, "/opt/lib/liby.so, 6.0%");
        assert_non_null(z);
        assert_true(y > z);
        assert_non_null(strstr(text, "no source lines      in /opt/lib/libn.so, 3.0%"));
        assert_non_null(strstr(text, "stacks end early     in /opt/lib/libend.so, 1.9%"));
        assert_null(strstr(text, "rare.so"));
        assert_null(strstr(text, "of the kernel"));
        assert_non_null(strstr(text, "complete stacks      98.00%"));
        assert_int_equal(d.notes, 5);
}

static void test_the_kernel_without_lines(void **state)
{
        _cleanup_profile_ struct profile *p = NULL;
        _cleanup_buf_ struct buf out = {0};
        struct doctor d = {.out = &out, .root = root};

        assert_int_equal(profile_new(&p), 0);
        id(profile_type(p, "samples", "count"));
        uint32_t root_frame = frame(p, "/opt/lib/libok.so", "_start", 1);
        sample(p, 80, frame(p, "/opt/lib/libok.so", "work", 1), root_frame);
        sample(p, 15, frame(p, "[kernel.kallsyms]", "vfs_read", 0), root_frame);
        sample(p, 5, frame(p, "[kernel.kallsyms]", "vfs_write", 7), root_frame);
        doctor_symbols(&d, p);
        assert_non_null(strstr(buf_text(&out), "no source lines      of the kernel, 15.0% of all samples"));
}

static void test_kinds_of_cgroups_are_told_apart(void **state)
{
        static const char *const cases[][2] = {
                        {CGROUP1, "v1:"}, {CGROUP2, "v2:"}, {CGROUP1 CGROUP2, "hybrid:"}};

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                _cleanup_buf_ struct buf out = {0};
                struct doctor d = {.out = &out, .root = root};
                healthy_host();
                put("/proc/self/mounts", cases[i][0]);
                doctor_host(&d);
                assert_int_equal(d.bad + d.notes, 0);
                assert_non_null(strstr(buf_text(&out), cases[i][1]));
        }
}

static void test_few_open_files(void **state)
{
        _cleanup_buf_ struct buf out = {0};
        struct doctor d = {.out = &out, .root = root};

        doctor_open_files(&d, 4096);
        assert_int_equal(d.notes, 0);
        doctor_open_files(&d, 1024);
        assert_int_equal(d.notes, 1);
        assert_non_null(strstr(buf_text(&out), "LimitNOFILE="));
}

static void test_missing_capabilities_are_named(void **state)
{
        /* capability.h: BPF 39, PERFMON 38, SYS_PTRACE 19, SYSLOG 34, DAC_READ_SEARCH 2, CHECKPOINT_RESTORE
         * 40, SYS_ADMIN 21 */
        static const struct {
                uint64_t set;
                unsigned bad, notes;
        } cases[] = {
                        {0x1ffffffffffull, 0, 0},
                        {1ull << 39 | 1ull << 38 | 1ull << 19 | 1ull << 34 | 1ull << 2 | 1ull << 40, 0, 0},
                        {1ull << 21 | 1ull << 19 | 1ull << 2, 0, 0},
                        {1ull << 39 | 1ull << 19 | 1ull << 34 | 1ull << 2 | 1ull << 40, 1, 0},
                        {1ull << 21, 0, 2},
                        {0, 2, 4},
        };

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                _cleanup_buf_ struct buf out = {0};
                struct doctor d = {.out = &out, .root = root};
                doctor_capability_set(&d, cases[i].set);
                assert_int_equal(d.bad, cases[i].bad);
                assert_int_equal(d.notes, cases[i].notes);
        }
}

/* On Debian; its package of debug symbols is the one that is not named as all others. */
static void test_the_package_of_the_c_library(void **state)
{
        _cleanup_package_ struct package p = {0};
        Dl_info library;

        assert_true(dladdr((void *)(uintptr_t)getenv, &library));
        if (package_of(library.dli_fname, "", &p) < 0) {
                print_message("skipped: the C library is of no package here\n");
                skip();
        }
        assert_non_null(p.version);
        if (!strcmp(p.name, "libc6"))
                assert_string_equal(p.debug, "libc6-dbg");
        assert_false(p.outdated);
        package_done(&p);
        assert_int_equal(package_of(library.dli_fname, "00", &p), 0);
        assert_true(p.outdated);
}

static int remove_root(void **state)
{
        char command[64];

        snprintf(command, sizeof(command), "rm -r %s", root);
        return system(command);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                        cmocka_unit_test(test_a_healthy_host),
                        cmocka_unit_test(test_each_obstacle_is_named),
                        cmocka_unit_test(test_what_is_missing),
                        cmocka_unit_test(test_kinds_of_cgroups_are_told_apart),
                        cmocka_unit_test(test_few_open_files),
                        cmocka_unit_test(test_missing_capabilities_are_named),
                        cmocka_unit_test(test_objects_that_matter_most_come_first),
                        cmocka_unit_test(test_the_kernel_without_lines),
                        cmocka_unit_test(test_the_package_of_the_c_library),
        };

        if (!mkdtemp(root))
                return 1;
        return cmocka_run_group_tests(tests, NULL, remove_root);
}
