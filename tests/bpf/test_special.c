/* Samples in places with rules of their own: functions that carry a return probe, and 32-bit processes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <bpf/bpf.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "daemon/sampler.h"
#include "tests/bpf/own_text.h"

#define EVENTS_UPROBE_TYPE "/sys/bus/event_source/devices/uprobe/type"
#define PLACED             __attribute__((noinline, aligned(512)))

extern char __executable_start;
static volatile uint64_t sink;

static PLACED uint64_t leaf(uint64_t v)
{
        for (uint32_t i = 0; i < 2000000; i++)
                __asm__ volatile("" : "+r"(v) : "r"(__builtin_frame_address(0)));
        return v;
}

static PLACED uint64_t probed(uint64_t v)
{
        return leaf(v) + 1;
}

static PLACED uint64_t caller(uint64_t v)
{
        return probed(v) + 2;
}

struct seen {
        uint32_t pid;
        uint64_t samples, leaf, chain, stamp, compat, compat_chain;
        uint64_t trampoline_start, trampoline_end; /* frames here are wrong */
        uint64_t in_trampoline;
};

static bool in(uint64_t frame, uint64_t (*function)(uint64_t))
{
        uint64_t a = ABI_FRAME_ADDRESS(frame);
        return a >= (uintptr_t)function && a < (uintptr_t)function + 512;
}

static int take_row(void *ctx, const struct sample_row *row)
{
        struct seen *s = ctx;

        if (row->key->tgid != s->pid)
                return 0;
        s->samples += row->samples;
        if (row->key->walk == ABI_WALK_COMPAT) {
                s->compat += row->samples;
                if (row->n_user >= 3)
                        s->compat_chain += row->samples;
        }
        for (uint32_t i = 0; i < row->n_user; i++)
                if (ABI_FRAME_ADDRESS(row->user[i]) - s->trampoline_start <
                    s->trampoline_end - s->trampoline_start)
                        s->in_trampoline += row->samples;
        if (!row->n_user || !in(row->user[0], leaf))
                return 0;
        s->leaf += row->samples;
        if (row->n_user > 2 && in(row->user[1], probed) && in(row->user[2], caller))
                s->chain += row->samples;
        return 0;
}

static void take_raw(void *ctx, const struct abi_raw *raw, const uint64_t *kernel, uint32_t n)
{
        struct seen *s = ctx;

        if (raw->key.tgid == s->pid)
                s->stamp = raw->stamp;
}

static struct sampler *start(void)
{
        const char *event = "cpu-clock";
        struct sampler_config c = {.events = &event, .n_events = 1, .frequency = 499, .memory = 64 << 20};
        struct sampler *s = NULL;

        assert_int_equal(sampler_new(&s, &c), 0);
        assert_int_equal(sampler_start(s), 0);
        return s;
}

static void drain(struct sampler *s, struct seen *seen)
{
        assert_int_equal(sampler_drain(s, take_row, take_raw, seen), 0);
}

