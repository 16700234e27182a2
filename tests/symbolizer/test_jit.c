/* JIT maps and dumps, written here as the specifications in the kernel's tools/perf/Documentation say. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "symbol_client.h"

static char map_path[64];

static void append(const char *path, const void *data, size_t n)
{
        _cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);

        assert_true(fd >= 0);
        assert_int_equal(write_all(fd, data, n), 0);
}

static void append_text(const char *s)
{
        append(map_path, s, strlen(s));
}

static void assert_name(struct symclient *c, struct symobj *o, uint64_t address, const char *want)
{
        struct answer a;

        ask_one(c, o, address, &a);
        assert_int_equal(a.err, 0);
        assert_string_equal(a.function, want);
}

static struct symobj *open_jit(struct symclient *c, int want)
{
        struct answer a = {};
        struct symobj *o = symclient_open_jit(c, (uint32_t)getpid(), 0, answer_open, &a);

        assert_non_null(o);
        assert_int_equal(symclient_wait(c, SOON_MS), 0);
        assert_int_equal(a.calls, 1);
        assert_int_equal(a.err, want);
        return o;
}

static void test_no_map(void **state)
{
        struct symclient *c = client_new(NULL);

        symobj_close(c, open_jit(c, -ENOENT));
        symclient_free(c);
}

static void test_map_that_grows(void **state)
{
        struct symclient *c = client_new(NULL);
        struct symobj *o;

        append_text("7f0000001000 40 first\n"
                    "0x00007f0000002000 0x20 Lcom/example/Main;::run(I)V\n"
                    "this line is damaged\n"
                    "7f0000003000 10 LazyCompile:*add /srv/app.js:12:3\n");
        o = open_jit(c, 0);
        assert_name(c, o, 0x7f0000001000, "first");
        assert_name(c, o, 0x7f000000103f, "first");
        assert_name(c, o, 0x7f0000001040, "");
        assert_name(c, o, 0x7f0000002010, "Lcom/example/Main;::run(I)V");
        assert_name(c, o, 0x7f0000003001, "LazyCompile:*add /srv/app.js:12:3");

        /* Newer code over older, in part; a line that is not all there yet. */
        append_text("7f0000001010 10 second\n7f0000004000 10 unfin");
        assert_name(c, o, 0x7f000000100f, "first");
        assert_name(c, o, 0x7f0000001010, "second");
        assert_name(c, o, 0x7f0000001020, "first");
        assert_name(c, o, 0x7f0000004000, "");
        append_text("ished\n");
        assert_name(c, o, 0x7f0000004000, "unfinished");

        /* Begun anew, as after an exec. */
        assert_int_equal(truncate(map_path, 0), 0);
        append_text("7f0000001000 40 other\n");
        assert_name(c, o, 0x7f0000001015, "other");
        assert_name(c, o, 0x7f0000004000, "");
        symobj_close(c, o);
        symclient_free(c);
        unlink(map_path);
}

/* Thousands of entries that overlap at random, against the plainest search. */
static void test_the_newest_wins(void **state)
{
        enum { N = 3000, SPACE = 4000 };
        struct symclient *c = client_new(NULL);
        static uint64_t start[N], size[N];
        unsigned seed = 1;
        char line[128];
        struct symobj *o;

        for (int i = 0; i < N; i++) {
                start[i] = 0x1000 + (uint64_t)(rand_r(&seed) % SPACE);
                size[i] = 1 + (uint64_t)(rand_r(&seed) % 50);
                snprintf(line, sizeof(line), "%lx %lx f%d\n", start[i], size[i], i);
                append_text(line);
        }
        o = open_jit(c, 0);
        for (uint64_t a = 0xff0; a < 0x1000 + SPACE + 60; a += 7) {
                char want[32] = "";

                for (int i = 0; i < N; i++)
                        if (a >= start[i] && a < start[i] + size[i])
                                snprintf(want, sizeof(want), "f%d", i);
                assert_name(c, o, a, want);
        }
        symobj_close(c, o);
        symclient_free(c);
        unlink(map_path);
}

