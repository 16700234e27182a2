/* profctl top: collections of two seconds, one after the other, each a screen. A thread of its own asks the
 * daemon; the screen takes the latest answer and never waits for one. */
#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/parse.h"
#include "profile/table.h"
#include "tools/event.h"
#include "tools/human.h"
#include "tools/layout.h"
#include "tools/say.h"
#include "tools/screen.h"
#include "tools/source.h"
#include "tools/text.h"
#include "tools/verb.h"

#define ONCE_LINES  20
#define FILTER_SIZE 64
#define POLL_MS     100
#define HOT         0.05
#define WARM        0.005

enum { OPT_ONCE, OPT_DELAY, OPT_BY, OPT_LINES };

static const struct {
        const char *name;
        uint32_t keys;
        int key;
} groups[] = {
                {"function", TABLE_SYMBOL | TABLE_OBJECT, 'f'},
                {"process", TABLE_COMM | TABLE_PID, 'p'},
                {"unit", TABLE_UNIT, 'u'},
                {"object", TABLE_OBJECT, 'o'},
                {"container", TABLE_CONTAINER, 'k'},
                {"user", TABLE_USER, 'U'},
};

struct options {
        bool once;
        uint64_t delay_ns, lines;
        size_t group;
};

/* One collection, with what the daemon says of itself. */
struct look {
        struct profile *profile;
        struct json_object *status; /* NULL: not known */
};

struct top {
        struct options options;
        struct query q;
        /* shared with the collecting thread, under the lock */
        pthread_mutex_t lock;
        pthread_cond_t changed;
        struct look latest;
        bool paused, ended;
        struct buf error;
        int stop_fd;
        /* the screen's */
        struct look shown;
        int type;
        struct table *table;
        uint32_t *row;
        uint32_t n_rows;
        enum row_order order;
        char filter[FILTER_SIZE];
        struct layout layout;
        struct screen_view view;
};

static int set(void *ctx, int id, const char *value)
{
        struct options *o = ctx;

        switch (id) {
        case OPT_ONCE:
                o->once = true;
                return 0;
        case OPT_LINES:
                return parse_u64(value, 1, UINT32_MAX, &o->lines);
        case OPT_DELAY: {
                int r = parse_duration(value, &o->delay_ns);
                return r < 0                                                                   ? r
                       : o->delay_ns < 100 * NSEC_PER_MSEC || o->delay_ns > 600 * NSEC_PER_SEC ? -ERANGE
                                                                                               : 0;
        }
        default:
                for (size_t i = 0; i < ARRAY_SIZE(groups); i++)
                        if (!strcmp(groups[i].name, value)) {
                                o->group = i;
                                return 0;
                        }
                return -EINVAL;
        }
}

static const struct option_spec options[] = {
                {"once", 0, NULL, "print one frame as plain text and end", OPT_ONCE},
                {"delay", 'd', "TIME", "the length of a collection (2s)", OPT_DELAY},
                {"by", 'b', "KEY", "function, process, unit, object, container or user", OPT_BY},
                {"lines", 'n', "N", "with --once: at most N lines (20)", OPT_LINES},
};

static const struct command_spec spec = {
                .name = "top",
                .arguments = "[OPTION...]",
                .summary = "What uses the CPU now, full screen, renewed every two seconds; h shows the "
                           "keys.",
                .options = options,
                .n_options = ARRAY_SIZE(options),
                .takes = TAKES_TARGET | TAKES_SELECTION,
                .set = set,
};

static const char *const help[] = {
                "profctl top",
                "",
                "Each line: the share of samples in the function itself (self), the half width of the",
                "interval that holds the true share with 95 % certainty, the share with all that the",
                "function called (children), its samples, and what it is.",
                "",
                "Up Down PgUp PgDn Home End   move",
                "f  p  u  o                   by function, process, unit, object",
                "k  U                         by container, user",
                "s  c  n                      sort by self, by children, by name",
                "/                            show lines with a text only; Escape shows all",
                "Space                        pause, and go on",
                "h  F1  ?                     this help",
                "q                            quit",
                "",
                "Any key goes back.",
                NULL,
};

static void look_clear(struct look *l)
{
        profile_free(l->profile);
        json_object_put(l->status);
        *l = (struct look){0};
}

/* -- collecting -- */

static int collect_once(const struct top *t, int abort_fd, struct buf *error, struct look *ret)
{
        struct look l = {0};
        struct query q = t->q;

        q.when = WHEN_FOR;
        q.for_ns = t->options.delay_ns;
        const struct source_how how = {.abort_fd = abort_fd, .error = error, .quiet = true};
        int r = source_profile_how(&q, &how, &l.profile);
        if (r == STATUS_DONE)
                r = source_json_how(&q, "/api/v1/status", &how, &l.status);
        if (r == STATUS_DONE)
                *ret = l;
        else
                look_clear(&l);
        return r;
}

