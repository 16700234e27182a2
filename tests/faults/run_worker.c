/* Stands beside a profd in place of profd-worker, and runs the real one in another way: as the program
 * `run-worker` in the same directory says. profd starts its worker by descriptor and without environment, so
 * that a script in its place would not be found by its interpreter. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
        char self[PATH_MAX], run[PATH_MAX + 16];
        ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

        (void)argc;
        self[n > 0 ? n : 0] = 0;
        if (!strrchr(self, '/'))
                return 126;
        *strrchr(self, '/') = 0;
        snprintf(run, sizeof(run), "%s/run-worker", self);
        execv(run, argv);
        perror(run);
        return 127;
}
