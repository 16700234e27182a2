/* Names and unwind tables of files that belong to strangers, from the sandboxed worker in which alone they
 * are parsed.
 *
 * Asynchronous: requests are queued, results come by callback out of symclient_dispatch(). One bad file
 * costs one budget of the worker (time, memory); a worker that dies or hangs is replaced, the file it was at
 * is remembered as bad, all other requests are sent again. The callbacks of all requests are called, once
 * each, also when the client is freed (with -ECANCELED).
 *
 * Not thread-safe: one thread owns a client. */
#ifndef SYMBOLIZER_CLIENT_H
#define SYMBOLIZER_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "symbolizer/build_id.h"
#include "symbolizer/unwind_format.h"

/* Where separate debug files are looked for: of packages, then of profctl-debuginfod(1). */
#define SYM_PACKAGED_DEBUG    "/usr/lib/debug"
#define SYM_FETCHED_DEBUG     "/var/cache/profd-debuginfod"
#define SYM_DEBUG_DIRECTORIES SYM_PACKAGED_DEBUG " " SYM_FETCHED_DEBUG
#define SYM_MAX_SEGMENTS      16
#define SYM_MAX_INLINE        64 /* frames of one address; deeper chains lose the middle */

struct symclient;
struct symobj; /* an open object; reference held by the opener until symobj_close() */

struct symclient_options {
        const char *cache_dir;         /* names by build ID are kept here; NULL: no cache on disk */
        uint64_t cache_max;            /* bytes of it */
        uint64_t memory;               /* the worker's address space limit in bytes; 0: default */
        bool unsandboxed;              /* tests only: parse in a plain child */
        const char *const *debug_dirs; /* NULL-terminated; NULL: the words of SYM_DEBUG_DIRECTORIES */
};

int symclient_new(struct symclient **ret, const struct symclient_options *options);
struct symclient *symclient_free(struct symclient *c);

/* An epoll descriptor that is readable when symclient_dispatch() has something to do, deadlines included. */
int symclient_fd(const struct symclient *c);
int symclient_dispatch(struct symclient *c);

/* Dispatches until nothing is outstanding or timeout_ms have passed (-ETIMEDOUT). */
int symclient_wait(struct symclient *c, int timeout_ms);

/* -- objects -- */

struct sym_segment { /* an executable PT_LOAD */
        uint64_t vaddr, offset, filesz, memsz;
};

struct sym_info {
        uint8_t build_id[SYM_BUILD_ID_MAX];
        uint8_t build_id_len;
        uint8_t alt_build_id[SYM_BUILD_ID_MAX]; /* of the dwz file that its debug information refers to */
        uint8_t alt_build_id_len;
        uint8_t elf_class; /* ELFCLASS32 or 64 */
        uint16_t machine, type;
        uint64_t entry;
        bool has_symtab, has_debug, is_go, has_unwind;
        uint32_t n_segments;
        struct sym_segment segment[SYM_MAX_SEGMENTS];
};

/* Where a file was found, so that its separate debug files can be looked for. */
struct sym_source {
        const char *path; /* as the process saw it */
        const char *root; /* the process's root as seen from here, "/proc/N/root"; NULL or "" : ours */
};

/* err < 0: not an object that can be read (-ENOEXEC), over its budget (-E2BIG, -ETIME), or the like.
 * -ECHILD, of any request: no worker can be started now; asked again some seconds later there may be one. */
typedef void (*sym_open_fn)(void *ctx, int err, struct symobj *obj, const struct sym_info *info);

/* Takes over `fd` (also on failure). The file is read through it and never opened again. Returns the handle
 * at once; the callback says when it is ready. */
struct symobj *symclient_open(struct symclient *c, int fd, const struct sym_source *source, sym_open_fn fn,
                              void *ctx);
/* NULL is fine. What is outstanding of it is called back with -ECANCELED before this returns. */
void symobj_close(struct symclient *c, struct symobj *obj);
/* Objects without debug information of their own are searched for anew, in the names that are asked from now
 * on, where the debug directories have changed since. Returns how many: what was named by them may be poorer
 * than it need be. */
uint32_t symclient_look_again(struct symclient *c);
/* Deletes of what is cached as much as the cache's file system needs for others. */
void symclient_make_room(struct symclient *c);
/* While held, names that the cache does not know wait; objects, tables and functions do not. */
void symclient_hold_names(struct symclient *c, bool held);
/* NULL until the callback. */
const struct sym_info *symobj_info(const struct symobj *obj);

