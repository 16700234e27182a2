/* The subcommands. Each takes its own arguments (argv[0] is its name) and returns the exit status. */
#ifndef TOOLS_VERB_H
#define TOOLS_VERB_H

int verb_annotate(int argc, char **argv);
int verb_changes(int argc, char **argv);
int verb_debuginfod(int argc, char **argv);
int verb_diff(int argc, char **argv);
int verb_doctor(int argc, char **argv);
int verb_dump(int argc, char **argv);
int verb_flamegraph(int argc, char **argv);
int verb_list(int argc, char **argv);
int verb_push(int argc, char **argv);
int verb_record(int argc, char **argv);
int verb_report(int argc, char **argv);
int verb_status(int argc, char **argv);
int verb_symbolize(int argc, char **argv);
int verb_top(int argc, char **argv);

#endif