static void *collect(void *ctx)
{
        struct top *t = ctx;

        for (;;) {
                struct look l;
                struct buf error = {0};
                int r = collect_once(t, t->stop_fd, &error, &l);
                pthread_mutex_lock(&t->lock);
                if (r == STATUS_DONE) {
                        look_clear(&t->latest);
                        t->latest = l;
                } else {
                        t->error = error;
                        t->ended = true;
                }
                while (t->paused && !t->ended)
                        pthread_cond_wait(&t->changed, &t->lock);
                bool ended = t->ended;
                pthread_mutex_unlock(&t->lock);
                if (ended)
                        return NULL;
        }
}

/* -- what is shown -- */

static int apply_filter(struct top *t)
{
        uint32_t keys = groups[t->options.group].keys;

        free(t->row);
        t->n_rows = 0;
        t->row = calloc((size_t)(t->table ? t->table->n : 0) + 1, sizeof(*t->row));
        if (!t->row)
                return -ENOMEM;
        for (uint32_t i = 0; t->table && i < t->table->n; i++) {
                _cleanup_buf_ struct buf name = {0};
                layout_name(&t->table->row[i], keys, &name);
                if (!t->filter[0] || strcasestr(buf_text(&name), t->filter))
                        t->row[t->n_rows++] = i;
        }
        return 0;
}

static int make_table(struct top *t)
{
        if (!t->shown.profile || t->shown.profile->n_types == 0)
                return 0;
        t->type = event_find(t->shown.profile, t->q.selection.event);
        if (t->type < 0)
                return -ENOENT;
        const struct table_options o = {.keys = groups[t->options.group].keys, .type = (uint32_t)t->type};
        struct table *table;
        int r = table_new(&table, t->shown.profile, &o);
        if (r < 0)
                return r;
        layout_sort(table, t->order);
        table_free(t->table);
        t->table = table;
        return apply_filter(t);
}

static void put_busy(const struct top *t, struct buf *out)
{
        double busy = (double)t->table->total / (double)t->shown.profile->duration_ns;
        uint64_t cpus = json_at_u64(t->shown.status, "cpus",
                                    0); /* not told to those who may see their own only */

        if (cpus) /* some of the samples waited for their stacks since before: not more than all */
                buf_addf(out, "; %.2f of %" PRIu64 " CPUs busy", MIN_OF(busy, (double)cpus), cpus);
        else
                buf_addf(out, "; %.2f CPUs busy", busy);
}

static void head_line(const struct top *t, uint32_t i, struct buf *out)
{
        const struct profile *p = t->shown.profile;
        struct json_object *s = t->shown.status;
        char a[HUMAN_MAX], b[HUMAN_MAX];

        switch (i) {
        case 0:
                buf_addf(out, "profctl top: %s %s", json_at_text(s, "host", "this host"),
                         p ? human_clock(a, (uint64_t)(p->time_ns + p->duration_ns)) : "");
                buf_addf(out, ", by %s, every %s", groups[t->options.group].name,
                         human_duration(b, t->options.delay_ns));
                if (t->paused)
                        buf_adds(out, ", paused");
                if (t->filter[0])
                        buf_addf(out, ", lines with \"%s\"", t->filter);
                break;
        case 1:
                if (!p || !t->table) {
                        buf_adds(out, "collecting ...");
                        break;
                }
                event_summary(p, t->type, out);
                if (!strcmp(profile_str(p, p->type[t->type].unit), "nanoseconds") && p->duration_ns > 0)
                        put_busy(t, out);
                break;
        default:
                if (!json_at(s, "cost"))
                        break;
                buf_addf(out, "profd: %.2f%% CPU, ", 100 * json_at_double(s, "cost.cpu_share", 0));
                buf_addf(out, "%s; ", human_bytes(a, json_at_u64(s, "cost.memory_bytes", 0)));
                buf_addf(out, "%s processes", human_count(a, json_at_u64(s, "tracking.processes", 0)));
        }
}

static bool draw_head(void *ctx, uint32_t i, int columns, struct buf *out)
{
        if (i < 3)
                head_line(ctx, i, out);
        return i < 3;
}

static void draw_titles(void *ctx, int columns, struct buf *out)
{
        layout_titles(&((struct top *)ctx)->layout, out);
}

static enum screen_style draw_row(void *ctx, uint32_t i, int columns, struct buf *out)
{
        const struct top *t = ctx;
        const struct table_row *row = &t->table->row[t->row[i]];
        double share = t->table->total ? (double)row->self / (double)t->table->total : 0;

        layout_row(&t->layout, t->table, row, out);
        return share >= HOT ? STYLE_HOT : share >= WARM ? STYLE_WARM : STYLE_NORMAL;
}

static void prepare(struct top *t)
{
        static const struct table empty;
        const struct table *table = t->table ? t->table : &empty;

        layout_init(&t->layout, table, MIN_OF(table->n, 100u), groups[t->options.group].keys, -1);
        t->view.n_rows = t->n_rows;
}

/* -- keys -- */

static void set_paused(struct top *t, bool paused)
{
        pthread_mutex_lock(&t->lock);
        t->paused = paused;
        pthread_cond_signal(&t->changed);
        pthread_mutex_unlock(&t->lock);
}

static int resort(struct top *t, enum row_order order)
{
        t->order = order;
        if (!t->table)
                return 0;
        layout_sort(t->table, order);
        return apply_filter(t);
}

