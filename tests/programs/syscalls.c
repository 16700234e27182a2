/* Nearly all of its time is spent in the kernel. */
#include <fcntl.h>
#include <sys/mman.h>

#include "tests/programs/truth.h"

TRUTH_FRAME void reads(int fd, char *b)
{
        for (int i = 0; i < 100; i++)
                (void)!read(fd, b, 65536);
        TRUTH_KEEP();
}

TRUTH_FRAME void maps(void)
{
        char *p = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        if (p == MAP_FAILED)
                exit(1);
        for (int i = 0; i < 1 << 20; i += 4096)
                p[i] = 1;
        munmap(p, 1 << 20);
        TRUTH_KEEP();
}

int main(int argc, char **argv)
{
        double end = truth_deadline(argc, argv);
        int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
        static char b[65536];

        printf("pid %d\n", getpid());
        printf("chain ?;reads;main;" TRUTH_START "\n"); /* read() of the C library */
        printf("chain ?;maps;main;" TRUTH_START "\n");
        printf("chain *;main;" TRUTH_START "\n");
        truth_ready();
        while (truth_now() < end) {
                reads(zero, b);
                maps();
        }
        return 0;
}
