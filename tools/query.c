#include "tools/query.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/io.h"
#include "base/parse.h"
#include "tools/say.h"

enum {
        OPT_HELP = 0x1000,
        OPT_SOCKET,
        OPT_HOST,
        OPT_TOKEN_FILE,
        OPT_CA,
        OPT_CERT,
        OPT_KEY,
        OPT_FOR,
        OPT_LAST,
        OPT_SINCE,
        OPT_UNTIL,
        OPT_SELECT, /* a field of the selection, by the option's name */
        OPT_KERNEL_ONLY,
        OPT_USER_ONLY,
};

static const struct option_spec common[] = {
                {"help", 'h', NULL, NULL, OPT_HELP},
                {"socket", 0, "PATH", NULL, OPT_SOCKET},
                {"host", 0, "URL", NULL, OPT_HOST},
                {"token-file", 0, "FILE", NULL, OPT_TOKEN_FILE},
                {"ca", 0, "FILE", NULL, OPT_CA},
                {"cert", 0, "FILE", NULL, OPT_CERT},
                {"key", 0, "FILE", NULL, OPT_KEY},
                {"for", 0, "TIME", NULL, OPT_FOR},
                {"last", 0, "TIME", NULL, OPT_LAST},
                {"since", 0, "TIME", NULL, OPT_SINCE},
                {"until", 0, "TIME", NULL, OPT_UNTIL},
                {"event", 0, "NAME", NULL, OPT_SELECT},
                {"pid", 0, "N", NULL, OPT_SELECT},
                {"comm", 0, "NAME", NULL, OPT_SELECT},
                {"thread-name", 0, "NAME", NULL, OPT_SELECT},
                {"unit", 0, "NAME", NULL, OPT_SELECT},
                {"container", 0, "ID", NULL, OPT_SELECT},
                {"user", 0, "NAME", NULL, OPT_SELECT},
                {"kernel-only", 0, NULL, NULL, OPT_KERNEL_ONLY},
                {"user-only", 0, NULL, NULL, OPT_USER_ONLY},
};

#define FIRST_TARGET 1
#define FIRST_WHEN   7
#define FIRST_WHAT   11
#define MAX_OPTIONS  64

static const char target_help[] = "Source: the running profd%s; --socket PATH; --host URL\n"
                                  "        with --token-file FILE, --ca FILE, --cert FILE and --key FILE\n";
static const char time_help[] = "When:   --last TIME, --since TIME, --until TIME%s; TIME as\n"
                                "        5min, 02:10, yesterday, 2026-12-01T02:10:00Z: systemd.time(7)\n";
static const char selection_help[] =
                "What:   --event NAME --pid N --comm NAME --thread-name NAME --unit NAME\n"
                "        --container ID --user NAME --kernel-only --user-only\n";

static void print_help(const struct command_spec *spec)
{
        printf("profctl %s %s\n%s\n", spec->name, spec->arguments, spec->summary);
        if (spec->n_options > 0)
                putchar('\n');
        for (size_t i = 0; i < spec->n_options; i++) {
                const struct option_spec *o = &spec->options[i];
                char left[64];
                snprintf(left, sizeof(left), "%c%c%s --%s%s%s", o->brief ? '-' : ' ',
                         o->brief ? o->brief : ' ', o->brief ? "," : " ", o->name, o->arg ? " " : "",
                         o->arg ? o->arg : "");
                printf("  %-24s %s\n", left, o->help);
        }
        bool reads = (spec->takes & TAKES_READING) == TAKES_READING;
        if (spec->takes & TAKES_TARGET) {
                putchar('\n');
                printf(target_help, reads ? ", or pprof FILEs" : "");
        }
        if (spec->takes & TAKES_TIME)
                printf(time_help, reads ? ", or --for TIME from now" : "");
        if (spec->takes & TAKES_SELECTION)
                fputs(selection_help, stdout);
}

static bool is_taken(const struct command_spec *spec, size_t i)
{
        if (common[i].id == OPT_FOR)
                return (spec->takes & TAKES_READING) == TAKES_READING;
        if (i >= FIRST_WHAT)
                return spec->takes & TAKES_SELECTION;
        if (i >= FIRST_WHEN)
                return spec->takes & TAKES_TIME;
        return i < FIRST_TARGET || (spec->takes & TAKES_TARGET);
}

/* What getopt_long wants: the common options that the command takes, then its own. `val` is the index + 1
 * into the common ones, or MAX_OPTIONS + the index of its own. */
