#include "tools/screen.h"

#include <curses.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "tools/text.h"

#define ESCAPE 27

int screen_open(void)
{
        SCREEN *s = newterm(NULL, stdout, stdin);

        if (!s)
                return -ENOTTY;
        set_term(s);
        cbreak();
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

int screen_key(int timeout_ms)
{
        timeout(timeout_ms);
        int key = getch();
        if (key == KEY_RESIZE)
                return SCREEN_KEY_RESIZE;
        return key == ERR ? SCREEN_KEY_NONE : key;
}

bool screen_move(struct screen_view *v, int key)
{
        uint32_t page = LINES > 8 ? (uint32_t)LINES - 8 : 1, last = v->n_rows ? v->n_rows - 1 : 0;

        switch (key) {
        case KEY_UP:
        case 'k':
                v->selected -= v->selected > 0;
                return true;
        case KEY_DOWN:
        case 'j':
                v->selected += v->selected < last;
                return true;
        case KEY_PPAGE:
                v->selected -= MIN_OF(v->selected, page);
                return true;
        case KEY_NPAGE:
                v->selected = MIN_OF(v->selected + page, last);
                return true;
        case KEY_HOME:
                v->selected = 0;
                return true;
        case KEY_END:
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
                if (key == ESCAPE)
                        return false;
                if (key == '\r' || key == '\n' || key == KEY_ENTER)
                        break;
                if ((key == KEY_BACKSPACE || key == 127 || key == '\b') && n > 0) {
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
