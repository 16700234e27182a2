/* profctl: where the CPU goes on this host, now and in the last two weeks. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "tools/say.h"
#include "tools/text.h"
#include "tools/verb.h"

static const struct {
        const char *name;
        int (*run)(int argc, char **argv);
        const char *summary;
} verbs[] = {
                {"top", verb_top, "what uses the CPU now, full screen"},
                {"report", verb_report, "functions by share of time; callers and callees"},
                {"flamegraph", verb_flamegraph, "a flame graph, as one interactive page"},
                {"annotate", verb_annotate, "one function's source lines and instructions"},
                {"record", verb_record, "run a command and profile it"},
                {"doctor", verb_doctor, "what hinders profiling on this host, and what to do"},
                {"symbolize", verb_symbolize, "names of addresses"},
                {"diff", verb_diff, "what changed between two times or files"},
                {"changes", verb_changes, "what was upgraded or restarted, and its effect"},
                {"dump", verb_dump, "write the profile in another format"},
                {"list", verb_list, "the stored windows"},
                {"push", verb_push, "send the stored windows to a receiver of OTLP"},
                {"debuginfod", verb_debuginfod, "fetch debug files of what is sampled without names"},
                {"status", verb_status, "what is sampled, at what cost, what is lost"},
};

static void print_help(void)
{
        puts("profctl COMMAND [OPTION...] [FILE...]\n"
             "Reads profd, the profiler of this host, or pprof files.\n");
        for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
                printf("  %-12s %s\n", verbs[i].name, verbs[i].summary);
        puts("\nprofctl COMMAND --help tells more. First steps: profctl record -- CMD");
}

/* argv[0] is the command. */
static int run(int argc, char **argv)
{
        for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
                if (!strcmp(argv[0], verbs[i].name))
                        return verbs[i].run(argc, argv);
        for (size_t i = 0; i < ARRAY_SIZE(verbs) && argv[0][0]; i++)
                if (!strncmp(argv[0], verbs[i].name, strlen(argv[0])))
                        return say_usage(NULL, "there is no command '%s' (perhaps '%s')", argv[0],
                                         verbs[i].name);
        return say_usage(NULL, "there is no command '%s'", argv[0]);
}

static int start(int argc, char **argv)
{
        if (argc < 2)
                return say_usage(NULL, "no command given");
        if (!strcmp(argv[1], "help") && argc == 3)
                return run(2, (char *[]){argv[2], "--help", NULL});
        if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
                print_help();
                return STATUS_DONE;
        }
        if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "version")) {
                puts("profctl " PROFD_VERSION);
                return STATUS_DONE;
        }
        return run(argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
        text_init();
        signal(SIGPIPE, SIG_IGN);
        int r = start(argc, argv);
        if (fflush(stdout) < 0 && errno != EPIPE)
                return say_failed("cannot write to the standard output: %s", strerror(errno));
        return r;
}