static void make_tables(const struct command_spec *spec, struct option *table, char *brief)
{
        size_t n = 0;

        if (spec->takes & TAKES_COMMAND)
                *brief++ = '+';
        *brief++ = ':';
        for (size_t i = 0; i < ARRAY_SIZE(common); i++)
                if (is_taken(spec, i))
                        table[n++] = (struct option){common[i].name, common[i].arg != NULL, NULL,
                                                     (int)i + 1};
        *brief++ = 'h';
        for (size_t i = 0; i < spec->n_options; i++) {
                const struct option_spec *o = &spec->options[i];
                table[n++] = (struct option){o->name, o->arg != NULL, NULL, MAX_OPTIONS + (int)i};
                if (o->brief) {
                        *brief++ = o->brief;
                        if (o->arg)
                                *brief++ = ':';
                }
        }
        table[n] = (struct option){0};
        *brief = 0;
}

/* The option that getopt_long returned, NULL: it knows none of that name. */
static const struct option_spec *option_of(const struct command_spec *spec, int c)
{
        if (c > 0 && c <= (int)ARRAY_SIZE(common))
                return &common[c - 1];
        if (c >= MAX_OPTIONS && c < MAX_OPTIONS + (int)spec->n_options)
                return &spec->options[c - MAX_OPTIONS];
        return NULL;
}

static const struct option_spec *option_of_letter(const struct command_spec *spec, int c)
{
        if (c == 'h')
                return &common[0];
        for (size_t i = 0; i < spec->n_options; i++)
                if (spec->options[i].brief && spec->options[i].brief == c)
                        return &spec->options[i];
        return NULL;
}

/* Options that people bring along from other profilers, and how the same is had here. */
static int refuse_option(const struct command_spec *spec, const char *given)
{
        static const struct {
                const char *option, *instead;
        } habit[] = {
                        {"-a", "the whole host, from now on: profctl report --for 10s"},
                        {"-g", "call chains are always recorded"},
                        {"--call-graph", "call chains are always recorded"},
                        {"-i", "files are arguments: profctl report FILE"},
                        {"--input", "files are arguments: profctl report FILE"},
                        {"-p", "a process that runs already: profctl report --for 10s --pid N"},
                        {"--pid", "a process that runs already: profctl report --for 10s --pid N"},
        };

        for (size_t i = 0; i < ARRAY_SIZE(habit); i++) {
                size_t n = strlen(habit[i].option);
                if (!strncmp(given, habit[i].option, n) && (!given[n] || given[n] == '='))
                        return say_usage(spec->name, "there is no option %s: %s", habit[i].option,
                                         habit[i].instead);
        }
        return say_usage(spec->name, "there is no option %s", given);
}

static int set_range(struct query *q, uint64_t since, uint64_t until, uint64_t now)
{
        q->when = WHEN_RANGE;
        if (since)
                q->since_ns = since;
        if (until)
                q->until_ns = until;
        return q->since_ns > now ? -EDOM : 0;
}

static int set_common(struct query *q, const struct option_spec *o, const char *value)
{
        uint64_t now = now_realtime_ns(), v;
        char name[32];
        int r;

        switch (o->id) {
        case OPT_SOCKET:
                q->target.socket = value;
                break;
        case OPT_HOST:
                q->target.host = value;
                break;
        case OPT_TOKEN_FILE:
                q->target.token_file = value;
                break;
        case OPT_CA:
                q->target.ca = value;
                break;
        case OPT_CERT:
                q->target.certificate = value;
                break;
        case OPT_KEY:
                q->target.key = value;
                break;
        case OPT_FOR:
                q->when = WHEN_FOR;
                r = parse_duration(value, &q->for_ns);
                return r < 0                                                           ? r
                       : q->for_ns < NSEC_PER_MSEC || q->for_ns > 86400 * NSEC_PER_SEC ? -ERANGE
                                                                                       : 0;
        case OPT_LAST:
                r = parse_duration(value, &v);
                return r < 0 ? r : set_range(q, v < now ? now - v : 1, now, now);
        case OPT_SINCE:
                r = parse_time(value, now, &v);
                return r < 0 ? r : set_range(q, v, 0, now);
        case OPT_UNTIL:
                r = parse_time(value, now, &v);
                return r < 0 ? r : set_range(q, 0, v, now);
        case OPT_SELECT:
                snprintf(name, sizeof(name), "%s", o->name);
                for (char *p = name; *p; p++)
                        if (*p == '-')
                                *p = '_';
                return selection_set(&q->selection, name, value);
        case OPT_KERNEL_ONLY:
                return selection_set(&q->selection, "side", "kernel");
        case OPT_USER_ONLY:
                return selection_set(&q->selection, "side", "user");
        }
        q->target_given |= o->id >= OPT_SOCKET && o->id <= OPT_KEY;
        return 0;
}

