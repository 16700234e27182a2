#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int threshold = LOG_INFO;

void log_set_level(int level)
{
        threshold = level;
}

void log_line(int level, const char *fmt, ...)
{
        char line[2048];
        int n = 0;
        va_list ap;

        if (level > threshold)
                return;
        if (getenv("JOURNAL_STREAM"))
                n = snprintf(line, sizeof(line), "<%d>", level);
        va_start(ap, fmt);
        int k = vsnprintf(line + n, sizeof(line) - (size_t)n - 1, fmt, ap);
        va_end(ap);
        if (k < 0)
                return;
        size_t len = strlen(line);
        line[len++] = '\n';
        /* One write a line, so that lines of several threads and processes do not mix. */
        ssize_t written = write(STDERR_FILENO, line, len);
        (void)written; /* there is nowhere to report that stderr is gone */
}