/* 1: the user leaves. */
static int handle(struct top *t, int key)
{
        for (size_t i = 0; i < ARRAY_SIZE(groups); i++)
                if (groups[i].key == key) {
                        t->options.group = i;
                        t->view.selected = t->view.first = 0;
                        return make_table(t);
                }
        switch (key) {
        case 'q':
        case SCREEN_KEY_END:
                return 1;
        case 'h':
        case '?':
        case SCREEN_KEY_F1:
                screen_help(&t->view);
                return 0;
        case ' ':
                set_paused(t, !t->paused);
                return 0;
        case 's':
                return resort(t, ORDER_SELF);
        case 'c':
                return resort(t, ORDER_CHILDREN);
        case 'n':
                return resort(t, ORDER_NAME);
        case '/':
                return screen_prompt(&t->view, "show lines with", t->filter, FILTER_SIZE) ? apply_filter(t)
                                                                                          : 0;
        case SCREEN_KEY_ESCAPE:
                t->filter[0] = 0;
                return apply_filter(t);
        default:
                return 0;
        }
}

/* Takes the latest look, if there is a new one. 1: there will be no more. */
static int take_latest(struct top *t)
{
        pthread_mutex_lock(&t->lock);
        struct look l = t->latest;
        t->latest = (struct look){0};
        bool ended = t->ended;
        pthread_mutex_unlock(&t->lock);
        if (l.profile) {
                look_clear(&t->shown);
                t->shown = l;
                int r = make_table(t);
                if (r < 0)
                        return r;
        }
        return ended;
}

static int run(struct top *t)
{
        int r = 0;

        while (r == 0) {
                r = take_latest(t);
                if (r != 0)
                        break;
                prepare(t);
                screen_draw(&t->view);
                int key = screen_key(POLL_MS);
                if (!screen_move(&t->view, key))
                        r = handle(t, key);
        }
        return r;
}

static int show_screen(struct top *t)
{
        pthread_t thread;

        t->stop_fd = eventfd(0, EFD_CLOEXEC);
        int r = t->stop_fd < 0 ? -errno : screen_open();
        if (r < 0)
                return say_failed("cannot use this terminal: %s; profctl top --once prints plain text",
                                  strerror(-r));
        r = -pthread_create(&thread, NULL, collect, t);
        if (r == 0) {
                r = run(t);
                eventfd_write(t->stop_fd, 1);
                pthread_mutex_lock(&t->lock);
                t->ended = true;
                pthread_cond_signal(&t->changed);
                pthread_mutex_unlock(&t->lock);
                pthread_join(thread, NULL);
        }
        screen_close();
        close(t->stop_fd);
        if (t->error.len > 0)
                return say_failed("%s", buf_text(&t->error));
        return r < 0 ? say_failed("cannot go on: %s", strerror(-r)) : STATUS_DONE;
}

static int print_once(struct top *t)
{
        _cleanup_buf_ struct buf out = {0};
        int columns = isatty(STDOUT_FILENO) ? text_columns(STDOUT_FILENO, 80) : -1;

        int r = collect_once(t, 0, NULL, &t->shown);
        if (r != STATUS_DONE)
                return r;
        r = make_table(t);
        if (r < 0)
                return say_failed("cannot make the table: %s", strerror(-r));
        prepare(t);
        for (uint32_t i = 0; i < 3; i++) {
                head_line(t, i, &out);
                buf_addc(&out, '\n');
        }
        buf_addc(&out, '\n');
        layout_titles(&t->layout, &out);
        buf_addc(&out, '\n');
        for (uint32_t i = 0; i < MIN_OF((uint64_t)t->n_rows, t->options.lines); i++) {
                _cleanup_buf_ struct buf line = {0};
                draw_row(t, i, columns, &line);
                text_fit(&out, buf_text(&line), columns, false);
                buf_addc(&out, '\n');
        }
        return say_out(&out);
}

int verb_top(int argc, char **argv)
{
        struct top t = {
                        .options = {.delay_ns = 2 * NSEC_PER_SEC, .lines = ONCE_LINES},
                        .lock = PTHREAD_MUTEX_INITIALIZER,
                        .changed = PTHREAD_COND_INITIALIZER,
        };
        int first;

        int r = options_parse(&spec, argc, argv, &t.q, &t.options, &first);
        if (r >= 0)
                return r;
        if (first < argc)
                return say_usage("top", "unexpected argument '%s'; for files there is profctl report",
                                 argv[first]);
        t.view = (struct screen_view){
                        .ctx = &t,
                        .head = draw_head,
                        .titles = draw_titles,
                        .row = draw_row,
                        .keys = "f function  p process  u unit  o object  s self  c children  / filter  "
                                "Space pause  h help  q quit",
                        .help = help,
                        .rows_selectable = true,
        };
        if (!t.options.once && (!isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO)))
                t.options.once = true;
        r = t.options.once ? print_once(&t) : show_screen(&t);
        look_clear(&t.shown);
        look_clear(&t.latest);
        table_free(t.table);
        free(t.row);
        buf_free(&t.error);
        return r;
}
