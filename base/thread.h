/* Threads that serve a program whose main thread takes the signals. */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <pthread.h>
#include <stddef.h>

/* Starts a thread with `stack` bytes of stack and all signals blocked. ret NULL: detached. 0 or -errno. */
int thread_start(pthread_t *ret, size_t stack, void *(*run)(void *ctx), void *ctx);

#endif
