/* A full-screen list: a head of lines, column titles, rows that scroll, a line of keys. What top, report and
 * annotate have in common as terminal programs; built on ncursesw, whose state is the process's. */
#ifndef TOOLS_SCREEN_H
#define TOOLS_SCREEN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

/* Beyond those that are a character. */
enum screen_key {
        SCREEN_KEY_ESCAPE = 27,
        SCREEN_KEY_NONE = -1, /* nothing was pressed in time */
        SCREEN_KEY_RESIZE = -2,
        SCREEN_KEY_END = -3, /* the terminal is gone, or Ctrl-C */
        SCREEN_KEY_UP = 0x1000,
        SCREEN_KEY_DOWN,
        SCREEN_KEY_PAGE_UP,
        SCREEN_KEY_PAGE_DOWN,
        SCREEN_KEY_HOME,
        SCREEN_KEY_LAST,
        SCREEN_KEY_LEFT,
        SCREEN_KEY_RIGHT,
        SCREEN_KEY_ENTER,
        SCREEN_KEY_BACK,
        SCREEN_KEY_F1,
        SCREEN_KEY_OTHER,
};

enum screen_style {
        STYLE_NORMAL = 0,
        STYLE_HOT = 1,  /* at least 5 %: as perf top colours it */
        STYLE_WARM = 2, /* at least 0.5 % */
        STYLE_GREY = 3,
        STYLE_TITLE = 4,
        STYLE_STRONG = 5,
};

/* What is on the screen. The text functions append to a buffer; the line is cut to the screen by the caller.
 */
struct screen_view {
        void *ctx;
        /* The i-th line of the head; false: there are no more. */
        bool (*head)(void *ctx, uint32_t i, int columns, struct buf *out);
        void (*titles)(void *ctx, int columns, struct buf *out);
        enum screen_style (*row)(void *ctx, uint32_t row, int columns, struct buf *out);
        const char *keys;        /* the last line */
        const char *const *help; /* lines, NULL at the end */
        uint32_t n_rows;
        uint32_t selected, first; /* moved by screen_move() */
        bool rows_selectable;
};

/* 0 or a negative errno: not a terminal that can be used. */
int screen_open(void);
void screen_close(void);

void screen_draw(struct screen_view *v);
/* Waits for a key; timeout_ms < 0: for ever. A character, or one of enum screen_key. */
int screen_key(int timeout_ms);
/* Handles the keys that move in a list: true when it was one of them. */
bool screen_move(struct screen_view *v, int key);
/* Lets the user edit a line at the bottom. False: left with Escape, `text` (size bytes) as it was. */
bool screen_prompt(struct screen_view *v, const char *label, char *text, uint32_t size);
/* The help, until a key is pressed. */
void screen_help(const struct screen_view *v);

#endif
