/* What profd is allowed to do, made as small as this host lets it be. */
#ifndef DAEMON_PRIVILEGES_H
#define DAEMON_PRIVILEGES_H

/* Lays down CAP_SYS_ADMIN for good when perf events can be opened without it: Debian's kernels refuse
 * CAP_PERFMON at kernel.perf_event_paranoid=3, their default, and only there is it needed. Root started by
 * hand is left as it is. 0 or -errno; what could not be dropped is kept. */
int privileges_drop_unneeded(void);

#endif