static uint64_t cpu_ns(void)
{
        struct timespec t;

        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
        return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

static void burn(uint64_t ns)
{
        uint64_t end = cpu_ns() + ns;

        while (cpu_ns() < end)
                sink += caller(sink);
}

/* A perf event that makes the kernel put a probe on the return of a function. -errno when it has none. */
static int return_probe(void *function)
{
        int64_t type;
        struct perf_event_attr a = {.size = sizeof(a),
                                    .config = 1, /* retprobe */
                                    .uprobe_path = (uintptr_t) "/proc/self/exe",
                                    .probe_offset = (uintptr_t)function - (uintptr_t)&__executable_start};
        int r = read_file_i64(EVENTS_UPROBE_TYPE, &type);

        if (r < 0)
                return r;
        a.type = (uint32_t)type;
        r = (int)syscall(SYS_perf_event_open, &a, getpid(), -1, -1, PERF_FLAG_FD_CLOEXEC);
        return r < 0 ? -errno : r;
}

/* The range of "[uprobes]" in this process. */
static bool find_uprobes(uint64_t *ret_start, uint64_t *ret_end)
{
        _cleanup_fclose_ FILE *f = fopen("/proc/self/maps", "r");
        char line[512];

        while (f && fgets(line, sizeof(line), f))
                if (strstr(line, "[uprobes]") && sscanf(line, "%lx-%lx", ret_start, ret_end) == 2)
                        return true;
        return false;
}

/* The return address on the stack is not the caller's while a probe waits for the return. */
static void test_return_probe(void **state)
{
        struct seen seen = {.pid = (uint32_t)getpid()};
        _cleanup_close_ int probe = return_probe((void *)(uintptr_t)probed);
        struct sampler *s;
        struct unwind_maps m;
        struct abi_process p = {.first = 1, .n = 2, .flags = ABI_PROCESS_SETTLED};

        if (probe < 0) {
                fprintf(stderr, "skipped: no return probes here: %s\n", strerror(-probe));
                skip();
        }
        s = start();
        burn(NSEC_PER_SEC / 10); /* the first hit makes the mapping */
        assert_true(find_uprobes(&seen.trampoline_start, &seen.trampoline_end));
        for (int i = 0; i < 20 && !seen.stamp; i++) {
                burn(NSEC_PER_SEC / 10);
                drain(s, &seen);
        }
        assert_true(seen.stamp);
        assert_int_equal(own_text_map(s, seen.stamp, true), 0);
        sampler_unwind_maps(s, &m);
        m.mappings[2] = (struct abi_mapping){.start = seen.trampoline_start,
                                             .end = seen.trampoline_end,
                                             .flags = ABI_MAPPING_UPROBES};
        p.stamp = seen.stamp;
        assert_int_equal(bpf_map_update_elem(m.processes_fd, &seen.pid, &p, BPF_ANY), 0);

        drain(s, &seen);
        seen.leaf = seen.chain = seen.in_trampoline = 0;
        burn(NSEC_PER_SEC);
        drain(s, &seen);
        if (seen.chain * 100 < seen.leaf * 98)
                fprintf(stderr, "%llu samples, %llu with the chain, %llu with a trampoline\n",
                        (unsigned long long)seen.leaf, (unsigned long long)seen.chain,
                        (unsigned long long)seen.in_trampoline);
        assert_true(seen.leaf > 20);
        assert_true(seen.chain * 100 >= seen.leaf * 98);
        assert_int_equal(seen.in_trampoline, 0);
        sampler_free(s);
}

/* A 32-bit process, made by hand: _start calls f, f calls g, g loops, all with ebp frames. The stack is
 * walked by them, and marked. */
static const uint8_t elf32[] = {
                /* Elf32_Ehdr: entry 0x08048054, one program header at 52 */
                0x7f,
                'E',
                'L',
                'F',
                1,
                1,
                1,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                2,
                0,
                3,
                0,
                1,
                0,
                0,
                0,
                0x54,
                0x80,
                0x04,
                0x08,
                52,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                52,
                0,
                32,
                0,
                1,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                /* Elf32_Phdr: PT_LOAD, all of the file, read and execute */
                1,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0x80,
                0x04,
                0x08,
                0,
                0x80,
                0x04,
                0x08,
                0x80,
                0,
                0,
                0,
                0x80,
                0,
                0,
                0,
                5,
                0,
                0,
                0,
                0,
                0x10,
                0,
                0,
                /* 0x54: xor %ebp, %ebp; call f (0x5b) */
                0x31,
                0xed,
                0xe8,
                0,
                0,
                0,
                0,
                /* 0x5b f: push %ebp; mov %esp, %ebp; call g (0x63) */
                0x55,
                0x89,
                0xe5,
                0xe8,
                0,
                0,
                0,
                0,
                /* 0x63 g: push %ebp; mov %esp, %ebp; 1: jmp 1b */
                0x55,
                0x89,
                0xe5,
                0xeb,
                0xfe,
                /* to 0x80 */
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
};
_Static_assert(sizeof(elf32) == 0x80, "p_filesz");

static void test_compat(void **state)
{
        char path[] = "/tmp/profd-elf32-XXXXXX";
        int fd = mkstemp(path), status;
        struct seen seen = {0};
        struct sampler *s;
        pid_t pid;

        assert_true(fd >= 0);
        assert_int_equal(write_all(fd, elf32, sizeof(elf32)), 0);
        fchmod(fd, 0700);
        close(fd);
        s = start();
        pid = fork();
        if (!pid) {
                execl(path, path, NULL);
                _exit(errno == ENOEXEC ? 77 : 1);
        }
        seen.pid = (uint32_t)pid;
        /* until there are enough samples to judge by, on a host that has other work too */
        for (int i = 0; i < 600 && seen.samples <= 50 && waitpid(pid, &status, WNOHANG) == 0; i++) {
                usleep(100000);
                drain(s, &seen);
        }
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0); /* -1: it has ended by itself, and status says how */
        unlink(path);
        drain(s, &seen);
        sampler_free(s);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
                fprintf(stderr, "skipped: this kernel runs no 32-bit programs\n");
                skip();
        }
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        assert_true(seen.samples > 10);
        assert_true(seen.compat * 10 > seen.samples * 9);      /* but for those in exec and exit */
        assert_true(seen.compat_chain * 10 > seen.compat * 9); /* g, f, _start */
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                        cmocka_unit_test(test_return_probe),
                        cmocka_unit_test(test_compat),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
