#include "tools/screen.h"

#include <curses.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "tools/text.h"

#include <term.h> /* last: it takes common names for macros */
#undef columns
#undef lines

#define CTRL_C 3

/* Ctrl-C leaves as q does; curses would end the process as one that failed. */
static void interrupt_is_a_key(void)
{
        struct termios t;

        if (tcgetattr(STDIN_FILENO, &t) < 0)
                return;
        t.c_cc[VINTR] = _POSIX_VDISABLE;
        tcsetattr(STDIN_FILENO, TCSANOW, &t);
        def_prog_mode(); /* what curses comes back to, after a stop too */
}

int screen_open(void)
{
        SCREEN *s = newterm(NULL, stdout, stdin);

        if (!s)
                return -ENOTTY;
        set_term(s);
        const char *move = tigetstr("cup");
        if (!move || move == (char *)-1) { /* a terminal that cannot move its cursor, "dumb" */
                endwin();
                delscreen(s);
                return -ENOTTY;
        }
        cbreak();
        interrupt_is_a_key();
        noecho();
        nonl();
        keypad(stdscr, TRUE);
        set_escdelay(50);
        curs_set(0);
        if (has_colors()) {
                start_color();
                use_default_colors();
                init_pair(STYLE_HOT, COLOR_RED, -1);
                init_pair(STYLE_WARM, COLOR_GREEN, -1);
                init_pair(STYLE_GREY, COLOR_BLACK, -1); /* bold black is grey everywhere */
        }
        return 0;
}

void screen_close(void)
{
        endwin();
}

static attr_t attributes(enum screen_style style)
{
        switch (style) {
        case STYLE_HOT:
        case STYLE_WARM:
                return has_colors() ? (attr_t)COLOR_PAIR(style) : style == STYLE_HOT ? A_BOLD : A_NORMAL;
        case STYLE_GREY:
                return has_colors() ? (attr_t)COLOR_PAIR(STYLE_GREY) | A_BOLD : A_DIM;
        case STYLE_TITLE:
                return A_REVERSE;
        case STYLE_STRONG:
                return A_BOLD;
        case STYLE_NORMAL:
                break;
        }
        return A_NORMAL;
}

static void put_line(int y, const struct buf *text, attr_t attr, bool to_the_edge)
{
        _cleanup_buf_ struct buf line = {0};

        if (y >= LINES)
                return;
        text_fit(&line, buf_text(text), COLS, to_the_edge);
        attrset(attr);
        mvaddstr(y, 0, buf_text(&line));
        attrset(A_NORMAL);
        clrtoeol();
}

static int draw_head(struct screen_view *v)
{
        int y = 0;

        for (uint32_t i = 0; y < LINES - 3; i++, y++) {
                _cleanup_buf_ struct buf line = {0};
                if (!v->head || !v->head(v->ctx, i, COLS, &line))
                        break;
                put_line(y, &line, A_NORMAL, false);
        }
        return y;
}

static void keep_selected_visible(struct screen_view *v, uint32_t height)
{
        if (v->n_rows == 0) {
                v->selected = v->first = 0;
                return;
        }
        v->selected = MIN_OF(v->selected, v->n_rows - 1);
        if (v->selected < v->first)
                v->first = v->selected;
        if (v->selected >= v->first + height)
                v->first = v->selected - height + 1;
        if (v->n_rows <= height)
                v->first = 0;
        else
                v->first = MIN_OF(v->first, v->n_rows - height);
}

static void draw_body(struct screen_view *v)
{
        _cleanup_buf_ struct buf titles = {0};
        int y = draw_head(v);

        v->titles(v->ctx, COLS, &titles);
        put_line(y++, &titles, attributes(STYLE_TITLE), true);
        uint32_t height = LINES - 1 > y ? (uint32_t)(LINES - 1 - y) : 1;
        keep_selected_visible(v, height);
        for (uint32_t i = 0; i < height; i++, y++) {
                _cleanup_buf_ struct buf line = {0};
                attr_t attr = A_NORMAL;
                uint32_t row = v->first + i;
                if (row < v->n_rows)
                        attr = attributes(v->row(v->ctx, row, COLS, &line));
                bool marked = v->rows_selectable && row < v->n_rows && row == v->selected;
                put_line(y, &line, marked ? A_REVERSE : attr, marked);
        }
}