/* JIT-compiled code of a process: /tmp/perf-PID.map or a jitdump file, found in its own mount and pid
 * namespace; owner, type and size are checked before a byte is read. The handle takes symclient_names() with
 * addresses as they are in the process; the newest entry wins; what was appended to the file since is read
 * first. err -ENOENT: the process has none (now). ns_pid 0: found out from /proc. */
struct symobj *symclient_open_jit(struct symclient *c, uint32_t pid, uint32_t ns_pid, sym_open_fn fn,
                                  void *ctx);

/* -- unwind tables -- */

struct sym_table {
        uint32_t first_page; /* ELF address >> UNWIND_PAGE_SHIFT */
        uint32_t n_pages, n_rows, n_rules;
        const uint32_t *page_start; /* n_pages + 1 indices into row */
        const uint32_t *row;
        const struct unwind_rule *rule; /* ids from UNWIND_RULE_FIRST on are rule[id - UNWIND_RULE_FIRST] */
};

/* Checked before it is handed over: indices in range, offsets ascending within a page, kinds known. The
 * table is valid during the call. err -ENODATA: the object has no unwind information. */
typedef void (*sym_table_fn)(void *ctx, int err, const struct sym_table *table);
int symclient_table(struct symclient *c, struct symobj *obj, sym_table_fn fn, void *ctx);

/* -- names -- */

struct sym_frame {
        const char *function;   /* as a person writes it; NULL: unknown */
        const char *linkage;    /* as the linker knows it; NULL: the same */
        const char *file;       /* source; NULL: unknown */
        uint32_t line;          /* within the function, of this address or of the call inlined here; 0 */
        uint32_t function_line; /* where the function begins; 0: unknown */
        bool inlined;           /* into the next frame */
};

struct sym_result {
        uint32_t n;                    /* 0: no name for this address */
        const struct sym_frame *frame; /* innermost first */
};

/* Strings and results are valid during the call. results[i] belongs to the i-th address asked. */
typedef void (*sym_names_fn)(void *ctx, int err, const struct sym_result *results, uint32_t n);
int symclient_names(struct symclient *c, struct symobj *obj, const uint64_t *addresses, uint32_t n,
                    sym_names_fn fn, void *ctx);

/* -- functions, with their code -- */

#define SYM_MAX_FUNCTIONS 64      /* of one answer */
#define SYM_MAX_CODE      1048576 /* bytes of one function's code; the rest is left out */

struct sym_function {
        const char *name;    /* as a person writes it */
        const char *linkage; /* as the linker knows it */
        uint64_t start, size;
        const uint8_t *code; /* the bytes of the file; code_size may be less than size, or 0 */
        uint32_t code_size;
};

typedef void (*sym_functions_fn)(void *ctx, int err, const struct sym_function *functions, uint32_t n);

/* By name: all functions that are called so, by the linker or by people, with or without parameters, and the
 * parts that compilers have split off them ("f.cold"). With name NULL: the one that covers the address. What
 * each instruction belongs to (inlined functions, lines) symclient_names() tells. */
int symclient_functions(struct symclient *c, struct symobj *obj, const char *name, uint64_t address,
                        sym_functions_fn fn, void *ctx);

/* -- state -- */

/* Protections of a worker that are in force. */
enum sandbox_part {
        SANDBOX_LIMITS = 1,     /* resource limits */
        SANDBOX_NAMESPACES = 2, /* network and IPC of its own */
        SANDBOX_ROOT = 4,       /* an empty root directory */
        SANDBOX_USER = 8,       /* no privileges, no user's identity */
        SANDBOX_LANDLOCK = 16,  /* no file may be opened */
        SANDBOX_SECCOMP = 32,   /* the system calls it needs, no others */
};

struct symclient_stats {
        uint64_t requests, restarts, bad_objects, cache_hits, cache_misses;
        uint64_t cache_bytes;
        uint64_t cpu_ns; /* used by the workers, ended ones included */
        uint64_t memory; /* resident bytes of the worker now */
        uint32_t outstanding;
        char last_bad[128]; /* path of the file that was given up last, printable; "": none was */
        uint32_t sandbox;   /* enum sandbox_part of the worker that was started last; 0: none was */
};
void symclient_stats(struct symclient *c, struct symclient_stats *ret);

#endif
