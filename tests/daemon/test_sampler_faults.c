/* The sampler while single calls fail that hardly ever do: it says why, and closes nothing that is not its
 * own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/io.h"
#include "daemon/sampler.h"

static struct {
        uint32_t memory; /* the call of malloc() or calloc() that fails, counted from now; 0: none */
        bool epoll;      /* there is no descriptor for an epoll */
        bool mmapable; /* libbpf's own test whether maps can be mapped fails: it goes on without variables */
} failing;

/* Instead of profd's own calls (of the linker's --wrap), not of its libraries'. */
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);

static bool fails(void)
{
        return failing.memory && --failing.memory == 0;
}

/* What was never written is 0 here, which is a descriptor of the test. */
void *__wrap_malloc(size_t n)
{
        return fails() ? NULL : __real_calloc(1, n);
}

void *__wrap_calloc(size_t n, size_t size)
{
        return fails() ? NULL : __real_calloc(n, size);
}

int epoll_create1(int flags)
{
        if (failing.epoll) {
                errno = EMFILE;
                return -1;
        }
        return (int)syscall(SYS_epoll_create1, flags);
}

/* bpf() has no function of its own. */
long syscall(long number, ...)
{
        static __typeof__(&syscall) next;
        long a[6];
        va_list list;

        if (!next)
                *(void **)&next = dlsym(RTLD_NEXT, "syscall");
        va_start(list, number);
        for (int i = 0; i < 6; i++)
                a[i] = va_arg(list, long);
        va_end(list);
        if (number == SYS_bpf && a[0] == BPF_MAP_CREATE && failing.mmapable &&
            strncmp(((union bpf_attr *)a[1])->map_name, "libbpf_mmap", 11) == 0) {
                errno = ENOMEM;
                return -1;
        }
        return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* A sampler, or its refusal and what it said. */
static int new_sampler(char *said, size_t n)
{
        static const char *const events[] = {"cpu-clock", "page-faults"};
        const struct sampler_config config = {
                        .events = events, .n_events = 2, .frequency = 99, .memory = 16 << 20};
        struct sampler *s;
        int own = dup(STDERR_FILENO), log = memfd_create("log", MFD_CLOEXEC);

        assert_true(own >= 0 && log >= 0);
        dup2(log, STDERR_FILENO);
        int r = sampler_new(&s, &config);
        memset(&failing, 0, sizeof(failing));
        dup2(own, STDERR_FILENO);
        close(own);
        ssize_t k = pread(log, said, n - 1, 0);
        said[k > 0 ? k : 0] = 0;
        close(log);
        if (r == 0)
                sampler_free(s);
        return r;
}

static void test_each_allocation(void **state)
{
        char said[4096];
        int r;

        for (uint32_t k = 1;; k++) {
                failing.memory = k;
                r = new_sampler(said, sizeof(said));
                assert_true(fcntl(STDIN_FILENO, F_GETFD) >= 0);
                if (r == 0) {
                        assert_true(k > 5);
                        print_message("%u allocations\n", k - 1);
                        return;
                }
                assert_int_equal(r, -ENOMEM);
        }
}

static void test_no_descriptor_for_the_rings(void **state)
{
        char said[4096];

        failing.epoll = true;
        assert_int_equal(new_sampler(said, sizeof(said)), -EMFILE);
        assert_non_null(strstr(said, "rings"));
}

/* In a process of its own, since libbpf remembers what its test found. */
static void test_no_memory_for_global_variables(void **state)
{
        char said[4096];
        int status;
        pid_t pid = fork();

        assert_true(pid >= 0);
        if (pid == 0) {
                failing.mmapable = true;
                int r = new_sampler(said, sizeof(said));
                _exit(r == -ENOMEM && strstr(said, "not enough memory") ? 0 : 1);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                        cmocka_unit_test(
                                        test_no_memory_for_global_variables), /* before there is a sampler */
                        cmocka_unit_test(test_each_allocation),
                        cmocka_unit_test(test_no_descriptor_for_the_rings),
        };

        if (geteuid() != 0) {
                puts("skipped: needs root: BPF programs are loaded");
                return 77;
        }
        return cmocka_run_group_tests(tests, NULL, NULL);
}
