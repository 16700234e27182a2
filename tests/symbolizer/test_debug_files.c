/* Where separate debug information is found. One program, split by objcopy in each of the ways that
 * distributions use; the expected address is nm's, from before it was stripped. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/cleanup.h"
#include "symbol_client.h"

static char *dir;        /* with "full", as it was linked */
static uint64_t address; /* of deep_inside */
static struct symclient *client;

static void assert_full(const char *path, const char *root)
{
        struct answer a;

        name_in_file(client, path, root, address, &a);
        assert_int_equal(a.err, 0);
        assert_string_equal(a.function, "deep_inside");
        assert_non_null(strstr(a.file, "find_me.c"));
        assert_true(a.line > 0);
}

static void assert_symbol_only(const char *path)
{
        struct answer a;

        name_in_file(client, path, NULL, address, &a);
        assert_string_equal(a.function, "deep_inside");
        assert_string_equal(a.file, "");
}

static void assert_nothing(const char *path)
{
        struct answer a;

        name_in_file(client, path, NULL, address, &a);
        assert_int_equal(a.err, 0);
        assert_int_equal(a.n, 1);
        assert_int_equal(a.n_frames, 0);
}

static char *path_in(const char *name)
{
        static char path[4][512];
        static unsigned next;
        char *p = path[next++ % 4];

        snprintf(p, sizeof(path[0]), "%s/%s", dir, name);
        return p;
}

