#include "base/thread.h"

#include <signal.h>

int thread_start(pthread_t *ret, size_t stack, void *(*run)(void *ctx), void *ctx)
{
        sigset_t all, before;
        pthread_attr_t attr;
        pthread_t thread;
        int r;

        sigfillset(&all);
        pthread_attr_init(&attr);
        if (!ret)
                pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
        pthread_attr_setstacksize(&attr, stack);
        pthread_sigmask(SIG_SETMASK, &all, &before); /* the new thread takes it over */
        r = pthread_create(ret ? ret : &thread, &attr, run, ctx);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        pthread_attr_destroy(&attr);
        return -r;
}
