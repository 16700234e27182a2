#include "symbolizer/scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/statfs.h>

#include "base/cleanup.h"

int scratch_create(const char *directory, uint64_t size)
{
        _cleanup_close_ int fd = -1;
        struct statfs fs;

        if (size == 0 || size > SCRATCH_MAX)
                return -E2BIG;
        fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        if (fd < 0 || fstatfs(fd, &fs) < 0)
                return -errno;
        if (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC ||
            size > (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize / 4)
                return -ENOSPC;
        if (fallocate(fd, 0, 0, (off_t)size) < 0)
                return -errno;
        return TAKE_FD(fd);
}

void *scratch_map(int fd, uint64_t size)
{
        void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

        close(fd);
        return p == MAP_FAILED ? NULL : p;
}
