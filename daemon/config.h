/* profd's configuration: /etc/profd/profd.conf, then the drop-ins (ending in .conf) in profd.conf.d beside
 * it, in order of name. systemd's INI style: [Section], Key=Value, '#' and ';' start a comment line, an
 * empty value resets to the default. Every default is good for a laptop and for a large server. */
#ifndef DAEMON_CONFIG_H
#define DAEMON_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "bpf/abi.h"

#define CONFIG_MAX_DEBUG_DIRS 8
#define CONFIG_DEFAULT_FILE   "/etc/profd/profd.conf"

struct config {
        /* [Sampling] */
        char *events[ABI_MAX_EVENTS];
        uint32_t n_events;
        uint64_t frequency; /* Hz */
        bool threads;       /* samples by thread */
        char *pin;          /* directory of a BPF file system, or "" */
        /* [Store] */
        char *directory;
        uint64_t window_ns, max_size, max_age_ns;
        uint64_t merge_ns[2], merge_after_ns[2];
        /* [Api] */
        char *socket, *listen, *tls_certificate, *tls_key, *token_file, *client_ca, *group;
        /* [Symbols] */
        char *debug_dirs[CONFIG_MAX_DEBUG_DIRS + 1]; /* NULL-terminated */
        /* [Limits] */
        uint32_t cpu_ppm; /* of all CPUs */
        uint64_t memory;  /* bytes, BPF maps and worker included */
};

/* Reads `file` (NULL: the default one, which may be missing) and its drop-ins. Unknown keys are logged as
 * warnings with file:line. -EINVAL: a value is wrong; `*ret_error` then is the line for the log, for the
 * caller to free. Other errors: the file cannot be read. */
int config_load(struct config **ret, const char *file, char **ret_error);
struct config *config_free(struct config *c);

#endif