static void test_what_is_not_believed(void **state)
{
        struct symclient *c = client_new(NULL);
        char other[80];

        /* a link */
        snprintf(other, sizeof(other), "%s.target", map_path);
        append(other, "1000 10 x\n", 10);
        assert_int_equal(symlink(other, map_path), 0);
        symobj_close(c, open_jit(c, -ENOENT));
        unlink(map_path);
        unlink(other);

        /* a FIFO: neither waited for nor read */
        assert_int_equal(mkfifo(map_path, 0644), 0);
        symobj_close(c, open_jit(c, -ENOENT));
        unlink(map_path);

        /* somebody else's */
        if (geteuid() == 0) {
                append_text("1000 10 x\n");
                assert_int_equal(chown(map_path, 12345, 12345), 0);
                symobj_close(c, open_jit(c, -ENOENT));
                unlink(map_path);
        }
        symclient_free(c);
}

struct dump {
        struct {
                uint32_t magic, version, total_size, elf_mach, pad, pid;
                uint64_t timestamp, flags;
        } header;
        struct {
                uint32_t id, total_size;
                uint64_t timestamp, code_addr, n_entries;
                uint64_t addr1;
                uint32_t line1, column1;
                char file1[7];
                uint64_t addr2;
                uint32_t line2, column2;
                char file2[2]; /* "\xff": the same */
                char padding[7];
        } __attribute__((packed)) debug;
        struct {
                uint32_t id, total_size;
                uint64_t timestamp;
                uint32_t pid, tid;
                uint64_t vma, code_addr, code_size, code_index;
                char name[8];
                uint8_t code[16];
        } load;
        struct {
                uint32_t id, total_size;
                uint64_t timestamp;
                uint32_t pid, tid;
                uint64_t vma, old_code_addr, new_code_addr, code_size, code_index;
        } move;
};

static void test_jitdump(void **state)
{
        struct symclient *c = client_new(NULL);
        char *dir = scratch_new(), path[128];
        struct dump d = {
                        .header = {0x4A695444, 1, sizeof(d.header), 62, 0, (uint32_t)getpid(), 0, 0},
                        .debug = {2, sizeof(d.debug), 0, 0x5000, 2, 0x5000, 10, 0, "app.js", 0x5008, 11, 0,
                                  "\xff"},
                        .load = {0, sizeof(d.load), 0, 0, 0, 0x5000, 0x5000, 16, 1, "compute", {}},
                        .move = {1, sizeof(d.move), 0, 0, 0, 0x9000, 0x5000, 0x9000, 16, 1},
        };
        struct symobj *o;
        struct answer a;
        void *page;
        int fd;

        snprintf(path, sizeof(path), "%s/jit-%d.dump", dir, getpid());
        append(path, &d, offsetof(struct dump, move));
        fd = open(path, O_RDONLY | O_CLOEXEC);
        page = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0); /* how perf is told */
        assert_ptr_not_equal(page, MAP_FAILED);
        o = open_jit(c, 0);
        ask_one(c, o, 0x5004, &a);
        assert_string_equal(a.function, "compute");
        assert_string_equal(a.file, "app.js");
        assert_int_equal(a.line, 10);
        ask_one(c, o, 0x500f, &a);
        assert_int_equal(a.line, 11);
        assert_string_equal(a.file, "app.js");
        assert_name(c, o, 0x5010, "");

        append(path, &d.move, sizeof(d.move));
        assert_name(c, o, 0x9001, "compute");
        symobj_close(c, o);

        /* A dump of another process. */
        d.header.pid++;
        assert_int_equal(truncate(path, 0), 0);
        append(path, &d, sizeof(d));
        symobj_close(c, open_jit(c, -EBADMSG));
        munmap(page, 4096);
        close(fd);
        scratch_free(dir);
        symclient_free(c);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                        cmocka_unit_test(test_no_map),          cmocka_unit_test(test_map_that_grows),
                        cmocka_unit_test(test_the_newest_wins), cmocka_unit_test(test_what_is_not_believed),
                        cmocka_unit_test(test_jitdump),
        };

        snprintf(map_path, sizeof(map_path), "/tmp/perf-%d.map", getpid());
        return cmocka_run_group_tests(tests, NULL, NULL);
}
