/* Opening what others have mapped: the right file, only regular files, and file systems that do not answer.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "daemon/object_open.h"

struct results {
        uint32_t n;
        struct object_opened r[16];
};

static void on_opened(void *ctx, const struct object_opened *r)
{
        struct results *all = ctx;

        all->r[all->n++] = *r;
}

/* Waits for n results; false after ten seconds. */
static bool wait_for(struct object_opener *o, struct results *all, uint32_t n)
{
        uint64_t end = now_monotonic_ns() + 10 * NSEC_PER_SEC;
        struct pollfd fd = {.fd = object_opener_fd(o), .events = POLLIN};

        while (all->n < n && now_monotonic_ns() < end) {
                poll(&fd, 1, 20);
                object_opener_dispatch(o, on_opened, all);
        }
        return all->n == n;
}

static struct object_opened open_one(const struct object_job *job)
{
        struct object_opener *o;
        struct results all = {0};

        assert_int_equal(object_opener_new(&o, 2000), 0);
        assert_int_equal(object_opener_submit(o, job), 0);
        assert_true(wait_for(o, &all, 1));
        object_opener_free(o);
        return all.r[0];
}

static struct object_job job_of(const char *path, const struct stat *st)
{
        return (struct object_job){
                        .id = 7,
                        .device = (uint64_t)major(st->st_dev) << 32 | minor(st->st_dev),
                        .inode = st->st_ino,
                        .n_places = 1,
                        .path = path,
        };
}

static void test_by_path_with_the_right_inode_only(void **state)
{
        struct stat st;

        assert_int_equal(stat("/bin/true", &st), 0);
        struct object_job job = job_of("/bin/true", &st);
        struct object_opened r = open_one(&job);
        assert_int_equal(r.id, 7);
        assert_int_equal(r.error, 0);
        assert_int_equal(r.size, st.st_size);
        assert_true(r.fd >= 0);
        close(r.fd);

        job.look_only = true;
        r = open_one(&job);
        assert_int_equal(r.error, 0);
        assert_int_equal(r.fd, -1);
        assert_int_equal(r.size, st.st_size);

        job.look_only = false;
        job.inode++;
        r = open_one(&job);
        assert_int_equal(r.error, -ESTALE);
        assert_int_equal(r.fd, -1);
        job.inode--;
        job.device ^= 1;
        assert_int_equal(open_one(&job).error, -ESTALE);
        job.path = "/nowhere/at/all";
        assert_int_equal(open_one(&job).error, -ENOENT);
}

static void test_a_deleted_file_through_its_mapping(void **state)
{
        char path[] = "/tmp/object_open.XXXXXX", word[16] = {0};
        struct stat st;

        int fd = mkstemp(path);
        assert_true(fd >= 0);
        assert_int_equal(write_all(fd, "contents", 8), 0);
        assert_int_equal(ftruncate(fd, 4096), 0);
        uint64_t at = (uint64_t)(uintptr_t)mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
        assert_int_equal(fstat(fd, &st), 0);
        close(fd);
        unlink(path);

        struct object_job job = job_of(path, &st);
        job.n_places = 2;
        job.place[0] = (struct object_place){
                        .pid = (uint32_t)getpid(), .start = at + 4096, .end = at + 8192};
        job.place[1] = (struct object_place){.pid = (uint32_t)getpid(), .start = at, .end = at + 4096};
        struct object_opened r = open_one(&job);
        if (r.error == -EPERM) {
                printf("skipped: no right to open map_files\n");
                skip();
        }
        assert_int_equal(r.error, 0);
        assert_int_equal(r.place, 1);
        assert_int_equal(pread_all(r.fd, word, 8, 0), 0);
        assert_string_equal(word, "contents");
        close(r.fd);
        munmap((void *)(uintptr_t)at, 4096);
}

