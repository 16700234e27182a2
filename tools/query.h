/* The command line that every reading command shares: which source, when, which samples; and the parsing of
 * options by tables, so that --help, usage errors and the long names are made in one place. */
#ifndef TOOLS_QUERY_H
#define TOOLS_QUERY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "profile/selection.h"

#define DEFAULT_SOCKET "/run/profd/profd.sock"
#define DEFAULT_LAST   (300 * NSEC_PER_SEC)

/* Where the daemon is reached. */
struct target {
        const char *socket; /* path; used when host is NULL */
        const char *host;   /* "https://host:port" */
        const char *token_file, *ca, *certificate, *key;
};

enum when_kind { WHEN_DEFAULT = 0, WHEN_FOR = 1, WHEN_RANGE = 2 };

struct query {
        struct target target;
        bool target_given;
        struct selection selection;
        char *const *file; /* pprof files, or directories of them; none: the daemon */
        int n_files;
        enum when_kind when;
        uint64_t for_ns;             /* WHEN_FOR */
        uint64_t since_ns, until_ns; /* WHEN_RANGE, and what WHEN_DEFAULT stands for */
        bool no_processes;           /* over a long range single processes need not be told apart */
};

/* Options of a command of its own. */
struct option_spec {
        const char *name;
        char brief;      /* the one-letter name, 0: none */
        const char *arg; /* what its argument is called, NULL: it takes none */
        const char *help;
        int id;
};

#define TAKES_TARGET    1u /* --socket, --host and what belongs to them */
#define TAKES_SELECTION 2u /* with TAKES_TARGET and TAKES_TIME: what, and FILE... as a source */
#define TAKES_COMMAND   4u /* arguments after the first that is no option are not ours */
#define TAKES_TIME      8u /* --last, --since, --until; with TAKES_SELECTION also --for */
#define TAKES_READING   (TAKES_TARGET | TAKES_TIME | TAKES_SELECTION)

struct command_spec {
        const char *name;
        const char *arguments; /* for the usage line */
        const char *summary;   /* one or more lines, for --help */
        const struct option_spec *options;
        size_t n_options;
        unsigned takes;
        /* Called for each option of the command's own. 0, or a negative errno: not a value for this option.
         */
        int (*set)(void *ctx, int id, const char *value);
};

/* Parses. Returns -1 when the command is to go on, `*ret_first` being the index of the first argument that
 * is no option; else the exit status (--help was answered, or the usage was wrong and said so). `q` is
 * filled (file list excepted). */
int options_parse(const struct command_spec *spec, int argc, char **argv, struct query *q, void *ctx,
                  int *ret_first);

/* The arguments from the first that is no option on are the files. -1 when the command is to go on; else the
 * exit status: with files goes no option that asks a daemon. */
int query_take_files(struct query *q, const char *command, int argc, char **argv, int first);

/* "02:00..02:10", "yesterday..today": a range of time as one argument. False: it is none. */
bool query_parse_range(const char *text, uint64_t now_ns, uint64_t *ret_since, uint64_t *ret_until);

#endif
