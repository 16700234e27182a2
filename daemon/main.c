/* profd: samples every process on the host, names every frame, keeps profiles on disk. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "daemon/config.h"
#include "daemon/manager.h"
#include "daemon/privileges.h"

static void usage(FILE *to)
{
        fputs("usage: profd [OPTION]...\n"
              "\n"
              "Samples every process on this host and keeps named profiles on disk, which\n"
              "profctl reads. Runs in the foreground.\n"
              "\n"
              "  --config FILE     the configuration (" CONFIG_DEFAULT_FILE "), see profd.conf(5)\n"
              "  --state-dir DIR   where profiles are kept, instead of Directory=\n"
              "  --socket PATH     socket of the API, instead of Socket=\n"
              "  --check-config    read the configuration, say what is wrong, and exit\n"
              "  --debug           log more\n"
              "  --help, --version\n",
              to);
}

struct arguments {
        const char *config, *state_dir, *socket;
        bool check;
};

/* 1: go on; 0: done; -EINVAL. */
static int parse_arguments(int argc, char **argv, struct arguments *ret)
{
        enum { OPT_CONFIG = 256, OPT_STATE, OPT_SOCKET, OPT_CHECK, OPT_DEBUG, OPT_HELP, OPT_VERSION };
        static const struct option options[] = {
                        {"config", required_argument, NULL, OPT_CONFIG},
                        {"state-dir", required_argument, NULL, OPT_STATE},
                        {"socket", required_argument, NULL, OPT_SOCKET},
                        {"check-config", no_argument, NULL, OPT_CHECK},
                        {"debug", no_argument, NULL, OPT_DEBUG},
                        {"help", no_argument, NULL, OPT_HELP},
                        {"version", no_argument, NULL, OPT_VERSION},
                        {0},
        };
        struct arguments a = {0};

        for (int c; (c = getopt_long(argc, argv, "h", options, NULL)) >= 0;) {
                switch (c) {
                case OPT_CONFIG:
                        a.config = optarg;
                        break;
                case OPT_STATE:
                        a.state_dir = optarg;
                        break;
                case OPT_SOCKET:
                        a.socket = optarg;
                        break;
                case OPT_CHECK:
                        a.check = true;
                        break;
                case OPT_DEBUG:
                        log_set_level(LOG_DEBUG);
                        break;
                case OPT_HELP:
                case 'h':
                        usage(stdout);
                        return 0;
                case OPT_VERSION:
                        puts("profd " PROFD_VERSION);
                        return 0;
                default:
                        return -EINVAL;
                }
        }
        if (optind < argc) {
                fprintf(stderr, "profd: unexpected argument '%s'\n", argv[optind]);
                return -EINVAL;
        }
        *ret = a;
        return 1;
}

int main(int argc, char **argv)
{
        _cleanup_free_ char *error = NULL;
        struct arguments a;
        struct config *config;
        struct manager *manager;
        sigset_t signals;

        int r = parse_arguments(argc, argv, &a);
        if (r <= 0) {
                if (r < 0)
                        fputs("Try 'profd --help'.\n", stderr);
                return r < 0 ? 2 : 0;
        }
        r = config_load(&config, a.config, &error);
        if (r < 0) {
                log_error("cannot use the configuration: %s%s%s",
                          error      ? error
                          : a.config ? a.config
                                     : "",
                          error ? "" : ": ", error ? "" : strerror(-r));
                return 1;
        }
        if (a.check) {
                config_free(config);
                return 0;
        }

        r = privileges_drop_unneeded();
        if (r < 0)
                log_warning("cannot lay down CAP_SYS_ADMIN: %s", strerror(-r));

        /* Before any thread: signals come by the event loop alone, a gone client is an error of write(). */
        sigemptyset(&signals);
        sigaddset(&signals, SIGTERM);
        sigaddset(&signals, SIGINT);
        sigaddset(&signals, SIGHUP);
        sigprocmask(SIG_BLOCK, &signals, NULL);
        signal(SIGPIPE, SIG_IGN);

        r = manager_new(&manager, config, a.config, a.state_dir, a.socket);
        if (r == -ENOMEM)
                log_error("cannot start: there is not enough memory");
        if (r < 0)
                return 1;
        r = manager_run(manager);
        manager_free(manager);
        return r < 0 ? 1 : 0;
}
