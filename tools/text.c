#include "tools/text.h"

#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#include "base/parse.h"

#define ELLIPSIS "\xe2\x80\xa6"

void text_init(void)
{
        setlocale(LC_CTYPE, "");
        if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
                setlocale(LC_CTYPE, "C.UTF-8");
}

/* The bytes and columns of the next character; `*ret_bad`: it is to be replaced by '?'. */
static size_t next(const char *s, int *ret_columns, bool *ret_bad)
{
        mbstate_t state = {0};
        wchar_t w;

        if ((unsigned char)*s >= 0x20 && (unsigned char)*s < 0x7f) {
                *ret_columns = 1;
                *ret_bad = false;
                return 1;
        }
        size_t n = mbrtowc(&w, s, MB_CUR_MAX, &state);
        int columns = n == 0 || n > MB_CUR_MAX ? -1 : wcwidth(w);
        *ret_bad = columns < 0;
        *ret_columns = columns < 0 ? 1 : columns;
        return n == 0 || n > MB_CUR_MAX ? 1 : n;
}

int text_width(const char *s)
{
        int total = 0, columns;
        bool bad;

        while (*s) {
                s += next(s, &columns, &bad);
                total += columns;
        }
        return total;
}

void text_fit(struct buf *out, const char *s, int columns, bool pad)
{
        int used = 0, width = text_width(s);
        bool cut = columns >= 0 && width > columns;
        int room = columns < 0 ? width : cut ? columns - 1 : columns;

        while (*s) {
                int w;
                bool bad;
                size_t n = next(s, &w, &bad);
                if (used + w > room)
                        break;
                if (bad)
                        buf_addc(out, '?');
                else
                        buf_add(out, s, n);
                used += w;
                s += n;
        }
        if (cut && columns > 0) {
                buf_adds(out, ELLIPSIS);
                used++;
        }
        for (; pad && used < columns; used++)
                buf_addc(out, ' ');
}

void text_right(struct buf *out, const char *s, int columns)
{
        for (int n = text_width(s); n < columns; n++)
                buf_addc(out, ' ');
        text_fit(out, s, columns, false);
}

int text_columns(int fd, int otherwise)
{
        const char *env = getenv("COLUMNS");
        struct winsize w;
        uint64_t v;

        if (env && parse_u64(env, 20, 1000, &v) == 0)
                return (int)v;
        return ioctl(fd, TIOCGWINSZ, &w) == 0 && w.ws_col >= 20 ? w.ws_col : otherwise;
}

void text_bar(struct buf *out, double share, int columns)
{
        static const char *const part[] = {" ",
                                           "\xe2\x96\x8f",
                                           "\xe2\x96\x8e",
                                           "\xe2\x96\x8d",
                                           "\xe2\x96\x8c",
                                           "\xe2\x96\x8b",
                                           "\xe2\x96\x8a",
                                           "\xe2\x96\x89",
                                           "\xe2\x96\x88"};
        double bounded = share < 0 ? 0 : share > 1 ? 1 : share;
        int eighths = (int)(bounded * columns * 8 + 0.5);

        for (int i = 0; i < columns; i++, eighths -= 8)
                buf_adds(out, part[eighths <= 0 ? 0 : eighths >= 8 ? 8 : eighths]);
}
