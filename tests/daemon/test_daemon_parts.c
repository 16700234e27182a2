#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "daemon/cgroup.h"
#include "daemon/config.h"

static void check_cgroup(const char *path, const char *unit, const char *container, const char *pod)
{
        struct cgroup_names n;

        cgroup_parse(path, &n);
        assert_string_equal(n.unit, unit);
        assert_string_equal(n.container_id, container);
        assert_string_equal(n.pod, pod);
}

#define ID "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

/* Paths as the runtimes make them: systemd and cgroupfs drivers. */
static void test_cgroup_paths(void **state)
{
        check_cgroup("/", "", "", "");
        check_cgroup("/system.slice/postgresql.service", "postgresql.service", "", "");
        check_cgroup("/system.slice/system-getty.slice/getty@tty1.service", "getty@tty1.service", "", "");
        check_cgroup("/user.slice/user-1000.slice/user@1000.service/app.slice/foo.service", "foo.service",
                     "", "");
        check_cgroup("/user.slice/user-1000.slice/session-3.scope", "session-3.scope", "", "");
        check_cgroup("/system.slice/docker-" ID ".scope", "docker-" ID ".scope", ID, "");
        check_cgroup("/docker/" ID, "", ID, "");
        check_cgroup("/machine.slice/libpod-" ID ".scope/container", "libpod-" ID ".scope", ID, "");
        check_cgroup("/machine.slice/libpod-conmon-" ID ".scope", "libpod-conmon-" ID ".scope", "", "");
        check_cgroup("/kubepods.slice/kubepods-burstable.slice/"
                     "kubepods-burstable-pod12345678_1234_1234_1234_123456789abc.slice/cri-containerd-" ID
                     ".scope",
                     "cri-containerd-" ID ".scope", ID, "12345678-1234-1234-1234-123456789abc");
        check_cgroup("/kubepods/besteffort/pod12345678-1234-1234-1234-123456789abc/" ID, "", ID,
                     "12345678-1234-1234-1234-123456789abc");
        check_cgroup("/kubepods.slice/crio-" ID ".scope", "crio-" ID ".scope", ID, "");
        check_cgroup("/system.slice/_cpu.service", "cpu.service", "", "");
}

static void check_choice(const char *lines, const char *expected)
{
        char path[4096];

        cgroup_choose(lines, path, sizeof(path));
        assert_string_equal(path, expected);
}

static void test_cgroup_hierarchies(void **state)
{
        check_choice("0::/system.slice/a.service\n", "/system.slice/a.service");
        check_choice("12:pids:/system.slice/b.service\n1:name=systemd:/system.slice/b.service\n0::/\n",
                     "/system.slice/b.service");
        check_choice("5:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n", "/docker/x");
        check_choice("1:name=systemd:/\n0::/\n", "/");
        check_choice("", "/");
        check_choice("garbage\n0::\n", "/");
}

static char *write_config(const char *text)
{
        static char path[] = "/tmp/profd-config-XXXXXX";

        strcpy(path, "/tmp/profd-config-XXXXXX");
        int fd = mkstemp(path);
        assert_true(fd >= 0);
        assert_int_equal(write_all(fd, text, strlen(text)), 0);
        close(fd);
        return path;
}

static void test_config_defaults_are_those_of_the_manual(void **state)
{
        char *path = write_config("");
        _cleanup_free_ char *error = NULL;
        struct config *c;

        assert_int_equal(config_load(&c, path, &error), 0);
        assert_int_equal(c->n_events, 2);
        assert_string_equal(c->events[0], "cycles");
        assert_string_equal(c->events[1], "cache-misses");
        assert_int_equal(c->frequency, 99);
        assert_int_equal(c->window_ns, 60 * NSEC_PER_SEC);
        assert_int_equal(c->max_size, 1u << 30);
        assert_int_equal(c->max_age_ns, 14 * 86400 * NSEC_PER_SEC);
        assert_string_equal(c->directory, "/var/lib/profd");
        assert_string_equal(c->socket, "/run/profd/profd.sock");
        assert_string_equal(c->listen, "");
        assert_int_equal(c->cpu_ppm, 10000);
        assert_int_equal(c->memory, 256u << 20);
        config_free(c);
        unlink(path);
}

static void test_config_reads_values_and_drop_ins(void **state)
{
        char *path = write_config("# comment\n[Sampling]\nEvents=cycles r1a8\nFrequency = 19\n\n; more\n"
                                  "[Store]\nWindow=10s\nMaxSize=512M\n[Nonsense]\nA=b\n");
        char dir[128], file[160];
        _cleanup_free_ char *error = NULL;
        struct config *c;

        snprintf(dir, sizeof(dir), "%s.d", path);
        snprintf(file, sizeof(file), "%s/50-x.conf", dir);
        assert_int_equal(mkdir(dir, 0700), 0);
        FILE *f = fopen(file, "w");
        assert_non_null(f);
        fputs("[Sampling]\nFrequency=49\n[Store]\nMaxSize=\nUnknown=1\n", f);
        fclose(f);
        assert_int_equal(config_load(&c, path, &error), 0);
        assert_string_equal(c->events[1], "r1a8");
        assert_int_equal(c->frequency, 49);
        assert_int_equal(c->window_ns, 10 * NSEC_PER_SEC);
        assert_int_equal(c->max_size, 1u << 30); /* the empty value resets it */
        config_free(c);
        unlink(file);
        rmdir(dir);
        unlink(path);
}

static void test_config_says_where_it_is_wrong(void **state)
{
        static const struct {
                const char *text, *where, *what;
        } bad[] = {
                        {"[Sampling]\nFrequency=fast\n", ":2:", "Frequency=fast"},
                        {"[Sampling]\n\nFrequency=0\n", ":3:", "1 to 10000"},
                        {"Frequency=99\n", ":1:", "section"},
                        {"[Store]\nWindow=1s\n", ":2:", "5s to 1h"},
                        {"[Store]\nMaxSize\n", ":2:", "Key=Value"},
                        {"[Limits]\nCpu=1\n", ":2:", "share"},
                        {"[Api]\nListen=0.0.0.0:7000\n", "", "TlsCertificate="},
                        {"[Api]\nListen=:1\nTlsCertificate=a\nTlsKey=b\n", "", "TokenFile="},
                        {"[Sampling\n", ":1:", "section"},
        };

        for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
                char *path = write_config(bad[i].text), *error = NULL;
                struct config *c;
                assert_int_equal(config_load(&c, path, &error), -EINVAL);
                assert_non_null(error);
                assert_non_null(strstr(error, path));
                assert_non_null(strstr(error, bad[i].where));
                assert_non_null(strstr(error, bad[i].what));
                free(error);
                unlink(path);
        }
        char *error = NULL;
        struct config *c;
        assert_int_equal(config_load(&c, "/nonexistent/profd.conf", &error), -ENOENT);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                        cmocka_unit_test(test_cgroup_paths),
                        cmocka_unit_test(test_cgroup_hierarchies),
                        cmocka_unit_test(test_config_defaults_are_those_of_the_manual),
                        cmocka_unit_test(test_config_reads_values_and_drop_ins),
                        cmocka_unit_test(test_config_says_where_it_is_wrong),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
