/* Scope-bound release of resources, systemd's idiom.
 *
 * A variable marked with one of the _cleanup_ attributes is released when it goes out of scope; what
 * escapes is taken out of it with TAKE_PTR or TAKE_FD. Output parameters (ret_...) are written on success
 * only. Errors are negative errno values. */
#ifndef BASE_CLEANUP_H
#define BASE_CLEANUP_H

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define _cleanup_(f) __attribute__((cleanup(f)))

static inline void cleanup_free(void *p)
{
        free(*(void **)p);
}

static inline void cleanup_close(int *fd)
{
        if (*fd >= 0)
                close(*fd);
}

static inline void cleanup_fclose(FILE **f)
{
        if (*f)
                fclose(*f);
}

#define _cleanup_free_   _cleanup_(cleanup_free)
#define _cleanup_close_  _cleanup_(cleanup_close)
#define _cleanup_fclose_ _cleanup_(cleanup_fclose)

/* Makes `name_cleanup`, to be used as _cleanup_(name_cleanup), of a `void name(type *)`. */
#define DEFINE_CLEANUP(type, name)                  \
        static inline void name##_cleanup(type **p) \
        {                                           \
                if (*p)                             \
                        name(*p);                   \
        }                                           \
        struct base_cleanup_semicolon

#define TAKE_PTR(p)                       \
        ({                                \
                __auto_type _taken = (p); \
                (p) = NULL;               \
                _taken;                   \
        })

#define TAKE_FD(fd)                \
        ({                         \
                int _taken = (fd); \
                (fd) = -1;         \
                _taken;            \
        })

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define MIN_OF(a, b)  ((a) < (b) ? (a) : (b))
#define MAX_OF(a, b)  ((a) > (b) ? (a) : (b))
#define NSEC_PER_SEC  1000000000ull
#define NSEC_PER_MSEC 1000000ull

#endif