static int refuse_value(const struct command_spec *spec, const struct option_spec *o, const char *value,
                        int error)
{
        bool instant = o->id == OPT_SINCE || o->id == OPT_UNTIL;
        uint64_t length;

        if (instant && error == -EINVAL && parse_duration(value, &length) == 0)
                return say_usage(spec->name,
                                 "'%s' is not a valid time for --%s: write '%s ago', or --last '%s'", value,
                                 o->name, value, value);
        return say_usage(spec->name, "'%s' is not a valid %s for --%s%s", value ? value : "",
                         o->arg && !strcmp(o->arg, "TIME") ? "time" : "value", o->name,
                         error == -EDOM     ? ": the range would begin in the future"
                         : error == -ERANGE ? ": out of range"
                                            : "");
}

static int check(const struct command_spec *spec, const struct query *q, unsigned seen)
{
        bool range = seen & (1u << (OPT_LAST - OPT_HELP) | 1u << (OPT_SINCE - OPT_HELP) |
                             1u << (OPT_UNTIL - OPT_HELP));

        if (range && (seen & 1u << (OPT_FOR - OPT_HELP)))
                return say_usage(spec->name, "--for collects from now on and goes with no other time");
        if (q->target.host && (seen & 1u << (OPT_SOCKET - OPT_HELP)))
                return say_usage(spec->name, "--socket and --host exclude each other");
        if (q->when == WHEN_RANGE && q->since_ns >= q->until_ns)
                return say_usage(spec->name, "the time range is empty: --since is not before --until");
        if ((seen & 1u << (OPT_KERNEL_ONLY - OPT_HELP)) && (seen & 1u << (OPT_USER_ONLY - OPT_HELP)))
                return say_usage(spec->name, "--kernel-only and --user-only exclude each other");
        return -1;
}

int options_parse(const struct command_spec *spec, int argc, char **argv, struct query *q, void *ctx,
                  int *ret_first)
{
        struct option table[MAX_OPTIONS];
        char brief[MAX_OPTIONS];
        unsigned seen = 0;
        uint64_t now = now_realtime_ns();
        int c;

        *q = (struct query){
                        .target.socket = DEFAULT_SOCKET,
                        .selection = selection_any(),
                        .since_ns = now - DEFAULT_LAST,
                        .until_ns = now,
        };
        make_tables(spec, table, brief);
        optind = 1;
        opterr = 0;
        while ((c = getopt_long(argc, argv, brief, table, NULL)) != -1) {
                const char *given = argv[optind > 1 ? optind - 1 : 1];
                if (c == ':')
                        return say_usage(spec->name, "%s needs an argument", given);
                if (c == '?')
                        return refuse_option(spec, given);
                const struct option_spec *o = option_of(spec, c);
                if (!o)
                        o = option_of_letter(spec, c);
                if (!o)
                        return refuse_option(spec, given);
                if (o->id == OPT_HELP) {
                        print_help(spec);
                        return STATUS_DONE;
                }
                bool is_common = o >= common && o < common + ARRAY_SIZE(common);
                int r = is_common ? set_common(q, o, optarg) : spec->set(ctx, o->id, optarg);
                if (r < 0)
                        return refuse_value(spec, o, optarg, r);
                if (is_common)
                        seen |= 1u << (o->id - OPT_HELP);
        }
        *ret_first = optind;
        /* --since alone reaches to now, --until alone from the beginning of the store. */
        if (q->when == WHEN_RANGE && (seen & 1u << (OPT_UNTIL - OPT_HELP)) &&
            !(seen & (1u << (OPT_SINCE - OPT_HELP) | 1u << (OPT_LAST - OPT_HELP))))
                q->since_ns = 0;
        return check(spec, q, seen);
}

int query_take_files(struct query *q, const char *command, int argc, char **argv, int first)
{
        q->file = argv + first;
        q->n_files = argc - first;
        if (q->n_files > 0 && q->target_given)
                return say_usage(
                                command,
                                "samples are of the profd that --socket or --host names, or of files as %s: "
                                "give one of them",
                                q->file[0]);
        if (q->n_files > 0 && q->when == WHEN_FOR)
                return say_usage(command, "--for collects from a running profd; it goes with no file as %s",
                                 q->file[0]);
        return -1;
}

bool query_parse_range(const char *text, uint64_t now_ns, uint64_t *ret_since, uint64_t *ret_until)
{
        char left[128];
        uint64_t since, until = now_ns;
        const char *dots = strstr(text, "..");

        if (!dots || (size_t)(dots - text) >= sizeof(left))
                return false;
        memcpy(left, text, (size_t)(dots - text));
        left[dots - text] = 0;
        if (parse_time(left, now_ns, &since) < 0 || (dots[2] && parse_time(dots + 2, now_ns, &until) < 0))
                return false;
        if (since >= until)
                return false;
        *ret_since = since;
        *ret_until = until;
        return true;
}
