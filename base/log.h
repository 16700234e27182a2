/* Log lines on stderr, with the kernel's <N> level prefix when the journal reads it (JOURNAL_STREAM is set),
 * so that one call serves a service and a terminal. A failure is logged once, by the code that gives up on
 * it, as: what failed, on what, why, what to do. The only process-wide state is the threshold. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <syslog.h>

/* Lines above this level (LOG_ERR..LOG_DEBUG) are dropped; LOG_INFO at first. */
void log_set_level(int level);

void log_line(int level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...)   log_line(LOG_ERR, __VA_ARGS__)
#define log_warning(...) log_line(LOG_WARNING, __VA_ARGS__)
#define log_notice(...)  log_line(LOG_NOTICE, __VA_ARGS__)
#define log_info(...)    log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...)   log_line(LOG_DEBUG, __VA_ARGS__)

#endif