void screen_draw(struct screen_view *v)
{
        _cleanup_buf_ struct buf keys = {0};

        erase();
        draw_body(v);
        buf_adds(&keys, v->keys);
        put_line(LINES - 1, &keys, attributes(STYLE_TITLE), true);
        refresh();
}

static const struct {
        int curses, ours;
} keys[] = {
                {KEY_RESIZE, SCREEN_KEY_RESIZE},   {KEY_UP, SCREEN_KEY_UP},
                {KEY_DOWN, SCREEN_KEY_DOWN},       {KEY_PPAGE, SCREEN_KEY_PAGE_UP},
                {KEY_NPAGE, SCREEN_KEY_PAGE_DOWN}, {KEY_HOME, SCREEN_KEY_HOME},
                {KEY_END, SCREEN_KEY_LAST},        {KEY_LEFT, SCREEN_KEY_LEFT},
                {KEY_RIGHT, SCREEN_KEY_RIGHT},     {KEY_ENTER, SCREEN_KEY_ENTER},
                {KEY_BACKSPACE, SCREEN_KEY_BACK},  {KEY_F(1), SCREEN_KEY_F1},
                {CTRL_C, SCREEN_KEY_END},
};

int screen_key(int timeout_ms)
{
        timeout(timeout_ms);
        int key = getch();
        for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
                if (keys[i].curses == key)
                        return keys[i].ours;
        if (key == ERR)
                return isatty(STDIN_FILENO) ? SCREEN_KEY_NONE : SCREEN_KEY_END;
        return key > 255 ? SCREEN_KEY_OTHER : key;
}

bool screen_move(struct screen_view *v, int key)
{
        uint32_t page = LINES > 8 ? (uint32_t)LINES - 8 : 1, last = v->n_rows ? v->n_rows - 1 : 0;

        switch (key) {
        case SCREEN_KEY_UP:
                v->selected -= v->selected > 0;
                return true;
        case SCREEN_KEY_DOWN:
                v->selected += v->selected < last;
                return true;
        case SCREEN_KEY_PAGE_UP:
                v->selected -= MIN_OF(v->selected, page);
                return true;
        case SCREEN_KEY_PAGE_DOWN:
                v->selected = MIN_OF(v->selected + page, last);
                return true;
        case SCREEN_KEY_HOME:
                v->selected = 0;
                return true;
        case SCREEN_KEY_LAST:
                v->selected = last;
                return true;
        default:
                return false;
        }
}

bool screen_prompt(struct screen_view *v, const char *label, char *text, uint32_t size)
{
        char edited[128];
        size_t n = (size_t)snprintf(edited, sizeof(edited), "%s", text);

        n = MIN_OF(n, sizeof(edited) - 1);
        for (;;) {
                _cleanup_buf_ struct buf line = {0};
                screen_draw(v);
                buf_addf(&line, "%s: %s_", label, edited);
                put_line(LINES - 1, &line, A_BOLD, false);
                refresh();
                int key = screen_key(-1);
                if (key == SCREEN_KEY_ESCAPE || key == SCREEN_KEY_END)
                        return false;
                if (key == '\r' || key == '\n' || key == SCREEN_KEY_ENTER)
                        break;
                if ((key == SCREEN_KEY_BACK || key == 127 || key == '\b') && n > 0) {
                        /* a whole character of UTF-8 */
                        do
                                n--;
                        while (n > 0 && ((unsigned char)edited[n] & 0xc0) == 0x80);
                        edited[n] = 0;
                } else if (key >= ' ' && key < 256 && key != 127 && n + 1 < sizeof(edited) && n + 1 < size) {
                        edited[n++] = (char)key;
                        edited[n] = 0;
                }
        }
        snprintf(text, size, "%s", edited);
        return true;
}

void screen_help(const struct screen_view *v)
{
        int key;

        do {
                erase();
                int y = 1;
                for (const char *const *line = v->help; *line && y < LINES; line++) {
                        _cleanup_buf_ struct buf b = {0};
                        buf_addf(&b, "  %s", *line);
                        put_line(y++, &b, A_NORMAL, false);
                }
                refresh();
                key = screen_key(-1);
        } while (key == SCREEN_KEY_RESIZE || key == SCREEN_KEY_NONE);
}
