/* dlopen SECONDS PLUGIN [again]: code of an object that is loaded while the program runs; with `again` it is
 * unloaded and loaded anew each 100 ms, after something else was mapped. */
#include <dlfcn.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/programs/truth.h"

typedef uint64_t (*work_fn)(uint64_t);

static volatile uint64_t sink;

int main(int argc, char **argv)
{
        double end = truth_deadline(argc, argv);
        int again = argc > 3 && strcmp(argv[3], "again") == 0;

        printf("pid %d\n", getpid());
        printf("chain plugin_leaf;plugin_work;main;" TRUTH_START "\n");
        TRUTH_CLOCK(); /* dlopen itself too */
        truth_ready();
        while (truth_now() < end) {
                void *object = dlopen(argc > 2 ? argv[2] : "", RTLD_NOW);
                work_fn work = object ? (work_fn)dlsym(object, "plugin_work") : NULL;
                double until = again ? truth_now() + 0.1 : end;

                if (!work) {
                        fprintf(stderr, "cannot load the plugin: %s\n", dlerror());
                        return 1;
                }
                while (truth_now() < until)
                        sink = work(sink);
                if (!again)
                        break;
                dlclose(object);
                (void)!mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        }
        return 0;
}
