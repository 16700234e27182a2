/* What JITs write about their code, read as it grows. Runs in the worker.
 *
 * perf map (tools/perf/Documentation/jit-interface.txt of Linux): lines of "START SIZE NAME", both
 * hexadecimal, with "0x" (JVM) or without. jitdump (tools/perf/Documentation/jitdump-specification.txt):
 * binary records of code loaded and moved, with source lines. */
#ifndef SYMBOLIZER_JIT_FILE_H
#define SYMBOLIZER_JIT_FILE_H

#include "symbolizer/names.h"
#include "symbolizer/protocol.h"

struct jit_file;

/* Takes over `fd`, also on failure. pid: the writer's, in its own namespace, which a dump must name. */
int jit_file_open(int fd, enum wire_jit_kind kind, uint32_t pid, struct jit_file **ret);
struct jit_file *jit_file_free(struct jit_file *j);

/* Reads what was appended; all anew when the file has become shorter. -E2BIG over the limits of entries and
 * bytes: what was read until then stays. */
int jit_file_refresh(struct jit_file *j);

/* Adds one result to `names`. */
int jit_file_name(const struct jit_file *j, uint64_t address, struct names *names);

#endif