static void run(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void run(const char *fmt, ...)
{
        char command[2048];
        va_list ap;

        va_start(ap, fmt);
        vsnprintf(command, sizeof(command), fmt, ap);
        va_end(ap);
        free(output_of("cd %s && %s 2>&1", dir, command));
}

static void test_the_object_itself(void **state)
{
        assert_full(path_in("full"), NULL);
}

static void test_nothing_but_the_stripped_object(void **state)
{
        run("strip -o alone full");
        assert_nothing(path_in("alone"));
}

/* debug/.build-id/xx/yyyy.debug; `debug` is the client's debug directory. */
static void test_build_id(void **state)
{
        _cleanup_free_ char *id = output_of("readelf -n %s/full | sed -n 's/.*Build ID: //p'", dir);

        assert_true(strlen(id) > 4);
        run("mkdir -p debug/.build-id/%.2s && objcopy --only-keep-debug full debug/.build-id/%.2s/%s.debug",
            id, id, id + 2);
        run("strip -o by-id full");
        assert_full(path_in("by-id"), NULL);

        /* A debug file that was itself stripped must not hide the full one in the next place. */
        run("cp debug/.build-id/%.2s/%s.debug linked.debug && strip -o debug/.build-id/%.2s/%s.debug full "
            "&& "
            "objcopy --strip-all --add-gnu-debuglink=linked.debug full hidden",
            id, id + 2, id, id + 2);
        assert_full(path_in("hidden"), NULL);
        run("rm -rf debug linked.debug");
}

static void test_debug_link(void **state)
{
        /* Without build IDs, so that the checksum alone decides. */
        run("objcopy --remove-section=.note.gnu.build-id full plain && objcopy --only-keep-debug plain "
            "p.debug && "
            "objcopy --strip-all --add-gnu-debuglink=p.debug plain linked");
        assert_full(path_in("linked"), NULL);
        run("mkdir .debug && mv p.debug .debug");
        assert_full(path_in("linked"), NULL);
        run("mkdir -p debug/%s && mv .debug/p.debug debug/%s", dir, dir);
        assert_full(path_in("linked"), NULL);
        /* Another file of that name is not the one that is meant. */
        run("printf x >> debug/%s/p.debug", dir);
        assert_nothing(path_in("linked"));
        run("rm -rf debug .debug");
}

/* A user's program may name any file; what only root may read is not shown to him by it. */
static void test_a_file_that_is_not_the_users_to_read(void **state)
{
        if (geteuid() != 0) {
                print_message("not root: cannot give a file to another user\n");
                skip();
        }
        run("objcopy --remove-section=.note.gnu.build-id full open && objcopy --only-keep-debug open "
            "private.debug && "
            "objcopy --strip-all --add-gnu-debuglink=private.debug open users && chown 65534 users");
        assert_int_equal(chmod(path_in("private.debug"), 0640), 0);
        assert_nothing(path_in("users"));
        assert_int_equal(chmod(path_in("private.debug"), 0644), 0);
        run("cp users users-2 && chown 65534 users-2");
        assert_full(path_in("users-2"), NULL);
        run("chmod 600 private.debug && chown 65534 private.debug && cp users users-3 && chown 65534 "
            "users-3");
        assert_full(path_in("users-3"), NULL);
        run("rm private.debug");
}

static void test_minidebuginfo(void **state)
{
        /* As Fedora's find-debuginfo makes it: the symbols that .dynsym does not have, as xz. */
        run("objcopy --strip-debug full mini && xz -k mini && "
            "objcopy --strip-all --add-section .gnu_debugdata=mini.xz full with-mini");
        assert_symbol_only(path_in("with-mini"));
}

static void test_minidebuginfo_that_explodes(void **state)
{
        /* 256 MiB of nothing, expanding 7,000 times */
        run("head -c 268435456 /dev/zero | xz -1 > zero.xz && "
            "objcopy --strip-all --add-section .gnu_debugdata=zero.xz full bomb");
        assert_nothing(path_in("bomb"));
}

static void test_compressed(void **state)
{
        static const char *const how[] = {"zlib-gnu", "zlib-gabi", "zstd"};

        for (size_t i = 0; i < ARRAY_SIZE(how); i++) {
                run("objcopy --compress-debug-sections=%s full compressed", how[i]);
                assert_full(path_in("compressed"), NULL);
        }
}

static void test_dwz(void **state)
{
        /* dwz moves what two files share into a third; both are the same here. */
        if (system("command -v dwz >/dev/null") != 0) {
                print_message("dwz is not installed\n");
                skip();
        }
        run("cp full one && cp full two && dwz -m shared.dwz one two");
        assert_full(path_in("one"), NULL);
        run("mv shared.dwz elsewhere");
        run("mkdir -p debug/.dwz && mv elsewhere debug/.dwz/shared.dwz");
        assert_full(path_in("two"), NULL);
        run("rm -rf debug");
}

/* A process in "inner", a file system of its own, which is its root. */
struct inner {
        int hold[2];
        char root[64]; /* as seen from here */
        pid_t pid;
};

static void inner_start(struct inner *p)
{
        int ready[2];
        char byte;

        if (geteuid() != 0) {
                print_message("only root can change the root of a process\n");
                skip();
        }
        run("mkdir -p inner && mount -t tmpfs none inner && mkdir -p inner/usr/bin");
        assert_int_equal(pipe(ready), 0);
        assert_int_equal(pipe(p->hold), 0);
        p->pid = fork();
        assert_true(p->pid >= 0);
        if (p->pid == 0) {
                close(p->hold[1]);
                if (chroot(path_in("inner")) < 0 || write(ready[1], "x", 1) != 1 ||
                    read(p->hold[0], &byte, 1) != 0)
                        _exit(1);
                _exit(0);
        }
        assert_int_equal(read(ready[0], &byte, 1), 1);
        close(ready[0]);
        close(ready[1]);
        snprintf(p->root, sizeof(p->root), "/proc/%d/root", p->pid);
}

static void inner_stop(struct inner *p)
{
        close(p->hold[1]);
        close(p->hold[0]);
        waitpid(p->pid, NULL, 0);
        run("umount --lazy inner"); /* the worker has not let go of it yet */
}

/* A name in /usr/bin/prog of that process. */
static void ask_inside(struct symclient *c, const struct inner *p, struct answer *ret)
{
        struct answer opened = {};
        int fd = open(path_in("inner/usr/bin/prog"), O_RDONLY | O_CLOEXEC);
        struct sym_source source = {.path = "/usr/bin/prog", .root = p->root};
        struct symobj *o = symclient_open(c, fd, &source, answer_open, &opened);

        assert_non_null(o);
        ask_one(c, o, address, ret);
        symobj_close(c, o);
}

static void assert_full_inside(struct symclient *c, const struct inner *p)
{
        struct answer a;

        ask_inside(c, p, &a);
        assert_string_equal(a.function, "deep_inside");
        assert_non_null(strstr(a.file, "find_me.c"));
}

/* Its debug files are looked for there, under its own paths. */
static void test_other_root(void **state)
{
        struct inner p;

        inner_start(&p);
        run("mkdir inner/usr/bin/.debug && objcopy --only-keep-debug full inner/usr/bin/.debug/prog.debug "
            "&& "
            "objcopy --strip-all --add-gnu-debuglink=inner/usr/bin/.debug/prog.debug full "
            "inner/usr/bin/prog");
        assert_full_inside(client, &p);
        inner_stop(&p);
}

/* There is a debug file in the process's own root, but it was stripped; the host's is whole. */
static void test_the_best_of_two_roots(void **state)
{
        _cleanup_free_ char *id = output_of("readelf -n %s/full | sed -n 's/.*Build ID: //p'", dir);
        struct inner p;

        inner_start(&p);
        run("strip -o inner/usr/bin/prog full && mkdir -p inner%s/debug/.build-id/%.2s "
            "debug/.build-id/%.2s && strip --strip-debug -o inner%s/debug/.build-id/%.2s/%s.debug full && "
            "cp full debug/.build-id/%.2s/%s.debug",
            dir, id, id, dir, id, id + 2, id, id + 2);
        assert_full_inside(client, &p);
        run("rm -r debug");

        struct answer a;

        ask_inside(client, &p, &a); /* what is left is the stripped one */
        assert_string_equal(a.function, "deep_inside");
        assert_string_equal(a.file, "");
        inner_stop(&p);
}

/* What is kept of an object that the host has no debug file for says nothing about the same object in a root
 * that has one. */
static void test_kept_names_of_another_root(void **state)
{
        const char *debug_dirs[] = {path_in("debug"), NULL};
        _cleanup_free_ char *kept = strdup(path_in("kept"));
        struct symclient_options options = {.debug_dirs = debug_dirs, .cache_dir = kept};
        struct symclient *c;
        struct answer a;
        struct inner p;

        inner_start(&p);
        run("mkdir kept inner/usr/bin/.debug && objcopy --only-keep-debug full "
            "inner/usr/bin/.debug/prog.debug && objcopy --strip-all "
            "--add-gnu-debuglink=inner/usr/bin/.debug/prog.debug full inner/usr/bin/prog && "
            "cp inner/usr/bin/prog outer");
        c = client_new(&options);
        name_in_file(c, path_in("outer"), NULL, address, &a);
        assert_int_equal(a.n_frames, 0);
        assert_full_inside(c, &p);
        symclient_free(c);
        inner_stop(&p);
}

/* The file is gone, or another; the process still runs it. */
static void test_deleted_and_replaced(void **state)
{
        struct answer opened = {}, a;
        struct symobj *o;

        run("cp full gone");
        o = open_path(client, path_in("gone"), NULL, &opened);
        run("rm gone && echo something else > gone");
        ask_one(client, o, address, &a);
        assert_string_equal(a.function, "deep_inside");
        symobj_close(client, o);

        /* Its debug file is still found beside where it was. */
        run("objcopy --only-keep-debug full g.debug && "
            "objcopy --strip-all --add-gnu-debuglink=g.debug full gone");
        o = open_path(client, path_in("gone"), NULL, &opened);
        run("rm gone");
        ask_one(client, o, address, &a);
        assert_string_equal(a.function, "deep_inside");
        assert_non_null(strstr(a.file, "find_me.c"));
        symobj_close(client, o);
        run("rm g.debug");
}

/* A package with debug symbols is installed, and removed, while the object is open. */
static void test_debug_file_comes_later(void **state)
{
        _cleanup_free_ char *id = output_of("readelf -n %s/full | sed -n 's/.*Build ID: //p'", dir);
        struct answer opened = {}, a;
        struct symobj *o;

        run("mkdir -p debug && strip -o early full");
        o = open_path(client, path_in("early"), NULL, &opened);
        ask_one(client, o, address, &a);
        assert_int_equal(a.n_frames, 0);
        assert_int_equal(symclient_look_again(client), 0);

        run("mkdir -p debug/.build-id/%.2s && objcopy --only-keep-debug full late && "
            "mv late debug/.build-id/%.2s/%s.debug",
            id, id, id + 2);
        assert_int_equal(symclient_look_again(client), 1);
        assert_int_equal(symclient_look_again(client), 0);
        ask_one(client, o, address, &a);
        assert_string_equal(a.function, "deep_inside");
        assert_non_null(strstr(a.file, "find_me.c"));

        run("rm -r debug");
        assert_int_equal(symclient_look_again(client), 1);
        ask_one(client, o, address, &a);
        assert_int_equal(a.n_frames, 0);
        symobj_close(client, o);
}

static int setup(void **state)
{
        static const char *debug_dirs[2];
        static char debug[512];
        struct symclient_options options = {.debug_dirs = debug_dirs};

        dir = scratch_new();
        snprintf(debug, sizeof(debug), "%s/debug", dir);
        debug_dirs[0] = debug;
        client = client_new(&options);
        run("cp %s full", FIND_ME_PATH);
        address = address_by_nm(path_in("full"), "deep_inside");
        return 0;
}

static int teardown(void **state)
{
        symclient_free(client);
        scratch_free(dir);
        return 0;
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                        cmocka_unit_test(test_the_object_itself),
                        cmocka_unit_test(test_nothing_but_the_stripped_object),
                        cmocka_unit_test(test_build_id),
                        cmocka_unit_test(test_debug_link),
                        cmocka_unit_test(test_a_file_that_is_not_the_users_to_read),
                        cmocka_unit_test(test_minidebuginfo),
                        cmocka_unit_test(test_minidebuginfo_that_explodes),
                        cmocka_unit_test(test_compressed),
                        cmocka_unit_test(test_dwz),
                        cmocka_unit_test(test_other_root),
                        cmocka_unit_test(test_the_best_of_two_roots),
                        cmocka_unit_test(test_kept_names_of_another_root),
                        cmocka_unit_test(test_deleted_and_replaced),
                        cmocka_unit_test(test_debug_file_comes_later),
        };

        return cmocka_run_group_tests(tests, setup, teardown);
}
