/* Another profiler: takes every hardware counter of every CPU by pinned events, and holds them until it is
 * killed.
 *
 * Says `held N` when no more can be had. A pinned event that gets no counter is in the error state, and
 * reads as nothing (perf_event_open(2)). */
#include <linux/perf_event.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MOST 64

static int hold(int cpu)
{
        struct perf_event_attr attr = {.type = PERF_TYPE_HARDWARE,
                                       .size = sizeof(attr),
                                       .config = PERF_COUNT_HW_CPU_CYCLES,
                                       .pinned = 1};
        int n = 0;

        while (n < MOST) {
                int fd = (int)syscall(SYS_perf_event_open, &attr, -1, cpu, -1, 0);
                uint64_t count;

                if (fd < 0)
                        break;
                if (read(fd, &count, sizeof(count)) != sizeof(count)) {
                        close(fd);
                        break;
                }
                n++; /* stays open */
        }
        return n;
}

int main(void)
{
        int n = 0;

        for (int cpu = 0; cpu < (int)sysconf(_SC_NPROCESSORS_ONLN); cpu++)
                n += hold(cpu);
        printf("held %d\n", n);
        fflush(stdout);
        if (!n)
                return 1;
        for (;;)
                pause();
}