/* A device or a FIFO must not even be opened: that does something to it. */
static void test_only_regular_files(void **state)
{
        char dir[] = "/tmp/object_open.XXXXXX", path[64];
        struct stat st;

        assert_non_null(mkdtemp(dir));
        snprintf(path, sizeof(path), "%s/fifo", dir);
        assert_int_equal(mkfifo(path, 0600), 0);
        assert_int_equal(stat(path, &st), 0);
        struct object_job job = job_of(path, &st);
        struct object_opened r = open_one(&job);
        assert_int_equal(r.error, -ESTALE);
        /* Had it been opened for reading, a writer would not get ENXIO now or have got through before. */
        assert_int_equal(open(path, O_WRONLY | O_NONBLOCK), -1);
        assert_int_equal(errno, ENXIO);
        unlink(path);
        rmdir(dir);
        assert_int_equal(stat("/dev/null", &st), 0);
        job = job_of("/dev/null", &st);
        assert_int_equal(open_one(&job).error, -ESTALE);
}

/* A FUSE file system whose server never answers; -1 when none can be mounted. */
static int mount_deaf(const char *dir)
{
        char options[96];

        int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
        if (fd < 0)
                return -1;
        snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", fd);
        if (mount("deaf", dir, "fuse.deaf", MS_NODEV | MS_NOSUID, options) < 0) {
                close(fd);
                return -1;
        }
        return fd;
}

static void test_a_file_system_that_does_not_answer(void **state)
{
        char dir[] = "/tmp/object_open.XXXXXX", path[64];
        struct object_opener *o;
        struct results all = {0};
        struct stat st;

        assert_non_null(mkdtemp(dir));
        int fuse = mount_deaf(dir);
        if (fuse < 0) {
                rmdir(dir);
                printf("skipped: no FUSE file system can be mounted (%s)\n", strerror(errno));
                skip();
        }
        snprintf(path, sizeof(path), "%s/program", dir);
        assert_int_equal(stat("/bin/true", &st), 0);
        struct object_job good = job_of("/bin/true", &st), bad = good;
        bad.path = path;
        assert_int_equal(object_opener_new(&o, 200), 0);

        /* The one behind a stuck one is opened all the same. */
        bad.id = 1;
        good.id = 2;
        assert_int_equal(object_opener_submit(o, &bad), 0);
        assert_int_equal(object_opener_submit(o, &good), 0);
        assert_true(wait_for(o, &all, 2));
        assert_int_equal(all.r[0].id, 1);
        assert_int_equal(all.r[0].error, -ETIMEDOUT);
        assert_int_equal(all.r[1].id, 2);
        assert_int_equal(all.r[1].error, 0);
        close(all.r[1].fd);
        assert_int_equal(object_opener_stuck(o), 1);

        /* Stuck threads are bounded; then nothing is opened until one comes back. */
        for (uint32_t i = 0; i < 3; i++)
                assert_int_equal(object_opener_submit(o, &bad), 0);
        all.n = 0;
        assert_true(wait_for(o, &all, 3));
        assert_int_equal(object_opener_stuck(o), 4);
        assert_int_equal(object_opener_submit(o, &good), -EBUSY);

        close(fuse); /* the server is gone: all waiting calls fail */
        umount2(dir, MNT_DETACH);
        rmdir(dir);
        uint64_t end = now_monotonic_ns() + 10 * NSEC_PER_SEC;
        while (object_opener_stuck(o) && now_monotonic_ns() < end)
                poll(NULL, 0, 10);
        assert_int_equal(object_opener_stuck(o), 0);
        all.n = 0;
        assert_int_equal(object_opener_submit(o, &good), 0);
        assert_true(wait_for(o, &all, 1));
        assert_int_equal(all.r[0].error, 0);
        close(all.r[0].fd);
        object_opener_free(o);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                        cmocka_unit_test(test_by_path_with_the_right_inode_only),
                        cmocka_unit_test(test_a_deleted_file_through_its_mapping),
                        cmocka_unit_test(test_only_regular_files),
                        cmocka_unit_test(test_a_file_system_that_does_not_answer),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
