/* The manager owns every part of the daemon and the event loop that drives them. */
#ifndef DAEMON_MANAGER_H
#define DAEMON_MANAGER_H

#include "daemon/config.h"

struct manager;

/* Loads, opens and starts everything; a failure is one logged line and -errno. Takes over the configuration;
 * config_file is what it was read from (NULL: the default), for SIGHUP. */
int manager_new(struct manager **ret, struct config *config, const char *config_file, const char *state_dir,
                const char *socket);

/* Runs until SIGTERM or SIGINT, then stores the last window. 0 or -errno. */
int manager_run(struct manager *m);

struct manager *manager_free(struct manager *m);

#endif
