/* A profd of one's own for as long as one command runs: started when there is none, with configuration,
 * state and socket in a temporary directory that goes away with it. */
#ifndef TOOLS_SESSION_H
#define TOOLS_SESSION_H

#include <stdint.h>

struct session;

/* Starts it at `frequency` samples per second and CPU and waits until it samples. STATUS_DONE, or
 * STATUS_FAILED (said). */
int session_start(struct session **ret, uint32_t frequency);
const char *session_socket(const struct session *s);
/* Stops the daemon and removes the directory. NULL is fine. */
struct session *session_stop(struct session *s);

static inline void session_stop_cleanup(struct session **s)
{
        session_stop(*s);
}

#endif
