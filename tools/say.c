#include "tools/say.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"

int say_failed(const char *fmt, ...)
{
        va_list ap;

        fputs("profctl: ", stderr);
        va_start(ap, fmt);
        vfprintf(stderr, fmt, ap);
        va_end(ap);
        fputc('\n', stderr);
        return STATUS_FAILED;
}

int say_usage(const char *command, const char *fmt, ...)
{
        va_list ap;

        fprintf(stderr, "profctl%s%s: ", command ? " " : "", command ? command : "");
        va_start(ap, fmt);
        vfprintf(stderr, fmt, ap);
        va_end(ap);
        fprintf(stderr, "; see: profctl%s%s --help\n", command ? " " : "", command ? command : "");
        return STATUS_USAGE;
}

void say_note(const char *fmt, ...)
{
        va_list ap;

        fputs("profctl: ", stderr);
        va_start(ap, fmt);
        vfprintf(stderr, fmt, ap);
        va_end(ap);
        fputc('\n', stderr);
}

int say_out(const struct buf *b)
{
        int r = buf_error(b);

        if (r < 0)
                return say_failed("cannot put the output together: %s", strerror(-r));
        r = write_all(STDOUT_FILENO, b->data, b->len);
        if (r < 0 && r != -EPIPE)
                return say_failed("cannot write to the standard output: %s", strerror(-r));
        return STATUS_DONE;
}
