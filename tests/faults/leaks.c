/* Preloaded into a program with the leak sanitizer that never ends by itself: looks for leaks at SIGUSR1,
 * and says on standard error what it found. With LEAK_ON_PURPOSE in the environment it leaks, to see that a
 * leak would be found. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static int (*check)(void);

static void *wait_for_signal(void *set)
{
        for (int sig; sigwait(set, &sig) == 0;)
                fprintf(stderr, "leaks: %s\n", check() ? "found" : "none");
        return NULL;
}

__attribute__((constructor)) static void begin(void)
{
        static sigset_t set;
        pthread_t thread;

        if (getenv("LEAK_ON_PURPOSE")) {
                void *volatile p = malloc(4711);
                p = NULL;
                (void)p;
        }
        *(void **)&check = dlsym(RTLD_DEFAULT, "__lsan_do_recoverable_leak_check");
        if (!check)
                return; /* a shell on the way to the program */
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        pthread_sigmask(SIG_BLOCK, &set, NULL);
        pthread_create(&thread, NULL, wait_for_signal, &set);
}
