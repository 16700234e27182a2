/* lazy SECONDS OBJECT: binds the OBJECT's calls lazily, over and over: ld.so's resolver, whose frames are
 * counted from rbx. */
#include <dlfcn.h>

#include "tests/programs/truth.h"

typedef uint64_t (*work_fn)(uint64_t);

static volatile uint64_t sink;

TRUTH_FRAME void bind(const char *path)
{
        void *object = dlopen(path, RTLD_LAZY);
        work_fn work = object ? (work_fn)dlsym(object, "lazy_work") : NULL;

        if (!work) {
                fprintf(stderr, "cannot load %s: %s\n", path, dlerror());
                exit(1);
        }
        sink = work(sink);
        dlclose(object);
        TRUTH_KEEP();
}

int main(int argc, char **argv)
{
        double end = truth_deadline(argc, argv);

        printf("pid %d\n", getpid());
        printf("chain *;bind;main;" TRUTH_START "\n");
        printf("chain *;lazy_work;bind;main;" TRUTH_START "\n");
        TRUTH_CLOCK();
        truth_ready();
        while (truth_now() < end)
                bind(argc > 2 ? argv[2] : "");
        return 0;
}
